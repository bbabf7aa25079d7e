package repository

import (
	"io"
	"regexp"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/kill"
)

func TestMain(m *testing.M) { kill.Main(m, openType) }

func openType(string) (hosttest.TypeOf, io.Closer, error) {
	root, err := disk.OpenRoot("/")
	if err != nil {
		return nil, nil, err
	}
	typ := New(Options{Root: root})
	return func(declare.Resource) host.Type { return typ }, root, nil
}

// writing matches a system call after which a directory is another one, and one that runs something. What is
// written into a temporary file by others is nothing to see.
var writing = regexp.MustCompile(`^(rename|(un)?link|mk|rm|clone|v?fork|openat?.*O_CREAT)`)

// TestAgentCase13_KillRepository kills an apply at each system call with which its main thread changes something, the start of apt-get
// included; another agent then goes on.
func TestAgentCase13_KillRepository(t *testing.T) {
	c := casetest.Start(t)
	needs(t, "strace")
	if !inside(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	g, s, us := newGround(t, "/"), newServer(t), newSigner(t, "us")
	s.deb("one", "1.0")
	s.suite("stable", us)
	r := aptRepository(s.url, "stable", us.armored)
	kills := kill.Everywhere(t, kill.Row{
		Open: openType, Resources: []declare.Resource{r},
		Arrange: func(t testing.TB) {
			run(t, "sh", "-ec", "rm -rf /etc/apt/sources.list.d /etc/apt/keyrings "+aptLists+"/* "+stageDir)
		},
		See:     func(testing.TB) []string { return []string{g.see(labFile), g.see(labKey)} },
		Classes: "%file,%desc,%process", Alone: true,
		At: func(calls []string, i, _ int) bool { return writing.MatchString(calls[i]) },
		Settle: func(t testing.TB) {
			until(t, "apt-get has ended", func() bool { _, err := attempt(t, "pidof", "apt-get"); return err != nil })
		},
		Killed: func(t testing.TB, at string) {
			if g.see(labFile) != "" && g.see(labKey) == "" {
				t.Errorf("killed at %s: the file is there without its key", at)
			}
		},
		Dirs: []string{"/etc/apt", "/run"},
	})
	c.Check(kills > 10, "killed at %d places only", kills)
	t.Logf("killed at %d system calls", kills)
}
