package pace

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/declare"
)

// Phase says how a rollout stands.
type Phase string

// The phases that every rollout has.
const (
	Empty    Phase = "Empty"    // nobody is to have anything
	Complete Phase = "Complete" // everybody has the target, or had when it was proven
	Rolling  Phase = "Rolling"  // some are on the way, or next
	Waiting  Phase = "Waiting"  // for something that does not come by itself
	Halted   Phase = "Halted"   // by failures
	Paused   Phase = "Paused"   // by people

	Monitoring  Phase = "Monitoring"  // everybody has the target, and failures still count
	RollingBack Phase = "RollingBack" // the target has failed, and what has worked before takes its place
	RolledBack  Phase = "RolledBack"  // it has
)

// CulpritsMax bounds those that a status tells by name: ours, a list is for a person to begin with.
const CulpritsMax = 10

// Rounding is to which side the rest of a percentage falls.
type Rounding bool

// The roundings.
const (
	Down Rounding = false
	Up   Rounding = true
)

// Share is how many an IntOrPercent means of so many. A text that is no number means nobody: validation lets none through.
func Share(text declare.IntOrPercent, of int, round Rounding) int {
	digits, percent := strings.CutSuffix(string(text), "%")
	n, err := strconv.Atoi(digits)
	switch {
	case err != nil || n < 0:
		return 0
	case !percent:
		return n
	case round == Up:
		return (n*of + 99) / 100
	}
	return n * of / 100
}

// Proportion deals out a number by the sizes of parts. What is left over by rounding goes to the largest, the first of them where several
// are. Nothing is dealt out where all are empty.
func Proportion(number int, parts []int) []int {
	dealt, sum := make([]int, len(parts)), 0
	for _, p := range parts {
		sum += p
	}
	if sum == 0 {
		return dealt
	}
	largest, left := 0, number
	for i, p := range parts {
		dealt[i] = number * p / sum
		left -= dealt[i]
		if p > parts[largest] {
			largest = i
		}
	}
	dealt[largest] += left
	return dealt
}

// Place is a member's place in the order of a rollout.
type Place struct {
	Wave int
	hash [sha256.Size]byte
	name string
}

// PlaceOf is the place of one member of what is rolled out under a subject: the same each time, and another for another subject, so
// that it is not always one member that everything is tried on first.
func PlaceOf(subject, name string, wave int) Place {
	return Place{wave, sha256.Sum256([]byte(subject + "\x00" + name)), name}
}

// Compare orders places.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Wave, q.Wave), bytes.Compare(p.hash[:], q.hash[:]), cmp.Compare(p.name, q.name))
}

// Member is one of those that waves are made of.
type Member struct {
	Labels map[string]string
	Rank   int // where a wave does not take all, those of the lowest rank are taken first
}

// Deal says which wave each member is in, of members in their order; those in none are in the one behind all, whose index is the number of waves. A wave
// takes members that no earlier one has taken, until there are as many as it says of all that its selector matches in it and in the ones before.
func Deal(waves []declare.Wave, members []Member) []int {
	in, byRank := make([]int, len(members)), make([]int, len(members))
	for i := range members {
		in[i], byRank[i] = len(waves), i
	}
	if len(waves) == 0 {
		return in
	}
	slices.SortStableFunc(byRank, func(a, b int) int { return cmp.Compare(members[a].Rank, members[b].Rank) })
	for at := range waves {
		wave := &waves[at]
		var free []int
		matching := 0
		for _, i := range byRank {
			if !wave.Matches(members[i].Labels) {
				continue
			}
			matching++
			if in[i] == len(waves) {
				free = append(free, i)
			}
		}
		taken := matching - len(free)
		room := Share(wave.NodesOrDefault(), matching, Up) - taken
		for _, i := range free[:min(max(room, 0), len(free))] {
			in[i] = at
		}
	}
	return in
}

// Wave counts the members of a wave, or of a step.
type Wave struct {
	Members   int
	Converged int // have the target, and it works
	Coming    int // from whom something is to come yet
}

// Over reports whether the next one may begin: nothing more is to come, and at least one has converged, for a wave in which nobody
// answers has proved nothing. One without members is over.
func (w Wave) Over() bool { return w.Coming == 0 && (w.Members == 0 || w.Converged > 0) }

// Begun is the last wave that has begun, by its index; all of them being over, it is their number.
func Begun(waves []Wave) int {
	for i, w := range waves {
		if !w.Over() {
			return i
		}
	}
	return len(waves)
}

// Reached reports whether so many failures end a rollout. The first always may.
func Reached(failed, enough int) bool { return failed >= max(enough, 1) }

// Proven is what has worked everywhere at once, and since when that is known. The zero Proven is that of what never has.
type Proven[T comparable] struct {
	Of T
	At time.Time
}

// Settled reports whether it was known when this was proven what became of it on a member that has had something since a moment. What
// goes wrong there afterwards is that member's own affair, and does not hold up those that come later.
func (p Proven[T]) Settled(has T, since time.Time) bool { return has == p.Of && !since.After(p.At) }

// Deadline is when waiting since the latest of several moments has been too long.
func Deadline(limit time.Duration, since ...time.Time) time.Time {
	var latest time.Time
	for _, t := range since {
		if t.After(latest) {
			latest = t
		}
	}
	return latest.Add(limit)
}

// Alarm finds the next moment at which time alone changes something.
type Alarm struct {
	Now time.Time
	At  time.Time // the earliest that is to come; zero: none
}

// Passed reports whether a moment is over; when not, it is one to wake up at.
func (a *Alarm) Passed(t time.Time) bool {
	if !t.After(a.Now) {
		return true
	}
	if a.At.IsZero() || t.Before(a.At) {
		a.At = t
	}
	return false
}
