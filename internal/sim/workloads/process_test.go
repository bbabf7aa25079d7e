package workloads

import (
	"errors"
	"strconv"
	"strings"
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/scheduler/fit"
)

// quality is what becomes of what runs a version.
type quality string

const (
	good     quality = "good"
	slow     quality = "slow"     // it is ready by and by
	unready  quality = "unready"  // it runs, and is never ready
	crashing quality = "crashing" // it ends badly, at once
	ending   quality = "ending"   // it ends well, after a while
	doubtful quality = "doubtful" // it ends, well or badly
)

// qualityOf reads what a template runs.
func qualityOf(t *declared.Template) quality {
	word, _, _ := strings.Cut(t.Tasks[0].Args[0], "/")
	return quality(word)
}

// process is an attempt that a runtime has.
type process struct {
	h      *host
	slot   string // of an exclusive workload; empty: of another one
	status run.Status
	ready  time.Time // from when on it says that it is
	asked  bool      // to end
	deaf   bool
	until  run.Moment // when its runtime ends it, whatever becomes of its agent; 0: never
}

// limit has the runtime end it at a moment.
func (p *process) limit(until run.Moment) {
	if p.until = until; until == 0 {
		return
	}
	p.h.w.after(max(until.Sub(p.h.moment()), 0), func() {
		if p.until == until && p.status.Phase != run.Ended {
			p.h.w.did("ended by its runtime")
			p.end(run.Ending{Cause: run.Signaled, Signal: 9})
		}
	})
}

// carry does what a machine wants.
func (h *host) carry(f core.Effect) {
	soon := func(e core.Event) { h.later(h.w.within(200*time.Millisecond), func() { h.step(e) }) }
	switch f := f.(type) {
	case core.Bind:
		b := core.Bound{UID: f.UID, Ports: map[string]int32{}}
		free := int32(20000)
		for _, p := range f.Ports {
			if b.Ports[p.Name] = p.Number; p.Number == 0 {
				for free++; f.Held[fit.Port{Protocol: p.Protocol, Number: free}] != ""; free++ {
				}
				b.Ports[p.Name] = free
			}
		}
		soon(b)
	case core.Start:
		h.start(f)
	case core.Signal:
		if p := h.procs[f.ID]; p != nil && p.status.Phase != run.Ended && !p.asked {
			p.asked = true
			if !p.deaf {
				h.w.after(h.w.within(3*time.Second), func() { p.end(run.Ending{Cause: run.Signaled, Signal: 15}) })
			}
		}
	case core.Extend:
		if p := h.procs[f.ID]; p != nil {
			p.limit(f.Until)
		}
	case core.Kill:
		if p := h.procs[f.ID]; p != nil {
			p.end(run.Ending{Cause: run.Signaled, Signal: 9})
		}
	case core.Remove:
		h.remove(f.ID)
	case core.Ask:
		if p := h.procs[f.ID]; p != nil && p.status.Phase == run.Running {
			soon(core.Answered{ID: f.ID, Probe: f.Probe, Number: f.Number, Yes: !h.w.now.Before(p.ready), Words: "503"})
		}
	case core.Drop:
		for _, id := range f.Attempts {
			h.remove(id)
		}
		delete(h.records, f.UID)
	case core.Renew:
		h.tell()
	}
}

func (h *host) remove(id run.ID) {
	if p := h.procs[id]; p != nil && p.status.Phase != run.Ended {
		h.w.broken("A3", "%v is forgotten on %s, and runs", id, h.name)
	}
	delete(h.procs, id)
}

// start begins an attempt; the same one again finds it.
func (h *host) start(f core.Start) {
	w := h.w
	if p := h.procs[f.ID]; p != nil {
		status := p.status
		h.later(w.within(200*time.Millisecond), func() { h.step(core.Changed{Runtime: f.Runtime, Status: status}) })
		return
	}
	if w.chance(w.faults) {
		err := &reason.Error{Code: reason.TaskNotStarted, Doing: "start a task", Cause: errors.New("the disk is busy")}
		h.later(w.within(200*time.Millisecond), func() { h.step(core.NotStarted{ID: f.ID, Number: f.Number, Err: err}) })
		return
	}
	p := &process{h: h, status: run.Status{ID: f.ID, Phase: run.Running, Boot: h.time().Boot, PID: 1, Started: h.moment()}, deaf: w.chance(0.1)}
	w.started(h, p, f)
	h.procs[f.ID] = p
	p.limit(f.Until)
	p.ready = w.now.Add(w.within(2 * time.Second))
	switch q := qualityOf(f.Template); q {
	case slow:
		p.ready = w.now.Add(w.between(20*time.Second, time.Minute))
	case unready:
		p.ready = w.now.Add(1000 * time.Hour)
	case crashing:
		w.after(w.within(2*time.Second), func() { p.end(run.Ending{Cause: run.Exited, Code: 1}) })
	case ending, doubtful:
		code := 0
		if q == doubtful && w.chance(0.4) {
			code = 1
		}
		w.after(w.between(5*time.Second, 2*time.Minute), func() { p.end(run.Ending{Cause: run.Exited, Code: code}) })
	}
	h.later(w.within(200*time.Millisecond), func() { h.step(core.Changed{Runtime: f.Runtime, Status: p.status}) })
}

// end is the end of a process. Its agent is told, if there is one.
func (p *process) end(e run.Ending) {
	if p.status.Phase == run.Ended {
		return
	}
	h := p.h
	e.At = h.moment()
	p.status.Phase, p.status.Ending = run.Ended, e
	h.w.ended(p)
	if h.running {
		h.later(h.w.within(200*time.Millisecond), func() { h.step(core.Changed{Runtime: declared.Process, Status: p.status}) })
	}
}

// versions are told from one another by a number.
func (w *world) version(q quality) string {
	w.folk.versions++
	return string(q) + "/" + strconv.Itoa(w.folk.versions)
}
