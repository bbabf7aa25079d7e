// Package fetch brings over the objects that resources of a host are made of, when they are asked for (content.Objects).
//
//	news -> for each that is wanted: ask one server after the other for what is missing of it, and append that to its part
//	     -> all of it: verify, and make it an object; the resource that waits for it finds it at its next try
//	     -> not all of it: pause, longer each time nothing came, and go on where it was
//
// It has connections of its own, only while something is fetched; when nothing is wanted it waits for news and nothing else. It shows the
// head that was accepted last, from the agent's state on the disk, so it shares nothing with the transfer but the files.
//
// Run owns all goroutines: one, and what a fetch needs for its time.
package fetch

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
)

const (
	// pauseMin and pauseMax are between two attempts for one object that bring nothing.
	pauseMin = 2 * time.Second
	pauseMax = 5 * time.Minute
	// syncEvery is after how many bytes what has come is made durable, so that a power cut costs no more.
	syncEvery = 16 << 20
	// fetchMax is how long one attempt may go on: a gigabyte over a line of 300 kB/s. It is taken up again where it was.
	fetchMax = time.Hour
)

// Options are what a Fetcher needs. All but Dial are required.
type Options struct {
	Objects *content.Objects
	// Identity reads who the host is, and Head what head it has accepted last, at each attempt.
	Identity func() (client.Identity, error)
	Head     func() ([]byte, error)
	Log      *slog.Logger
	Dial     client.Dial // default: TCP
}

// Fetcher brings objects over. Use New, then Run once.
type Fetcher struct {
	opts  Options
	tries map[content.Digest]*try // of Run's goroutine
}

// try is how an object has fared that did not come.
type try struct {
	pause time.Duration
	at    time.Time // of the next attempt
}

// New checks the options, and starts nothing.
func New(o Options) (*Fetcher, error) {
	if o.Objects == nil || o.Identity == nil || o.Head == nil || o.Log == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "make a fetcher of objects", Cause: errors.New("a part is missing")}
	}
	return &Fetcher{opts: o, tries: map[content.Digest]*try{}}, nil
}

// Run fetches what is wanted until the context ends.
func (f *Fetcher) Run(ctx context.Context) {
	news := f.opts.Objects.Fetched()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Stop()
		if next, some := f.round(ctx); some {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-news:
		case <-timer.C:
		}
	}
}

// round tries all that is due, and says when the next is; false where nothing is wanted.
func (f *Fetcher) round(ctx context.Context) (next time.Time, some bool) {
	wanted := f.opts.Objects.Wanted()
	slices.SortFunc(wanted, func(a, b content.Wanted) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), slices.Compare(a.Digest[:], b.Digest[:]))
	})
	known := make(map[content.Digest]bool, len(wanted))
	for _, w := range wanted {
		known[w.Digest] = true
		t := f.tries[w.Digest]
		if t == nil {
			t = &try{pause: pauseMin}
			f.tries[w.Digest] = t
		}
		if !time.Now().Before(t.at) && ctx.Err() == nil {
			f.attempt(ctx, w, t)
		}
		if f.tries[w.Digest] != nil && (!some || t.at.Before(next)) {
			next, some = t.at, true
		}
	}
	for d := range f.tries {
		if !known[d] {
			delete(f.tries, d)
		}
	}
	return next, some
}

// attempt tries to get an object once, from one server after the other.
func (f *Fetcher) attempt(ctx context.Context, w content.Wanted, t *try) {
	came, err := f.get(ctx, w)
	if err == nil {
		delete(f.tries, w.Digest)
		f.opts.Log.Info("an object has come", "digest", w.Digest.String(), "bytes", w.Size)
		return
	}
	if ctx.Err() != nil {
		return
	}
	if came {
		t.pause = pauseMin
	}
	// Spread, so that many hosts do not come back at once.
	pause := max(t.pause/2+rand.N(t.pause/2+1), client.PauseOf(err))
	t.at, t.pause = time.Now().Add(pause), min(2*t.pause, pauseMax)
	f.opts.Log.Info("fetch an object", "digest", w.Digest.String(), "err", err, "again", pause)
	f.opts.Objects.Failed(w.Digest, reason.Of(err), pause)
}

// get brings over what is missing of an object; came says that some of it did.
func (f *Fetcher) get(ctx context.Context, w content.Wanted) (came bool, err error) {
	if err := f.opts.Objects.Room(w); err != nil {
		return false, err
	}
	identity, err := f.opts.Identity()
	if err != nil {
		return false, err
	}
	head, err := f.opts.Head()
	if err != nil {
		return false, err
	}
	for _, address := range identity.Servers() {
		some, fetchErr := f.from(ctx, identity, address, head, w)
		came = came || some
		if fetchErr == nil {
			return true, f.opts.Objects.Add(ctx, w)
		}
		if err == nil || !reason.Is(fetchErr, reason.ServerUnreachable) {
			err = fetchErr // what a server says about the object is worth more than that another one does not answer
		}
	}
	return came, err
}

// from asks one server for the rest of an object.
func (f *Fetcher) from(ctx context.Context, identity client.Identity, address string, head []byte, w content.Wanted) (came bool, err error) {
	part, at, err := f.opts.Objects.Part(w.Digest)
	if err != nil {
		return false, err
	}
	defer part.Close()
	if at > w.Size {
		return false, errors.Join(&reason.Error{Code: reason.ContentMismatch, Doing: "fetch object " + w.Digest.String(), Cause: errors.New("more has come than there is")}, f.opts.Objects.Discard(w.Digest))
	}
	if at == w.Size && at > 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchMax)
	defer cancel()
	out := &durably{file: part}
	err = client.FetchObject(ctx, f.opts.Dial, identity, address, client.ObjectRequest{Digest: w.Digest, Size: w.Size, From: at, Key: catalog.KeyOf(w.Claim), Head: head}, out)
	return out.written > 0, err
}

// durably makes what it writes durable now and then.
type durably struct {
	file    *os.File
	written int64
	synced  int64
}

var _ io.Writer = (*durably)(nil)

func (d *durably) Write(p []byte) (int, error) {
	n, err := d.file.Write(p)
	d.written += int64(n)
	if err == nil && d.written-d.synced >= syncEvery {
		err, d.synced = disk.Sync(d.file), d.written
	}
	if err != nil {
		err = &reason.Error{Code: reason.ObjectUnstored, Doing: "store an object", Cause: err}
	}
	return n, err
}
