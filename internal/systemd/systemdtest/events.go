package systemdtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/internal/systemd"
)

// changed is the event of a unit.
func changed(unit string) systemd.Event {
	return systemd.Event{Kind: systemd.UnitChanged, Unit: unit}
}

func testEvents(t *testing.T, h Host) {
	const watched, other = "tako-watched.service", "tako-other.service"
	operator, c := connect(t, h), connect(t, h)
	h.install(t, operator, watched, runs)
	h.install(t, operator, other, runs)
	must(t, c.Watch(t.Context(), []string{watched}))

	c.forget()
	must(t, operator.Start(t.Context(), other))
	must(t, operator.Start(t.Context(), watched))
	c.await(t, changed(watched), 1)
	c.forget()
	must(t, operator.Stop(t.Context(), watched))
	c.await(t, changed(watched), 1)
	must(t, operator.Stop(t.Context(), other))
	if n := c.count(changed(other)); n != 0 {
		t.Errorf("%d events of a unit that is not watched", n)
	}

	c.forget()
	must(t, operator.Enable(t.Context(), watched))
	c.await(t, systemd.Event{Kind: systemd.FilesChanged}, 1)
	c.await(t, systemd.Event{Kind: systemd.Resync}, 1) // the daemon-reload that belongs to it

	must(t, c.Watch(t.Context(), nil))
	must(t, c.Watch(t.Context(), []string{other}))
	c.forget()
	must(t, operator.Start(t.Context(), watched))
	must(t, operator.Start(t.Context(), other))
	c.await(t, changed(other), 1)
	if n := c.count(changed(watched)); n != 0 {
		t.Errorf("%d events of a unit that is not watched any more", n)
	}
}

// testLooking looks at a stopped unit, which systemd loads and drops again for that: no event may follow, or looking
// because of events would never end.
func testLooking(t *testing.T, h Host) {
	const unit, after = "tako-looking.service", "tako-after.service"
	c := connect(t, h)
	h.install(t, c, unit, runs)
	h.install(t, c, after, runs)
	must(t, c.Watch(t.Context(), []string{unit, after}))
	c.forget()
	for range 20 {
		c.state(t, unit)
	}
	must(t, c.Start(t.Context(), after)) // signals keep their order: what is told of this one comes last
	c.await(t, changed(after), 1)
	if n := c.count(changed(unit)); n != 0 {
		t.Errorf("%d events because the unit was looked at", n)
	}
}

func testAlias(t *testing.T, h Host) {
	const unit, alias = "tako-main.service", "tako-alias.service"
	operator, c := connect(t, h), connect(t, h)
	h.install(t, operator, unit, runs)
	link := filepath.Join(h.UnitDir, alias)
	must(t, os.Symlink(unit, link))
	t.Cleanup(func() { _ = os.Remove(link) })
	must(t, operator.Reload(t.Context()))

	must(t, c.Watch(t.Context(), []string{alias}))
	if s := c.state(t, alias); s.Name != unit {
		t.Errorf("main name of the alias: %+v", s)
	}
	c.forget()
	must(t, operator.Start(t.Context(), unit))
	c.await(t, changed(alias), 1)
	must(t, c.Restart(t.Context(), alias))
}

func testManyUnits(t *testing.T, h Host) {
	const unit = "tako-one-of-many.service"
	operator, c := connect(t, h), connect(t, h)
	h.install(t, operator, unit, runs)
	units := []string{unit}
	for i := range 100 {
		units = append(units, fmt.Sprintf("tako-many-%d.service", i))
	}
	must(t, c.Watch(t.Context(), units))
	c.forget()
	must(t, operator.Start(t.Context(), unit))
	c.await(t, changed(unit), 1)
	must(t, c.Watch(t.Context(), units[:1]))
	c.forget()
	must(t, operator.Stop(t.Context(), unit))
	c.await(t, changed(unit), 1)
}

func testReloadBarrier(t *testing.T, h Host) {
	observer, c := connect(t, h), connect(t, h)
	var units []string
	for i := range 10 {
		unit := fmt.Sprintf("tako-barrier-%d.service", i)
		units = append(units, unit)
		h.install(t, c, unit, runs)
		must(t, c.Start(t.Context(), unit)) // a unit that runs stays loaded with its old content
	}
	for _, unit := range units {
		content := strings.Replace(runs, "infinity", "10000", 1)
		path := filepath.Join(h.UnitDir, unit)
		must(t, os.WriteFile(path, []byte(content), 0o644))
		later := time.Now().Add(time.Second) // systemd compares times; do not depend on the clock's steps
		must(t, os.Chtimes(path, later, later))
		if s := c.state(t, unit); !s.NeedDaemonReload {
			t.Fatalf("systemd does not see the change: %+v", s)
		}
	}
	observer.forget()
	var wg sync.WaitGroup
	for _, unit := range units {
		wg.Go(func() {
			if s, err := c.EnsureLoaded(t.Context(), unit); err != nil || s.NeedDaemonReload {
				t.Errorf("%s: %+v, %v", unit, s, err)
			}
		})
	}
	wg.Wait()
	resync := systemd.Event{Kind: systemd.Resync}
	observer.await(t, resync, 1)
	if n := observer.count(resync); n != 1 {
		t.Errorf("%d reloads for ten units at once, want 1", n)
	}
	for _, unit := range units {
		_, err := c.EnsureLoaded(t.Context(), unit)
		must(t, err)
	}
	for range 3 { // the first may reload, because files have come and gone
		_, err := c.EnsureLoaded(t.Context(), "tako-nothing.service")
		must(t, err)
	}
	if n := observer.count(resync); n > 2 {
		t.Errorf("%d reloads where nothing changed", n-1)
	}
}

// testReloadsMeanwhile has another process reload systemd all the time, as package installations do: no job's end may be missed for it.
func testReloadsMeanwhile(t *testing.T, h Host) {
	const unit = "tako-meanwhile.service"
	other, c := connect(t, h), connect(t, h)
	h.install(t, c, unit, runs)
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
			}
			if err := other.Reload(t.Context()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 50 {
		must(t, c.Start(t.Context(), unit))
		must(t, c.Stop(t.Context(), unit))
	}
	close(ended)
	wg.Wait()
}

// testGap makes a gap in the signals: both sides must notice by themselves, say Resync, and hear what comes after.
func testGap(t *testing.T, h Host, gap func(*testing.T)) {
	const unit = "tako-gap.service"
	operator, c := connect(t, h), connect(t, h)
	h.install(t, operator, unit, runs)
	must(t, c.Watch(t.Context(), []string{unit}))
	for range 3 {
		c.forget()
		operator.forget()
		gap(t)
		c.await(t, systemd.Event{Kind: systemd.Resync}, 1)
		operator.await(t, systemd.Event{Kind: systemd.Resync}, 1)
		eventually(t, "restart after the gap", func() (string, bool) {
			c.forget()
			err := operator.Restart(t.Context(), unit) // systemd may still be on its way to the bus
			return fmt.Sprint(err), err == nil
		})
		c.await(t, changed(unit), 1)
	}
}
