package workloads

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/run"
)

// truth is what the invariants are measured by, and nobody in the world knows.
type truth struct {
	templates map[string]*declared.Template // by name of the revision, which follows from them
	exclusive map[string]map[*process]bool  // that run, by slot
	specs     map[types.UID]map[int64]*declared.Spec
	plans     map[types.UID]*plan // of schedules
	gangs     gangs
	freed     time.Time // when people let nodes go that had been drained
	twice     time.Time // until when two may have led
}

func newTruth() truth {
	return truth{templates: map[string]*declared.Template{}, exclusive: map[string]map[*process]bool{}, specs: map[types.UID]map[int64]*declared.Spec{}, plans: map[types.UID]*plan{}, gangs: newGangs()}
}

// declared is that people have declared something.
func (t *truth) declared(o *v1alpha1.Workload) {
	if t.specs[o.UID] == nil {
		t.specs[o.UID] = map[int64]*declared.Spec{}
	}
	t.specs[o.UID][o.Generation] = o.Spec.DeepCopy()
}

// since are all that was declared of a workload from a generation on.
func (t *truth) since(o *v1alpha1.Workload, generation int64) (all []*declared.Spec) {
	for g, spec := range t.specs[o.UID] {
		if g >= generation {
			all = append(all, spec)
		}
	}
	return all
}

// started is that a process begins.
func (w *world) started(h *host, p *process, f core.Start) {
	w.did("process started")
	in := &f.Record.Instance
	wanted := h.wants(in.UID)
	switch {
	case wanted == nil:
		w.broken("I5", "%v is begun on %s, and is not wanted there", f.ID, h.name)
	case wanted.Stop:
		w.broken("I5", "%v is begun on %s, and is to end", f.ID, h.name)
	case f.Record.Over, f.Record.Failure != nil:
		w.broken("I5", "%v is begun on %s, and its instance is over", f.ID, h.name)
	}
	for id, other := range h.procs {
		if id.Instance == f.ID.Instance && id.Task == f.ID.Task && other.status.Phase != run.Ended {
			w.broken("I4", "%v is begun on %s, while %v runs", f.ID, h.name, id)
		}
	}
	w.say("%s: %v of %s begins", h.name, f.ID, in.Name)
	if in.Lease == 0 {
		return
	}
	p.slot = fmt.Sprint(in.Workload, "/", in.Slot)
	if w.truth.exclusive[p.slot] == nil {
		w.truth.exclusive[p.slot] = map[*process]bool{}
	}
	for other := range w.truth.exclusive[p.slot] {
		w.broken("I4", "%v of %s is begun on %s, while %v runs on %s", f.ID, in.Name, h.name, other.status.ID, other.h.name)
	}
	w.did("exclusive process started")
	w.truth.exclusive[p.slot][p] = true
}

// ended is that a process has.
func (w *world) ended(p *process) {
	if p.slot != "" {
		delete(w.truth.exclusive[p.slot], p)
	}
	if why := p.status.Ending; p.slot != "" {
		w.say("%s: %v of %s has ended: %+v", p.h.name, p.status.ID, p.slot, why)
	}
}
