//go:build e2e

package alone_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/reason"
)

// TestScenario6_Reboot boots a host without its declarations: what it enforces comes from its own disk.
func TestScenario6_Reboot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(t, example(t))
	s.awaitConverged(t)
	root := s.status(t).Root
	for _, test := range []struct {
		name string
		off  func(t *testing.T)                 // switches the host off
		lose func(t *testing.T, confDir string) // makes the declarations unreadable on the disk of the host that is off
	}{
		{"absent", s.offInOrder, func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) }},
		{"unreadable, after a power cut", s.offAtOnce, func(t *testing.T, dir string) {
			must(t, os.MkdirAll(dir, 0o755))
			must(t, os.Symlink("site.yaml", filepath.Join(dir, "site.yaml"))) // to itself
		}},
		{"malformed", s.offInOrder, func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir))
			must(t, os.MkdirAll(dir, 0o755))
			must(t, os.WriteFile(filepath.Join(dir, "site.yaml"), []byte("kind: NodeConfig\nspec: [\x00"), 0o644))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.off(t)
			test.lose(t, filepath.Join(s.Disk(), confDir))
			// Drift that nobody could see.
			must(t, os.WriteFile(filepath.Join(s.Disk(), "etc/nginx/nginx.conf"), []byte("broken;\n"), 0o644))
			must(t, os.Remove(filepath.Join(s.Disk(), "srv/www/index.html")))
			must(t, os.Remove(filepath.Join(s.Disk(), "etc/systemd/system/multi-user.target.wants/nginx.service")))
			s.Boot(t)
			s.await(t, convergeTime, "everything is as declared before", func(r *agent.Report) bool {
				return r.Settled && r.Counts[reason.Kept]+r.Counts[reason.Repaired] == 5
			})
			s.wantPage(t, "Kept as declared.")
			if got := s.MustRun(t, "systemctl", "is-enabled", "nginx"); got != "enabled\n" {
				t.Errorf("nginx is %q, want it to start at boot", got)
			}
			r := s.status(t)
			if r.Root != root || r.Totals.Change != 0 || r.Totals.Drift == 0 {
				t.Errorf("want the old state, %s, and its repairs counted as drift: %s", root, shown(r))
			}
			if r.Converged || len(r.Refused) == 0 {
				t.Errorf("a declaration that cannot be read is told by nobody: %s", shown(r))
			}
			s.wantTemporaries(t)
		})
	}

	s.MustRun(t, "rm", "-rf", confDir)
	s.put(t, strings.Replace(example(t), "Kept as declared.", "Declared again.", 1))
	s.awaitConverged(t)
	s.wantPage(t, "Declared again.")
}

func (s *site) offInOrder(t *testing.T) { s.Poweroff(t) }

func (s *site) offAtOnce(t *testing.T) { s.PowerCut(t) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
