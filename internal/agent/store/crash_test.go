package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// model is what a journal must come to, kept as simply as possible: a list of what happened, read from the start for each
// question.
type model []step

type stepKind int

const (
	noteStep stepKind = iota
	clearStep
	confirmStep
	spendStep
	unspendStep
	removeStep
	removedStep
	originalStep
	dropStep
)

type step struct {
	kind   stepKind
	key    converge.Key // target, source or owner
	source converge.Key
	seq    uint64
	at     uint64
	text   string
}

// tell says what the steps come to, for a process that starts at openUSec, in the words of observe.
func (m model) tell() string {
	type note struct {
		step
		visible bool
	}
	var notes []note
	budgets, originals := map[converge.Key]string{}, map[converge.Key]string{}
	var removals []string
	gone := func(id string) {
		removals = slices.DeleteFunc(removals, func(r string) bool { return r == id })
	}
	for _, s := range m {
		switch s.kind {
		case noteStep:
			notes = append(notes, note{s, false})
		case clearStep:
			notes = slices.DeleteFunc(notes, func(n note) bool { return n.seq == s.seq && n.key == s.key })
		case confirmStep:
			for i := range notes {
				if notes[i].source == s.key && !notes[i].visible {
					notes[i].visible, notes[i].at = true, s.at
				}
			}
		case spendStep:
			budgets[s.key] = s.text
		case unspendStep:
			delete(budgets, s.key)
		case removeStep:
			gone(s.text)
			removals = append(removals, s.text)
		case removedStep:
			gone(s.text)
		case originalStep:
			originals[s.key] = s.text
		case dropStep:
			delete(originals, s.key)
		}
	}
	slices.SortFunc(notes, func(a, b note) int { return int(a.seq) - int(b.seq) })
	var b strings.Builder
	last := map[converge.Key]uint64{}
	for _, n := range notes {
		at := n.at
		if !n.visible {
			at = openUSec
		}
		last[n.key] = max(last[n.key], at)
		fmt.Fprintf(&b, "owed %d %s %s since %d\n", n.seq, n.key, n.source, last[n.key])
	}
	for _, k := range modelKeys {
		fmt.Fprintf(&b, "%s: budget %q original %q\n", k, budgets[k], originals[k])
	}
	fmt.Fprintln(&b, removals)
	return b.String()
}

// openUSec is when the process that finds the journal starts; everything before it was earlier.
const openUSec = 1_000_000

var modelKeys = []converge.Key{"path:/a", "path:/b", "unit:c.service"}

// observe says what a store knows.
func observe(s *Store) string {
	var b strings.Builder
	pending, budgets := s.Resume(noon)
	for _, p := range pending {
		fmt.Fprintf(&b, "owed %d %s %s since %d\n", p.Seq, p.Target, p.Source, s.Since(p.Target, p.Seq).USec)
	}
	for _, k := range modelKeys {
		budget := ""
		if v, ok := budgets[k]; ok {
			budget = fmt.Sprint(v.Attempts, v.Holds, v.Wait, v.Digest[0])
		}
		original, _ := s.Original(k)
		fmt.Fprintf(&b, "%s: budget %q original %q\n", k, budget, original)
	}
	var removals []string
	pendingRemovals, err := s.Removals()
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, r := range pendingRemovals {
		removals = append(removals, r.Claim.ID)
	}
	fmt.Fprintln(&b, removals)
	return b.String()
}

// drawOp draws something that a driver does, does it, and returns its steps in the order in which they are written.
func drawOp(t *rapid.T, s *Store, seq *uint64, clock *uint64) []step {
	*clock++
	k := rapid.SampledFrom(modelKeys).Draw(t, "key")
	text := fmt.Sprintf("/%d", rapid.IntRange(0, 3).Draw(t, "text"))
	var steps []step
	var err error
	switch kind := stepKind(rapid.IntRange(int(noteStep), int(dropStep)).Draw(t, "op")); kind {
	case noteStep, clearStep, spendStep, unspendStep:
		var recs []converge.Record
		for range rapid.IntRange(1, 3).Draw(t, "records") {
			r, st := drawRecord(t, seq, *clock)
			recs, steps = append(recs, r), append(steps, st)
		}
		err = s.Record(recs, noon, moment(*clock))
	case confirmStep:
		err = s.Confirm(k, moment(*clock))
		steps = []step{{kind: kind, key: k, at: *clock}}
	case removeStep:
		var rs []Removal
		for _, id := range []string{text, text + "/sub"} {
			rs = append(rs, Removal{Claim: path(id), Body: []byte(id)})
			steps = append(steps, step{kind: kind, text: id})
		}
		err = s.AddRemovals(rs)
	case removedStep:
		err = s.RemovalDone(path(text))
		steps = []step{{kind: kind, text: text}}
	case originalStep:
		err = s.SetOriginal(k, []byte(text))
		steps = []step{{kind: kind, key: k, text: text}}
	case dropStep:
		err = s.DropOriginal(k)
		steps = []step{{kind: kind, key: k}}
	}
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func drawRecord(t *rapid.T, seq *uint64, clock uint64) (converge.Record, step) {
	target := rapid.SampledFrom(modelKeys).Draw(t, "target")
	switch rapid.IntRange(0, 3).Draw(t, "record") {
	case 0:
		*seq++
		source := rapid.SampledFrom(modelKeys).Draw(t, "source")
		return added(*seq, target, source), step{kind: noteStep, key: target, source: source, seq: *seq, at: clock}
	case 1:
		old := rapid.Uint64Range(1, max(*seq, 1)).Draw(t, "seq")
		return cleared(old, target), step{kind: clearStep, key: target, seq: old}
	case 2:
		n := rapid.IntRange(0, 9).Draw(t, "n")
		b := converge.Budget{Digest: converge.Digest{byte(n)}, Attempts: n, Holds: n / 2, Wait: time.Duration(n) * time.Second}
		return converge.Record{Kind: converge.BudgetSpent, Target: target, Budget: b},
			step{kind: spendStep, key: target, text: fmt.Sprint(b.Attempts, b.Holds, b.Wait, n)}
	}
	return converge.Record{Kind: converge.BudgetCleared, Target: target}, step{kind: unspendStep, key: target}
}

// scratch makes a directory for one round of a property.
func scratch(t *rapid.T) string {
	dir, err := os.MkdirTemp("", "tako-journal-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func openRound(t *rapid.T, dir string, at uint64) *Store {
	s, err := openAt(dir, noon, moment(at))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// boundary is where the file ended when so many steps had been made.
type boundary struct {
	end   int64
	steps int
}

// inLength reports whether a byte of a file is in the length of one of its frames.
func inLength(file []byte, at int) bool {
	for begin := int64(len(header(journalName))); begin < int64(len(file)); begin += frameLen(file[begin:]) {
		if off := int64(at) - begin; off >= 0 && off < frameHead/2 {
			return true
		}
	}
	return false
}

// TestJournalAfterACrash cuts a journal at any byte, or flips any bit of it. What was written before must survive, nothing
// may be invented, and what comes after a flipped bit is either all there or all gone. Only a frame whose length is damaged may take those
// with it that lie behind it: it ends where it says.
func TestJournalAfterACrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir := scratch(t)
		s := openRound(t, dir, 0)
		var steps model
		var seq, clock uint64
		bounds := []boundary{{0, 0}, {s.journal.size, 0}}
		for range rapid.IntRange(1, 15).Draw(t, "ops") {
			before := s.journal.size
			drawn := drawOp(t, s, &seq, &clock)
			if s.journal.size == before {
				drawn = nil // there was nothing to note, and would not be either if something else had been lost
			}
			steps = append(steps, drawn...)
			bounds = append(bounds, boundary{s.journal.size, len(steps)})
		}
		file, err := os.ReadFile(s.path(journalName))
		if err != nil || s.Close() != nil {
			t.Fatal("no journal", err)
		}
		at := rapid.IntRange(0, len(file)-1).Draw(t, "byte")
		after := slices.IndexFunc(bounds, func(b boundary) bool { return b.end > int64(at) })
		low, high := bounds[after-1].steps, bounds[after].steps
		want := map[string]bool{}
		for n := low; n <= high; n++ {
			want[steps[:n].tell()] = true
		}
		flip := rapid.Bool().Draw(t, "flip")
		if flip {
			for n := low; n < high; n++ {
				want[slices.Delete(slices.Clone(steps), n, n+1).tell()] = true
				for last := n + 2; last <= len(steps) && inLength(file, at); last++ {
					want[slices.Delete(slices.Clone(steps), n, last).tell()] = true
				}
			}
			file[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		} else {
			file = file[:at]
		}
		crashed := scratch(t)
		if err := os.WriteFile(filepath.Join(crashed, journalName), file, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err = openAt(crashed, noon, moment(openUSec))
		if flip && reason.Is(err, reason.StateNewer) && int64(at) < bounds[1].end {
			return // the flipped bit made a later version of it
		}
		if err != nil {
			t.Fatal(err)
		}
		got := observe(s)
		if !want[got] {
			t.Fatalf("after the crash:\n%s\nall steps: %+v\nof which %d to %d are hit", got, steps, low, high)
		}
		whole := int64(at) == bounds[after-1].end && !flip && at > 0
		if told := len(s.Troubles()) > 0; told && whole || !told && flip {
			t.Fatalf("byte %d, flipped %v, of %v: troubles %v", at, flip, bounds, s.Troubles())
		}
		// It was settled for good: another start finds the same, and nothing to complain of.
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openRound(t, crashed, 2*openUSec)
		defer s.Close()
		if again := observe(s); again != got || len(s.Troubles()) > 0 {
			t.Fatalf("at the next start:\n%s\nfirst:\n%s\ntroubles %v", again, got, s.Troubles())
		}
	})
}

// TestJournalWithoutACrash compares with the model over restarts and compactions.
func TestJournalWithoutACrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir := scratch(t)
		s := openRound(t, dir, openUSec)
		var steps model
		var seq, clock uint64
		for range rapid.IntRange(1, 20).Draw(t, "ops") {
			steps = append(steps, drawOp(t, s, &seq, &clock)...)
			s.journal.limit = int64(rapid.SampledFrom([]int{0, journalMin}).Draw(t, "limit"))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openRound(t, dir, openUSec)
		defer s.Close()
		if got, want := observe(s), steps.tell(); got != want || len(s.Troubles()) > 0 {
			t.Fatalf("got:\n%s\nwant:\n%s\ntroubles %v", got, want, s.Troubles())
		}
	})
}
