package apt

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/host/packages"
	"tako.dev/tako/internal/reason"
)

const sample = `Package: one
Status: install ok installed
Architecture: amd64
Version: 1:2.0-1
Description: short
 Package: not-a-package
 .
 long

Package: two
Status: deinstall ok config-files
Version: 3

Package: three
Status: install reinstreq half-installed
Version: 4

Package: four
Status: hold ok installed
Version: 5
`

func everything([]byte) bool { return true }

func parsed(t *testing.T, text string) map[string]entry {
	t.Helper()
	got := map[string]entry{}
	if err := parseStatus(strings.NewReader(text), everything, func(s stanza) { got[s.name] = s.entry }); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestParseStatus(t *testing.T) {
	want := map[string]entry{
		"one":   {state: installed, version: "1:2.0-1"},
		"two":   {state: configFiles},
		"three": {state: halfInstalled, broken: true, version: "4"},
		"four":  {state: installed, held: true, version: "5"},
	}
	for name, text := range map[string]string{
		"as it is":            sample,
		"without a last line": strings.TrimSuffix(sample, "\n"),
		"with a long line":    strings.Replace(sample, "short", strings.Repeat("Package: x ", lineMax), 1),
		"with more blanks":    strings.ReplaceAll("\n\n"+sample, "\n\n", "\n\n \n\n"),
	} {
		if got := parsed(t, text); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v\nwant %v", name, got, want)
		}
	}
	for name, text := range map[string]string{
		"unknown state": "Package: a\nStatus: install ok sleeping\n",
		"two words":     "Package: a\nStatus: install ok\n",
		"no name":       "Status: install ok installed\n",
		"no field":      "Package: a\nnonsense\n",
	} {
		if err := parseStatus(strings.NewReader(text), everything, func(stanza) {}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	var others []string
	nobody := func([]byte) bool { return false }
	if err := parseStatus(strings.NewReader(sample), nobody, func(s stanza) { others = append(others, s.name) }); err != nil || !slices.Equal(others, []string{"three", "four"}) {
		t.Errorf("of no interest, and yielded: %v, %v", others, err)
	}
}

// TestParseStatusModel writes random databases and reads them back.
func TestParseStatusModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := map[string]entry{}
		var text strings.Builder
		for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9][a-z0-9+.-]{1,8}`), 0, 20, rapid.ID).Draw(t, "names") {
			e := entry{state: state(rapid.IntRange(0, int(installed)).Draw(t, "state")), held: rapid.Bool().Draw(t, "held"), broken: rapid.Bool().Draw(t, "broken")}
			version := rapid.StringMatching(`[0-9][a-z0-9.+~-]{0,8}`).Draw(t, "version")
			if !e.state.absent() {
				e.version = version
			}
			want[name] = e
			fields := []string{
				"Package: " + name, "Version: " + version,
				fmt.Sprintf("Status: %s %s %s", map[bool]string{true: "hold", false: "install"}[e.held], map[bool]string{true: "reinstreq", false: "ok"}[e.broken], e.state),
				"Conffiles:\n " + rapid.StringMatching(`/[a-z:/ ]{0,20}`).Draw(t, "file"),
			}
			text.WriteString(strings.Join(rapid.Permutation(fields).Draw(t, "order"), "\n") + "\n\n")
		}
		got := map[string]entry{}
		if err := parseStatus(strings.NewReader(text.String()), everything, func(s stanza) { got[s.name] = s.entry }); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, want) {
			t.Fatalf("got %v\nwant %v\nof %s", got, want, text.String())
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("Package: a\nStatus: x y z\n\n\n Version"))
	f.Fuzz(func(t *testing.T, b []byte) {
		err := parseStatus(strings.NewReader(string(b)), everything, func(s stanza) {
			if s.name == "" || len(s.name) > lineMax || len(s.version) > lineMax || int(s.state) >= len(stateNames) {
				t.Errorf("yielded %+v", s)
			}
		})
		if err != nil && len(err.Error()) > 4*lineMax {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}

// adminDir is a database of its own.
func adminDir(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		put(t, dir, name, text)
	}
	return dir
}

// put replaces a file as dpkg does.
func put(t testing.TB, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file+"-new", []byte(text), 0o644), os.Rename(file+"-new", file))
	if err != nil {
		t.Fatal(err)
	}
}

func looked(t *testing.T, d *database, names ...string) snapshot {
	t.Helper()
	s, err := d.look(names, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.entries) != len(names) {
		t.Fatalf("%d entries for %d names", len(s.entries), len(names))
	}
	return s
}

func TestDatabase(t *testing.T) {
	dir := adminDir(t, map[string]string{"status": sample})
	d := newDatabase(dir)
	if s := looked(t, d, "one", "nothing"); s.entries[0].version != "1:2.0-1" || s.entries[1] != (entry{}) || s.journal || !slices.Equal(s.unfinished, []string{"three"}) {
		t.Errorf("first: %+v", s)
	}
	if s := looked(t, d, "four"); !s.entries[0].held {
		t.Errorf("another name: %+v", s)
	}
	if len(d.known) != 3 {
		t.Errorf("known after two who asked: %v", d.known)
	}
	put(t, dir, "status", strings.Replace(sample, "2.0-1", "2.0-2", 1))
	if s := looked(t, d, "one"); s.entries[0].version != "1:2.0-2" {
		t.Errorf("after a change: %+v", s)
	}
	if len(d.known) != 1 {
		t.Errorf("known after a change: %v", d.known)
	}

	// dpkg was stopped before it could merge what it did.
	put(t, dir, "updates/0001", "Package: one\nStatus: install ok half-configured\nVersion: 1:3.0\n")
	put(t, dir, "updates/0002", "Package: three\nStatus: install ok installed\nVersion: 4\n")
	put(t, dir, "updates/tmp.i", "Package: one\nnonsense\n")
	if s := looked(t, d, "one", "three"); !s.journal || s.entries[0] != (entry{state: halfConfigured, version: "1:3.0"}) || s.entries[1].state != installed || !slices.Equal(s.unfinished, []string{"one"}) {
		t.Errorf("with a journal: %+v", s)
	}
}

func TestDatabaseArchitectures(t *testing.T) {
	const foreign = "Package: one\nStatus: install ok installed\nArchitecture: i386\nVersion: 1\n"
	d := newDatabase(adminDir(t, map[string]string{"status": foreign, "arch": "amd64\ni386\n"}))
	if s := looked(t, d, "one"); s.entries[0] != (entry{}) {
		t.Errorf("one for another architecture counts: %+v", s)
	}
}

func TestDatabaseUnreadable(t *testing.T) {
	for name, files := range map[string]map[string]string{"missing": {}, "malformed": {"status": "nonsense\n"}} {
		a := &Apt{database: newDatabase(adminDir(t, files))}
		if _, err := a.Look([]string{"one"}, false); !reason.Is(err, reason.InputOutput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLook(t *testing.T) {
	a := &Apt{database: newDatabase(adminDir(t, map[string]string{"status": sample}))}
	got, err := a.Look([]string{"one", "two", "three", "four", "nothing"}, true)
	want := packages.Snapshot{Unfinished: true, Held: []string{"four"}, Entries: []packages.Entry{
		{State: packages.Present, Version: "1:2.0-1"}, {State: packages.Leftover},
		{State: packages.Unfinished, Word: "half-installed and broken", Version: "4"}, {State: packages.Present, Held: true, Version: "5"}, {},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}
