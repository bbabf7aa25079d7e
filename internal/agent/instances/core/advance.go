package core

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	life "tako.dev/tako/internal/run/core"
	"tako.dev/tako/internal/scheduler/fit"
)

func duration(ns int64) time.Duration { return time.Duration(ns) }

// advance does what is due of an instance, after what has happened to it, and has its record saved before that.
func (m *Machine) advance(i *instance, happened func()) {
	first, over := len(m.effects), i.Over
	if happened != nil {
		happened()
	}
	if !i.Over {
		m.fence(i)
		m.admit(i)
		m.begin(i)
		m.live(i)
		m.finish(i)
	}
	if !i.Over || i.wanted || !m.known || !m.drop(i) {
		m.tell(i)
		m.save(i, first)
	}
	if i.Over && !over {
		m.succeed(i)
	}
}

// succeed begins what has waited for the end of the one before in its slot. What is to end itself is not looked at.
func (m *Machine) succeed(before *instance) {
	for _, uid := range m.order() {
		if i := m.instances[uid]; i != nil && i != before && i.wanted && !i.Over && !i.Stop && !i.begun && i.follows(before) {
			m.advance(i, nil)
		}
	}
}

// follows reports whether an instance has the slot of another one, and with that its data.
func (i *instance) follows(before *instance) bool {
	a, b := &i.Instance, &before.Instance
	return a.Namespace == b.Namespace && a.Workload == b.Workload && a.Slot == b.Slot && i.template != nil && i.template.Stick() != ""
}

// precedes is an instance that has begun, has the same data as one that has not, and is not over: two processes on one directory destroy it. Of two that
// have begun neither waits for the other.
func (m *Machine) precedes(i *instance) bool {
	if m.started(i) {
		return false
	}
	for _, other := range m.instances {
		if other != i && !other.Over && i.follows(other) && m.started(other) {
			return true
		}
	}
	return false
}

// started reports whether something of an instance may run, or has run, as far as is known.
func (m *Machine) started(i *instance) bool {
	return i.begun || slices.ContainsFunc(i.tasks, func(t task) bool { return t.state.Attempt > 0 }) || len(m.attemptsOf(i.Instance.UID)) > 0
}

// save puts a record that has changed in front of what may be done after it is durable only.
func (m *Machine) save(i *instance, first int) {
	if i.Held == nil && !i.Over {
		return // nothing of it is worth a file: it will be refused again, or admitted
	}
	i.Tasks = i.Tasks[:0:0]
	for k := range i.tasks {
		t := &i.tasks[k]
		state, err := t.state.Encode()
		if err != nil {
			state = nil // it cannot be: a state has no type that has no encoding
		}
		i.Tasks = append(i.Tasks, TaskRecord{Name: t.name, State: state, Signal: t.config.StopSignal, Grace: int64(t.config.Grace), Delay: int64(t.config.StopDelay)})
	}
	data, err := i.Record.encode()
	if err != nil {
		return
	}
	if sum := sha256.Sum256(data); sum != i.saved {
		i.saved = sum
		m.effects = slices.Insert(m.effects, first, Effect(Save{i.Instance.UID, data}))
	}
}

// drop forgets an instance, and reports whether it could: everything of it must have ended.
func (m *Machine) drop(i *instance) bool {
	if m.runsStill(i) {
		return false // it comes back with the end
	}
	ids := m.attemptsOf(i.Instance.UID)
	for _, id := range ids {
		delete(m.attempts, id)
	}
	delete(m.instances, i.Instance.UID)
	m.news = true
	m.do(Drop{i.Instance.UID, i.Runtime, ids})
	return true
}

// admit has the host take an instance, or says why it does not.
func (m *Machine) admit(i *instance) {
	uid := i.Instance.UID
	switch here := slices.Contains(m.node.Runtimes, i.Runtime); {
	case i.Held != nil, here && !m.listed[i.Runtime], i.Runtime == "" && !m.listedAll(): // what its runtime has may be this one's
		return
	case i.Stop || i.Failure != nil:
		i.Over = !m.runsStill(i)
		return
	case i.template == nil:
		return
	case !here:
		m.refuse(i, &reason.Error{Code: reason.RuntimeUnfit, Doing: "run instance " + i.title(), Cause: fmt.Errorf("it needs runtime %s, and this host has %s", i.Runtime, named(m.node.Runtimes)),
			Hint: "name a runtime that its hosts have in spec.template.runtime"}, true)
		return
	}
	r, err := fit.Compile(&workload.Spec{Template: *i.template})
	if err != nil {
		m.refuse(i, reason.Of(err), false)
		return
	}
	if why := m.ledger.Admit(uid, r); len(why) > 0 {
		m.refuse(i, reason.Of(fit.Refuse(i.title(), why)), true)
		return
	}
	i.Held = &Holding{Amounts: r.Amounts, Ports: r.Ports, Devices: m.ledger.Devices(uid)}
}

// listedAll: it is known what all runtimes of the host have. One of them may run what has no record and no template that could be read.
func (m *Machine) listedAll() bool {
	return !slices.ContainsFunc(m.node.Runtimes, func(r workload.Runtime) bool { return !m.listed[r] })
}

// runsStill ends what an instance has that is over, and reports whether there is any: its record may have been lost.
func (m *Machine) runsStill(i *instance) bool {
	for _, id := range m.attemptsOf(i.Instance.UID) {
		if a := m.attempts[id]; a.status.Phase != run.Ended {
			m.do(Kill{a.runtime, id})
			return true
		}
	}
	return false
}

func named(list []workload.Runtime) string {
	if len(list) == 0 {
		return "none"
	}
	var names []string
	for _, r := range list {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// refuse ends an instance that has not begun.
func (m *Machine) refuse(i *instance, err *reason.Error, ofNode bool) {
	m.fail(i, failureOf(err, ofNode))
	m.release(i)
	i.Over = !m.runsStill(i)
}

// release gives back what an instance holds.
func (m *Machine) release(i *instance) {
	m.ledger.Release(i.Instance.UID)
	i.Held = nil
}

// begin gives the tasks of an instance what their runtime has, when everything is ready for that.
func (m *Machine) begin(i *instance) {
	if i.Held == nil || i.begun || !m.listed[i.Runtime] {
		return
	}
	switch ending := i.Stop || i.Failure != nil; {
	case !ending && (i.template == nil || m.precedes(i)):
		return
	case !i.Bound && !ending:
		m.bind(i)
		return
	}
	i.begun = true
	for k := range i.tasks {
		t := &i.tasks[k]
		// What is to end knows that before it knows what its runtime has lost, or it would be begun once more and only then be ended.
		t.state.Stopped = t.state.Stopped || i.Stop || i.Failure != nil
		had := m.statusesOf(i.Instance.UID, t.name)
		m.stepTask(i, t, life.Found{Attempts: had})
		for _, s := range had {
			if !i.restored && s.Phase != run.Ended && dynamic(i.template) {
				// Its record was lost, and with it the numbers that this process has in its environment.
				m.do(Kill{i.Runtime, s.ID})
			}
		}
	}
	i.restored = true
}

// dynamic reports whether a template has a port whose number is found on the host.
func dynamic(t *workload.Template) bool {
	return t != nil && slices.ContainsFunc(t.Tasks, func(task workload.Task) bool {
		return slices.ContainsFunc(task.Ports, func(p workload.Port) bool { return found(t, &p) })
	})
}

// found reports whether the number of a port is found on the host. In a network of its own an instance has all numbers, and the host leads one that
// is free there to each port.
func found(t *workload.Template, p *workload.Port) bool {
	return p.Port == 0 || t.NetworkOrDefault() == workload.OwnNetwork
}

// bind has numbers found for the ports of an instance.
func (m *Machine) bind(i *instance) {
	if i.binding {
		return
	}
	b := Bind{UID: i.Instance.UID, Held: m.ledger.Left().Ports}
	var inside []fit.Port
	for k := range i.template.Tasks {
		for _, p := range i.template.Tasks[k].Ports {
			need := Need{p.Name, p.ProtocolOrDefault(), p.Port}
			if p.Port != 0 && found(i.template, &p) {
				need.Number, inside = 0, append(inside, fit.Port{Protocol: need.Protocol, Number: p.Port})
			}
			b.Ports = append(b.Ports, need)
		}
	}
	if len(b.Ports) == 0 {
		i.Bound = true
		m.begin(i)
		return
	}
	for p, holder := range b.Held {
		if holder == i.Instance.UID {
			delete(b.Held, p)
		}
	}
	for _, p := range inside { // one that names no number has the same inside as on the host, where another one may not be
		b.Held[p] = i.Instance.UID
	}
	i.binding = true
	m.do(b)
}

// bound takes in which numbers its ports have.
func (m *Machine) bound(e Bound) {
	i := m.instances[e.UID]
	if i == nil || !i.binding {
		return
	}
	i.binding = false
	if i.Over || i.Stop || i.Failure != nil {
		return
	}
	m.advance(i, func() {
		if e.Err != nil {
			m.refuse(i, e.Err, true)
			return
		}
		r := i.Held.request()
		for k := range i.template.Tasks {
			for _, p := range i.template.Tasks[k].Ports {
				if found(i.template, &p) {
					r.Ports = append(r.Ports, fit.Port{Protocol: p.ProtocolOrDefault(), Number: e.Ports[p.Name]})
				}
			}
		}
		if why := m.ledger.Admit(e.UID, r); len(why) > 0 {
			return // somebody has got one of them meanwhile: others are found
		}
		i.Held.Ports, i.Ports, i.Bound = r.Ports, e.Ports, true
	})
}

// live gives the tasks of an instance what is true of all of them.
func (m *Machine) live(i *instance) {
	if !i.begun {
		return
	}
	for k := range i.tasks {
		t := &i.tasks[k]
		switch {
		case (i.Stop || i.Failure != nil) && !t.state.Stopped:
			m.stepTask(i, t, life.Stop{})
		case i.template == nil && t.state.Phase == life.Waiting:
			// It cannot be started.
		case t.config.Leased && m.now.Heard > 0:
			m.lease(i, t)
		default:
			m.stepTask(i, t, nil)
		}
	}
}

// stepTask is one step of one task.
func (m *Machine) stepTask(i *instance, t *task, e life.Event) {
	before := t.state
	state, effects := life.Step(&t.config, t.state, e, m.now.life())
	t.state = state
	m.note(i, t, &before)
	until := t.limit()
	for _, f := range effects {
		id := run.ID{Instance: i.Instance.UID, Task: t.name, Attempt: f.Attempt}
		start := Start{i.Runtime, id, f.Number, i.template, &i.Record, until}
		switch f.Action {
		case life.StartIt:
			if i.template != nil {
				t.starts++
				t.until = until
				start.Number = t.starts
				m.do(start)
			}
		case life.StopIt:
			m.do(Signal{i.Runtime, id, f.Signal})
		case life.KillIt:
			m.do(Kill{i.Runtime, id})
		case life.RemoveIt:
			m.do(Remove{i.Runtime, id})
			delete(m.attempts, id)
		case life.Ask:
			m.do(Ask{Start: start, Probe: f.Probe, Timeout: t.config.Probes[f.Probe].Timeout})
		}
	}
	if t.until != until && (state.Phase == life.Starting || state.Phase == life.Running || state.Phase == life.Stopping) {
		t.until = until
		m.do(Extend{i.Runtime, run.ID{Instance: i.Instance.UID, Task: t.name, Attempt: state.Attempt}, until})
	}
}

// limit is until when a task may run whatever becomes of this agent: as long as its lease lasts, and has to end then. 0: for ever.
func (t *task) limit() run.Moment {
	if !t.config.Leased {
		return 0
	}
	return t.state.Lease.Add(t.config.Grace)
}

// note has the history know of what has become of a task.
func (m *Machine) note(i *instance, t *task, before *life.State) {
	s := &t.state
	if s.Phase == life.Running && (before.Phase != life.Running || before.Attempt != s.Attempt) {
		t.answers, t.refused = [life.ProbeKinds]Answered{}, nil
		m.do(Note{Instance: i.title(), Task: t.name, Words: fmt.Sprintf("started, attempt %d", s.Attempt)})
	}
	if n := len(s.Log); n > 0 && (len(before.Log) == 0 || before.Log[len(before.Log)-1].Attempt != s.Log[n-1].Attempt) {
		past := &s.Log[n-1]
		note := Note{Instance: i.title(), Task: t.name, Words: fmt.Sprintf("%s, attempt %d", past.Text(), past.Attempt)}
		if !past.Well() && past.Why != life.Wanted {
			note.Code = reason.TaskEnded
		}
		m.do(note)
	}
}

// finish finds out whether an instance is over.
func (m *Machine) finish(i *instance) {
	if i.Over || i.Held == nil || !i.begun {
		return
	}
	for k := range i.tasks {
		s := &i.tasks[k].state
		if s.Phase != life.Finished {
			continue
		}
		if !s.Stopped && !s.Succeeded() && i.Failure == nil {
			// Its tasks are one thing: where one has failed for good the others are not needed any more.
			m.fail(i, ended(&i.tasks[k]))
			m.live(i)
			m.finish(i)
			return
		}
	}
	if slices.ContainsFunc(i.tasks, func(t task) bool { return t.state.Phase != life.Finished }) {
		return
	}
	i.Over = true
	m.release(i)
}
