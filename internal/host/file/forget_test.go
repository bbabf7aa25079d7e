package file_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// TestForgetKeepsWhatCanBePutBack: a year later the store holds what a removal may still need, and what is of yesterday.
func TestForgetKeepsWhatCanBePutBack(t *testing.T) {
	g := newGround(t)
	g.write("restored", "before", 0o640)
	g.write("replaced", "old", 0o644)
	restored := g.bindFile(declare.File{Path: g.path("restored"), Content: "declared"})
	original, err := g.Original(t.Context(), restored)
	g.must(err)
	g.made(restored)
	g.made(g.bindFile(declare.File{Path: g.path("replaced"), Content: "new"}))
	year := time.Now().AddDate(-1, 0, 0)
	g.must(filepath.WalkDir(g.olds, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return os.Chtimes(p, year, year)
	}))
	g.write("replaced", "of today", 0o644)
	g.made(g.bindFile(declare.File{Path: g.path("replaced"), Content: "new"}))

	if err := g.Forget(t.Context(), [][]byte{original, []byte("{")}); code(err) != reason.StateCorrupt || !g.kept("old") {
		t.Errorf("with an original that cannot be read: %v, old content is kept: %v", err, g.kept("old"))
	}
	g.must(g.Forget(t.Context(), [][]byte{original, []byte(`{"type":"nothing"}`)}))
	if !g.kept("before") || g.kept("old") || !g.kept("of today") {
		t.Errorf("kept: needed %v, a year old %v, of today %v", g.kept("before"), g.kept("old"), g.kept("of today"))
	}
	g.must(g.Remove(t.Context(), restored, declare.OnRemoveRestore, original))
	if got := g.look("restored"); got.content != "before" {
		t.Errorf("restored %+v", got)
	}
	g.must(newType(t, "/", nil).Forget(t.Context(), nil))
}
