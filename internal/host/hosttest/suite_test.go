package hosttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// flawVariable makes TestFlawed run the suite on a type with that flaw.
const flawVariable = "TAKO_HOSTTEST_FLAW"

// shelf is a type whose resources are texts on a shelf in memory. It can have a flaw.
type shelf struct {
	texts  map[string]string
	writes int // every write leaves a trace, also one that changes nothing
	flaw   string
}

type book struct {
	name, text string
	seen       string
}

type turn struct{ from, to string }

func (*book) Watches() []host.Watch { return []host.Watch{{Kind: host.WatchPath, Name: "shelf"}} }

func (s *shelf) put(name, text string) {
	s.writes++
	s.texts[name] = text
}

func (s *shelf) remove(name string) {
	s.writes++
	delete(s.texts, name)
}

func (s *shelf) Lane() converge.Lane { return converge.Lane{Name: "shelf", Parallel: 1, Batch: 10} }

func (s *shelf) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	return &book{name: d.Resource.File.Path, text: d.Resource.File.Content}, nil
}

func (s *shelf) Check(_ context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	for i, r := range rs {
		b := r.(*book)
		plans[i].Resource = r
		if s.flaw == "check writes" {
			s.put(b.name, s.texts[b.name])
		}
		have := s.texts[b.name]
		if have == b.text {
			plans[i].Recognised = depth == host.Shallow && b.seen == have && s.flaw != "does not remember"
			continue
		}
		change := host.Change{Field: "text", From: have, To: b.text}
		if s.flaw == "plan lies" {
			change.To = "something"
		}
		if s.flaw == "depths differ" && depth == host.Explain {
			change.From = ""
		}
		plans[i].Changes = []host.Change{change}
		plans[i].State = turn{have, b.text}
	}
	return plans
}

func (s *shelf) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	for i, p := range plans {
		b, t := p.Resource.(*book), p.State.(turn)
		switch {
		case ctx.Err() != nil && s.flaw != "ignores its context":
			results[i].Err = &reason.Error{Code: reason.Interrupted, Doing: "put " + b.name}
		case s.texts[b.name] != t.from && s.flaw != "ignores an edit":
			results[i].Err = &reason.Error{Code: reason.ConcurrentEdit, Doing: "put " + b.name}
		case s.flaw == "error without a code":
			results[i].Err = fmt.Errorf("no")
		default:
			to := t.to
			if s.flaw == "applies half" {
				to = to[1:]
			}
			s.put(b.name, to)
			b.seen = t.to
			results[i].Changed = true
			if s.flaw == "tells a secret" {
				results[i].Note = "put " + b.text
			}
		}
	}
	return results
}

func (s *shelf) Original(_ context.Context, r host.Resource) ([]byte, error) {
	return []byte(s.texts[r.(*book).name]), nil
}

func (s *shelf) Remove(_ context.Context, r host.Resource, how declare.OnRemove, original []byte) error {
	b := r.(*book)
	if s.flaw == "removes once" && s.texts[b.name] == "" {
		return &reason.Error{Code: reason.ResourceUnknown, Doing: "remove " + b.name}
	}
	if how == declare.OnRemoveRestore && len(original) > 0 && s.flaw != "does not restore" {
		s.put(b.name, string(original))
	} else {
		s.remove(b.name)
	}
	return nil
}

func subject(flaw string) Subject {
	s := &shelf{texts: map[string]string{}, flaw: flaw}
	names := []string{"a", "b"}
	sub := Subject{
		Type: s, Remembers: true, Gone: []any{"", ""},
		Observe: func(_ testing.TB, i int) any { return s.texts[names[i]] },
		Difference: func(_ int, before, after any) []host.Change {
			return []host.Change{{Field: "text", From: before.(string), To: after.(string)}}
		},
		Snapshot: func(testing.TB) string {
			return fmt.Sprintln(s.writes, slices.Sorted(maps.Keys(s.texts)), s.texts)
		},
		Disturb: func(testing.TB) { s.put("a", "edited"); s.put("b", "edited") },
		Situations: []Situation{
			{"empty", func(testing.TB) { clear(s.texts) }},
			{"other texts", func(testing.TB) { s.put("a", "old"); s.put("b", "older") }},
		},
	}
	if flaw == "tells a secret" {
		sub.Secrets = []string{"text of b"}
		sub.Difference = func(_ int, before, after any) []host.Change { return nil }
	}
	for _, name := range names {
		sub.Declared = append(sub.Declared, host.Declared{Title: "file/" + name,
			Resource: declare.Resource{File: &declare.File{Path: name, Content: "text of " + name}}})
	}
	return sub
}

func TestSoundTypePasses(t *testing.T) { Run(t, subject("")) }

// TestFlawed is run by TestFlawsAreFound, in a process of its own, and fails there.
func TestFlawed(t *testing.T) {
	flaw := os.Getenv(flawVariable)
	if flaw == "" {
		t.Skip("needs a flaw: TestFlawsAreFound runs it with one")
	}
	Run(t, subject(flaw))
}

func TestFlawsAreFound(t *testing.T) {
	for flaw, words := range map[string]string{
		"check writes":         "a check changed something",
		"does not remember":    "just applied, and not recognised",
		"plan lies":            "what was planned, and what was done",
		"depths differ":        "what is explained, and planned",
		"ignores its context":  "applied although its context had ended",
		"ignores an edit":      "changed since its check",
		"error without a code": "an error without a code",
		"applies half":         "what was planned, and what was done",
		"tells a secret":       "a secret is shown",
		"removes once":         "remove (restore)",
		"does not restore":     "after its removal (restore)",
	} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestFlawed$")
		cmd.Env = append(os.Environ(), flawVariable+"="+flaw)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), words) {
			t.Errorf("a type that %q: %v\n%s", flaw, err, out)
		}
	}
}

func TestTreeSeesWrites(t *testing.T) {
	dir := t.TempDir()
	p := dir + "/file"
	for _, text := range []string{"text", "TEXT", "TEXT"} {
		before := Tree(t, dir)
		// The last one writes what is there already, into a file of its own.
		if err := errors.Join(os.WriteFile(p+".new", []byte(text), 0o600), os.Rename(p+".new", p)); err != nil {
			t.Fatal(err)
		}
		after := Tree(t, dir)
		if after == before || differentLines(before, after) == "" {
			t.Errorf("a write of %s was not seen", text)
		}
		if again := Tree(t, dir); again != after {
			t.Errorf("looking changed something:\n%s", differentLines(after, again))
		}
	}
}
