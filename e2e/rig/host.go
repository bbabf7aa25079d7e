package rig

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
)

// Host is a directory that an agent keeps.
type Host struct {
	Rig   *Rig
	Name  string
	Root  string
	Log   string    // file of all that its agents say
	Flags []string  // more of them, for agents that start from now on
	Agent *exec.Cmd // nil before Start

	ended chan struct{}
}

// Join makes a host, which does not run yet. The flags are those of `tako token create join`.
func (g *Rig) Join(name string, flags ...string) *Host {
	g.Helper()
	s := &Host{Rig: g, Name: name, Root: filepath.Join(g.Dir, name), Log: filepath.Join(g.Dir, name+".log")}
	for _, d := range []string{"etc", "srv"} {
		if err := os.MkdirAll(filepath.Join(s.Root, d), 0o755); err != nil {
			g.Fatal(err)
		}
	}
	line := g.Tako(append([]string{"token", "create", "join", "--name", name}, flags...)...)
	ctx, cancel := context.WithTimeout(g.Context(), InTime)
	defer cancel()
	join := exec.CommandContext(ctx, filepath.Join(g.Bin, "tako-agent"), "join", "-", "--root", s.Root, "--name", name)
	join.Stdin = strings.NewReader(line)
	if out, err := join.CombinedOutput(); err != nil {
		g.Fatalf("join: %v\n%s", err, out)
	}
	return s
}

// Start starts its agent.
func (s *Host) Start() {
	s.Rig.Helper()
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.Rig.Fatal(err)
	}
	defer log.Close()
	agent := exec.CommandContext(context.Background(), filepath.Join(s.Rig.Bin, "tako-agent"), append([]string{"run", "--root", s.Root}, s.Flags...)...) // it is ended below
	agent.Stdout, agent.Stderr = log, log
	ended := make(chan struct{})
	if err := host.StartBound(agent, func() {
		_ = agent.Wait() // how it ended is what signals have done
		close(ended)
	}); err != nil {
		s.Rig.Fatal(err)
	}
	s.Agent, s.ended = agent, ended
	s.Rig.Cleanup(func() {
		_ = agent.Process.Kill() // it may have ended
		<-ended
		if s.Rig.Failed() {
			text, _ := os.ReadFile(s.Log)
			s.Rig.Logf("the agent of %s said:\n%s", s.Name, text[max(0, len(text)-8<<10):])
		}
	})
}

// End ends its agent by a signal.
func (s *Host) End(signal syscall.Signal) {
	s.Rig.Helper()
	_ = s.Agent.Process.Signal(signal) // it may have ended
	late := time.NewTimer(InTime)
	defer late.Stop()
	select {
	case <-s.ended:
	case <-late.C:
		s.Rig.Fatalf("the agent of %s does not end", s.Name)
	}
}

// Stop ends its agent as systemd does.
func (s *Host) Stop() { s.Rig.Helper(); s.End(syscall.SIGTERM) }

// Kill ends its agent as the kernel does when memory is short.
func (s *Host) Kill() { s.Rig.Helper(); s.End(syscall.SIGKILL) }

// Path is where a file of the host is on this machine.
func (s *Host) Path(p string) string { return filepath.Join(s.Root, p) }

// State is the directory of the agent's own.
func (s *Host) State() string { return s.Path("var/lib/tako") }

// Read is what a file has; empty where there is none.
func (s *Host) Read(p string) string {
	text, _ := os.ReadFile(s.Path(p)) // what is not there has no text
	return string(text)
}

// Count is how many files a directory has.
func (s *Host) Count(p string) int {
	all, _ := os.ReadDir(s.Path(p)) // what is not there has none
	return len(all)
}

// Until waits until something of the host is so.
func (s *Host) Until(what string, look func() (string, bool)) {
	s.Rig.Helper()
	host.Eventually(s.Rig.T, InTime, s.Name+": "+what, look)
}

// Has waits until a file has a content.
func (s *Host) Has(p, content string) {
	s.Rig.Helper()
	s.Until(p+" is as declared", func() (string, bool) {
		got := s.Read(p)
		return strconv.Quote(got[:min(len(got), 200)]), got == content
	})
}

// Keeps proves that an agent which runs keeps a file: what somebody else writes there is repaired.
func (s *Host) Keeps(p, content string) {
	s.Rig.Helper()
	s.Has(p, content)
	if err := os.WriteFile(s.Path(p), []byte("drift\n"), 0o600); err != nil {
		s.Rig.Fatal(err)
	}
	s.Has(p, content)
}

// Node reads its Node.
func (s *Host) Node() v1alpha1.Node {
	s.Rig.Helper()
	var n v1alpha1.Node
	s.Rig.Get(&n, "node/"+s.Name)
	return n
}

// Assignment reads what it is assigned.
func (s *Host) Assignment() v1alpha1.Assignment {
	s.Rig.Helper()
	var a v1alpha1.Assignment
	s.Rig.Get(&a, "assignment/"+s.Name)
	return a
}
