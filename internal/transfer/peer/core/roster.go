package core

import (
	"math/rand/v2"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
)

const (
	// SilentFor is how long a host has been without a server before it asks its peers: a server that is replaced is back by then. It is
	// what keeps a host from going to and fro, too: a server that comes and goes is not left for them.
	SilentFor = time.Minute
	// RoundMax is how many are asked in one round.
	RoundMax = 3
	// pauseMin and pauseMax are the bounds of the pause between two rounds: a change is with all hosts some minutes after it is with
	// one, and an answer costs less than a millisecond.
	pauseMin, pauseMax = 10 * time.Second, 30 * time.Second
	// restMin and restMax are how long one is left alone that could not be reached: twice as long each time.
	restMin, restMax = 30 * time.Second, 10 * time.Minute
	// liedFor is how long one is left alone that has lied: as for a server.
	liedFor = 10 * time.Minute
)

// Pause draws how long to wait for the next round: many hosts have lost one server at the same time.
func Pause(random *rand.Rand) time.Duration {
	return pauseMin + time.Duration(random.Int64N(int64(pauseMax-pauseMin)+1))
}

// Roster is the peers of a host with what is known of them. The zero value has none. It is not safe for concurrent use.
type Roster struct {
	seats []seat // in the order of the list
	turn  int    // whose turn it is
}

// seat is one peer.
type seat struct {
	catalog.Peer
	rests  time.Time // it is not asked before
	lied   time.Time // the same, because it has lied
	misses uint      // times in a row that it could not be reached
	news   time.Time // when it had something new last
	heard  time.Time // when it has answered last
}

// Set replaces the list. What is known of those who stay goes on; who is found somewhere else now begins anew, unless it has lied.
func (r *Roster) Set(list []catalog.Peer) {
	seats := make([]seat, 0, min(len(list), catalog.PeersMax))
	for _, p := range list[:min(len(list), catalog.PeersMax)] {
		next := seat{Peer: p}
		if at := r.of(p.UID); at >= 0 {
			was := r.seats[at]
			if next = was; was.Address != p.Address {
				next = seat{rests: was.lied, lied: was.lied}
			}
			next.Peer = p
		}
		seats = append(seats, next)
	}
	r.seats = seats
	if r.turn >= len(seats) {
		r.turn = 0
	}
}

// Len is how many there are.
func (r *Roster) Len() int { return len(r.seats) }

// of finds one; -1 where there is none.
func (r *Roster) of(uid string) int {
	return slices.IndexFunc(r.seats, func(s seat) bool { return s.UID == uid })
}

// Round says whom to ask now: at most RoundMax, of those that do not rest.
func (r *Roster) Round(now time.Time, random *rand.Rand) []catalog.Peer {
	var awake []int
	for i := range r.seats {
		if at := (r.turn + i) % len(r.seats); !now.Before(r.seats[at].rests) {
			awake = append(awake, at)
		}
	}
	if len(awake) == 0 {
		return r.first(now)
	}
	r.turn = (awake[0] + 1) % len(r.seats)
	rest := awake[1:]
	random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	var round []catalog.Peer
	for _, at := range awake[:min(len(awake), RoundMax)] {
		round = append(round, r.seats[at].Peer)
	}
	return round
}

// first is the one whose rest ends first, where all rest: most likely it is this host that reached nobody, and one answer tells that it does
// again. Nobody is asked who has lied.
func (r *Roster) first(now time.Time) []catalog.Peer {
	best := -1
	for i, s := range r.seats {
		if s.misses > 0 && !now.Before(s.lied) && (best < 0 || s.rests.Before(r.seats[best].rests)) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	return []catalog.Peer{r.seats[best].Peer}
}

// Sources says whom to ask for what is signed: first who has told of it last, then who has answered last, at most RoundMax.
func (r *Roster) Sources(now time.Time) []catalog.Peer {
	var awake []seat
	for _, s := range r.seats {
		if !s.heard.IsZero() && !now.Before(s.rests) {
			awake = append(awake, s)
		}
	}
	slices.SortStableFunc(awake, func(a, b seat) int {
		if c := b.news.Compare(a.news); c != 0 {
			return c
		}
		return b.heard.Compare(a.heard)
	})
	var list []catalog.Peer
	for _, s := range awake[:min(len(awake), RoundMax)] {
		list = append(list, s.Peer)
	}
	return list
}

// Answered notes that one has answered, with something new or without.
func (r *Roster) Answered(uid string, news bool, now time.Time) {
	at := r.of(uid)
	if at < 0 {
		return
	}
	if r.cutOff(now) {
		for i := range r.seats { // it was this host
			r.seats[i].misses, r.seats[i].rests = 0, r.seats[i].lied
		}
	}
	s := &r.seats[at]
	s.misses, s.heard = 0, now
	if news {
		s.news = now
	}
}

// cutOff tells whether nobody could be reached last, but those who are left alone because they have lied.
func (r *Roster) cutOff(now time.Time) bool {
	return !slices.ContainsFunc(r.seats, func(s seat) bool { return s.misses == 0 && !now.Before(s.lied) })
}

// Missed notes that one could not be reached, or does not want to be asked again for a while, which may be zero.
func (r *Roster) Missed(uid string, after time.Duration, now time.Time) {
	at := r.of(uid)
	if at < 0 {
		return
	}
	s := &r.seats[at]
	rest := min(restMin<<min(s.misses, 16), restMax)
	s.misses++
	s.rest(now.Add(max(rest, min(after, restMax))))
}

// Busy notes that one answers, and cannot serve for a moment: it is not asked meanwhile, and nothing is held against it.
func (r *Roster) Busy(uid string, after time.Duration, now time.Time) {
	if at := r.of(uid); at >= 0 {
		r.seats[at].rest(now.Add(min(after, restMax)))
	}
}

// Lacks notes that one does not have what was asked for: others are asked first, until it has answered once more.
func (r *Roster) Lacks(uid string) {
	if at := r.of(uid); at >= 0 {
		r.seats[at].misses, r.seats[at].heard, r.seats[at].news = 0, time.Time{}, time.Time{}
	}
}

// Lied notes that one has sent what is not signed, or not what was asked for.
func (r *Roster) Lied(uid string, now time.Time) {
	if at := r.of(uid); at >= 0 {
		s := &r.seats[at]
		s.lied, s.news = now.Add(liedFor), time.Time{}
		s.rest(s.lied)
	}
}

// rest leaves a peer alone until then, and not less long than it was.
func (s *seat) rest(until time.Time) {
	if until.After(s.rests) {
		s.rests = until
	}
}
