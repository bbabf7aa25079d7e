package cases_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/reason"
)

// TestOwnFactsCountAtOnce: what a file of own facts says decides what applies, from the moment that it is written, and what
// does not depend on it is left alone. A file that is refused takes its facts with it, and no other's.
func TestOwnFactsCountAtOnce(t *testing.T) {
	s := newSandbox(t)
	rack, other := file("rack", "/srv/rack", "$(facts.custom.site.rack) $(facts.custom.site.uplinks)\n"), file("other", "/srv/other", "$(facts.custom.app.role)\n")
	rack.When, rack.Expand = "facts.custom.site.rack >= 12", true
	other.When, other.Expand = "facts.custom.app.role == 'web'", true
	s.declare(directory("srv", "/srv"), rack, other)
	r := s.watch()
	before, _ := inotify(t, r.cmd.Process.Pid)
	outcome := func(title string, want reason.Outcome) func(*agent.Report) bool {
		return func(rep *agent.Report) bool { return rep.Settled && resourceOf(rep, title).Outcome == want }
	}
	r.until("no own facts", outcome("file/rack", reason.NotApplicable))
	dir := s.path(declare.OwnFactsDir)
	s.must(os.MkdirAll(dir, 0o755))
	s.write(dir+"/app.conf", "role=web\n")
	for _, c := range []struct{ facts, content string }{
		{"rack: 14\nuplinks: [eth0, eth1]\n", "14 eth0 eth1\n"},
		{"rack: 15\nuplinks: []\n", "15 \n"},
	} {
		s.write(dir+"/site.yaml", c.facts)
		r.until("the content of "+c.facts, func(rep *agent.Report) bool {
			b, _ := os.ReadFile(s.path("/srv/rack"))
			return rep.Settled && string(b) == c.content
		})
	}
	if after, _ := inotify(t, r.cmd.Process.Pid); after > before+1 {
		t.Errorf("own facts take %d more inotify instances, want 1", after-before)
	}
	r.until("the other file", func(*agent.Report) bool { _, err := os.Stat(s.path("/srv/other")); return err == nil })
	changes := len(s.history("file/other"))
	s.must(os.Chmod(dir+"/site.yaml", 0o666))
	r.until("a file that others may write to is refused", outcome("file/rack", reason.NotApplicable))
	if now := len(s.history("file/other")); now != changes {
		t.Errorf("what does not depend on the file had %d happenings, and has %d", changes, now)
	}
	if got := s.run("facts"); got.code != int(reason.ExitFailed) || !strings.Contains(got.stderr, reason.OwnFactsUnsafe.String()) {
		t.Errorf("tako-agent facts tells nothing of it: %v", got)
	}
}

// TestRefusedOwnFactsAreInTheStatus: a file that gives no facts is told by the status until it is mended, with why and what to do, also
// where nothing that is declared uses them; and by a run and a plan, which end as without it.
func TestRefusedOwnFactsAreInTheStatus(t *testing.T) {
	s := newSandbox(t)
	s.declare(file("motd", "/motd", "hello\n"))
	dir := s.path(declare.OwnFactsDir)
	s.must(os.MkdirAll(dir, 0o755))
	s.write(dir+"/good.yaml", "rack: 12\n")
	s.write(dir+"/site.yaml", "rack: 12\nrole: {a: b}\n")
	code := reason.OwnFactsMalformed.String()
	plan, once := s.run("converge", "-f", s.conf, "--dry-run"), s.run("converge", "-f", s.conf)
	for what, got := range map[string]result{"plan": plan, "run": once} {
		if got.code != int(reason.ExitOK) || !strings.Contains(got.stderr, code) || !strings.Contains(got.stderr, "site.yaml") {
			t.Errorf("the %s tells nothing of it: %v", what, got)
		}
	}
	if got := s.run("converge", "-f", s.conf, "--dry-run", "-o", "json"); !strings.Contains(got.stdout, `"warnings":[{"code":"`+code) {
		t.Errorf("the plan for programs tells nothing of it: %v", got)
	}
	r := s.watch()
	told := func(codes ...reason.Code) func(*agent.Report) bool {
		return func(rep *agent.Report) bool {
			return rep.Converged && slices.EqualFunc(rep.Degraded, codes, func(p agent.Problem, c reason.Code) bool { return p.Code == c && p.Hint != "" })
		}
	}
	r.until("it is told", told(reason.OwnFactsMalformed))
	if got := s.run("status"); got.code != int(reason.ExitOK) || !strings.Contains(got.stdout, code) || !strings.Contains(got.stdout, "line 2") {
		t.Errorf("the status tells nothing of it: %v", got)
	}
	s.must(os.Chmod(dir+"/good.yaml", 0o666))
	r.until("another one is", told(reason.OwnFactsUnsafe, reason.OwnFactsMalformed))
	s.must(os.Chmod(dir+"/good.yaml", 0o644))
	s.write(dir+"/site.yaml", "rack: 13\n")
	r.until("both are mended", told())
}
