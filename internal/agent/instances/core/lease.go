package core

import (
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	life "tako.dev/tako/internal/run/core"
)

// An instance with a lease may run for so long after its host has heard a server last, and is over when that was too long ago, for good: while
// nobody heard this host another copy may have been begun elsewhere, and which of the two is to run is for a server to say, who sends another
// instance for that. So neither a word of a server that comes late, nor a state that is on the disk still, begins the old copy again. A host that
// was restarted has no lease of any.

func (i *instance) leaseTime() time.Duration { return time.Duration(i.Instance.Lease) * time.Second }

// grant begins the lease of an instance that a server has just sent, or bounded: with the last word of one.
func (m *Machine) grant(i *instance, seconds int) {
	if seconds == 0 || m.now.Heard == 0 {
		return
	}
	i.leased = m.now.Heard.Add(time.Duration(seconds) * time.Second)
	for k := range i.tasks {
		if s := &i.tasks[k].state; s.Boot == m.now.Boot {
			s.Lease = max(s.Lease, i.leased)
		}
	}
}

// fence ends an instance that has been without its lease. One whose tasks have not begun is given more of it here.
func (m *Machine) fence(i *instance) {
	if i.Instance.Lease == 0 || i.Stop || i.Failure != nil || len(i.tasks) == 0 {
		return
	}
	for k := range i.tasks {
		s := &i.tasks[k].state
		switch {
		case s.Phase == life.Finished:
		case s.Boot != m.now.Boot, m.now.At >= s.Lease:
			m.fail(i, &Failure{Code: reason.LeaseOver, OfNode: true,
				Message: fmt.Sprintf("no server was heard for %d s, or the host was restarted meanwhile: another copy may have been begun elsewhere", i.Instance.Lease)})
			return
		case !i.begun && m.now.Heard > 0:
			s.Lease = max(s.Lease, m.now.Heard.Add(i.leaseTime()))
		}
	}
}

// lease puts off the end of what a task may run for. It is kept on disk, so it is put off when half of it is over, not with each word of a
// server.
func (m *Machine) lease(i *instance, t *task) {
	length := i.leaseTime()
	until := m.now.Heard.Add(length)
	var e life.Event
	if s := &t.state; until > s.Lease && s.Lease.Sub(m.now.At) <= length/2 {
		e = life.Leased{Until: until}
	}
	m.stepTask(i, t, e)
}

// leaseAt is when the lease of an instance has to be looked at: when half of it is over, to have it put off, and when all of it is.
func (m *Machine) leaseAt(i *instance) (at run.Moment, some bool) {
	if i.Instance.Lease == 0 || i.Over || i.Stop || i.Failure != nil {
		return 0, false
	}
	for k := range i.tasks {
		s := &i.tasks[k].state
		next := s.Lease.Add(-i.leaseTime() / 2)
		if next <= m.now.At {
			next = s.Lease
		}
		if s.Phase != life.Finished && (!some || next < at) {
			at, some = next, true
		}
	}
	return at, some
}

// hungry reports whether the lease of an instance is half over.
func (m *Machine) hungry(i *instance) bool {
	if i.Instance.Lease == 0 || i.Over || i.Stop || i.Failure != nil {
		return false
	}
	return slices.ContainsFunc(i.tasks, func(t task) bool {
		return t.state.Phase != life.Finished && t.state.Lease.Sub(m.now.At) <= i.leaseTime()/2
	})
}
