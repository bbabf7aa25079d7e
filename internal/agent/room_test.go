package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// small puts the state directory on a small file system.
func (s *site) small() {
	s.t.Helper()
	if os.Geteuid() != 0 {
		s.t.Skip("needs root, to mount a small file system")
	}
	if err := os.Mkdir(s.opts.StateDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		s.t.Fatal(err)
	}
	small := s.path("small")
	must(s.t, os.Mkdir(small, 0o700))
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		s.t.Skip("needs root in the host's own name space, to mount a small file system: " + err.Error())
	}
	s.t.Cleanup(func() { must(s.t, unix.Unmount(small, unix.MNT_DETACH)) })
	out, err := exec.Command("cp", "-a", s.opts.StateDir+"/.", small).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	s.opts.StateDir = small
}

// fill leaves no room in the state directory, and returns what makes some.
func (s *site) fill() (room func()) {
	s.t.Helper()
	f, err := os.Create(s.opts.StateDir + "/filler")
	must(s.t, err)
	for chunk := make([]byte, 4096); err == nil; {
		_, err = f.Write(chunk)
	}
	if !errors.Is(err, unix.ENOSPC) {
		s.t.Fatal(err)
	}
	must(s.t, f.Close())
	return func() { must(s.t, os.Remove(f.Name())) }
}

// stuck is watch for an agent that cannot write what it has to when it ends, and says so.
func (s *site) stuck() (stop func()) {
	s.t.Helper()
	opts := s.opts
	opts.Watch = true
	a, err := New(opts)
	must(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !reason.Is(err, reason.StateUnwritable) {
			s.t.Errorf("the agent ended with %v", err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

func unwritable(r *Report) bool {
	return slices.ContainsFunc(r.Degraded, func(p Problem) bool { return p.Code == reason.StateUnwritable })
}

// TestStartsWithoutRoom: a host that stands alone is kept as it was when its declaration has changed meanwhile and cannot be taken in,
// says so, and takes it in when there is room.
func TestStartsWithoutRoom(t *testing.T) {
	s := newSite(t)
	s.small()
	s.declare("a", "b|onRemove: delete")
	stop := s.watch()
	s.until("it is converged", func(r *Report) bool { return r.Converged && r.Settled })
	stop()
	s.declare("a", "c")
	s.edit("a", "theirs")
	room := s.fill()
	s.watch()
	s.until("it says so", func(r *Report) bool { return r.Settled && len(r.Refused) == 1 && unwritable(r) })
	s.holds("a", "text of a")
	s.holds("b", "text of b")
	s.edit("a", "theirs again")
	s.until("drift is repaired", func(r *Report) bool { return r.Totals.Drift == 2 })
	room()
	s.until("it has healed", func(r *Report) bool { return r.Converged && r.Settled && !unwritable(r) && len(r.Refused) == 0 })
	s.holds("c", "text of c")
	s.holds("b", "")
}

// TestJoinedStartsWithoutRoom: the same for a host that has joined. Each of its runs has a number of its own, also when none can be
// written down.
func TestJoinedStartsWithoutRoom(t *testing.T) {
	s, c := joinedSite(t)
	s.small()
	stop := s.watch()
	m := c.assign(nil, c.config("NodeConfig/web", 5, filesOf("a", "b")...))
	c.settles(m, wire.Applied)
	stop()
	room := s.fill()
	for start := range uint64(2) {
		s.edit("a", "theirs")
		stop = s.stuck()
		s.until("a is repaired", func(r *Report) bool { return r.Converged && r.Settled && r.Totals.Drift > 0 && unwritable(r) })
		s.holds("a", "text of a")
		c.until("the servers hear of it", func(r *wire.Report) bool { return r.Session.Start == start+2 && r.Verdict.Type == wire.Applied })
		if start == 0 {
			stop()
		}
	}
	room()
	s.until("it has healed", func(r *Report) bool { return r.Converged && !unwritable(r) })
	stop()
	s.watch()
	c.until("the next number", func(r *wire.Report) bool { return r.Session.Start == 4 })
}

// TestRemovalNeedsRoom: what could not be noted as removed is not removed.
func TestRemovalNeedsRoom(t *testing.T) {
	s := newSite(t)
	s.small()
	s.declare("a", "b|onRemove: delete")
	must(t, s.converge())
	s.files.fail("remove /b", &reason.Error{Code: reason.DiskFull, Doing: "remove /b"})
	s.declare("a")
	if s.converge() == nil {
		t.Fatal("b is removed")
	}
	s.files.fail("remove /b", nil)
	journal := s.opts.StateDir + "/journal"
	text, err := os.ReadFile(journal)
	must(t, err)
	must(t, os.Remove(journal)) // with the room that the attempt has left for its note
	must(t, os.WriteFile(journal, text, 0o600))
	room := s.fill()
	s.watch()
	s.until("it waits for room", func(r *Report) bool {
		b := resource(r, "file/b")
		return b.Outcome == reason.Failed && b.Problem != nil && b.Problem.Code == reason.StateUnwritable
	})
	s.holds("b", "text of b")
	room()
	s.until("b is removed", func(r *Report) bool { return r.Converged && r.Settled })
	s.holds("b", "")
}

// TestJournalThatCannotBeMade: an agent without a journal keeps what is active, and promises nothing.
func TestJournalThatCannotBeMade(t *testing.T) {
	s := newSite(t)
	s.small()
	s.declare("a", "b.service", "c|notify: [b.service]")
	must(t, s.converge())
	must(t, os.Remove(s.opts.StateDir+"/journal"))
	s.edit("a", "theirs")
	s.edit("c", "theirs")
	room := s.fill()
	s.watch()
	r := s.until("a is repaired and c is not", func(r *Report) bool {
		return resource(r, "file/a").Outcome == reason.Repaired && resource(r, "file/c").Outcome == reason.Failed
	})
	s.holds("c", "theirs")
	if !unwritable(r) {
		t.Errorf("it does not say so: %+v", r.Degraded)
	}
	room()
	s.until("c is repaired", func(r *Report) bool { return r.Converged && r.Settled && !unwritable(r) })
	if st, err := store.Inspect(s.opts.StateDir); err != nil || len(st.Troubles()) > 0 {
		t.Errorf("the state directory afterwards: %v", err)
	}
}
