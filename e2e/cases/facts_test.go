package cases_test

import (
	"os"
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
