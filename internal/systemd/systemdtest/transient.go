package systemdtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// transient is a unit that runs a line of shell.
func transient(line string) []systemd.Property {
	return []systemd.Property{
		{Name: "Type", Value: "exec"},
		{Name: "ExecStart", Value: []systemd.Command{{Path: "/bin/sh", Args: []string{"sh", "-c", line}}}},
	}
}

// testTransient makes units that have no file: they are made once, told of, signalled, and as good as never there when they have ended well.
func testTransient(t *testing.T, h Host) {
	const unit = "tako-transient.service"
	c := connect(t, h)
	follower := c.follow(t, unit)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		_ = c.Stop(ctx, unit) // it may have ended
		_ = c.ResetFailed(ctx, unit)
	}()
	for i, want := range []bool{true, false} {
		if made, err := c.StartTransient(t.Context(), unit, transient("trap 'exit 3' USR1; while :; do sleep 0.05; done")); err != nil || made != want {
			t.Errorf("made for the %dth time: %v, %v", i, made, err)
		}
	}
	follower.await(t, unit, c, "active")
	if name, err := c.ControlGroup(t.Context(), unit); err != nil || name == "" {
		t.Errorf("its cgroup is %q (%v)", name, err)
	}
	must(t, c.Reload(t.Context())) // it is read anew from what systemd has written down
	follower.await(t, unit, c, "active")
	must(t, c.Signal(t.Context(), unit, false, 10))
	follower.await(t, unit, c, "failed")
	if e, err := c.Exit(t.Context(), unit); err != nil || e.Code != 1 || e.Status != 3 || e.Result != "exit-code" || e.PID == 0 || e.Ended < e.Began || e.Began == 0 {
		t.Errorf("it ended as %+v (%v)", e, err)
	}
	must(t, c.Signal(t.Context(), unit, false, 10)) // nobody is there, and that is no error
	must(t, c.ResetFailed(t.Context(), unit))
	wantCode(t, c.Signal(t.Context(), unit, false, 10), reason.UnitNotFound)
	if units, err := c.Loaded(t.Context(), unit); err != nil || len(units) != 0 {
		t.Errorf("there is %+v (%v)", units, err)
	}

	if made, err := c.StartTransient(t.Context(), unit, transient("sleep 600")); err != nil || !made {
		t.Errorf("made again: %v, %v", made, err)
	}
	follower.await(t, unit, c, "active")
	must(t, c.QueueStop(t.Context(), unit))
	follower.await(t, unit, c, "")
	_, err := c.StartTransient(t.Context(), unit, []systemd.Property{{Name: "NoSuchSetting", Value: "x"}})
	wantCode(t, err, reason.UnitJobFailed)
}

// testFollowers has several follow the same unit, and others, beside Watch: each is told of its own, and of a gap.
func testFollowers(t *testing.T, h Host) {
	const one, two = "tako-followed.service", "tako-not-followed.service"
	operator, c := connect(t, h), connect(t, h)
	h.install(t, operator, one, runs)
	h.install(t, operator, two, runs)
	must(t, c.Watch(t.Context(), []string{two}))
	first, second := c.follow(t, one), c.follow(t, one)
	c.forget()
	must(t, operator.Start(t.Context(), one))
	must(t, operator.Start(t.Context(), two))
	c.await(t, changed(two), 1)
	for _, f := range []follower{first, second} {
		if e := f.next(t); e != changed(one) {
			t.Errorf("told of %+v", e)
		}
	}
	if n := c.count(changed(one)); n != 0 {
		t.Errorf("Watch tells of what only a follower asks for, %d times", n)
	}
	must(t, second.Drop(t.Context(), one))
	must(t, operator.Stop(t.Context(), one))
	first.await(t, one, c, "inactive")
	must(t, operator.Reload(t.Context()))
	for first.next(t).Kind != systemd.Resync {
	}
	first.Note("tako-anything.service")
	for first.next(t) != changed("tako-anything.service") {
	}
	h.Rebus(t)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for {
		if _, err := first.Next(ctx); err != nil {
			wantCode(t, err, reason.BusDisconnected)
			break
		}
	}
	eventually(t, "systemd to be on the bus again", func() (string, bool) {
		err := operator.Reload(t.Context())
		return fmt.Sprint(err), err == nil
	})
}

// follower is a systemd.Follower that is ended with the test.
type follower struct{ *systemd.Follower }

func (c *connection) follow(t *testing.T, units ...string) follower {
	t.Helper()
	f, err := c.Follow(t.Context())
	must(t, err)
	t.Cleanup(f.End)
	must(t, f.Add(t.Context(), units...))
	return follower{f}
}

// next is the first of what is told next.
func (f follower) next(t *testing.T) systemd.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	events, err := f.Next(ctx)
	if err != nil {
		t.Fatalf("next: %v", err)
	}
	return events[0]
}

// await looks at a unit whenever something is told, until it is as wanted; "": until systemd has forgotten it.
func (f follower) await(t *testing.T, unit string, c *connection, active string) {
	t.Helper()
	for end := time.Now().Add(deadline); ; f.next(t) {
		units, err := c.Loaded(t.Context(), unit)
		must(t, err)
		is := ""
		if len(units) > 0 {
			is = units[0].ActiveState
		}
		if is == active || active == "inactive" && is == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is %q, want %q", unit, is, active)
		}
	}
}
