package systemdtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// deadline bounds each wait. What is waited for takes milliseconds; the rest is for a busy machine.
const deadline = 20 * time.Second

// Host is the systemd under test. Its units may be created, started and stopped at will; their names begin with tako-.
type Host struct {
	Options systemd.Options
	UnitDir string             // where unit files are put, one of Options.UnitDirs
	Reexec  func(t *testing.T) // has systemd execute itself anew; returns when that has begun
	Rebus   func(t *testing.T) // restarts the bus
}

// Units of the suite.
const (
	runs = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
	ends = "[Service]\nType=oneshot\nExecStart=/bin/false\n"
	hits = "[Unit]\nStartLimitIntervalSec=1h\nStartLimitBurst=1\n" + ends
	slow = "[Service]\nType=oneshot\nExecStart=/bin/sleep infinity\n"
	says = "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo words of the unit; sleep 0.3; exit 3'\n"
)

// Conformance runs the suite.
func Conformance(t *testing.T, h Host) {
	t.Run("actions", func(t *testing.T) { testActions(t, h) })
	t.Run("failures", func(t *testing.T) { testFailures(t, h) })
	t.Run("patience", func(t *testing.T) { testPatience(t, h) })
	t.Run("enabling", func(t *testing.T) { testEnabling(t, h) })
	t.Run("events", func(t *testing.T) { testEvents(t, h) })
	t.Run("looking", func(t *testing.T) { testLooking(t, h) })
	t.Run("alias", func(t *testing.T) { testAlias(t, h) })
	t.Run("many units", func(t *testing.T) { testManyUnits(t, h) })
	t.Run("reload barrier", func(t *testing.T) { testReloadBarrier(t, h) })
	t.Run("reloads meanwhile", func(t *testing.T) { testReloadsMeanwhile(t, h) })
	t.Run("shared job", func(t *testing.T) { testSharedJob(t, h) })
	t.Run("transient units", func(t *testing.T) { testTransient(t, h) })
	t.Run("followers", func(t *testing.T) { testFollowers(t, h) })
	t.Run("executed anew", func(t *testing.T) { testGap(t, h, h.Reexec) })
	t.Run("bus restarted", func(t *testing.T) { testGap(t, h, h.Rebus) })
}

// connection is a Bus that runs, with the events that it told.
type connection struct {
	*systemd.Bus
	mu     sync.Mutex // guards events
	events map[systemd.Event]int
}

func connect(t *testing.T, h Host) *connection {
	t.Helper()
	bus, err := systemd.New(h.Options)
	if err != nil {
		t.Fatal(err)
	}
	c := &connection{Bus: bus, events: make(map[systemd.Event]int)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := bus.Run(ctx, c.note); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	c.await(t, systemd.Event{Kind: systemd.Resync}, 1)
	return c
}

func (c *connection) note(e systemd.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events[e]++
}

// forget makes await count from here.
func (c *connection) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.events)
}

func (c *connection) count(e systemd.Event) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events[e]
}

func (c *connection) await(t *testing.T, e systemd.Event, times int) {
	t.Helper()
	eventually(t, fmt.Sprintf("event %v %s", e.Kind, e.Unit), func() (string, bool) {
		n := c.count(e)
		return fmt.Sprintf("told %d times", n), n >= times
	})
}

// awaitState waits until the unit is as wanted.
func (c *connection) awaitState(t *testing.T, unit, active string) {
	t.Helper()
	eventually(t, unit+" to be "+active, func() (string, bool) {
		s := c.state(t, unit)
		return s.ActiveState + " (" + s.SubState + ")", s.ActiveState == active
	})
}

func (c *connection) state(t *testing.T, unit string) systemd.UnitState {
	t.Helper()
	s, err := c.Unit(t.Context(), unit)
	if err != nil {
		t.Fatalf("look at %s: %v", unit, err)
	}
	return s
}

func eventually(t *testing.T, what string, probe func() (state string, ok bool)) {
	t.Helper()
	end := time.After(deadline)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		state, ok := probe()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited %v for %s; last: %s", deadline, what, state)
		}
	}
}

// install puts a unit file in place and takes unit and file away after the test.
func (h Host) install(t *testing.T, c *connection, unit, content string) {
	t.Helper()
	path := filepath.Join(h.UnitDir, unit)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		_ = c.Stop(ctx, unit) // may never have been started
		_ = c.ResetFailed(ctx, unit)
		_ = c.Disable(ctx, unit)
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		if err := c.Reload(ctx); err != nil {
			t.Error(err)
		}
	})
	if _, err := c.EnsureLoaded(t.Context(), unit); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, want reason.Code) {
	t.Helper()
	if !reason.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
	}
}
