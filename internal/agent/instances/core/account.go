package core

import (
	"maps"
	"slices"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	life "tako.dev/tako/internal/run/core"
	"tako.dev/tako/internal/transfer/wire"
)

// Account is all that is known of an instance, for whoever asks why it is as it is.
type Account struct {
	Name     string           `json:"name"` // NAMESPACE/NAME
	UID      string           `json:"uid"`
	Workload string           `json:"workload"`
	Revision string           `json:"revision"`
	Runtime  workload.Runtime `json:"runtime,omitempty"`
	Phase    string           `json:"phase"`
	Ready    bool             `json:"ready"`
	Attempt  uint32           `json:"attempt,omitempty"`
	Restarts uint32           `json:"restarts,omitempty"`
	Code     reason.Code      `json:"code,omitzero"`
	Message  string           `json:"message,omitempty"`
	Since    time.Time        `json:"since,omitzero"` // of Code
	Ports    map[string]int32 `json:"ports,omitempty"`
	Tasks    []TaskAccount    `json:"tasks,omitempty"`
}

// TaskAccount is all that is known of a task.
type TaskAccount struct {
	Name     string          `json:"name"`
	Phase    string          `json:"phase"`
	Attempt  uint32          `json:"attempt,omitempty"`
	Ready    bool            `json:"ready"`
	Restarts uint32          `json:"restarts,omitempty"`
	Next     time.Duration   `json:"next,omitempty"` // until the next attempt, while it waits for that
	Past     []AttemptRecord `json:"past,omitempty"` // attempts that are over, oldest first
	Probes   []ProbeAnswer   `json:"probes,omitempty"`
}

// AttemptRecord is an attempt that is over.
type AttemptRecord struct {
	Attempt uint32        `json:"attempt"`
	Ran     time.Duration `json:"ran"`
	Ended   string        `json:"ended"` // how
}

// ProbeAnswer is the last answer to a probe.
type ProbeAnswer struct {
	Probe string `json:"probe"`
	Yes   bool   `json:"yes"`
	Words string `json:"words,omitempty"`
}

var phaseNames = map[wire.InstancePhase]string{wire.InstancePlaced: "Placed", wire.InstanceStarting: "Starting", wire.InstanceRunning: "Running",
	wire.InstanceTerminating: "Terminating", wire.InstanceFailed: "Failed", wire.InstanceDone: "Done"}

// Accounts are all instances, by name and then by UID.
func (m *Machine) Accounts(now Now) []Account {
	list := make([]Account, 0, len(m.instances))
	for _, uid := range m.order() {
		list = append(list, m.account(m.instances[uid], now))
	}
	slices.SortStableFunc(list, func(a, b Account) int {
		if a.Name < b.Name {
			return -1
		}
		if a.Name > b.Name {
			return 1
		}
		return 0
	})
	return list
}

func (m *Machine) account(i *instance, now Now) Account {
	n := &i.told.Instance
	a := Account{Name: i.title(), UID: i.Instance.UID, Workload: i.Instance.Workload, Revision: i.Instance.Revision, Runtime: i.Runtime, Phase: phaseNames[n.Phase], Ready: n.Ready,
		Attempt: n.Attempt, Restarts: n.Restarts, Code: n.Code, Message: n.Message, Ports: maps.Clone(i.Ports)}
	if n.Since != 0 {
		a.Since = time.UnixMilli(n.Since)
	}
	for k := range i.tasks {
		t := &i.tasks[k]
		s := &t.state
		one := TaskAccount{Name: t.name, Phase: s.Phase.String(), Attempt: s.Attempt, Ready: s.Ready, Restarts: s.Restarts}
		if s.Phase == life.Waiting && s.StartAt > now.At {
			one.Next = s.StartAt.Sub(now.At)
		}
		for p := range s.Log {
			past := &s.Log[p]
			one.Past = append(one.Past, AttemptRecord{past.Attempt, duration(past.Ran), past.Text()})
		}
		for p := range t.answers {
			if answer := &t.answers[p]; answer.Number > 0 {
				one.Probes = append(one.Probes, ProbeAnswer{answer.Probe.String(), answer.Yes, answer.Words})
			}
		}
		a.Tasks = append(a.Tasks, one)
	}
	return a
}

// Attempt is one of a runtime.
type Attempt struct {
	Runtime workload.Runtime
	ID      run.ID
}

// Running are the attempts that run.
func (m *Machine) Running() (list []Attempt) {
	for _, uid := range m.order() {
		i := m.instances[uid]
		for k := range i.tasks {
			if s := &i.tasks[k].state; i.begun && (s.Phase == life.Running || s.Phase == life.Stopping) {
				list = append(list, Attempt{i.Runtime, i.id(&i.tasks[k])})
			}
		}
	}
	return list
}

// Printed finds the attempt of a task whose output is asked for: the newest one, or the one before. An empty name is that of the only task, or of
// the first.
func (m *Machine) Printed(title, task string, previous bool) (Attempt, error) {
	for _, uid := range slices.Backward(m.order()) {
		i := m.instances[uid]
		if i.title() != title {
			continue
		}
		for k := range i.tasks {
			t := &i.tasks[k]
			if task != "" && t.name != task {
				continue
			}
			id := i.id(t)
			if previous {
				id.Attempt--
			}
			if id.Attempt == 0 || id.Attempt > t.state.Attempt {
				return Attempt{}, &reason.Error{Code: reason.TaskUnknown, Doing: "read the log of instance " + title, Hint: "there was no such attempt"}
			}
			return Attempt{i.Runtime, id}, nil
		}
	}
	return Attempt{}, &reason.Error{Code: reason.TaskUnknown, Doing: "read the log of instance " + title, Hint: "tako-agent status lists the instances that are here"}
}
