package cases_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/reason"
)

// TestKeysAreWatchedWhereTheHomeIs: when a user's home becomes another one, the keys are put there, and there it is told from then on
// when somebody changes them.
func TestKeysAreWatchedWhereTheHomeIs(t *testing.T) {
	needsRoot(t)
	s := newSandbox(t)
	const uid, key = 51001, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g ann"
	live := func(home string) {
		t.Helper()
		s.must(os.MkdirAll(s.path(home), 0o755))
		s.must(os.Chown(s.path(home), uid, uid))
		s.write(s.path("/etc/passwd"), fmt.Sprintf("root:x:0:0::/root:/bin/sh\nann:x:%d:%d::%s:/bin/sh\n", uid, uid, home))
	}
	s.must(os.Chmod(filepath.Dir(s.dir), 0o755)) // ann makes the directory of her keys herself
	s.must(os.MkdirAll(s.path("/etc"), 0o755))
	s.write(s.path("/etc/group"), fmt.Sprintf("ann:x:%d:\n", uid))
	live("/home/ann")
	s.declare(declare.Resource{Name: "ann", AuthorizedKeys: &declare.AuthorizedKeys{Keys: []string{key}}})
	r := s.watch()
	has := func(home string) func(*agent.Report) bool {
		return func(rep *agent.Report) bool {
			b, _ := os.ReadFile(s.path(home + "/.ssh/authorized_keys"))
			return rep.Settled && rep.Converged && strings.Contains(string(b), key) && !strings.Contains(string(b), "intruder")
		}
	}
	r.until("the keys are there", has("/home/ann"))
	for _, home := range []string{"/srv/ann", "/home/ann", "/opt/ann"} {
		live(home)
		r.until("they are in "+home, has(home))
		s.write(s.path(home+"/.ssh/authorized_keys"), strings.Replace(key, "ann", "intruder", 1)+"\n")
		r.until("they are put right in "+home, has(home))
	}
	drift := 0
	for _, h := range s.history("authorizedKeys/ann") {
		if h.Code == reason.RepairedDrift.String() && h.Cause == "event" {
			drift++
		}
	}
	if drift < 3 {
		t.Errorf("%d times it was put right because the kernel told", drift)
	}
}
