package file

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// TestTreeBounds: however much somebody puts below a tree, the time and the memory for it are bounded, and what there is a bound for goes on.
func TestTreeBounds(t *testing.T) {
	dir := t.TempDir()
	for i := range 10 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trees := NewTrees(New(Options{Root: openRoot(t, "/")}))
	trees.changesMost = 4
	bind := func(d declare.Directory) host.Resource {
		d.Path = dir
		r, err := trees.Bind(t.Context(), host.Declared{Title: "t", Resource: declare.Resource{Directory: &d}, Below: func(string) []host.Place { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	look := func(r host.Resource) host.Plan { return trees.Check(t.Context(), []host.Resource{r}, host.Deep)[0] }
	r := bind(declare.Directory{Mode: "0755", Recurse: &declare.Recurse{FileMode: "0640"}})
	for _, left := range []int{6, 2, 0} {
		p := look(r)
		if n := len(p.State.(treeStep).planned); p.Err != nil || n > 4 {
			t.Fatalf("planned %d: %v", n, p.Err)
		}
		res := trees.Apply(t.Context(), []host.Plan{p})[0]
		if !res.Changed || (left > 0) != reason.Is(res.Err, reason.EntryRefused) {
			t.Errorf("with %d left: %+v", left, res)
		}
		rest := 0
		for i := range 10 {
			if st, err := os.Stat(filepath.Join(dir, fmt.Sprint(i))); err != nil || st.Mode().Perm() != 0o640 {
				rest++
			}
		}
		if rest != left {
			t.Errorf("%d are left, want %d", rest, left)
		}
	}
	if p := look(r); !p.Empty() {
		t.Errorf("all are as declared: %+v", p)
	}
	if p := look(bind(declare.Directory{Mode: "0755", Purge: true})); !reason.Is(p.Err, reason.PurgeOverLimit) {
		t.Errorf("purge of more than may go: %+v", p)
	}
	trees.entriesMost = 9
	if p := look(r); !reason.Is(p.Err, reason.EntryRefused) {
		t.Errorf("more entries than are looked at: %+v", p)
	}
}
