package load

import (
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// TestBodiesOfPieces: a file of pieces is read as it was compiled, also after a restart, and not as it is when a piece has changed.
func TestBodiesOfPieces(t *testing.T) {
	st := open(t, t.TempDir())
	bodies := NewBodies(st)
	head := "    - name: f\n      file: {path: /srv/f, content: \"head\\n\", fragments: true}\n"
	piece := func(name, text string) string {
		return "    - name: " + name + "\n      expand: true\n      fragment: {path: /srv/f, content: \"" + text + "\"}\n"
	}
	away := "    - name: away\n      when: node.name == 'other'\n      fragment: {path: /srv/f, content: away}\n"
	other := "    - name: other\n      fragment: {path: /srv/f2, content: other}\n    - name: f2\n      file: {path: /srv/f2, fragments: true}\n"
	key := core.Key(declare.Claim{Kind: declare.ClaimPath, ID: "/srv/f"})
	digest := func(d *State) converge.Digest { return d.Compiled.Graph.Vertices[d.Compiled.Graph.ID(key)].Digest }
	first := commit(t, st, head, piece("b", "b of $(node.name)"), piece("a", "a"), away, other)
	bodies.Swap(first)
	r, err := bodies.Read(key, digest(first))
	if err != nil || r.File.Content != "head\na\nb of web-1\n" {
		t.Errorf("%+v, %v", r.File, err)
	}
	again, err := LastGood(st, first.Lookup, one)
	if err != nil || digest(again) != digest(first) {
		t.Errorf("read back: %x, was %x, %v", digest(again), digest(first), err)
	}
	second := commit(t, st, head, piece("a", "changed"))
	bodies.Swap(second)
	if _, err := bodies.Read(key, digest(first)); !reason.Is(err, reason.ConcurrentEdit) {
		t.Errorf("of the old state: %v", err)
	}
	if r, err = bodies.Read(key, digest(second)); err != nil || r.File.Content != "head\nchanged\n" {
		t.Errorf("%+v, %v", r.File, err)
	}
}
