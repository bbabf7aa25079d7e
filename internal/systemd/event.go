package systemd

import (
	"slices"
	"sync"
)

// EventKind says what an Event is about.
type EventKind uint8

// The kinds of events.
const (
	// UnitChanged: a unit of interest changed, or a job of it ended. Look at it with Bus.Unit.
	UnitChanged EventKind = iota + 1
	// FilesChanged: unit files were enabled, disabled or masked, it is not known which. Look at what is enabled.
	FilesChanged
	// Resync: signals may have been missed: the connection is new, or systemd has reloaded or was executed anew.
	// Look at every unit of interest once.
	Resync
)

// String returns the kind's name.
func (k EventKind) String() string {
	switch k {
	case UnitChanged:
		return "unitChanged"
	case FilesChanged:
		return "filesChanged"
	case Resync:
		return "resync"
	}
	return "unknown"
}

// Event says that something must be looked at. It carries no state, because the state may have changed again.
type Event struct {
	Kind EventKind
	Unit string // with UnitChanged: the name as it was given to Watch
}

// pending collects what happened until the loop hands it out: one entry per unit however often it changed, so it never
// holds more than the units of interest.
type pending struct {
	mu    sync.Mutex // guards the fields below; nothing is called while it is held
	units map[string]struct{}
	files bool
	renew bool // systemd has reloaded or was executed anew: subscribe again, then Resync

	wake chan struct{} // capacity 1: something is pending
}

func newPending() *pending {
	return &pending{units: make(map[string]struct{}), wake: make(chan struct{}, 1)}
}

func (p *pending) addUnits(names []string) {
	if len(names) == 0 {
		return
	}
	p.mu.Lock()
	for _, n := range names {
		p.units[n] = struct{}{}
	}
	p.mu.Unlock()
	p.signal()
}

func (p *pending) addFiles() {
	p.mu.Lock()
	p.files = true
	p.mu.Unlock()
	p.signal()
}

func (p *pending) addRenew() {
	p.mu.Lock()
	p.renew = true
	p.mu.Unlock()
	p.signal()
}

func (p *pending) signal() {
	select {
	case p.wake <- struct{}{}:
	default: // already awake
	}
}

// take returns what is pending and forgets it. A renewal stands for all the rest: it is followed by one Resync.
func (p *pending) take() (events []Event, renew bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.renew {
		p.renew, p.files = false, false
		clear(p.units)
		return nil, true
	}
	if p.files {
		events = append(events, Event{Kind: FilesChanged})
		p.files = false
	}
	names := make([]string, 0, len(p.units))
	for n := range p.units {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		events = append(events, Event{Kind: UnitChanged, Unit: n})
	}
	clear(p.units)
	return events, false
}
