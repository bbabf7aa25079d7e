// Package ground knows at which paths the resources of a host stand, so that a resource which is about everything below a directory
// leaves alone what is others'. It is kept only where there is such a resource.
//
// A resource stands at the path that it claims, and at every path whose touch is told to it: a timer at its two unit files, a user at its
// home. What is not bound, not applicable or held stands where it claims all the same.
//
// The package owns no goroutine.
package ground

import (
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
)

// Member is a vertex of the graph as the ground sees it.
type Member struct {
	Claim    declare.Claim
	Type     declare.ResourceType // empty where it is not known
	Resource host.Resource        // nil while it is not bound
}

// Ground is what stands where. The zero Ground is empty. Below may be called from any goroutine, Lay from one at a time.
type Ground struct {
	places atomic.Pointer[[]host.Place] // sorted by path, each once
}

// Below lists what stands below a directory, sorted by path.
func (g *Ground) Below(dir string) []host.Place {
	all := g.places.Load()
	if all == nil {
		return nil
	}
	return below(*all, dir)
}

// Lay takes in what stands on the host now. It returns the vertices that enclose something, if what stands below them is not what it was:
// they have to be checked again.
func (g *Ground) Lay(members iter.Seq2[converge.ID, Member]) (again []converge.ID) {
	encloses := map[converge.ID]string{}
	for id, m := range members {
		if e, ok := m.Resource.(host.Enclosing); ok {
			encloses[id] = e.Encloses()
		}
	}
	if len(encloses) == 0 {
		g.places.Store(nil)
		return nil
	}
	var before []host.Place
	if p := g.places.Load(); p != nil {
		before = *p
	}
	now := places(members)
	g.places.Store(&now)
	for id, dir := range encloses {
		if !slices.Equal(below(before, dir), below(now, dir)) {
			again = append(again, id)
		}
	}
	slices.Sort(again)
	return again
}

// places lists where members stand.
func places(members iter.Seq2[converge.ID, Member]) []host.Place {
	var list []host.Place
	for _, m := range members {
		if p := pathOf(m.Claim); p != "" {
			list = append(list, host.Place{Path: p, Whole: m.Type == declare.TypeArchive}) // all that was unpacked there is its
		}
		if m.Resource == nil {
			continue
		}
		if e, ok := m.Resource.(host.Enclosing); ok {
			// Its watches are what it has found, not where it stands.
			list = append(list, host.Place{Path: e.Encloses(), Whole: true})
			continue
		}
		for _, w := range m.Resource.Watches() {
			if w.Kind == host.WatchPath {
				list = append(list, host.Place{Path: w.Name})
			}
		}
	}
	slices.SortFunc(list, func(a, b host.Place) int { return strings.Compare(a.Path, b.Path) })
	kept := list[:0]
	for _, p := range list {
		if last := len(kept) - 1; last >= 0 && kept[last].Path == p.Path {
			kept[last].Whole = kept[last].Whole || p.Whole
			continue
		}
		kept = append(kept, p)
	}
	return slices.Clip(kept)
}

// pathOf is the path that a claim names; empty where it names none.
func pathOf(c declare.Claim) string {
	if !strings.HasPrefix(c.ID, "/") {
		return ""
	}
	switch c.Kind {
	case declare.ClaimPath, declare.ClaimMount, declare.ClaimSwap:
		return c.ID
	case declare.ClaimEdit:
		path, _, _ := strings.Cut(c.ID, "#")
		return path
	}
	return ""
}

// below is the part of a sorted list that is below a directory: what begins with its path and a slash.
func below(list []host.Place, dir string) []host.Place {
	byPath := func(p host.Place, path string) int { return strings.Compare(p.Path, path) }
	dir = strings.TrimSuffix(dir, "/")
	from, _ := slices.BinarySearchFunc(list, dir+"/", byPath)
	upto, _ := slices.BinarySearchFunc(list, dir+string('/'+1), byPath)
	return list[from:upto]
}
