package core

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	life "tako.dev/tako/internal/run/core"
	"tako.dev/tako/internal/scheduler/fit"
)

// Machine is what is known of the instances of one host. Use New.
type Machine struct {
	node      Node
	ledger    *fit.Ledger
	known     bool // what is wanted was told
	instances map[string]*instance
	attempts  map[run.ID]attempt // of all runtimes, as they told of them last
	listed    map[workload.Runtime]bool
	now       Now
	effects   []Effect
	news      bool // something that is told has changed since News
}

// attempt is one of a runtime.
type attempt struct {
	runtime workload.Runtime
	status  run.Status
}

// New is the Machine of a host that has nothing yet.
func New() *Machine {
	return &Machine{ledger: fit.NewLedger(fit.Node{}), instances: map[string]*instance{}, attempts: map[run.ID]attempt{}, listed: map[workload.Runtime]bool{}}
}

// instance is one instance.
type instance struct {
	Record
	wanted   bool // it is among what is desired
	template *workload.Template
	unread   *Failure   // why there is no template, or not the one of the revision that is wanted
	came     run.Moment // when a server has sent it with a lease; 0: it was here before, or has none
	prior    run.Moment // when the last report was made before that of which it is known that it was heard; 0: of none
	leased   run.Moment // until when it may run, as far as is known since then, before it has tasks that know; 0: it may not
	restored bool       // it has a record from before this run
	binding  bool       // Bind was asked for
	begun    bool       // its tasks know what their runtime has
	tasks    []task     // as Record.Tasks
	saved    [sha256.Size]byte
	told     told
}

// task is one task of an instance.
type task struct {
	name    string
	config  life.Config
	state   life.State
	answers [life.ProbeKinds]Answered // the last ones
	refused *Failure                  // why it was not started
	starts  uint32                    // how often Start was asked for
	until   run.Moment                // that its runtime was told of the present attempt; unknown: an earlier agent may have told it something
}

// unknown is no moment.
const unknown run.Moment = -1

func (i *instance) id(t *task) run.ID {
	return run.ID{Instance: i.Instance.UID, Task: t.name, Attempt: t.state.Attempt}
}

// title is what people call it.
func (i *instance) title() string { return i.Instance.Namespace + "/" + i.Instance.Name }

// Step is what follows from an event.
func (m *Machine) Step(now Now, e Event) []Effect {
	m.now, m.effects = now, nil
	switch e := e.(type) {
	case Node:
		m.node = e
		m.ledger.SetNode(e.Fit)
	case Restored:
		m.restore(e.Records)
	case Desired:
		m.desire(e.Instances)
	case Found:
		m.found(e)
	case Changed:
		m.changed(e)
	case NotStarted:
		m.notStarted(e)
	case Awaited:
		m.awaited(e)
	case Bound:
		m.bound(e)
	case Answered:
		m.answered(e)
	default:
		for _, uid := range m.order() {
			if i := m.instances[uid]; i.told.due(now.At) || i.told.hungry {
				m.advance(i, nil)
			}
		}
	}
	return m.effects
}

func (m *Machine) do(e Effect) { m.effects = append(m.effects, e) }

// order is in which order instances have their turn: what is here holds before what comes, and of what comes nothing says that one is
// better than the other.
func (m *Machine) order() []string { return slices.Sorted(maps.Keys(m.instances)) }

// restore takes up what an earlier run has left.
func (m *Machine) restore(records []Record) {
	for _, r := range records {
		i := &instance{Record: r, restored: true}
		for k := range r.Tasks {
			t := &r.Tasks[k]
			state, err := t.state()
			if err != nil {
				state = life.State{} // what runs is found, and taken over
			}
			told := task{name: t.Name, state: state, config: bare(t, r.Instance.Lease > 0)}
			if told.config.Leased {
				told.until = unknown
			}
			i.tasks = append(i.tasks, told)
		}
		if r.Held != nil && !r.Over {
			m.ledger.Hold(r.Instance.UID, r.Held.request(), r.Held.Devices)
		}
		if data, err := i.Record.encode(); err == nil {
			i.saved = sha256.Sum256(data)
		}
		m.instances[r.Instance.UID] = i
		m.tell(i)
	}
}

// bare is the life of a task whose template is not known: it can be ended.
func bare(t *TaskRecord, leased bool) life.Config {
	return life.Config{Policy: workload.RestartAlways, StopSignal: t.Signal, StopDelay: duration(t.Delay), Grace: duration(t.Grace), Leased: leased}
}

// desire compares what is wanted with what is here.
func (m *Machine) desire(list []Wanted) {
	// What an agent begins with is as old as its disk: that it was sent an instance then says nothing about now.
	old := !m.known
	m.known = true
	wanted := map[string]*Wanted{}
	for k := range list {
		wanted[list[k].UID] = &list[k]
	}
	for _, uid := range m.order() {
		i := m.instances[uid]
		w := wanted[uid]
		if i.wanted = w != nil; w == nil {
			m.stop(i)
			m.advance(i, nil)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(wanted)) {
		w := wanted[uid]
		i := m.instances[uid]
		if i == nil {
			i = &instance{Record: Record{Instance: w.Instance}, wanted: true}
			m.instances[uid] = i
		}
		switch {
		case old:
		case i.tasks == nil:
			m.grant(i, w.Lease)
		case i.Instance.Lease == 0:
			m.limit(i, w.Lease)
		}
		m.want(i, w)
		m.advance(i, nil)
	}
	m.sweep()
}

// stop has an instance end for good. From now on it is not ready, and loses its name; what has that from before comes for some time yet, and is served
// until its tasks get their signal. What nobody uses is not waited for.
func (m *Machine) stop(i *instance) {
	if i.Stop {
		return
	}
	used := i.Failure == nil && i.ready()
	i.Stop = true
	for k := range i.tasks {
		t := &i.tasks[k]
		if s := &t.state; used && s.Phase == life.Running && s.Boot == m.now.Boot && t.config.StopDelay > 0 {
			s.StopAt = m.now.At.Add(t.config.StopDelay)
			m.do(Note{Instance: i.title(), Task: t.name, Words: fmt.Sprintf("to end: its stop signal comes in %v", t.config.StopDelay)})
		}
	}
}

// want takes in how an instance is wanted. A revision that changes what a process has since its start is not for an instance that is there.
func (m *Machine) want(i *instance, w *Wanted) {
	if w.Stop {
		m.stop(i)
	}
	i.Instance.Slot, i.Instance.Lease = w.Slot, w.Lease
	if w.Template == nil {
		if w.Unread != nil && (i.template == nil || w.Revision != i.Instance.Revision) {
			i.unread = failureOf(w.Unread, true)
		}
		return
	}
	same := w.Revision == i.Instance.Revision
	if !same && !fits(i, w.Template) {
		i.unread = &Failure{Code: reason.InstanceRefused, Message: "revision " + w.Revision + " changes what its processes have since their start: it goes on with " + i.Instance.Revision}
		return
	}
	i.unread, i.template, i.Instance.Revision = nil, w.Template, w.Revision
	m.configure(i)
}

// fits reports whether an instance that is there can have a template in place.
func fits(i *instance, t *workload.Template) bool {
	if i.template != nil {
		return workload.Compare(&workload.Spec{Template: *i.template}, &workload.Spec{Template: *t}).Effect != workload.NeedsRestart
	}
	// The one before is not known any more. Those that decide have compared them; what can be seen here is seen.
	return len(i.tasks) == 0 || i.Runtime == t.RuntimeOrDefault() && slices.EqualFunc(i.tasks, t.Tasks, func(a task, b workload.Task) bool { return a.name == b.Name })
}

// configure gives the tasks of an instance the lives that its template declares.
func (m *Machine) configure(i *instance) {
	mode := workload.Replicated
	if i.Instance.Job {
		mode = workload.RunToCompletion
	}
	if i.tasks == nil {
		for k := range i.template.Tasks {
			t := task{name: i.template.Tasks[k].Name}
			if i.leased > 0 {
				t.state.Boot, t.state.Lease = m.now.Boot, i.leased
			}
			i.tasks = append(i.tasks, t)
		}
		i.Runtime = i.template.RuntimeOrDefault()
	}
	for k := range i.tasks {
		t := &i.tasks[k]
		at := slices.IndexFunc(i.template.Tasks, func(d workload.Task) bool { return d.Name == t.name })
		if at < 0 {
			continue // its record is of another template; it goes on as it is
		}
		config, err := life.Of(i.template, &i.template.Tasks[at])
		if err != nil {
			m.fail(i, failureOf(reason.Of(err), false))
			continue
		}
		config.Policy, config.Leased = i.template.Restart.PolicyOrDefault(mode), i.Instance.Lease > 0
		t.config = config
	}
}

// found takes in what a runtime has.
func (m *Machine) found(e Found) {
	for id, a := range m.attempts {
		if a.runtime == e.Runtime {
			delete(m.attempts, id)
		}
	}
	for _, s := range e.Attempts {
		m.attempts[s.ID] = attempt{e.Runtime, s}
	}
	again := m.listed[e.Runtime]
	m.listed[e.Runtime] = true
	for _, uid := range m.order() {
		i := m.instances[uid]
		if i.Runtime != e.Runtime && i.Runtime != "" {
			continue
		}
		if again && i.begun {
			i.begun = false // its runtime may have lost something meanwhile
		}
		m.advance(i, nil)
	}
	m.sweep()
}

// changed takes in what became of an attempt.
func (m *Machine) changed(e Changed) {
	m.attempts[e.Status.ID] = attempt{e.Runtime, e.Status}
	i := m.instances[e.Status.ID.Instance]
	switch t := i.task(e.Status.ID.Task); {
	case t != nil && i.begun && !i.Over:
		m.advance(i, func() {
			if s := &t.state; e.Status.Phase != run.Ended && e.Status.ID.Attempt == s.Attempt && (s.Phase == life.Waiting || s.Phase == life.Finished) {
				m.do(Kill{i.Runtime, e.Status.ID}) // it was taken for over
			}
			m.stepTask(i, t, life.Changed{Status: e.Status})
		})
	case i != nil:
		m.advance(i, nil) // it may have waited for this end
	}
	m.stray(e.Status.ID)
}

// task is the task of a name; nil where there is none.
func (i *instance) task(name string) *task {
	if i == nil {
		return nil
	}
	if at := slices.IndexFunc(i.tasks, func(t task) bool { return t.name == name }); at >= 0 {
		return &i.tasks[at]
	}
	return nil
}

// notStarted takes in that an attempt was not started. What will not go well later either ends the instance.
func (m *Machine) notStarted(e NotStarted) {
	i := m.instances[e.ID.Instance]
	t := i.task(e.ID.Task)
	if t == nil || !i.begun || i.Over || e.Number != t.starts { // it is being started again
		return
	}
	ofNode := e.Err.Code == reason.RuntimeUnfit || e.Err.Code == reason.VolumeGone || e.Err.Code == reason.NetworkFailed
	t.refused = failureOf(e.Err, ofNode)
	m.advance(i, func() {
		if e.Err.Code == reason.RuntimeUnfit || e.Err.Code == reason.TaskRefused {
			m.fail(i, t.refused)
		}
		ending := run.Ending{Cause: run.NotExecuted, At: m.now.At, Words: e.Err.Error()}
		m.stepTask(i, t, life.Changed{Status: run.Status{ID: e.ID, Phase: run.Ended, Boot: m.now.Boot, Ending: ending}})
	})
}

// awaited takes in what a start waits for: people are told, and nothing else comes of it.
func (m *Machine) awaited(e Awaited) {
	i := m.instances[e.ID.Instance]
	if t := i.task(e.ID.Task); t != nil && i.begun && !i.Over && e.Number == t.starts {
		m.advance(i, func() { t.refused = failureOf(e.Err, false) })
	}
}

// answered takes in an answer. It is kept for whoever asks why.
func (m *Machine) answered(e Answered) {
	i := m.instances[e.ID.Instance]
	t := i.task(e.ID.Task)
	if t == nil || !i.begun || i.Over || e.ID.Attempt != t.state.Attempt || e.Probe >= life.ProbeKinds {
		return
	}
	e.Words = clip(e.Words, AnswerMax)
	t.answers[e.Probe] = e
	m.advance(i, func() {
		m.stepTask(i, t, life.Answered{Probe: e.Probe, Attempt: e.ID.Attempt, Number: e.Number, Yes: e.Yes})
	})
}

// fail ends an instance for good.
func (m *Machine) fail(i *instance, f *Failure) {
	if i.Failure == nil {
		i.Failure = f
		m.do(Note{Instance: i.title(), Code: f.Code, Words: f.Message})
	}
}

// sweep ends and forgets attempts that belong to nothing.
func (m *Machine) sweep() {
	for _, id := range slices.SortedFunc(maps.Keys(m.attempts), run.ID.Compare) {
		m.stray(id)
	}
}

// stray ends and forgets an attempt where it belongs to nothing. As long as nobody has said what is wanted, everything may be.
func (m *Machine) stray(id run.ID) {
	a, there := m.attempts[id]
	if !there || !m.known || !m.listed[a.runtime] {
		return
	}
	i := m.instances[id.Instance]
	if i != nil && i.task(id.Task) != nil && i.Runtime == a.runtime && (!i.Over || a.status.Phase == run.Ended) {
		return // of one that is over the last attempts stay until it is forgotten: people may want to see what they have printed
	}
	if i != nil && i.tasks == nil && !i.Over {
		return // its template is not known yet
	}
	if a.status.Phase != run.Ended {
		m.do(Kill{a.runtime, id})
		return
	}
	m.do(Remove{a.runtime, id})
	delete(m.attempts, id)
}

// attemptsOf are the attempts that there are of an instance, in order.
func (m *Machine) attemptsOf(uid string) (ids []run.ID) {
	for id := range m.attempts {
		if id.Instance == uid {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, run.ID.Compare)
	return ids
}

// statusesOf are the attempts that there are of a task.
func (m *Machine) statusesOf(uid, name string) (list []run.Status) {
	for _, id := range m.attemptsOf(uid) {
		if id.Task == name {
			list = append(list, m.attempts[id].status)
		}
	}
	return list
}

// clip bounds words, at the end of a sign.
func clip(words string, bytesMax int) string {
	if len(words) > bytesMax {
		words = words[:bytesMax]
	}
	return strings.ToValidUTF8(words, "")
}
