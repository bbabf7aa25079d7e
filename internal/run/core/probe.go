package core

import "tako.dev/tako/internal/run"

// firstQuestion is when a probe is asked first: of startup its delay after the start; of the others not before the task has started up.
func (st *stepper) firstQuestion(k ProbeKind) run.Moment {
	if p := st.config.Probes[k]; p != nil {
		return max(st.Began.Add(p.Delay), st.now.At)
	}
	return 0
}

// asks reports whether a probe is asked at all now.
func (s *State) asks(c *Config, k ProbeKind) bool {
	return s.Phase == Running && c.Probes[k] != nil && s.StartUp == (k != Startup)
}

// probe puts the questions that are due, and takes those for a no that nobody has answered in time.
func (st *stepper) probe() {
	// A probe may have been taken out of the template since it was asked.
	st.StartUp = st.StartUp || st.config.Probes[Startup] == nil
	st.Ready = st.Ready || st.StartUp && st.config.Probes[Readiness] == nil
	for k := range ProbeKinds {
		a := &st.asking[k]
		if st.asks(st.config, k) && a.open && st.now.At >= a.asked.Add(st.config.Probes[k].Timeout) {
			st.judge(k, false)
		}
		if !st.asks(st.config, k) || a.open || st.now.At < a.next {
			continue
		}
		a.open, a.asked = true, st.now.At
		a.number++
		st.do(Effect{Action: Ask, Attempt: st.Attempt, Probe: k, Number: a.number})
	}
}

// answered takes in an answer. One to another question than the one that is open comes too late.
func (st *stepper) answered(e Answered) {
	if e.Probe >= ProbeKinds || e.Attempt != st.Attempt || !st.asks(st.config, e.Probe) {
		return
	}
	if a := &st.asking[e.Probe]; a.open && a.number == e.Number {
		st.judge(e.Probe, e.Yes)
	}
}

// judge counts an answer, and does what enough of them ask for.
func (st *stepper) judge(k ProbeKind, yes bool) {
	p, a := st.config.Probes[k], &st.asking[k]
	a.open = false
	a.next = max(a.asked.Add(p.Period), st.now.At)
	if yes {
		a.yes, a.no = min(a.yes+1, p.Yes), 0
	} else {
		a.yes, a.no = 0, min(a.no+1, p.No)
	}
	itIs, itIsNot := a.yes >= p.Yes, a.no >= p.No
	switch {
	case k == Startup && itIs:
		st.StartUp = true
		st.Ready = st.config.Probes[Readiness] == nil
		st.asking[Readiness].next = st.firstQuestion(Readiness)
		st.asking[Liveness].next = st.firstQuestion(Liveness)
	case k == Startup && itIsNot:
		st.stop(NotStarted)
	case k == Readiness && (itIs || itIsNot):
		st.Ready = itIs
	case k == Liveness && itIsNot:
		st.stop(NotAlive)
	}
}

// WakeAt is when a state that was just stepped has to be stepped again though nothing happens; false: not by itself.
func WakeAt(c *Config, s *State, now run.Moment) (run.Moment, bool) {
	var at run.Moment
	some := false
	earlier := func(m run.Moment) {
		if !some || m < at {
			at, some = m, true
		}
	}
	switch s.Phase {
	case Waiting:
		if !c.Leased || s.Lease > max(s.StartAt, now) {
			earlier(s.StartAt)
		}
	case Stopping:
		if !s.Killed {
			earlier(s.KillAt)
		}
	case Running, Starting:
		if s.Stopped {
			earlier(s.StopAt)
		}
		if c.Leased {
			earlier(s.Lease)
		}
		for k := range ProbeKinds {
			switch a := &s.asking[k]; {
			case !s.asks(c, k):
			case a.open:
				earlier(a.asked.Add(c.Probes[k].Timeout))
			default:
				earlier(a.next)
			}
		}
	case Finished:
	}
	return at, some
}
