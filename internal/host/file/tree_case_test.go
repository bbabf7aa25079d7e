package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/glob"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest/kill"
	"tako.dev/tako/internal/reason"
)

// model is what is to be left of entries, by the words of the documentation.
func model(entries, claims, ignore []string, depth int) []string {
	var patterns []glob.Pattern
	for _, text := range ignore {
		p, _ := glob.Parse(text)
		patterns = append(patterns, p)
	}
	spared := func(name string) bool {
		parts := strings.Split(strings.TrimSuffix(name, "/"), "/")
		if len(parts) > depth || slices.Contains(claims, strings.Join(parts, "/")) || len(parts) == depth && strings.HasSuffix(name, "/") {
			return true
		}
		for i := range parts {
			for _, p := range patterns {
				if p.Match(strings.Join(parts[:i+1], "/")) {
					return true
				}
			}
		}
		return slices.ContainsFunc(claims, func(c string) bool { return strings.HasPrefix(c, strings.Join(parts, "/")+"/") })
	}
	left := map[string]bool{}
	for _, name := range entries {
		if spared(name) {
			for at := name; at != "./"; at = filepath.Dir(strings.TrimSuffix(at, "/")) + "/" {
				left[at] = true
			}
		}
	}
	names := []string{}
	for name := range left {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestPurgeAgainstModel compares with a naive model, on random trees.
func TestPurgeAgainstModel(t *testing.T) {
	base := newWood(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		w := &wood{ground: base.ground, Trees: base.Trees}
		w.clear("tree")
		w.must(os.Mkdir(w.path("tree"), 0o755))
		name := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "a.x", "-", "b\n"}), 1, 4).Draw(t, "parts"), "/")
		})
		for _, f := range rapid.SliceOfN(name, 0, 12).Draw(rt, "files") {
			if os.MkdirAll(filepath.Dir(w.path("tree/"+f)), 0o755) == nil {
				if _, err := os.Lstat(w.path("tree/" + f)); err != nil {
					w.must(os.WriteFile(w.path("tree/"+f), nil, 0o644))
				}
			}
		}
		claims := rapid.SliceOfNDistinct(name, 0, 4, func(s string) string { return s }).Draw(rt, "claims")
		ignore := rapid.SliceOfN(rapid.SampledFrom([]string{"*.x", "**/*.x", "a/*", "b/**", "**/b", "-"}), 0, 2).Draw(rt, "ignore")
		depth := rapid.IntRange(1, 5).Draw(rt, "depth")
		w.claim(claims...)
		want := model(w.names(), claims, ignore, depth)
		r := w.bindTree(declare.Directory{Purge: true, Ignore: ignore, Depth: depth})
		p := w.look(r)
		if p.Err != nil {
			rt.Fatal(p.Err)
		}
		if !p.Empty() {
			if res := w.carryOut(p); res.Err != nil {
				rt.Fatal(res.Err)
			}
		}
		if got := w.names(); !slices.Equal(got, want) {
			rt.Fatalf("left %q, want %q", got, want)
		}
	})
}

func TestAgentCase31_TenThousandEntries(t *testing.T) {
	c := casetest.Start(t)
	w := newWood(t)
	var want []string
	for d := range 100 {
		dir := fmt.Sprintf("d%02d/", d)
		w.fill(dir)
		want = append(want, dir)
		for f := range 99 {
			name := fmt.Sprintf("%sf%02d", dir, f)
			switch {
			case f%33 == 0:
				name += ".cache"
				want = append(want, name)
			case f%2 == 0:
				w.claim(name)
				want = append(want, name)
			}
			text := ""
			if f == 1 && d < 5 {
				text = name
			}
			w.must(os.WriteFile(w.path("tree/"+name), []byte(text), 0o644))
		}
	}
	slices.Sort(want)
	extra := 100*100 - len(want)
	r := w.bindTree(declare.Directory{Purge: true, Ignore: []string{"**/*.cache"}})
	p := w.look(r)
	c.Check(reason.Is(p.Err, reason.PurgeOverLimit), "the guard lets %d deletions pass: %v", extra, p.Err)
	c.Check(strings.Contains(reason.Of(p.Err).Error(), fmt.Sprintf("%d of %d entries", extra, 10_000-300)), "the guard counts: %v", p.Err)
	c.Equal(len(w.names()), 10_000, "entries after the guard")
	r = w.bindTree(declare.Directory{Purge: true, Ignore: []string{"**/*.cache"}, Limit: extra})
	p = w.look(r)
	c.NoError(p.Err, "check")
	c.Equal(p.Changes[0].From, strconv.Itoa(extra)+" entries", "planned")
	res := w.carryOut(p)
	c.NoError(res.Err, "apply")
	c.Check(slices.Equal(w.names(), want), "what is left is not exact")
	p = w.look(r)
	c.Check(p.Empty() && p.Err == nil, "again: %+v", p)
}

// BenchmarkTree looks at 10,000 entries that are as declared.
func BenchmarkTree(b *testing.B) {
	w := newWood(b)
	for d := range 100 {
		for f := range 99 {
			w.fill(fmt.Sprintf("d%02d/f%02d", d, f))
		}
	}
	r := w.bindTree(declare.Directory{Recurse: &declare.Recurse{FileMode: "0644", DirectoryMode: "0755"}})
	b.ReportAllocs()
	for b.Loop() {
		if p := w.Trees.Check(context.Background(), []host.Resource{r}, host.Shallow)[0]; !p.Empty() || p.Err != nil {
			b.Fatal(p)
		}
	}
}

// TestTreeKilled: a purge that is killed at any system call has removed an entry or has not, has kept what it has removed, and leaves nothing
// of its own. A check makes no call that writes.
func TestTreeKilled(t *testing.T) {
	t.Parallel()
	w := newWood(t)
	entries := []string{"a", "b/c"}
	r := declare.Resource{Directory: &declare.Directory{Path: w.path("tree"), Purge: true, Ignore: []string{"s"}}}
	row := w.row(r, "tree", func() {
		w.clear("tree")
		w.fill(entries...)
		w.fill("s")
	})
	row.See = func(testing.TB) (seen []string) {
		for _, name := range append(entries, "b", "s") {
			seen = append(seen, fmt.Sprintf("%s: %t", name, slices.Contains(w.names(), name)))
		}
		return seen
	}
	row.Killed = func(t testing.TB, at string) {
		store, err := content.Open(storeOf(row.State), content.Options{})
		w.must(err)
		left := w.names()
		for _, name := range entries {
			if !slices.Contains(left, name) && !store.Has(content.DigestOf([]byte("text of "+name))) {
				t.Errorf("killed at %s: the content of %s is lost", at, name)
			}
		}
		for _, name := range left {
			if disk.IsTemporary(filepath.Base(name)) {
				t.Errorf("killed at %s: %s is left", at, name)
			}
		}
	}
	kill.LooksOnly(t, row)
	kills := kill.Everywhere(t, row)
	if got := w.names(); kills < 10 || !slices.Equal(got, []string{"s"}) {
		t.Errorf("killed at %d places; in the end there is %q", kills, got)
	}
	t.Logf("killed at %d system calls", kills)
}
