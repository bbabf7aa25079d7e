package shim

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

// look is what there is of an attempt; false: nothing. Of one whose shim is gone it settles what became of it.
func (r *Shims) look(id run.ID) (s run.Status, there bool, err error) {
	if err := id.Valid(); err != nil {
		return run.Status{}, false, err
	}
	if s, there, err := r.over(id); there || err != nil {
		return s, there, err
	}
	var b begun
	ok, err := r.tree.get(id, begunFile, &b)
	switch {
	case reason.Is(err, reason.StateCorrupt):
		b = begun{Boot: r.boot} // who cannot be told from others is looked for by its lock and its variable
	case err != nil || !ok:
		return run.Status{}, false, err
	}
	s = run.Status{ID: id, Phase: run.Starting, Boot: b.Boot}
	lives, err := false, error(nil)
	if b.Boot == r.boot {
		lives, err = held(r.tree.in(id, lockFile))
	}
	if err != nil {
		return s, true, &reason.Error{Code: reason.SystemCallFailed, Doing: "look at the lock of " + id.String(), Cause: err}
	}
	if !lives {
		return r.settle(id, &b)
	}
	var is running
	if ok, _ := r.tree.get(id, runningFile, &is); ok { // without it, it is as if it were just being started
		s.Phase, s.PID, s.Started = run.Running, is.PID, is.Started
	}
	return s, true, nil
}

// over is an attempt that has ended.
func (r *Shims) over(id run.ID) (s run.Status, there bool, err error) {
	var e ended
	ok, err := r.tree.get(id, endedFile, &e)
	if reason.Is(err, reason.StateCorrupt) {
		return run.Status{ID: id, Phase: run.Ended, Boot: r.boot, Ending: run.Ending{Cause: run.Lost, Words: "what it came to cannot be read any more"}}, true, nil
	}
	if !ok || err != nil {
		return run.Status{}, false, err
	}
	return run.Status{ID: id, Phase: run.Ended, Boot: e.Boot, Started: e.Started, Ending: e.Ending}, true, nil
}

// settle notes that an attempt is lost, after it has ended what is left of it.
func (r *Shims) settle(id run.ID, b *begun) (run.Status, bool, error) {
	r.gone.Lock()
	defer r.gone.Unlock()
	if s, there, err := r.over(id); there || err != nil { // the shim has said so just before its lock was looked at
		return s, there, err
	}
	e := ended{Boot: b.Boot, Ending: run.Ending{Cause: run.Lost, At: now(), Words: "the host was restarted"}}
	var is running
	if ok, _ := r.tree.get(id, runningFile, &is); ok {
		e.Started = is.Started
	}
	if b.Boot == r.boot {
		e.Ending.Words = "the process that minded it was killed"
		e.Ending.Survived = r.endRest(id, b)
	}
	if err := r.tree.put(id, endedFile, e, true); err != nil {
		if _, gone := os.Lstat(r.tree.attempt(id)); os.IsNotExist(gone) {
			return run.Status{}, false, nil // it was removed meanwhile
		}
		return run.Status{}, true, &reason.Error{Code: reason.StateUnwritable, Doing: "note what became of " + id.String(), Cause: err}
	}
	return r.over(id)
}

// endRounds is how often what is left of an attempt is looked for and killed: each round finds what was started before it.
const endRounds = 200

// endRest ends what is left of an attempt whose shim is gone, and returns how many that could not be.
func (r *Shims) endRest(id run.ID, b *begun) int {
	b.Group.noMore()
	for range endRounds {
		pids := append(marked(id.String()), b.Group.members()...)
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			killSeen(id, b, pid)
		}
	}
	left := len(marked(id.String())) + len(b.Group.members())
	if left == 0 {
		_ = b.Group.clear() // an empty one costs little, and Remove tries again
	}
	return left
}

// killSeen kills a process and waits for a moment until it is gone. A number may have become another's since: what the descriptor is of is
// looked at once more.
func killSeen(id run.ID, b *begun, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	if !contains(marked(id.String()), pid) && !contains(b.Group.members(), pid) {
		return
	}
	if unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0) == nil {
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(killEvery.Milliseconds()))
	}
}

func contains(pids []int, pid int) bool {
	for _, p := range pids {
		if p == pid {
			return true
		}
	}
	return false
}

// left are processes of an attempt that has ended and could not be ended with it.
func (r *Shims) left(id run.ID) []int {
	return append(marked(id.String()), r.home.of(id).members()...)
}
