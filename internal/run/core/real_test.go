package core_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/core"
	"tako.dev/tako/internal/run/process"
)

// The test binary is its own shim.
const shimArgument = "mind-a-task"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == shimArgument {
		syscall.Exit(process.Serve()) // not os.Exit, before which the race detector sleeps for a second
	}
	os.Exit(m.Run())
}

// host is a directory on which agents follow one another, each of which drives one real task.
type host struct {
	*testing.T
	dir    string
	boot   string
	config core.Config
	task   run.Task
	kept   []byte // of the state
}

func newHost(t *testing.T, template workload.Template, line string) *host {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	if len(template.Tasks) == 0 {
		template.Tasks = []workload.Task{{Name: "t"}}
	}
	config, err := core.Of(&template, &template.Tasks[0])
	if err != nil {
		t.Fatal(err)
	}
	task := run.Task{ID: run.ID{Instance: "i", Task: "t"}, Command: []string{"/bin/sh", "-c", line}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/"}
	return &host{T: t, dir: filepath.Join(t.TempDir(), "run"), boot: strings.TrimSpace(string(boot)), config: config, task: task}
}

func (h *host) now() core.Now {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		h.Fatal(err)
	}
	return core.Now{Boot: h.boot, At: run.Moment(ts.Nano())}
}

// agent drives the task from what is kept until over says that this agent's life is; each question is answered with yes.
func (h *host) agent(first core.Event, over func(core.State, []run.Status) bool) {
	h.Helper()
	rt, err := process.New(process.Options{Dir: h.dir, Shim: []string{"/proc/self/exe", shimArgument}})
	if err != nil {
		h.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
	told, ended := make(chan run.Status, 64), make(chan error, 1)
	go func() { ended <- rt.Run(ctx, func(s run.Status) { told <- s }) }()
	defer func() {
		cancel()
		if err := errors.Join(<-ended, rt.Close()); err != nil {
			h.Error(err)
		}
	}()
	var state core.State
	if h.kept != nil {
		if state, err = core.Decode(h.kept); err != nil {
			h.Fatal(err)
		}
	}
	list, err := rt.List(ctx)
	if err != nil {
		h.Fatal(err)
	}
	events := []core.Event{core.Found{Attempts: list}, first}
	for {
		for len(events) > 0 {
			var effects []core.Effect
			state, effects = core.Step(&h.config, state, events[0], h.now())
			events = events[1:]
			if h.kept, err = state.Encode(); err != nil {
				h.Fatal(err)
			}
			for _, e := range effects {
				events = append(events, h.carry(ctx, rt, e)...)
			}
		}
		if list, err = rt.List(ctx); err != nil {
			h.Fatal(err)
		}
		if over(state, list) {
			return
		}
		wait := time.Hour
		if at, ok := core.WakeAt(&h.config, &state, h.now().At); ok {
			wait = at.Sub(h.now().At)
		}
		due := time.NewTimer(wait)
		select {
		case s := <-told:
			events = append(events, core.Changed{Status: s})
		case <-due.C:
			events = append(events, nil)
		case <-ctx.Done():
			h.Fatalf("it does not come to what is waited for: %+v, %+v", state, list)
		}
		due.Stop()
	}
}

// carry does one effect.
func (h *host) carry(ctx context.Context, rt run.Runtime, e core.Effect) []core.Event {
	h.Helper()
	task := h.task
	task.ID.Attempt = e.Attempt
	var err error
	switch e.Action {
	case core.StartIt:
		var s run.Status
		if s, err = rt.Start(ctx, task); err == nil {
			return []core.Event{core.Changed{Status: s}}
		}
	case core.StopIt:
		err = rt.Stop(ctx, task.ID, e.Signal)
	case core.KillIt:
		err = rt.Kill(ctx, task.ID)
	case core.RemoveIt:
		err = rt.Remove(ctx, task.ID)
	case core.Ask:
		return []core.Event{core.Answered{Probe: e.Probe, Attempt: e.Attempt, Number: e.Number, Yes: true}}
	}
	if err != nil {
		h.Fatalf("%+v: %v", e, err)
	}
	return nil
}

// Agents come and go: one process, ready all the time, and a grace that is as long as if there had been one agent.
func TestRealAgents(t *testing.T) {
	probe := &workload.Probe{Period: "100ms"}
	h := newHost(t, workload.Template{
		TerminationGrace: "1500ms", Tasks: []workload.Task{{Name: "t", Startup: probe, Readiness: probe}},
	}, "trap '' TERM; while :; do sleep 0.05; done")
	var first run.Status
	h.agent(nil, func(s core.State, list []run.Status) bool {
		if len(list) > 0 {
			first = list[0]
		}
		return s.Ready
	})
	for range 3 {
		h.agent(nil, func(s core.State, list []run.Status) bool {
			if len(list) != 1 || list[0] != first || !s.Ready || s.Attempt != 1 {
				t.Errorf("with another agent: %+v, %+v", list, s)
			}
			return true
		})
	}
	asked := h.now().At
	h.agent(core.Stop{}, func(s core.State, _ []run.Status) bool { return s.Phase == core.Stopping })
	var end run.Ending
	h.agent(nil, func(s core.State, list []run.Status) bool {
		if len(list) > 0 {
			end = list[0].Ending
		}
		return s.Phase == core.Finished
	})
	if took := end.At.Sub(asked); end.Cause != run.Signaled || end.Signal != run.Signal(unix.SIGKILL) || took < 1500*time.Millisecond || took > 20*time.Second {
		t.Errorf("it ended %v after it was stopped: %+v", took, end)
	}
}

// A task that fails is started again and again, each time after a longer pause, whoever is the agent; of its attempts two are kept.
func TestRealBackOff(t *testing.T) {
	h := newHost(t, workload.Template{Restart: workload.Restart{Backoff: "100ms", BackoffMax: "400ms"}}, "exit 3")
	var ends []run.Status
	for attempt := uint32(1); attempt <= 6; attempt++ {
		h.agent(nil, func(s core.State, list []run.Status) bool {
			if len(list) > 2 {
				t.Errorf("%d attempts are kept", len(list))
			}
			if s.Attempt < attempt || s.Phase != core.Waiting {
				return false
			}
			ends = append(ends, list[len(list)-1])
			return true
		})
	}
	for i, pause := range []time.Duration{100, 200, 400, 400, 400} {
		if took := ends[i+1].Started.Sub(ends[i].Ending.At); took < pause*time.Millisecond || ends[i].Ending.Code != 3 {
			t.Errorf("attempt %d ended as %+v, and the next began %v later", i+1, ends[i].Ending, took)
		}
	}
}
