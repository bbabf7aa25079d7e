package supply

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	transfercore "tako.dev/tako/internal/transfer/core"
)

const (
	// fetchesMax is how many are fetched at once: a server serves hosts meanwhile.
	fetchesMax = 4
	// wantsMax bounds what is known to be wanted: far above what configs name anew at once.
	wantsMax = 1000
	// wantFor is how long an object is remembered that nobody asks for any more: twice the longest pause of a host.
	wantFor = 10 * time.Minute
	// sureFor is how long a bundle counts as named by a config after a layer has asked for it: by then the caches of this server have that config.
	sureFor = time.Minute
	// again is when who asked is to ask again while it is on its way.
	again = time.Second
)

// Kind is what is wanted.
type Kind uint8

// The kinds.
const (
	Object Kind = iota
	Bundle
)

func (k Kind) String() string {
	if k == Bundle {
		return "bundle"
	}
	return "object"
}

// missing is that it is on no server.
func (k Kind) missing() reason.Code {
	if k == Bundle {
		return reason.BundleMissing
	}
	return reason.ObjectMissing
}

// cure is what helps then.
func (k Kind) cure() string {
	if k == Bundle {
		return "put it there: tako bundle push DIR"
	}
	return "put it there: tako content put FILE"
}

// item is one thing that is wanted.
type item struct {
	kind   Kind
	digest content.Digest
}

func (i item) String() string { return i.kind.String() + " " + i.digest.String() }

func compareItems(a, b item) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), slices.Compare(a.digest[:], b.digest[:]))
}

// core decides what is fetched from whom. It knows nothing of where the things are here.
type core struct{ wants map[item]*want }

// want is one item that is wanted, in rounds: each known server is asked once in one.
type want struct {
	asked   time.Time        // when it was asked for last
	since   time.Time        // when it became due: who is due for longest comes first
	due     bool             // it was asked for, and the round has not ended since
	from    string           // the server that is asked now; empty: none
	tried   map[string]error // in this round: what has come of it, by server
	after   time.Time        // of the next round
	backoff transfercore.Backoff
	said    string // what was told of the round before
}

// lasting says whether it is wanted without being asked for again.
func (i item) lasting() bool { return i.kind == Bundle }

// fetch is what to do: ask a server for something.
type fetch struct {
	item
	server string
	// doubt says that it was asked for long ago: it may be that nothing names it any more.
	doubt bool
}

// ask notes that something is wanted, and says how that stands: ObjectComing, the missing of its kind, what keeps this server from storing it,
// or TransferBusy.
func (c *core) ask(i item, now time.Time, servers []string) error {
	w := c.wants[i]
	if w == nil {
		if len(c.wants) >= wantsMax && !c.forgetOne() {
			return &reason.Error{Code: reason.TransferBusy, Doing: "fetch " + i.String(), Cause: errors.New("too much else is wanted"), After: again}
		}
		w = &want{since: now, tried: map[string]error{}}
		c.wants[i] = w
	}
	w.asked = now
	if !w.over(now, servers) {
		if !w.due {
			w.due, w.since = true, now
		}
		return &reason.Error{Code: reason.ObjectComing, Doing: "fetch " + i.String(), Cause: errors.New("another server is asked for it"), After: again}
	}
	return w.verdict(i, servers)
}

// over says whether all that can be asked were asked, and it is not time yet to ask them again.
func (w *want) over(now time.Time, servers []string) bool {
	if len(servers) == 0 {
		return true
	}
	return w.from == "" && now.Before(w.after) && w.untried(0, servers) == ""
}

// untried is a server that was not asked in this round; empty when there is none. Where to begin differs, so that not all ask one server.
func (w *want) untried(begin int, servers []string) string {
	for n := range servers {
		if server := servers[(begin+n)%len(servers)]; w.tried[server] == nil {
			return server
		}
	}
	return ""
}

// verdict is why it is not here after a round. That this server cannot store it comes before what the others say.
func (w *want) verdict(i item, servers []string) error {
	told := make([]string, 0, len(servers))
	for _, server := range servers {
		err := w.tried[server]
		switch {
		case err == nil:
			continue
		case reason.Is(err, reason.ObjectUnstored):
			return err
		case reason.Is(err, i.kind.missing()):
			told = append(told, server+" does not have it")
		default:
			told = append(told, server+": "+reason.Of(err).Error())
		}
	}
	why := "no other server is known"
	if len(told) > 0 {
		why = "nor have the others: " + strings.Join(told[:min(len(told), toldMax)], "; ")
	}
	return &reason.Error{Code: i.kind.missing(), Doing: "fetch " + i.String(), Cause: fmt.Errorf("this server does not have it, and %s", why), Hint: i.kind.cure()}
}

// toldMax is of how many servers it is told what they said.
const toldMax = 5

// forgetOne makes room: of objects that are not on their way the one goes that was asked for the longest ago.
func (c *core) forgetOne() bool {
	var oldest item
	found := false
	for i, w := range c.wants {
		if i.lasting() || w.from != "" {
			continue
		}
		if !found || cmp.Or(w.asked.Compare(c.wants[oldest].asked), compareItems(i, oldest)) < 0 {
			oldest, found = i, true
		}
	}
	delete(c.wants, oldest)
	return found
}

// next says what to fetch now, and when to look again; the zero time is when something is asked for, a fetch ends, or there are other servers.
func (c *core) next(now time.Time, servers []string) (todo []fetch, wake time.Time) {
	running := 0
	var waiting []item
	for i, w := range c.wants {
		switch {
		case w.from != "":
			running++
		case w.due || i.lasting():
			waiting = append(waiting, i)
		case now.Sub(w.asked) > wantFor:
			delete(c.wants, i)
		}
	}
	slices.SortFunc(waiting, func(a, b item) int { return cmp.Or(c.wants[a].since.Compare(c.wants[b].since), compareItems(a, b)) })
	for _, i := range waiting {
		w := c.wants[i]
		if len(servers) == 0 {
			continue
		}
		server := w.untried(int(i.digest[0]), servers)
		if server == "" && now.Before(w.after) {
			if wake.IsZero() || w.after.Before(wake) {
				wake = w.after
			}
			continue
		}
		if running == fetchesMax {
			continue // a fetch that ends is looked after
		}
		if server == "" {
			clear(w.tried)
			server = w.untried(int(i.digest[0]), servers)
		}
		running++
		w.from = server
		todo = append(todo, fetch{item: i, server: server, doubt: i.lasting() && now.Sub(w.asked) > sureFor})
	}
	return todo, wake
}

// ended notes what has come of a fetch. verdict is why it is not here, when with that the round has ended, and that is another reason than before.
func (c *core) ended(f fetch, err error, now time.Time, servers []string, random *rand.Rand) (verdict error) {
	w := c.wants[f.item]
	if w == nil {
		return nil
	}
	if err == nil {
		delete(c.wants, f.item)
		return nil
	}
	w.from, w.tried[f.server] = "", err
	if w.untried(0, servers) != "" {
		return nil
	}
	w.after = now.Add(w.backoff.Next(random))
	w.due, w.since = false, w.after
	verdict = w.verdict(f.item, servers)
	if text := verdict.Error(); text != w.said {
		w.said = text
		return verdict
	}
	return nil
}

// drop forgets something that nothing names any more.
func (c *core) drop(i item) { delete(c.wants, i) }
