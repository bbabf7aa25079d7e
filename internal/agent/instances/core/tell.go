package core

import (
	"fmt"
	"maps"
	"slices"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	life "tako.dev/tako/internal/run/core"
	"tako.dev/tako/internal/transfer/wire"
)

// told is what is told of an instance, and when it has to be looked at again.
type told struct {
	wire.Instance
	wake   run.Moment
	wakes  bool
	hungry bool // a word of a server is needed
}

func (t *told) due(now run.Moment) bool { return t.wakes && t.wake <= now }

// tell works out what is told of an instance.
func (m *Machine) tell(i *instance) {
	n := wire.Instance{UID: i.Instance.UID, Phase: i.phase(), Ready: i.ready(), Revision: i.taken()}
	var attempt uint32
	for k := range i.tasks {
		s := &i.tasks[k].state
		n.Restarts += s.Restarts
		attempt += s.Attempt
		if s.Phase == life.Waiting && i.begun || s.Phase == life.Stopping && !s.Stopped {
			attempt++ // the one that comes: what is told goes forward only. Where nothing has begun none comes: it may be refused yet
		}
	}
	i.Attempt = max(i.Attempt, attempt)
	n.Attempt = i.Attempt
	for _, name := range slices.Sorted(maps.Keys(i.Ports)) {
		n.Ports = append(n.Ports, wire.InstancePort{Name: name, Number: uint16(i.Ports[name])})
	}
	if f := i.failure(); f != nil {
		n.Code, n.Message, n.OfNode = f.Code, wire.Text(f.Message), f.OfNode
		if n.Since = m.now.Wall.UnixMilli(); i.told.Code == n.Code {
			n.Since = i.told.Since
		}
	}
	last := &i.told.Instance
	same := last.Phase == n.Phase && last.Ready == n.Ready && last.Attempt == n.Attempt && last.Code == n.Code && last.Message == n.Message && last.Restarts == n.Restarts && last.Revision == n.Revision &&
		len(last.Ports) == len(n.Ports) && last.UID == n.UID
	m.news = m.news || !same
	i.told.Instance = n
	i.told.wake, i.told.wakes = m.wakeOf(i)
	was := i.told.hungry
	if i.told.hungry = m.hungry(i); i.told.hungry && !was {
		m.do(Renew{})
	}
}

// taken is the hash of the revision that an instance goes by. One with a name that servers do not give is not told.
func (i *instance) taken() string {
	hash := workload.HashIn(i.Instance.Workload, i.Instance.Revision)
	if len(hash) > wire.RevisionHashMax {
		return ""
	}
	return hash
}

// wakeOf is when an instance has to be looked at though nothing happens.
func (m *Machine) wakeOf(i *instance) (at run.Moment, some bool) {
	at, some = m.leaseAt(i)
	if i.Over || !i.begun {
		return at, some
	}
	for k := range i.tasks {
		t := &i.tasks[k]
		if i.template == nil && t.state.Phase == life.Waiting && !i.Stop {
			continue
		}
		if next, wakes := life.WakeAt(&t.config, &t.state, m.now.At); wakes && (!some || next < at) {
			at, some = next, true
		}
	}
	return at, some
}

// WakeAt is when a Machine has to be stepped though nothing happens; false: not by itself.
func (m *Machine) WakeAt() (at run.Moment, some bool) {
	for _, i := range m.instances {
		if i.told.wakes && (!some || i.told.wake < at) {
			at, some = i.told.wake, true
		}
	}
	return at, some
}

// Hungry reports whether something needs a word of a server, to go on or to begin: a step is due with that.
func (m *Machine) Hungry() bool {
	for _, i := range m.instances {
		if i.told.hungry {
			return true
		}
	}
	return false
}

// News reports whether something that is told has changed since it was called last.
func (m *Machine) News() bool {
	news := m.news
	m.news = false
	return news
}

// Told is what is told of all instances, by UID.
func (m *Machine) Told() []wire.Instance {
	list := make([]wire.Instance, 0, len(m.instances))
	for _, uid := range m.order() {
		list = append(list, m.instances[uid].told.Instance)
	}
	return list
}

// phase is how far an instance has come.
func (i *instance) phase() wire.InstancePhase {
	every := func(is func(*task) bool) bool {
		for k := range i.tasks {
			if !is(&i.tasks[k]) {
				return false
			}
		}
		return len(i.tasks) > 0
	}
	well := every(func(t *task) bool { return t.state.Succeeded() })
	switch {
	case i.Over && (i.Failure != nil || i.Instance.Job && !well):
		return wire.InstanceFailed
	case i.Over:
		return wire.InstanceDone
	case i.Stop, i.Failure != nil:
		return wire.InstanceTerminating
	case i.Held == nil || !i.Bound:
		return wire.InstancePlaced
	case every(func(t *task) bool { return t.state.Phase == life.Running && t.state.StartUp || t.state.Succeeded() }):
		return wire.InstanceRunning
	}
	return wire.InstanceStarting
}

// ready reports whether an instance can be used: all that runs of it, and something does.
func (i *instance) ready() bool {
	if i.phase() != wire.InstanceRunning {
		return false
	}
	some := false
	for k := range i.tasks {
		s := &i.tasks[k].state
		if s.Phase == life.Running && !s.Ready {
			return false
		}
		some = some || s.Ready
	}
	return some
}

// failure is why an instance does not work; nil where nothing speaks against it.
func (i *instance) failure() *Failure {
	switch {
	case i.Failure != nil:
		return i.Failure
	case i.Over || i.Stop:
		return nil
	}
	for k := range i.tasks {
		if f := i.tasks[k].failure(); f != nil {
			return f
		}
	}
	return i.unread
}

// failure is why a task does not work.
func (t *task) failure() *Failure {
	s := &t.state
	switch {
	case s.Phase == life.Running && s.Ready, s.Phase == life.Finished:
		return nil
	}
	for _, probe := range []life.ProbeKind{life.Startup, life.Readiness, life.Liveness} {
		if a := &t.answers[probe]; s.Phase == life.Running && a.Number > 0 && !a.Yes && s.StartUp == (probe != life.Startup) {
			return &Failure{Code: reason.ProbeFailed, Message: fmt.Sprintf("task %s: its %s probe: %s", t.name, probe, a.Words)}
		}
	}
	if t.refused != nil {
		f := *t.refused
		f.Message = clip(f.Message, messageMax-againMax) + again(s)
		return &f
	}
	if (s.Phase == life.Waiting || s.Phase == life.Starting || s.Phase == life.Running && !s.StartUp) && len(s.Log) > 0 {
		return ended(t)
	}
	return nil
}

// ended is the end of the last attempt of a task as a failure.
func ended(t *task) *Failure {
	last := &t.state.Log[len(t.state.Log)-1]
	if last.Why == life.Wanted || last.Well() {
		return nil
	}
	message := fmt.Sprintf("task %s: attempt %d %s", t.name, last.Attempt, last.Text())
	if probe := last.Why.Probe(); probe < life.ProbeKinds && t.answers[probe].Number > 0 {
		message += ": " + t.answers[probe].Words
	}
	return &Failure{Code: reason.TaskEnded, Message: message + again(&t.state)}
}

// againMax is above how long the words of again are.
const againMax = 64

// again says when a task that waits is started again. It names the pause and not the moment, so that what is told does not change while it waits.
func again(s *life.State) string {
	if s.Phase != life.Waiting || s.Restarts == 0 || s.Pause == 0 {
		return ""
	}
	return fmt.Sprintf("; restart %d comes %v after that", s.Restarts, duration(s.Pause))
}
