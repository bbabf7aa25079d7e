package report

import (
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

// outcomes are all that there are.
var outcomes = []reason.Outcome{reason.Kept, reason.Repaired, reason.Failed, reason.Blocked, reason.Deferred, reason.Contended,
	reason.NotApplicable, reason.Unknown}

func TestWorstComesFirst(t *testing.T) {
	seen := map[int]bool{}
	for _, o := range outcomes {
		if Rank(o) < 0 || seen[Rank(o)] {
			t.Errorf("%v has rank %d, alone: %v", o, Rank(o), !seen[Rank(o)])
		}
		seen[Rank(o)] = true
	}
	for _, good := range outcomes {
		for _, bad := range outcomes {
			if good.Converged() && !bad.Converged() && Rank(good) < Rank(bad) {
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
		err := r.Verdict()
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
