package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// outcomes are all that there are.
var outcomes = []reason.Outcome{reason.Kept, reason.Repaired, reason.Failed, reason.Blocked, reason.Deferred, reason.Contended,
	reason.NotApplicable, reason.Unknown}

func TestWorstComesFirst(t *testing.T) {
	seen := map[int]bool{}
	for _, o := range outcomes {
		if rank(o) < 0 || seen[rank(o)] {
			t.Errorf("%v has rank %d, alone: %v", o, rank(o), !seen[rank(o)])
		}
		seen[rank(o)] = true
	}
	for _, good := range outcomes {
		for _, bad := range outcomes {
			if good.Converged() && !bad.Converged() && rank(good) < rank(bad) {
				t.Errorf("%v comes before %v", good, bad)
			}
		}
	}
}

func TestVerdict(t *testing.T) {
	res := func(title string, o reason.Outcome, code reason.Code) Resource {
		r := Resource{Title: title, Outcome: o}
		if code != 0 {
			r.Problem = &Problem{Code: code}
		}
		return r
	}
	for name, c := range map[string]struct {
		converged bool
		resources []Resource
		code      reason.Code // 0: none
		named     string
	}{
		"converged": {converged: true, resources: []Resource{res("file/a", reason.Repaired, 0)}},
		"failed":    {resources: []Resource{res("file/a", reason.Failed, reason.DiskFull), res("file/b", reason.Kept, 0)}, code: reason.NotConverged, named: "converge file/a"},
		"many": {resources: []Resource{res("file/a", reason.Failed, 0), res("file/b", reason.Contended, 0), res("file/c", reason.Blocked, 0), res("file/d", reason.Failed, 0)},
			code: reason.NotConverged, named: "converge file/a, file/b, file/c"},
		"only a lock": {resources: []Resource{res("package/a", reason.Deferred, reason.PackageLock)}, code: reason.PackageLock, named: "converge package/a"},
		"only a rate": {resources: []Resource{res("package/a", reason.Deferred, 0)}, code: reason.RateLimited, named: "converge package/a"},
		"a lock and what it blocks": {resources: []Resource{res("service/b", reason.Blocked, reason.BlockedBy), res("package/a", reason.Deferred, reason.PackageLock)},
			code: reason.PackageLock, named: "converge service/b, package/a"},
		"a lock and a failure": {resources: []Resource{res("file/b", reason.Failed, reason.DiskFull), res("package/a", reason.Deferred, reason.PackageLock)},
			code: reason.NotConverged, named: "converge file/b, package/a"},
		"refused only": {code: reason.NotConverged, named: "converge"},
	} {
		r := &Report{Converged: c.converged, Resources: c.resources, Counts: map[reason.Outcome]int{}}
		for _, res := range c.resources {
			r.Counts[res.Outcome]++
		}
		err := r.verdict()
		if c.code == 0 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if e := reason.Of(err); !reason.Is(err, c.code) || strings.TrimSpace(e.Doing) != c.named || !strings.HasPrefix(e.Hint, "tako-agent why ") {
			t.Errorf("%s: %v %q, hint %q", name, e.Code, e.Doing, e.Hint)
		}
	}
}

// TestNewestRepairsAreListed compares with a naive choice: none that is left out is newer than one that is listed.
func TestNewestRepairsAreListed(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(rt *rapid.T) {
		seconds := rapid.SliceOfN(rapid.IntRange(0, 100), 0, 3*repairedMax).Draw(rt, "ages")
		fixed := make([]repair, len(seconds))
		for i, s := range seconds {
			fixed[i] = repair{converge.ID(i), start.Add(time.Duration(s) * time.Second)}
		}
		got := newest(slices.Clone(fixed))
		if len(got) != min(len(fixed), repairedMax) {
			rt.Fatalf("%d of %d are listed", len(got), len(fixed))
		}
		if !slices.IsSortedFunc(got, func(a, b repair) int { return int(a.id) - int(b.id) }) {
			rt.Fatal("not in the order of the graph")
		}
		for _, f := range fixed {
			if slices.Contains(got, f) {
				continue
			}
			for _, g := range got {
				if f.since.After(g.since) {
					rt.Fatalf("%v is left out, %v is listed", f, g)
				}
			}
		}
	})
}

func TestNames(t *testing.T) {
	for subject, want := range map[string]bool{
		"file/motd": true, "motd": true, "path:/etc/motd": true, "/etc/motd": true,
		"": false, "file": false, "etc/motd": false, "file/mot": false, "path": false,
	} {
		if got := names("file/motd", "path:/etc/motd", "/etc/motd", subject); got != want {
			t.Errorf("%q names file/motd: %v", subject, got)
		}
	}
}
