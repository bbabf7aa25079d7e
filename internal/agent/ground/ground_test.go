package ground

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
)

// thing is a resource that watches paths; one that encloses has a directory.
type thing struct{ watches []string }

func (r thing) Watches() (list []host.Watch) {
	for _, p := range r.watches {
		list = append(list, host.Watch{Kind: host.WatchPath, Name: p}, host.Watch{Kind: host.WatchEntries, Name: p + ".d"})
	}
	return list
}

type tree struct {
	thing
	dir string
}

func (r tree) Encloses() string                 { return r.dir }
func (r tree) Follow() (drop, add []host.Watch) { return nil, nil }

func all(members ...Member) iter.Seq2[converge.ID, Member] {
	return func(yield func(converge.ID, Member) bool) {
		for i, m := range members {
			if !yield(converge.ID(i), m) {
				return
			}
		}
	}
}

func claim(kind declare.ClaimKind, id string) declare.Claim { return declare.Claim{Kind: kind, ID: id} }

func TestGround(t *testing.T) {
	var g Ground
	file := Member{Claim: claim(declare.ClaimPath, "/srv/a/file")}
	if again := g.Lay(all(file)); again != nil || g.Below("/") != nil {
		t.Error("without anything that encloses it is not kept")
	}
	outer := Member{Claim: claim(declare.ClaimPath, "/srv"), Resource: tree{dir: "/srv"}}
	inner := Member{Claim: claim(declare.ClaimPath, "/srv/b"), Resource: tree{thing{[]string{"/elsewhere"}}, "/srv/b"}}
	members := []Member{outer, inner, file,
		{Claim: claim(declare.ClaimEdit, "/srv/e#x")}, {Claim: claim(declare.ClaimMount, "/srv/m")}, {Claim: claim(declare.ClaimSwap, "/srv/s")},
		{Claim: claim(declare.ClaimPackage, "/srv/no")}, {Claim: claim(declare.ClaimTimer, "t"), Resource: thing{[]string{"/srv/t.timer", "/etc/t"}}},
		{Claim: claim(declare.ClaimPath, "/srv-x")}, {Claim: claim(declare.ClaimPath, "/srv/unpacked"), Type: declare.TypeArchive},
	}
	want := []host.Place{{Path: "/srv/a/file"}, {Path: "/srv/b", Whole: true}, {Path: "/srv/e"}, {Path: "/srv/m"}, {Path: "/srv/s"}, {Path: "/srv/t.timer"}, {Path: "/srv/unpacked", Whole: true}}
	if again := g.Lay(all(members...)); !slices.Equal(again, []converge.ID{0}) || !slices.Equal(g.Below("/srv"), want) {
		t.Errorf("again %v, below %+v", again, g.Below("/srv"))
	}
	if again := g.Lay(all(members...)); again != nil {
		t.Errorf("nothing has changed, and again %v", again)
	}
	if again := g.Lay(all(append(members, Member{Claim: claim(declare.ClaimPath, "/srv/b/c")})...)); !slices.Equal(again, []converge.ID{0, 1}) {
		t.Errorf("one more, and again %v", again)
	}
	if got := g.Below("/"); len(got) != len(want)+1+3 {
		t.Errorf("everything: %+v", got)
	}
}

// TestBelow compares with a naive filter.
func TestBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.Custom(func(t *rapid.T) string {
			return "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "a-", "a0", "\xff", " "}), 1, 4).Draw(t, "names"), "/")
		})
		members := []Member{{Claim: claim(declare.ClaimPath, "/tree"), Resource: tree{dir: "/tree"}}}
		paths := append(rapid.SliceOf(path).Draw(t, "paths"), "/tree")
		for _, p := range paths {
			members = append(members, Member{Claim: claim(declare.ClaimPath, p)})
		}
		slices.Sort(paths)
		var g Ground
		g.Lay(all(members...))
		dir := rapid.OneOf(path, rapid.Just("/")).Draw(t, "dir")
		var want, got []string
		for _, p := range slices.Compact(paths) {
			if strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") {
				want = append(want, p)
			}
		}
		for _, p := range g.Below(dir) {
			got = append(got, p.Path)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("below %q: %q, want %q", dir, got, want)
		}
	})
}
