package unit

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/calendar"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// The fields of changes of timers, besides those of their files.
const (
	fieldEnabled = "enabled"
	fieldState   = "state"
	fieldCommand = "command"

	labelTimer, labelService = "timer", "service"
	wordStarted, wordStopped = "started", "stopped"
	wordEnabled, wordOff     = "enabled", "disabled"
)

// Timers is the resource type timer.
type Timers struct {
	files
	units   units // nil in a sandbox
	sandbox bool
	booted  string
}

// units is what timers need of systemd; see systemd.Bus.
type units interface {
	bus
	EnableAll(ctx context.Context, units []string) []error
	DisableAll(ctx context.Context, units []string) []error
	Start(ctx context.Context, unit string) error
	Stop(ctx context.Context, unit string) error
	ResetFailed(ctx context.Context, unit string) error
}

var (
	_ host.Type    = (*Timers)(nil)
	_ host.Sweeper = (*Timers)(nil)
	_ units        = (*systemd.Bus)(nil)
)

// NewTimers makes the Type, for an agent that runs as this process does.
func NewTimers(o Options) *Timers {
	t := &Timers{files: newFiles(o), sandbox: o.Bus == nil, booted: bootedDir}
	t.verifier.dir += ".timers" // of its own: both types verify at the same time
	if o.Bus != nil {
		t.units = o.Bus
	}
	return t
}

// Lane returns the lane of timers.
func (t *Timers) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypeTimer), Parallel: 1, Batch: laneBatch}
}

// timer is one declared timer. It keeps no texts: they are made again.
type timer struct {
	name   string
	absent bool
	runs   bool // it has a command, and so a service of its own
	timer  target
	// service is also there where the timer starts another unit: then there must be no service that is the timer's.
	service target
	body    func() (declare.Resource, error)
}

func (r *timer) doing() string { return "set up timer " + r.name }

func (r *timer) unit() string { return r.timer.unit }

// targets are the files that must be there.
func (r *timer) targets() []*target {
	switch {
	case r.absent:
		return nil
	case r.runs:
		return []*target{&r.service, &r.timer}
	}
	return []*target{&r.timer}
}

// Watches names the files and the timer.
func (r *timer) Watches() []host.Watch {
	return []host.Watch{{Kind: host.WatchPath, Name: r.timer.path}, {Kind: host.WatchPath, Name: r.service.path}, {Kind: host.WatchUnit, Name: r.unit()}}
}

// Bind makes a timer ready. It fails for good where there is no systemd to ask.
func (t *Timers) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	declared := d.Resource.Timer
	if declared == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not a timer")}
	}
	name := declared.NameOr(d.Resource.Name)
	r := &timer{name: name, absent: declared.Absent(), runs: declared.Unit == "" && !declared.Absent(), body: d.Body}
	r.timer = target{path: declare.UnitDir + "/" + name + ".timer", label: labelTimer, unit: name + ".timer"}
	r.service = target{path: declare.UnitDir + "/" + name + ".service", label: labelService, unit: name + ".service"}
	for _, c := range declared.Calendar {
		if _, err := calendar.Parse(c); err != nil { // one that was expanded here
			return nil, &reason.Error{Code: reason.InvalidValue, Doing: r.doing(), Cause: err, Hint: "see what $(...) stands for on this host"}
		}
	}
	t.own(&r.timer)
	t.own(&r.service)
	r.timer.want(timerText(declared, name))
	r.service.want(serviceText(declared, name))
	if t.sandbox {
		return nil, &reason.Error{Code: reason.UnsupportedInRoot, Doing: r.doing(), Hint: "a sandbox has files only: its timers are those of the host"}
	}
	if _, err := os.Stat(t.booted); err != nil {
		return nil, &reason.Error{Code: reason.NoSystemd, Doing: r.doing(), Cause: err, Hint: "timers need a host that systemd has booted"}
	}
	return r, nil
}

func (g *target) want(text string) { g.digest, g.size = content.DigestOf([]byte(text)), len(text) }

// texts makes the texts of the files again, by path. The declaration may have been replaced since Bind; then the plan that asks is void.
func (r *timer) texts() (map[string]string, error) {
	res, err := r.body()
	if err != nil {
		return nil, err
	}
	if res.Timer != nil {
		texts := map[string]string{r.timer.path: timerText(res.Timer, r.name), r.service.path: serviceText(res.Timer, r.name)}
		if content.DigestOf([]byte(texts[r.timer.path])) == r.timer.digest && content.DigestOf([]byte(texts[r.service.path])) == r.service.digest {
			return texts, nil
		}
	}
	return nil, &reason.Error{Code: reason.ConcurrentEdit, Doing: r.doing(), Cause: errors.New("its declaration has just been replaced")}
}

// timerStep is what Apply needs of a plan: its State.
type timerStep struct {
	was   map[*target]*view
	known bool // the files are what was left there, after which systemd has read them
	// leftover says that a service of the timer is there that is not wanted any more.
	leftover bool
}

// Check looks at the files of each timer and at the timer itself.
func (t *Timers) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	now := disk.Tick()
	for i, res := range rs {
		p := &plans[i]
		p.Resource = res
		if err := ctx.Err(); err != nil {
			p.Err = reason.Ended("look at timers", err)
			continue
		}
		changes, state, err := t.check(ctx, res.(*timer), depth, now)
		if p.Err = err; err == nil {
			p.Changes, p.State = changes, state
		}
	}
	return plans
}

func (t *Timers) check(ctx context.Context, r *timer, depth host.Depth, now int64) ([]host.Change, timerStep, error) {
	s := timerStep{was: map[*target]*view{}}
	var changes []host.Change
	for _, g := range r.targets() {
		v, remembered, err := t.look(g, depth == host.Shallow, now)
		if err == nil {
			s.known = remembered && (s.known || len(s.was) == 0)
			err = t.mayReplace(r, g, v)
		}
		if err == nil && v.rewrite() && depth == host.Explain {
			var texts map[string]string
			if texts, err = r.texts(); err == nil {
				v.show(texts[g.path])
			}
		}
		if err != nil {
			return nil, s, err
		}
		s.was[g] = v
		changes = append(changes, v.changes...)
	}
	state, err := t.units.Unit(ctx, r.unit())
	if err != nil {
		return nil, s, err
	}
	if !r.runs {
		if s.leftover, err = t.isOwn(r); err != nil {
			return nil, s, err
		}
	}
	if r.absent {
		changes, err = t.compareAbsent(ctx, r, state, s.leftover)
		return changes, s, err
	}
	if len(changes) == 0 {
		if changes, err = t.unread(ctx, r, state, s.known); err != nil {
			return nil, s, err
		}
	}
	if s.leftover {
		changes = append(changes, host.Change{Field: labelService + " file", From: "present", To: "absent"})
	}
	return append(changes, compareState(state)...), s, nil
}

// unread says whether systemd has still to read the files of a timer, which are in order.
func (t *Timers) unread(ctx context.Context, r *timer, state systemd.UnitState, known bool) ([]host.Change, error) {
	stale := state.NeedDaemonReload || state.NotFound()
	if r.runs && !stale && !known {
		service, err := t.units.Unit(ctx, r.service.unit)
		if err != nil {
			return nil, err
		}
		stale = service.NeedDaemonReload || service.NotFound()
	}
	if !stale {
		return nil, nil
	}
	r.timer.seen, r.service.seen = disk.Signature{}, disk.Signature{}
	return []host.Change{unread()}, nil
}

// compareState compares what systemd says of a timer that shall be enabled and wait for its time.
func compareState(s systemd.UnitState) (changes []host.Change) {
	if s.UnitFileState != wordEnabled {
		from := s.UnitFileState
		if from == "" {
			from = wordOff
		}
		changes = append(changes, host.Change{Field: fieldEnabled, From: from, To: wordEnabled})
	}
	if s.ActiveState != "active" {
		changes = append(changes, host.Change{Field: fieldState, From: stateWord(s), To: wordStarted})
	}
	return changes
}

func stateWord(s systemd.UnitState) string {
	switch s.ActiveState {
	case "active":
		return wordStarted
	case "inactive":
		return wordStopped
	}
	return s.ActiveState
}

// compareAbsent says what is there of a timer that must not be. What a package brings is not a timer that somebody has set up here.
func (t *Timers) compareAbsent(ctx context.Context, r *timer, s systemd.UnitState, leftover bool) (changes []host.Change, err error) {
	st, err := t.root.Stat(r.timer.path)
	if err != nil {
		return nil, err
	}
	if st.Exists() || s.FragmentPath == r.timer.path {
		if s.ActiveState == "active" {
			changes = append(changes, host.Change{Field: fieldState, From: wordStarted, To: wordStopped})
		}
		if s.UnitFileState == wordEnabled {
			changes = append(changes, host.Change{Field: fieldEnabled, From: wordEnabled, To: wordOff})
		}
	}
	service, err := t.units.Unit(ctx, r.service.unit)
	if err != nil {
		return nil, err
	}
	if leftover {
		if isRunning(service) {
			changes = append(changes, host.Change{Field: fieldCommand, From: "running", To: "ended"})
		}
		changes = append(changes, host.Change{Field: labelService + " file", From: "present", To: "absent"})
	}
	if st.Exists() {
		changes = append(changes, host.Change{Field: labelTimer + " file", From: "present", To: "absent"})
	}
	if len(changes) > 0 {
		return changes, nil
	}
	gone := !st.Exists() && s.NeedDaemonReload && s.FragmentPath == r.timer.path
	if st, err = t.root.Stat(r.service.path); err != nil {
		return nil, err
	}
	if gone || !st.Exists() && service.NeedDaemonReload && service.FragmentPath == r.service.path {
		changes = append(changes, unread()) // the agent was killed before it said that they are gone
	}
	return changes, nil
}

func isRunning(s systemd.UnitState) bool {
	return s.ActiveState == "active" || s.ActiveState == "activating" || s.ActiveState == "reloading"
}

// mayReplace refuses to make a service that is somebody else's the one of a timer.
func (t *Timers) mayReplace(r *timer, g *target, v *view) error {
	if g != &r.service || len(v.changes) == 0 {
		return nil
	}
	e := &reason.Error{Code: reason.UnitTaken, Doing: r.doing(), Hint: "declare `unit: " + g.unit + "` instead of `command`, or give the timer another name"}
	if v.sig.Exists() && !strings.HasPrefix(string(v.text), madeBy) {
		e.Cause = errors.New(g.path + " is the service of somebody else")
		return e
	}
	if from := t.overrides(g); from != "" {
		e.Cause = errors.New(from + " is a service of its own")
		return e
	}
	return nil
}

// isOwn reports whether the service of a timer's name is there and is the timer's.
func (t *Timers) isOwn(r *timer) (bool, error) {
	d, name, err := t.root.Parent(r.service.path)
	if reason.Is(err, reason.ParentMissing) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer d.Close()
	st, err := d.Stat(name)
	if err != nil || disk.Signature(st.Signature).Kind() != "file" {
		return false, err
	}
	text, _, err := d.ReadFile(name, readMax)
	return err == nil && strings.HasPrefix(string(text), madeBy), err
}

// zoneOf is the time zone of an expression on this host.
func zoneOf(e calendar.Expression) (*time.Location, error) {
	if e.Zone() != "" {
		return time.LoadLocation(e.Zone())
	}
	// Not time.Local, which is what it was when the agent was started.
	b, err := os.ReadFile("/etc/localtime")
	if err != nil {
		return time.UTC, nil // as systemd takes it, localtime(5)
	}
	return time.LoadLocationFromTZData("Local", b)
}

// next says for a person when a timer elapses next.
func next(list []string, now time.Time) string {
	var first time.Time
	for _, text := range list {
		e, err := calendar.Parse(text)
		if err != nil {
			continue
		}
		zone, err := zoneOf(e)
		if err != nil {
			continue
		}
		if at, ok := e.Next(now, zone); ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if first.IsZero() {
		return "it never runs again"
	}
	return "it runs next at " + first.Format("2006-01-02 15:04:05 MST")
}
