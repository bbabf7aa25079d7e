package core

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

// life drives one task by hand. Everything that is kept goes over its bytes, as over a restart of the agent.
type life struct {
	t       testing.TB
	config  Config
	state   State
	now     Now
	effects []Effect // of the last step
}

func newLife(t testing.TB, template *workload.Template) *life {
	t.Helper()
	if len(template.Tasks) == 0 {
		template.Tasks = []workload.Task{{Name: "t"}}
	}
	c, err := Of(template, &template.Tasks[0])
	if err != nil {
		t.Fatal(err)
	}
	return &life{t: t, config: c, now: Now{Boot: "b", At: run.Moment(time.Hour)}}
}

func (l *life) step(e Event) { l.state, l.effects = Step(&l.config, l.state, e, l.now) }

func (l *life) wait(d time.Duration) {
	l.now.At = l.now.At.Add(d)
	l.step(nil)
}

// restart is another agent: it has what was kept, and what the runtime has.
func (l *life) restart(attempts ...run.Status) {
	l.t.Helper()
	b, err := l.state.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	if l.state, err = Decode(b); err != nil {
		l.t.Fatal(err)
	}
	l.step(Found{attempts})
}

func (l *life) status(phase run.Phase) run.Status {
	return run.Status{ID: run.ID{Instance: "i", Task: "t", Attempt: l.state.Attempt}, Boot: l.now.Boot, Phase: phase, PID: 7, Started: l.now.At}
}

func (l *life) runs() { l.step(Changed{l.status(run.Running)}) }

func (l *life) ends(code int) {
	s := l.status(run.Ended)
	s.Ending = run.Ending{Cause: run.Exited, Code: code, At: l.now.At}
	l.step(Changed{s})
}

// pause is how long it waits until it starts again.
func (l *life) pause() time.Duration {
	at, ok := WakeAt(&l.config, &l.state, l.now.At)
	if !ok || l.state.Phase != Waiting {
		return -1
	}
	return at.Sub(l.now.At)
}

// again starts what waits.
func (l *life) again() {
	l.wait(l.pause())
	l.runs()
}

// answer answers the questions of the last step.
func (l *life) answer(yes bool) {
	for _, e := range l.effects {
		if e.Action == Ask {
			l.step(Answered{e.Probe, e.Attempt, e.Number, yes})
		}
	}
}

func (l *life) did(a Action) bool {
	return slices.ContainsFunc(l.effects, func(e Effect) bool { return e.Action == a })
}

func probed() *workload.Template {
	p := &workload.Probe{Exec: &workload.ExecProbe{Command: []string{"/bin/true"}}}
	return &workload.Template{Tasks: []workload.Task{{Name: "t", Startup: p, Readiness: p, Liveness: p}}}
}

// ready brings a task up.
func (l *life) ready() {
	l.step(Found{})
	l.runs()
	l.wait(time.Second)
	l.answer(true)
	l.wait(10 * time.Second)
	l.answer(true)
}

func TestWorkloadCase60_RestartOfTheAgentKeepsReadiness(t *testing.T) {
	c := casetest.Start(t)
	l := newLife(t, probed())
	l.ready()
	c.Check(l.state.Ready && l.state.Phase == Running, "it is not ready: %+v", l.state)
	running := l.status(run.Running)
	running.Started = l.state.Began
	for range 5 {
		l.now.At = l.now.At.Add(time.Hour) // without an agent
		l.restart(running)
		c.Check(l.state.Ready && l.state.Attempt == 1 && l.state.Phase == Running, "after a restart of the agent: %+v", l.state)
		c.Check(!l.did(StartIt) && !l.did(StopIt) && !l.did(KillIt), "a restart of the agent does %+v", l.effects)
		l.answer(true)
	}
	l.restart(running)
	for range 3 {
		c.Check(l.state.Ready, "fewer than three answers have taken readiness away")
		l.answer(false)
		l.wait(10 * time.Second)
	}
	c.Check(!l.state.Ready || l.state.Phase != Running, "three answers in a row do not count after a restart: %+v", l.state)
}

func TestWorkloadCase61_BackOffOverRestartsOfTheAgent(t *testing.T) {
	c := casetest.Start(t)
	l := newLife(t, &workload.Template{})
	l.step(Found{})
	l.runs()
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		l.ends(1)
		c.Equal(l.pause(), want*time.Second, "pause after an end")
		l.wait(l.pause() - time.Millisecond)
		ended := l.status(run.Ended)
		l.restart(ended)
		c.Check(!l.did(StartIt) && l.state.Attempt == uint32(i+1), "a restart of the agent cuts the pause short: %+v", l.effects)
		l.wait(time.Millisecond)
		c.Check(l.did(StartIt), "it is not started when the pause is over")
		l.runs()
	}
	c.Equal(l.state.Restarts, uint32(11), "restarts that are counted")
}

func TestWorkloadCase63_GraceGoesOnOverARestartOfTheAgent(t *testing.T) {
	c := casetest.Start(t)
	for _, away := range []time.Duration{0, 10 * time.Second, time.Hour} {
		l := newLife(t, &workload.Template{TerminationGrace: "30s"})
		l.step(Found{})
		l.runs()
		running := l.status(run.Running)
		l.step(Stop{})
		c.Equal(l.effects, []Effect{{Action: StopIt, Attempt: 1, Signal: 15}}, "what a stop does")
		l.wait(5 * time.Second)
		l.now.At = l.now.At.Add(away)
		l.restart(running)
		c.Check(l.did(StopIt) && !l.did(StartIt), "after a restart of the agent: %+v", l.effects)
		late := 5*time.Second+away >= 30*time.Second
		c.Equal(l.did(KillIt), late, "killed with the start of the agent")
		if !late {
			at, ok := WakeAt(&l.config, &l.state, l.now.At)
			c.Check(ok && at.Sub(l.now.At) == 25*time.Second-away, "the rest of the grace is %v", at.Sub(l.now.At))
			l.wait(at.Sub(l.now.At))
			c.Check(l.did(KillIt), "the grace is over, and it lives")
		}
		l.ends(0)
		c.Check(l.state.Phase == Finished && !l.did(StartIt), "what was stopped is %v", l.state.Phase)
	}
}

func TestWorkloadCase64_CleanExitsAndTheHealthyWindow(t *testing.T) {
	c := casetest.Start(t)
	always := newLife(t, &workload.Template{Restart: workload.Restart{ResetAfter: "10m"}})
	always.step(Found{})
	always.runs()
	for i, row := range []struct {
		ran  time.Duration
		want time.Duration
	}{{time.Second, time.Second}, {time.Second, 2 * time.Second}, {9 * time.Minute, 4 * time.Second}, {10 * time.Minute, time.Second}, {time.Second, 2 * time.Second}} {
		always.wait(row.ran)
		always.ends(0)
		c.Check(always.pause() == row.want, "run %d of %v, exit code 0, Always: pause %v, want %v", i, row.ran, always.pause(), row.want)
		always.again()
	}
	failure := newLife(t, &workload.Template{Restart: workload.Restart{Policy: workload.RestartOnFailure}})
	failure.step(Found{})
	failure.runs()
	failure.ends(3)
	c.Equal(failure.pause(), time.Second, "pause after a failure")
	failure.again()
	failure.ends(0)
	c.Check(failure.state.Phase == Finished && failure.state.Succeeded(), "OnFailure after exit code 0: %+v", failure.state)
	never := newLife(t, &workload.Template{Restart: workload.Restart{Policy: workload.RestartNever}})
	never.step(Found{})
	never.runs()
	never.ends(3)
	c.Check(never.state.Phase == Finished && !never.state.Succeeded(), "Never after exit code 3: %+v", never.state)
}

func TestWorkloadCase65_LivenessWaitsForStartup(t *testing.T) {
	c := casetest.Start(t)
	l := newLife(t, probed())
	l.step(Found{})
	l.runs()
	asked := 0
	for range 55 { // nobody answers: each counts as a no when its time is over
		l.wait(time.Second)
		for _, e := range l.effects {
			asked++
			c.Check(e.Action == Ask && e.Probe == Startup, "before it has started up: %+v", e)
		}
	}
	c.Check(asked > 40 && l.state.Phase == Running, "a slow start after 55 s: %v, asked %d times", l.state.Phase, asked)
	l.wait(time.Second)
	l.answer(true)
	c.Check(l.state.StartUp && l.state.Phase == Running, "it has not started up: %+v", l.state)
	for l.state.Phase == Running {
		l.wait(time.Second)
	}
	c.Equal(l.state.Why, NotAlive, "what ended it, when it did not answer any more")
	slow := newLife(t, probed())
	slow.step(Found{})
	slow.runs()
	for slow.state.Phase == Running {
		slow.wait(time.Second)
	}
	c.Equal(slow.state.Why, NotStarted, "what ended it, when it never started up")
	c.Check(slow.now.At.Sub(slow.state.Began) >= time.Minute, "startup gave up after %v", slow.now.At.Sub(slow.state.Began))
}

func TestWorkloadCase66_NothingGrows(t *testing.T) {
	c := casetest.Start(t)
	l := newLife(t, &workload.Template{})
	have := map[uint32]bool{}
	most, bytes := 0, 0
	note := func() {
		for _, e := range l.effects {
			switch e.Action {
			case StartIt:
				have[e.Attempt] = true
			case RemoveIt:
				delete(have, e.Attempt)
			}
		}
		b, err := l.state.Encode()
		c.NoError(err, "encode")
		most, bytes = max(most, len(have)), max(bytes, len(b))
	}
	l.step(Found{})
	note()
	for range 10_000 {
		s := l.status(run.Ended)
		s.Ending = run.Ending{Cause: run.NotExecuted, At: l.now.At, Words: string(make([]byte, 10_000))}
		l.step(Changed{s})
		l.wait(l.pause())
		note()
	}
	c.Equal(l.state.Attempt, uint32(10_001), "attempts")
	c.Check(most <= 2, "the runtime keeps %d attempts", most)
	c.Check(bytes <= bytesMax && len(l.state.Log) == logMax, "the state has %d bytes, %d attempts", bytes, len(l.state.Log))
}

// The disk was lost, or has an older copy: what runs is taken over all the same, and nothing is started beside it.
func TestLostState(t *testing.T) {
	l := newLife(t, &workload.Template{})
	status := func(attempt uint32, phase run.Phase) run.Status {
		return run.Status{ID: run.ID{Instance: "i", Task: "t", Attempt: attempt}, Boot: "b", Phase: phase, Started: l.now.At}
	}
	l.step(Found{[]run.Status{status(3, run.Ended), status(4, run.Ended), status(5, run.Running)}})
	if l.state.Attempt != 5 || l.state.Phase != Running || l.did(StartIt) || l.did(KillIt) {
		t.Errorf("%+v, %+v", l.state, l.effects)
	}
	if !reflect.DeepEqual(l.effects, []Effect{{Action: RemoveIt, Attempt: 3}}) {
		t.Errorf("of the old attempts: %+v", l.effects)
	}
	if _, err := Decode([]byte("not a state")); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("damage: %v", err)
	}
}

// The lease is of the boot clock, and holds over a restart of the agent, but not over one of the host.
func TestLease(t *testing.T) {
	l := newLife(t, &workload.Template{})
	l.config.Leased = true
	l.step(Found{})
	if _, ok := WakeAt(&l.config, &l.state, l.now.At); l.did(StartIt) || ok {
		t.Errorf("before there is a lease: %+v", l.state)
	}
	l.step(Leased{l.now.At.Add(time.Minute)})
	l.runs()
	running := l.status(run.Running)
	l.now.At = l.now.At.Add(59 * time.Second)
	l.restart(running)
	if at, ok := WakeAt(&l.config, &l.state, l.now.At); !ok || at.Sub(l.now.At) != time.Second || l.state.Phase != Running {
		t.Fatalf("%+v wakes at %v", l.state, at)
	}
	l.wait(time.Second)
	if !l.did(StopIt) || l.state.Why != LeaseOver {
		t.Errorf("the lease is over: %+v", l.state)
	}
	l.ends(0)
	if _, ok := WakeAt(&l.config, &l.state, l.now.At); l.did(StartIt) || ok {
		t.Errorf("without a lease: %+v", l.state)
	}
	l.step(Leased{l.now.At.Add(time.Minute)})
	if !l.did(StartIt) {
		t.Errorf("with another lease: %+v", l.state)
	}
	l.now = Now{Boot: "another", At: run.Moment(time.Second)}
	l.restart()
	if l.did(StartIt) || l.state.Phase != Waiting {
		t.Errorf("after a restart of the host: %+v", l.state)
	}
}

func TestReboot(t *testing.T) {
	l := newLife(t, &workload.Template{})
	l.step(Found{})
	l.runs()
	l.now = Now{Boot: "another", At: run.Moment(5 * time.Second)}
	l.restart()
	if !l.did(StartIt) || l.state.Attempt != 2 || l.state.Restarts != 0 {
		t.Errorf("what the host's restart has ended is no fault of the task: %+v", l.state)
	}
	l.runs()
	l.ends(1)
	l.now = Now{Boot: "a third", At: run.Moment(5 * time.Second)}
	l.restart()
	if l.pause() != time.Second {
		t.Errorf("a pause begins again where it is not known how much of it is over: %+v", l.state)
	}
}

func TestOfRefusesSignals(t *testing.T) {
	template := &workload.Template{Tasks: []workload.Task{{Name: "t", StopSignal: "SIGNOTHING"}}}
	if _, err := Of(template, &template.Tasks[0]); !reason.Is(err, reason.TaskRefused) {
		t.Errorf("%v", err)
	}
}

func FuzzDecode(f *testing.F) {
	l := newLife(f, probed())
	l.ready()
	for range 3 {
		b, err := l.state.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(0), uint32(1), int64(time.Hour))
		l.step(Stop{})
		l.ends(1)
	}
	f.Fuzz(func(t *testing.T, data []byte, kind uint8, attempt uint32, at int64) {
		s, err := Decode(data)
		if err != nil {
			if !reason.Is(err, reason.StateCorrupt) {
				t.Errorf("error without its code: %v", err)
			}
			return
		}
		template := probed()
		config, err := Of(template, &template.Tasks[0])
		if err != nil {
			t.Fatal(err)
		}
		status := run.Status{ID: run.ID{Instance: "i", Task: "t", Attempt: attempt}, Boot: s.Boot, Phase: run.Phase(kind%3 + 1), Started: run.Moment(at)}
		events := []Event{nil, Stop{}, Changed{status}, Found{[]run.Status{status}}, Leased{run.Moment(at)}, Answered{ProbeKind(kind), attempt, 1, true}}
		next, _ := Step(&config, s, events[int(kind)%len(events)], Now{s.Boot, run.Moment(max(at, 0))})
		if kind%3 != 0 || attempt == 0 || at < 0 {
			return // what no runtime says needs no valid answer
		}
		if err := next.valid(); err != nil {
			t.Errorf("%+v: %v", next, err)
		}
	})
}

// The agent was killed after it had noted what it was about to do, and before it did it.
func TestCutShort(t *testing.T) {
	l := newLife(t, &workload.Template{TerminationGrace: "1s"})
	l.step(Found{})
	l.restart()
	if !slices.Equal(l.effects, []Effect{{Action: StartIt, Attempt: 1}}) {
		t.Errorf("it was about to start: %+v", l.effects)
	}
	l.runs()
	running := l.status(run.Running)
	l.step(Stop{})
	l.wait(time.Second)
	if !l.did(KillIt) {
		t.Fatalf("the grace is over: %+v", l.effects)
	}
	l.restart(running)
	if !l.did(KillIt) {
		t.Errorf("it was about to kill: %+v", l.effects)
	}

	leased := newLife(t, &workload.Template{})
	leased.config.Leased = true
	leased.step(Leased{leased.now.At.Add(time.Minute)})
	leased.now.At = leased.now.At.Add(time.Hour)
	leased.restart()
	if leased.did(StartIt) || leased.state.Phase != Waiting {
		t.Errorf("the lease is over since it was about to start: %+v, %+v", leased.state, leased.effects)
	}

	two := newLife(t, &workload.Template{})
	status := func(attempt uint32) run.Status {
		return run.Status{ID: run.ID{Instance: "i", Task: "t", Attempt: attempt}, Boot: "b", Phase: run.Running, Started: two.now.At}
	}
	two.step(Found{[]run.Status{status(4), status(5)}})
	if !slices.Equal(two.effects, []Effect{{Action: KillIt, Attempt: 4}}) || two.state.Attempt != 5 {
		t.Errorf("two attempts run: %+v", two.effects)
	}
}
