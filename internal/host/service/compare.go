package service

import (
	"errors"
	"fmt"

	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// The fields of a unit's changes.
const (
	fieldReload  = "daemon-reload"
	fieldEnabled = "enabled"
	fieldMasked  = "masked"
	fieldState   = "state"
)

// ownUnitDir is where masks are, and unit files that people write.
const ownUnitDir = "/etc/systemd/system/"

// The words for what is wanted.
const (
	wordRunning  = "running"
	wordStopped  = "stopped"
	wordEnabled  = "enabled"
	wordDisabled = "disabled"
	wordMasked   = "masked"
	wordUnmasked = "not masked"
)

// compare says what has to change for the unit to be as declared, or why that cannot be. It is pure.
func (r *resource) compare(s systemd.UnitState) ([]host.Change, error) {
	if s.NotFound() && r.mask != maskedForGood {
		return nil, r.missing()
	}
	if masked(s) && r.mask == maskOfOthers && (r.running && !r.anyState || r.enabled == enabled) {
		return nil, r.isMasked(s)
	}
	if r.running && !r.anyState && s.ActiveState == "deactivating" {
		// Starting it now would cancel the stop of whoever asked for it: an operator, or a package's scripts, which then fail.
		return nil, &reason.Error{Code: reason.UnitBusy, Doing: "look at unit " + r.unit, Cause: errors.New("it is being stopped"), After: busyWait}
	}
	var changes []host.Change
	if s.NeedDaemonReload {
		changes = append(changes, host.Change{Field: fieldReload, From: "unit files changed", To: "read"})
	}
	for _, compare := range []func(systemd.UnitState) (*host.Change, error){r.compareMasked, r.compareEnabled} {
		change, err := compare(s)
		if err != nil {
			return nil, err
		}
		if change != nil {
			changes = append(changes, *change)
		}
	}
	switch from := stateWord(s); {
	case r.anyState:
	case r.running && from != wordRunning:
		changes = append(changes, host.Change{Field: fieldState, From: from, To: wordRunning})
	case !r.running && !isDown(s):
		changes = append(changes, host.Change{Field: fieldState, From: from, To: wordStopped})
	}
	return changes, nil
}

// missing is what becomes of a unit that does not exist: what may not run and may not start at boot does neither.
func (r *resource) missing() error {
	if !r.running && r.enabled != enabled {
		return nil
	}
	return &reason.Error{Code: reason.UnitNotFound, Doing: "look at unit " + r.unit,
		Hint: "require the package or the file that brings it, or give its own name in `unit`"}
}

// isMasked is what becomes of a unit that somebody else has masked. Whoever did it had a reason.
func (r *resource) isMasked(s systemd.UnitState) error {
	e := &reason.Error{Code: reason.UnitMasked, Doing: "look at unit " + r.unit,
		Hint: "`systemctl unmask " + r.unit + "` or `masked: false` allows it to start again; or declare it stopped"}
	if s.UnitFileState == "masked-runtime" {
		e.Cause = errors.New("until the host is started again")
		e.Hint = "`systemctl unmask --runtime " + r.unit + "` or `masked: false` allows it to start before that"
	}
	return e
}

// compareMasked compares the link that keeps a unit from being started. One that is gone after the next boot is none.
func (r *resource) compareMasked(s systemd.UnitState) (*host.Change, error) {
	from := wordUnmasked
	if masked(s) {
		from = wordMasked
		if s.UnitFileState == "masked-runtime" {
			from = s.UnitFileState
		}
	}
	switch {
	case r.mask == maskedForGood && from != wordMasked:
		// Asked before anything is done: a service that cannot be masked is not to be stopped for it.
		if s.FragmentPath == ownUnitDir+s.Name {
			return nil, &reason.Error{Code: reason.UnitEnableRefused, Doing: "mask unit " + r.unit, Cause: errors.New("its unit file is " + s.FragmentPath + ", where the mask would be"),
				Hint: "declare it stopped and `enabled: false`, or remove the file"}
		}
		return &host.Change{Field: fieldMasked, From: from, To: wordMasked}, nil
	case r.mask == unmasked && from != wordUnmasked:
		return &host.Change{Field: fieldMasked, From: from, To: wordUnmasked}, nil
	}
	return nil, nil
}

func masked(s systemd.UnitState) bool {
	return s.LoadState == "masked" || s.UnitFileState == "masked" || s.UnitFileState == "masked-runtime"
}

// isUp reports whether the unit runs.
func isUp(s systemd.UnitState) bool { return s.ActiveState == "active" || s.ActiveState == "reloading" }

// isDown reports whether the unit is stopped.
func isDown(s systemd.UnitState) bool {
	return s.ActiveState == "inactive" || s.ActiveState == "failed"
}

// isStarting reports whether a start of the unit is under way, which is not so while systemd waits to restart it.
func isStarting(s systemd.UnitState) bool {
	return s.ActiveState == "activating" && s.SubState != "auto-restart"
}

// stateWord is a unit's state for a person.
func stateWord(s systemd.UnitState) string {
	switch {
	case isUp(s):
		return wordRunning
	case s.ActiveState == "inactive":
		return wordStopped
	case s.ActiveState == "failed" && s.Result != "" && s.Result != "success":
		return "failed (" + s.Result + ")"
	case s.ActiveState == "activating" && s.SubState == "auto-restart":
		return "waits for its restart"
	}
	return s.ActiveState
}

// compareEnabled compares the links that start a unit at boot. The states are those of systemctl(1), is-enabled.
func (r *resource) compareEnabled(s systemd.UnitState) (*host.Change, error) {
	if r.enabled == unmanaged {
		return nil, nil
	}
	want := r.enabled == enabled
	if want && r.mask == unmasked && masked(s) {
		return &host.Change{Field: fieldEnabled, From: wordMasked, To: wordEnabled}, nil // it may be already, below the mask
	}
	switch s.UnitFileState {
	case "enabled":
		if want {
			return nil, nil
		}
		return &host.Change{Field: fieldEnabled, From: wordEnabled, To: wordDisabled}, nil
	case "disabled", "enabled-runtime", "linked", "linked-runtime":
		if !want {
			return nil, nil
		}
		return &host.Change{Field: fieldEnabled, From: s.UnitFileState, To: wordEnabled}, nil
	case "alias":
		return nil, r.notInstallable("it is another name of "+s.Name, "declare `unit: "+s.Name+"`")
	case "generated":
		return nil, r.notInstallable("its unit file is generated at boot", "leave `enabled` out, and declare what it is generated from")
	case "bad":
		return nil, &reason.Error{Code: reason.UnitEnableRefused, Doing: r.doingEnabled(), Cause: errors.New("its unit file is malformed"),
			Hint: "`systemd-analyze verify " + r.unit + "` shows where"}
	}
	if !want {
		return nil, nil // static, indirect, masked, transient, no file: nothing of its own starts it at boot
	}
	switch s.UnitFileState {
	case "static":
		return nil, r.notInstallable("its unit file has no [Install] section", "leave `enabled` out: something else starts this unit")
	case "indirect":
		return nil, r.notInstallable("its [Install] section only names other units", "declare the unit that its Also= or DefaultInstance= names")
	case "":
		return nil, r.notInstallable("it has no unit file", "leave `enabled` out")
	}
	return nil, r.notInstallable("its unit file is "+s.UnitFileState, "leave `enabled` out")
}

func (r *resource) notInstallable(cause, hint string) error {
	return &reason.Error{Code: reason.UnitNotInstalled, Doing: r.doingEnabled(), Cause: errors.New(cause), Hint: hint}
}

func (r *resource) doingEnabled() string {
	if r.enabled == enabled {
		return "enable unit " + r.unit
	}
	return "disable unit " + r.unit
}

// notAsWanted is the error for a unit whose job was done and that is not in the state that was asked for.
func notAsWanted(doing, unit string, s systemd.UnitState) error {
	e := &reason.Error{Code: reason.UnitJobFailed, Doing: doing, Hint: "`systemctl status " + unit + "` shows more"}
	switch {
	case s.ActiveState == "inactive":
		// Which of the two cannot be told: systemd forgets a unit that has ended and that nobody refers to.
		e.Cause = errors.New("it ended at once, or a condition of the unit is not met")
		e.Hint = "a unit that does its work and ends needs RemainAfterExit=yes to count as running, or a timer to start it; " + e.Hint
	default:
		e.Cause = fmt.Errorf("it is %s (%s)", s.ActiveState, s.SubState)
	}
	return e
}
