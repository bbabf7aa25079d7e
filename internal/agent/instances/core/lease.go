package core

import (
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	life "tako.dev/tako/internal/run/core"
)

// An instance with a lease may run for so long after the newest report was made of which its host knows that the server which leads has heard it, and
// is over when that was too long ago, for good: while nobody heard this host another copy may have been begun elsewhere, and which of the two is to
// run is for a server to say, who sends another instance for that. So neither a word of a server that comes late, nor a state that is on the disk
// still, begins the old copy again. A host that was restarted has no lease of any.
//
// The lease of one that is sent begins with a report of before it came, though the host may learn later that it was heard; or with a later one, where it is
// known so soon after such a report that no fence can have passed between them: what came late, or by another way, may have been replaced otherwise.

// fenceLess is by how much a fence is longer than the lease, at least: see fenceMargin of fleet/workload.
const fenceLess = 30 * time.Second

// leaseLeast is what is left of a lease at least when it begins, or half of it where that is less: it takes some seconds through a relay until it is known that
// the next report was heard, and a copy whose lease ended before that would be over as soon as it had begun.
const leaseLeast = 10 * time.Second

func (i *instance) leaseTime() time.Duration { return time.Duration(i.Instance.Lease) * time.Second }

// grant begins the lease of an instance that a server has just sent, or as soon as it is known that a report of before was heard.
func (m *Machine) grant(i *instance, seconds int) {
	if seconds > 0 && i.came == 0 {
		i.came, i.prior = m.now.At, m.now.Heard
		m.begins(i, m.now.Heard, seconds)
	}
}

// limit begins the lease of an instance that went on without one until now.
func (m *Machine) limit(i *instance, seconds int) {
	if seconds > 0 {
		m.begins(i, m.now.At, seconds)
	}
}

// begins has a lease begin with a report, if enough is left of it.
func (m *Machine) begins(i *instance, heard run.Moment, seconds int) {
	length := time.Duration(seconds) * time.Second
	until := heard.Add(length)
	if heard == 0 || until < m.now.At.Add(min(leaseLeast, length/2)) {
		return
	}
	i.leased = until
	for k := range i.tasks {
		if s := &i.tasks[k].state; s.Boot == m.now.Boot || s.Boot == "" {
			s.Boot, s.Lease = m.now.Boot, max(s.Lease, i.leased)
		}
	}
}

// awaits reports whether the lease of an instance may yet begin: a report that was made before it came is on its way, or the answer is; or one that was
// made later would do.
func (m *Machine) awaits(i *instance) bool {
	return i.came > 0 && i.leased == 0 && (m.now.Heard <= i.came && m.now.At < i.came.Add(i.leaseTime()) || m.now.At < i.unfenced())
}

// unfenced is until when no fence of the host can have passed, by the last report of before an instance came.
func (i *instance) unfenced() run.Moment {
	if i.prior == 0 {
		return 0
	}
	return i.prior.Add(i.leaseTime() + fenceLess)
}

// fence ends an instance that has been without its lease. One whose tasks have not begun is given more of it here.
func (m *Machine) fence(i *instance) {
	if i.Instance.Lease == 0 || i.Stop || i.Failure != nil || len(i.tasks) == 0 {
		return
	}
	if m.awaits(i) {
		if m.now.Heard <= i.came {
			i.prior = m.now.Heard
		}
		if m.begins(i, m.now.Heard, i.Instance.Lease); i.leased == 0 {
			return
		}
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
	if s := &t.state; !m.awaits(i) && until > s.Lease && s.Lease.Sub(m.now.At) <= length/2 {
		e = life.Leased{Until: until}
	}
	m.stepTask(i, t, e)
}

// leaseAt is when the lease of an instance has to be looked at: when half of it is over, to have it put off, and when all of it is.
func (m *Machine) leaseAt(i *instance) (at run.Moment, some bool) {
	if i.Instance.Lease == 0 || i.Over || i.Stop || i.Failure != nil {
		return 0, false
	}
	if m.awaits(i) {
		return max(i.came.Add(i.leaseTime()), i.unfenced()), true
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
