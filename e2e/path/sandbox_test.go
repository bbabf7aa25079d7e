package path

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/rig"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/transfer/core"
)

// inTime bounds the wait for what takes milliseconds, or a host a few tries to connect, on a busy machine.
const inTime = rig.InTime

// TestMain: what tests write into hosts has the modes that they say, whoever runs them.
func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	m.Run()
}

// ground is a server and hosts that are directories of this machine: the built programs, and no need of root.
type ground struct{ *rig.Rig }

func newGround(t *testing.T) *ground {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the built programs, which -short leaves out")
	}
	return &ground{rig.New(t)}
}

// sandbox is a host: a directory that an agent keeps.
type sandbox struct {
	*rig.Host
	ground *ground
}

// join makes a host, which does not run yet.
func (g *ground) join(name string, flags ...string) *sandbox {
	g.Helper()
	return &sandbox{g.Join(name, flags...), g}
}

// reports waits until its Node says something.
func (s *sandbox) reports(what string, is func(*v1alpha1.Node) bool) v1alpha1.Node {
	s.ground.Helper()
	var n v1alpha1.Node
	s.Until(what, func() (string, bool) {
		n = s.Node()
		text, err := json.Marshal(n.Status)
		return fmt.Sprintf("%s %v", text, err), is(&n)
	})
	return n
}

// converges waits until the newest that it is assigned is applied.
func (s *sandbox) converges() v1alpha1.Node {
	s.ground.Helper()
	return s.reports("it is converged", func(n *v1alpha1.Node) bool {
		var e everything
		s.ground.Get(&e.assignment, "assignment/"+s.Name)
		s.ground.Get(&e.configs, "nodeconfigs", "-A")
		s.ground.Get(&e.cluster, "clusternodeconfigs")
		return e.assigned(n) && converged(n)
	})
}

// kept is what it holds durably: read from a copy, because an agent may have the original.
func (s *sandbox) kept() core.Kept {
	s.ground.Helper()
	copied := s.ground.TempDir()
	text, err := os.ReadFile(filepath.Join(s.State(), "heads"))
	if os.IsNotExist(err) {
		return core.Kept{}
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(copied, "heads"), text, 0o600)
	}
	if err != nil {
		s.ground.Fatal(err)
	}
	store, err := held.Open(copied, time.Now())
	if err != nil {
		s.ground.Fatal(err)
	}
	defer store.Close()
	kept, err := store.Kept()
	if err != nil {
		s.ground.Fatal(err)
	}
	return kept
}
