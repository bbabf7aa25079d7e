//go:build e2e

package alone_test

import (
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/reason"
)

// TestScenario1_NginxServes makes a bare host a web server: the package, a configuration that nginx itself has checked, and
// the unit, in this order.
func TestScenario1_NginxServes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(t, example(t))
	s.awaitConverged(t)
	s.wantPage(t, "Kept as declared.")
	if got := s.starts(t, "nginx.service"); got != 1 {
		t.Errorf("nginx was started %d times, want once: with its configuration in place", got)
	}
	if got := s.MustRun(t, "systemctl", "is-enabled", "nginx"); got != "enabled\n" {
		t.Errorf("nginx is %q, want it to start at boot", got)
	}
	titles := []string{"package/nginx-package", "file/nginx.conf", "directory/www", "file/index.html", "service/nginx"}
	r := s.status(t)
	for _, title := range titles {
		if res := resource(t, r, title); !res.Outcome.Converged() {
			t.Errorf("%s is %s", title, res.Outcome)
		}
		history := s.history(t, title)
		if len(history) == 0 {
			t.Errorf("%s has no history", title)
			continue
		}
		if first := history[len(history)-1]; first.Outcome != reason.Repaired.String() || first.Detail != string(reason.Change) {
			t.Errorf("history of %s: %+v, want it to begin with a change", title, history)
		}
	}
	if r.Totals.Drift != 0 || r.Totals.Change != uint64(len(titles)) {
		t.Errorf("%d repairs of drift and %d changes, want 0 and %d", r.Totals.Drift, r.Totals.Change, len(titles))
	}
	s.MustRun(t, agentPath, "status") // exits with 0 only where everything is converged
	if again := s.check(t); !again.Converged || again.Totals.Change != r.Totals.Change || again.Totals.Drift != 0 {
		t.Errorf("a second look finds something to do: %s", shown(again))
	}
}

// check has the agent look at everything again, contents included.
func (s *site) check(t *testing.T) *agent.Report {
	t.Helper()
	var r agent.Report
	if err := s.query(t, &r, "status", "--json", "--check", "deep"); err != nil {
		t.Fatal(err)
	}
	return &r
}

// TestScenario2_ChangeRestartsOnce changes three files of a service at once.
func TestScenario2_ChangeRestartsOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	declaration := replaced(t, replaced(t, example(t), "onNotify: reload", "onNotify: restart"), "include mime.types;", "include mime.types; include /srv/conf/*.conf;")
	declaration += `
    - name: conf
      directory: {path: /srv/conf}
    - name: one
      file: {path: /srv/conf/one.conf, content: "server_tokens on;\n"}
      notify: [nginx]
    - name: two
      file: {path: /srv/conf/two.conf, content: "keepalive_timeout 65;\n"}
      notify: [nginx]
`
	s.start(t, declaration)
	s.awaitConverged(t)
	s.wantPage(t, "Kept as declared.")
	before, starts := s.invocation(t, "nginx"), s.starts(t, "nginx.service")
	if starts != 1 {
		t.Errorf("nginx was started %d times at first, want once", starts)
	}

	changed := replaced(t, declaration, "server_tokens on", "server_tokens off")
	changed = replaced(t, changed, "keepalive_timeout 65", "keepalive_timeout 66")
	changed = replaced(t, changed, "worker_processes auto", "worker_processes 1")
	s.change(t, changed)
	s.awaitConverged(t)
	after := s.invocation(t, "nginx")
	if got := s.starts(t, "nginx.service") - starts; after == before || got != 1 {
		t.Errorf("three files have changed, and nginx was started %d times (%s, then %s), want once", got, before, after)
	}
	s.wantPage(t, "Kept as declared.")

	// What is as it was restarts nothing: not a file that nobody notifies about, not the same content again.
	s.change(t, replaced(t, changed, "Kept as declared.", "Kept as declared, too."))
	s.awaitConverged(t)
	s.wantPage(t, "Kept as declared, too.")
	s.check(t)
	if now := s.invocation(t, "nginx"); now != after {
		t.Errorf("nginx was started again (%s, then %s), and nothing of its own has changed", after, now)
	}
}

// TestScenario4_BrokenConfiguration declares a configuration that nginx does not understand.
func TestScenario4_BrokenConfiguration(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(t, example(t))
	s.awaitConverged(t)
	live := s.Get(t, "/etc/nginx/nginx.conf")
	before, starts := s.invocation(t, "nginx"), s.starts(t, "nginx.service")

	// The same edit changes the page, which has nothing to do with it.
	broken := replaced(t, example(t), "listen 80", "listne 80")
	broken = replaced(t, broken, "Kept as declared.", "Kept, and changed.")
	s.change(t, broken)
	s.await(t, repairTime, "the configuration is rejected, and the page changed", func(r *agent.Report) bool {
		return resource(t, r, "file/nginx.conf").Outcome == reason.Failed && resource(t, r, "file/index.html").Outcome.Converged()
	})
	s.wantPage(t, "Kept, and changed.")
	if got := s.Get(t, "/etc/nginx/nginx.conf"); got != live {
		t.Errorf("the live configuration is %q, want what it was", got)
	}
	conf := wantOutcome(t, s.status(t), "file/nginx.conf", reason.Failed)
	if conf.Detail != reason.Invalid || conf.Problem == nil || conf.Problem.Code != reason.CheckRejected {
		t.Errorf("the configuration failed with %+v, want %s", conf, reason.CheckRejected)
	}
	const words = `unknown directive "listne"`
	if a := s.why(t, "file/nginx.conf"); a.Resource.Problem == nil || !strings.Contains(a.Resource.Problem.Evidence, words) {
		t.Errorf("why does not quote %q: %+v", words, a)
	}
	if text := s.MustRun(t, agentPath, "why", "file/nginx.conf"); !strings.Contains(text, words) || !strings.Contains(text, "TK0509") {
		t.Errorf("why says %q, want %q and the code in it", text, words)
	}
	s.wantTemporaries(t)
	if now := s.invocation(t, "nginx"); now != before || s.starts(t, "nginx.service") != starts {
		t.Errorf("nginx was started again (%s, then %s) for a configuration that it rejects", before, now)
	}

	// While it is wrong everything else is kept, and the right one goes live.
	s.MustRun(t, "rm", "/srv/www/index.html")
	s.await(t, repairTime, "the page is back", func(r *agent.Report) bool { return r.Totals.Drift > 0 && r.Settled })
	s.wantPage(t, "Kept, and changed.")
	s.change(t, replaced(t, broken, "listne 80", "listen 8080 default_server; listen 80"))
	s.awaitConverged(t)
	if got := s.Get(t, "/etc/nginx/nginx.conf"); !strings.Contains(got, "8080") {
		t.Errorf("the live configuration is %q after it was put right", got)
	}
}

// wantTemporaries fails the test when a temporary file of the agent is left, or something but want. An agent that runs may have one for a moment,
// as it writes its report.
func (s *site) wantTemporaries(t *testing.T, want ...string) {
	t.Helper()
	host.Eventually(t, repairTime, "no temporary file is left that should not be", func() (string, bool) {
		got := s.MustRun(t, "find", "/", "/usr", "-xdev", "-name", ".tako.*", "-print")
		return fmt.Sprintf("%q, want %q", got, want), got == strings.Join(want, "\n")
	})
}
