package systemd

import (
	bus "tako.dev/tako/internal/systemd"

	"tako.dev/tako/internal/run"
)

// evidence is what there is of an attempt. The unit was looked at before the files.
type evidence struct {
	boot  string // now
	unit  *bus.LoadedUnit
	begun *begun
	ended *ended
}

// verdict is what follows from evidence.
type verdict uint8

const (
	absent   verdict = iota // there is no such attempt
	stands                  // it is as its status says
	restarts                // the host was restarted while it ran
	unsaid                  // it has ended, and its unit knows how
	vanished                // it has begun, and neither its unit is there nor an end
)

// judge is what there is of an attempt.
func judge(id run.ID, e *evidence) (run.Status, verdict) {
	idle := e.unit == nil || e.unit.ActiveState == "failed" || e.unit.ActiveState == "inactive" && !e.unit.Job
	s := run.Status{ID: id, Phase: run.Starting, Boot: e.boot}
	if e.begun != nil {
		s = run.Status{ID: id, Phase: run.Running, Boot: e.begun.Boot, PID: e.begun.PID, Started: e.begun.Started}
	}
	switch {
	case e.ended != nil && idle:
		return run.Status{ID: id, Phase: run.Ended, Boot: e.ended.Boot, Started: e.ended.Started, Ending: e.ended.Ending}, stands
	case !idle: // also when the end was just written: systemd is not done with it
		return s, stands
	case e.begun != nil && e.begun.Boot != e.boot:
		return s, restarts
	case e.unit != nil && e.unit.ActiveState == "failed":
		return s, unsaid
	case e.begun != nil:
		return s, vanished
	}
	return run.Status{}, absent
}
