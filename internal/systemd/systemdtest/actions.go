package systemdtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

func testActions(t *testing.T, h Host) {
	const unit = "tako-actions.service"
	c := connect(t, h)
	if s := c.state(t, unit); !s.NotFound() {
		t.Fatalf("exists before it is made: %+v", s)
	}
	wantCode(t, c.Start(t.Context(), unit), reason.UnitNotFound)
	h.install(t, c, unit, runs)
	if s := c.state(t, unit); s.ActiveState != "inactive" || s.LoadState != "loaded" || s.InvocationID != "" || s.Name != unit {
		t.Errorf("before the first start: %+v", s)
	}

	before := now(t)
	must(t, c.Start(t.Context(), unit))
	started := c.state(t, unit)
	if started.ActiveState != "active" || started.SubState != "running" || len(started.InvocationID) != 32 {
		t.Errorf("after start: %+v", started)
	}
	if !systemd.StartedAfter(started, before) || systemd.StartedAfter(started, now(t)) {
		t.Errorf("start is not between the moments around it: %+v", started)
	}
	must(t, c.Start(t.Context(), unit))
	if again := c.state(t, unit); again.InvocationID != started.InvocationID {
		t.Error("start restarts what runs")
	}

	before = now(t)
	must(t, c.Restart(t.Context(), unit))
	restarted := c.state(t, unit)
	if restarted.ActiveState != "active" || restarted.InvocationID == started.InvocationID || !systemd.StartedAfter(restarted, before) {
		t.Errorf("after restart: %+v", restarted)
	}
	before = now(t)
	must(t, c.ReloadOrRestart(t.Context(), unit)) // it cannot reload
	if s := c.state(t, unit); s.ActiveState != "active" || s.CanReload || !systemd.StartedAfter(s, before) {
		t.Errorf("after reload or restart: %+v", s)
	}
	must(t, c.Stop(t.Context(), unit))
	if s := c.state(t, unit); s.ActiveState != "inactive" || systemd.StartedAfter(s, before) {
		t.Errorf("after stop: %+v", s)
	}
	must(t, c.Stop(t.Context(), unit))
}

func now(t *testing.T) systemd.Stamp {
	t.Helper()
	s, err := systemd.Now()
	must(t, err)
	return s
}

func testFailures(t *testing.T, h Host) {
	c := connect(t, h)
	h.install(t, c, "tako-ends.service", ends)
	err := c.Start(t.Context(), "tako-ends.service")
	wantCode(t, err, reason.UnitJobFailed)
	if !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("error does not say how it failed: %v", err)
	}
	if s := c.state(t, "tako-ends.service"); s.ActiveState != "failed" || s.Result != "exit-code" || s.ExecMainStatus != 1 {
		t.Errorf("after the failure: %+v", s)
	}

	h.install(t, c, "tako-says.service", says)
	err = c.Start(t.Context(), "tako-says.service")
	wantCode(t, err, reason.UnitJobFailed)
	t.Logf("%v; evidence: %q", err, reason.Of(err).Evidence)
	if !strings.Contains(reason.Of(err).Evidence, "words of the unit") {
		t.Errorf("evidence lacks the unit's words: %q", reason.Of(err).Evidence)
	}

	h.install(t, c, "tako-hits.service", hits)
	wantCode(t, c.Start(t.Context(), "tako-hits.service"), reason.UnitJobFailed)
	wantCode(t, c.Start(t.Context(), "tako-hits.service"), reason.UnitStartLimit)
	must(t, c.ResetFailed(t.Context(), "tako-hits.service"))
	wantCode(t, c.Start(t.Context(), "tako-hits.service"), reason.UnitJobFailed)

	masked := filepath.Join(h.UnitDir, "tako-masked.service")
	must(t, os.Symlink("/dev/null", masked))
	t.Cleanup(func() { _ = os.Remove(masked) })
	must(t, c.Reload(t.Context()))
	if s := c.state(t, "tako-masked.service"); s.LoadState != "masked" || s.UnitFileState != "masked" {
		t.Errorf("masked: %+v", s)
	}
	wantCode(t, c.Start(t.Context(), "tako-masked.service"), reason.UnitMasked)

	for _, name := range []string{"tako no such unit", "tako-template@.service", "tako-no-suffix", ""} {
		if s, err := c.Unit(t.Context(), name); err == nil && !s.NotFound() {
			t.Errorf("unit %q: %+v", name, s)
		} else if err != nil {
			wantCode(t, err, reason.UnitNotFound)
		}
		wantCode(t, c.Start(t.Context(), name), reason.UnitNotFound)
	}
}

func testPatience(t *testing.T, h Host) {
	const unit = "tako-slow.service"
	c := connect(t, h)
	h.install(t, c, unit, slow)
	var wg sync.WaitGroup
	wg.Go(func() { wantCode(t, c.Start(t.Context(), unit), reason.UnitJobFailed) }) // the stop replaces it
	c.awaitState(t, unit, "activating")
	must(t, c.Stop(t.Context(), unit))
	wg.Wait()

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	wantCode(t, c.Start(ctx, unit), reason.UnitJobTimeout)
	c.awaitState(t, unit, "activating") // the job goes on
}

func testSharedJob(t *testing.T, h Host) {
	const unit = "tako-shared.service"
	c := connect(t, h)
	h.install(t, c, unit, strings.Replace(runs, "[Service]\n", "[Service]\nExecStartPre=/bin/sleep 0.3\n", 1))
	errs := make([]error, 10)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = c.Start(t.Context(), unit) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if s := c.state(t, unit); s.ActiveState != "active" {
		t.Errorf("after ten starts at once: %+v", s)
	}
}

func testEnabling(t *testing.T, h Host) {
	const unit = "tako-enabling.service"
	c := connect(t, h)
	h.install(t, c, unit, runs)
	state := func(want string) {
		t.Helper()
		direct, err := c.UnitFileState(t.Context(), unit)
		must(t, err)
		if s := c.state(t, unit); direct != want || s.UnitFileState != want || s.NeedDaemonReload {
			t.Errorf("file state %q, want %q; %+v", direct, want, s)
		}
	}
	state("disabled")
	must(t, c.Enable(t.Context(), unit))
	state("enabled")
	must(t, c.Enable(t.Context(), unit))
	state("enabled")
	must(t, c.Disable(t.Context(), unit))
	state("disabled")
	must(t, c.Disable(t.Context(), unit))

	h.install(t, c, "tako-static.service", ends)
	wantCode(t, c.Enable(t.Context(), "tako-static.service"), reason.UnitNotInstalled)
	wantCode(t, c.Enable(t.Context(), "tako-nothing.service"), reason.UnitNotFound)
	if s, err := c.UnitFileState(t.Context(), "tako-nothing.service"); s != "" || err != nil {
		t.Errorf("file state of nothing: %q, %v", s, err)
	}
}
