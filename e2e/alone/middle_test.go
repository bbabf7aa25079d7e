//go:build e2e

package alone_test

import (
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/reason"
)

// middle is a declaration in which two resources fail: a file, because something is in its way, and a package, because no
// repository has it. What depends on them is blocked, directly or over others; everything else has nothing to do with them.
const middle = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata:
  name: middle
spec:
  resources:
    - name: first
      file: {path: /srv/first, content: done}
    - name: middle
      file: {path: /srv/middle, content: done}
      require: [first]
    - name: after
      file: {path: /srv/after, content: done}
      require: [middle]
    - name: last
      file: {path: /srv/last, content: done}
      require: [after]
    - name: beside
      file: {path: /srv/beside, content: done}
      require: [first]
    - name: nowhere
      package: {}
    - name: unit
      file:
        path: /etc/systemd/system/nowhere.service
        content: "[Service]\nExecStart=/bin/sleep infinity\n"
    - name: nowhere-service
      service: {unit: nowhere.service}
      require: [nowhere]
    - name: hello
      package: {}
    - name: told
      service: {unit: told.service}
    - name: told-unit
      file:
        path: /etc/systemd/system/told.service
        content: "[Service]\nExecStart=/bin/sleep infinity\n"
    - name: tells
      file: {path: /srv/middle/tells, content: done}
      notify: [told]
`

// TestScenario7_FailureInTheMiddle converges with the failures, and without them once somebody has cured what caused them.
func TestScenario7_FailureInTheMiddle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.MustRun(t, "mkdir", "/srv/middle") // in the way of a file
	s.start(t, strings.Replace(middle, "/srv/middle/tells", "/srv/beside/tells", 1))
	s.await(t, convergeTime, "all that can be done is done", func(r *agent.Report) bool {
		return r.Settled && resource(t, r, "package/nowhere").Outcome == reason.Failed
	})
	r := s.status(t)
	if r.Converged {
		t.Error("a host with failures counts as converged")
	}
	wantProblem(t, r, "file/middle", reason.TypeInTheWay)
	wantProblem(t, r, "package/nowhere", reason.PackageNotFound)
	for title, by := range map[string]string{"file/after": "file/middle", "file/last": "file/after", "service/nowhere-service": "package/nowhere"} {
		if res := wantOutcome(t, r, title, reason.Blocked); res.BlockedBy != by {
			t.Errorf("%s is blocked by %q, want %q", title, res.BlockedBy, by)
		}
	}
	// What notifies orders too, but what it notifies goes on when it fails.
	wantOutcome(t, r, "file/tells", reason.Failed)
	for _, title := range []string{"file/first", "file/beside", "file/unit", "package/hello", "service/told"} {
		if res := resource(t, r, title); !res.Outcome.Converged() {
			t.Errorf("%s is %s, and does not depend on what fails", title, res.Outcome)
		}
	}
	s.MustRun(t, "hello")
	s.MustRun(t, "systemctl", "is-active", "told")
	for _, path := range []string{"/srv/after", "/srv/last"} {
		if s.exists(t, path) {
			t.Errorf("%s was made before what it requires", path)
		}
	}
	if got := s.MustRun(t, "systemctl", "show", "--property=ActiveState", "--value", "nowhere"); got != "inactive\n" {
		t.Errorf("a blocked service is %q", got)
	}

	a := s.why(t, "file/last")
	var chain []string
	for _, because := range a.Because {
		chain = append(chain, because.Title)
	}
	if got := strings.Join(chain, " "); got != "file/after file/middle" {
		t.Errorf("why file/last: because of %q, want the chain to its root cause", got)
	}
	if text := s.MustRun(t, agentPath, "why", "file/last"); !strings.Contains(text, "TK0503") {
		t.Errorf("why does not tell the root cause: %q", text)
	}

	s.MustRun(t, "rmdir", "/srv/middle")
	s.lab.Repository().Add(t, host.Deb{Name: "nowhere", Version: "1.0"})
	s.MustRun(t, "apt-get", "update")
	s.MustRun(t, "apt-get", "--option=DPkg::Lock::Timeout=60", "install", "--yes", "nowhere") // the agent may be at it, too
	s.change(t, strings.Replace(middle, "/srv/middle/tells", "/srv/tells", 1))
	s.awaitConverged(t)
	for _, path := range []string{"/srv/middle", "/srv/after", "/srv/last", "/srv/tells"} {
		if got := s.Get(t, path); got != "done" {
			t.Errorf("%s holds %q after the cure", path, got)
		}
	}
	s.MustRun(t, "systemctl", "is-active", "nowhere")
}

// wantProblem fails the test unless a resource has failed for that reason.
func wantProblem(t *testing.T, r *agent.Report, title string, code reason.Code) {
	t.Helper()
	res := wantOutcome(t, r, title, reason.Failed)
	if res.Problem == nil || res.Problem.Code != code {
		t.Errorf("%s failed with %+v, want %s", title, res.Problem, code)
	}
}
