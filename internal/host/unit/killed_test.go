package unit

import (
	"context"
	"errors"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// mortal is a bus of an agent that is killed when it wants something of systemd for the n-th time.
type mortal struct {
	*systemd.Bus
	left int
}

var errKilled = &reason.Error{Code: reason.Interrupted, Doing: "live", Cause: errors.New("killed")}

func (m *mortal) dead() bool {
	m.left--
	return m.left < 0
}

func (m *mortal) Reload(ctx context.Context) error {
	if m.dead() {
		return errKilled
	}
	return m.Bus.Reload(ctx)
}

func (m *mortal) Start(ctx context.Context, unit string) error {
	if m.dead() {
		return errKilled
	}
	return m.Bus.Start(ctx, unit)
}

func (m *mortal) Stop(ctx context.Context, unit string) error {
	if m.dead() {
		return errKilled
	}
	return m.Bus.Stop(ctx, unit)
}

func (m *mortal) EnableAll(ctx context.Context, units []string) []error {
	if m.dead() {
		return []error{errKilled}
	}
	return m.Bus.EnableAll(ctx, units)
}

func (m *mortal) DisableAll(ctx context.Context, units []string) []error {
	if m.dead() {
		return []error{errKilled}
	}
	return m.Bus.DisableAll(ctx, units)
}

func words(s string) string { return strings.Join(strings.Fields(s), " ") }

// TestInsideKilled ends an agent between any two things that it has systemd do; the next one finishes, and everything is as if nothing had
// been.
func TestInsideKilled(t *testing.T) {
	g := newGround(t)
	daily := declare.Timer{Calendar: []string{"daily"}, Command: []string{"sleep", "infinity"}}
	for _, row := range []struct {
		name     string
		arrange  func()
		resource declare.Resource
		want     string
	}{
		{"unit", func() {}, unitOf("t-one", "", sleeper), "inactive disabled no"},
		{"changed unit", func() { g.made(unitOf("t-one", "", sleeper)); g.run("systemctl", "start", "t-one") }, unitOf("t-one", "", sleeper+"# changed\n"), "active disabled no"},
		{"timer", func() {}, timerOf("t-one", daily), "inactive static no active enabled no"},
		{"changed timer", func() {
			g.made(timerOf("t-one", declare.Timer{Calendar: []string{"hourly"}, Command: []string{"true"}}))
		}, timerOf("t-one", daily), "inactive static no active enabled no"},
		{"timer that goes", func() {
			g.made(timerOf("t-one", daily))
			g.run("sh", "-c", "systemctl start --no-block t-one.service; until systemctl show --property=ActiveState t-one.service | grep -q activating; do :; done")
		}, timerOf("t-one", declare.Timer{State: declare.EditAbsent}), "inactive  no inactive  no"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for n := 0; ; n++ {
				g.clean()
				row.arrange()
				m := &mortal{Bus: g.bus.Bus, left: n}
				units, timers := &Type{g.units.files}, &Timers{files: g.timers.files, units: m, booted: g.timers.booted}
				units.bus, timers.bus = m, m
				var typ host.Type = units
				if row.resource.Timer != nil {
					typ = timers
				}
				bound, err := typ.Bind(t.Context(), declared(row.resource))
				if err != nil {
					t.Fatal(err)
				}
				p := typ.Check(t.Context(), []host.Resource{bound}, host.Deep)[0]
				if p.Err != nil || p.Empty() {
					t.Fatalf("%+v", p)
				}
				res := typ.Apply(t.Context(), []host.Plan{p})[0]
				g.made(row.resource)
				names := []string{"t-one.service"}
				if row.resource.Timer != nil {
					names = append(names, "t-one.timer")
				}
				got := ""
				for _, name := range names {
					got += " " + g.try("sh", "-c", "systemctl show --property=ActiveState --value "+name+"; systemctl show --property=UnitFileState --value "+name+"; systemctl show --property=NeedDaemonReload --value "+name)
				}
				if words(got) != words(row.want) {
					t.Errorf("killed at %d: %q, want %q", n, words(got), words(row.want))
				}
				if res.Err == nil {
					if n == 0 {
						t.Error("nothing was asked of systemd")
					}
					return
				}
			}
		})
	}
}
