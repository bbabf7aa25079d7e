package unit

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// job is one plan of a timer on its way.
type job struct {
	*timer
	plan   *host.Plan
	step   timerStep
	drafts []*draft
	result *host.Result
	notes  []string
}

func (j *job) plans(field string) bool {
	return slices.ContainsFunc(j.plan.Changes, func(c host.Change) bool { return c.Field == field })
}

func (j *job) failed(err error) bool {
	if err != nil && j.result.Err == nil {
		j.result.Err = err
	}
	return j.result.Err != nil
}

// Apply sets timers up or takes them down. All of a batch share what systemd has to do.
func (t *Timers) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	var up, down []*job
	for i := range plans {
		j := &job{timer: plans[i].Resource.(*timer), plan: &plans[i], step: plans[i].State.(timerStep), result: &results[i]}
		if err := ctx.Err(); err != nil {
			results[i].Err = reason.Ended(j.doing(), err)
		} else if j.absent {
			down = append(down, j)
		} else {
			up = append(up, j)
		}
	}
	t.takeDown(ctx, down)
	t.setUp(ctx, up)
	for _, j := range append(up, down...) {
		for _, d := range j.drafts {
			j.notes = append(d.notes, j.notes...)
		}
		j.result.Note = strings.Join(j.notes, "; ")
	}
	return results
}

// setUp writes the files of timers, has systemd read them, enables and starts.
func (t *Timers) setUp(ctx context.Context, jobs []*job) {
	var drafts []*draft
	for _, j := range jobs {
		if !j.failed(t.draft(j)) {
			drafts = append(drafts, j.drafts...)
		}
	}
	for _, d := range drafts {
		if err := t.Beside(ctx, d.path); err != nil {
			for _, j := range jobs {
				j.failed(err)
			}
			return
		}
	}
	t.verify(ctx, drafts)
	for _, j := range jobs {
		j.together()
	}
	t.writeAll(ctx, drafts)
	for _, j := range jobs {
		for _, d := range j.drafts {
			j.result.Changed = j.result.Changed || d.changed
			j.failed(d.err)
		}
		if j.result.Err == nil && j.step.leftover {
			j.failed(t.removeService(ctx, j))
		}
	}
	t.linkAndRead(ctx, jobs, t.units.EnableAll)
	for _, j := range jobs {
		if j.result.Err == nil {
			j.failed(t.start(ctx, j))
		}
		if j.result.Err != nil {
			j.timer.timer.seen, j.service.seen = disk.Signature{}, disk.Signature{}
		}
	}
}

// together sees to it that none of two files is written where the other one cannot be.
func (j *job) together() {
	for _, d := range j.drafts {
		if d.err != nil {
			for _, other := range j.drafts {
				other.err = d.err
			}
			return
		}
	}
}

// linkAndRead enables or disables the timers of which that is planned, and has systemd read that and whatever else has changed, once.
func (t *Timers) linkAndRead(ctx context.Context, jobs []*job, link func(context.Context, []string) []error) {
	var linked []*job
	var names []string
	reload := false
	for _, j := range jobs {
		if j.result.Err == nil && j.plans(fieldEnabled) {
			linked, names = append(linked, j), append(names, j.unit())
		}
	}
	if len(linked) > 0 {
		for i, err := range link(ctx, names) {
			linked[i].result.Changed = true
			linked[i].failed(err)
		}
	}
	for _, j := range jobs {
		j.result.Changed = j.result.Changed || j.result.Err == nil && j.plans(fieldReload)
		reload = reload || j.result.Changed
	}
	if !reload {
		return
	}
	if err := t.reload(ctx); err != nil {
		for _, j := range jobs {
			j.failed(err)
		}
	}
}

// draft makes the drafts of what has to be written, if nothing has changed since the check.
func (t *Timers) draft(j *job) error {
	texts, err := j.texts()
	if err != nil {
		return err
	}
	for _, g := range j.targets() {
		v := j.step.was[g]
		st, err := t.root.Stat(g.path)
		if err == nil && st.Signature != v.sig {
			err = disk.Stale(j.doing(), g.path)
		}
		if err != nil {
			j.drafts = nil // not one of two
			return err
		}
		if len(v.changes) > 0 {
			j.drafts = append(j.drafts, &draft{target: g, text: texts[g.path], was: v.sig, whole: v.rewrite()})
		}
	}
	if from := t.overrides(&j.timer.timer); from != "" && len(j.drafts) > 0 {
		j.notes = append(j.notes, "it takes the place of "+from)
	}
	return nil
}

// removeService removes the service of a timer that starts another unit now. What it runs goes on.
func (t *Timers) removeService(ctx context.Context, j *job) error {
	changed, err := t.remove(ctx, &j.service)
	j.result.Changed = j.result.Changed || changed
	return err
}

// start starts a timer that does not wait for its time, and looks whether it does.
func (t *Timers) start(ctx context.Context, j *job) error {
	s, err := t.units.Unit(ctx, j.unit())
	if err != nil {
		return err
	}
	if s.ActiveState != "active" && j.plans(fieldState) {
		if s.ActiveState == "failed" {
			if err := t.units.ResetFailed(ctx, j.unit()); err != nil {
				return err
			}
		}
		j.result.Changed = true
		if err := t.units.Start(ctx, j.unit()); err != nil {
			return err
		}
		if s, err = t.units.Unit(ctx, j.unit()); err != nil {
			return err
		}
		if s.ActiveState != "active" {
			return &reason.Error{Code: reason.UnitJobFailed, Doing: "start unit " + j.unit(), Cause: errors.New("it is " + s.ActiveState), Hint: "`systemctl status " + j.unit() + "` shows more"}
		}
	}
	if res, err := j.body(); err == nil && res.Timer != nil {
		j.notes = append(j.notes, next(res.Timer.Calendar, time.Now()))
	}
	return nil
}

// takeDown stops timers and their commands, and removes their files.
func (t *Timers) takeDown(ctx context.Context, jobs []*job) {
	for _, j := range jobs {
		if j.plans(fieldState) {
			j.result.Changed = true
			j.failed(t.units.Stop(ctx, j.unit()))
		}
		if j.result.Err == nil && j.step.leftover {
			j.failed(t.endCommand(ctx, j))
		}
	}
	t.linkAndRead(ctx, jobs, t.units.DisableAll)
	removed := false
	for _, j := range jobs {
		for _, g := range []*target{&j.service, &j.timer.timer} {
			if j.result.Err == nil && j.plans(g.label+" file") {
				changed, err := t.remove(ctx, g)
				j.result.Changed, removed = j.result.Changed || changed, removed || changed
				j.failed(err)
			}
		}
	}
	if !removed {
		return
	}
	if err := t.reload(ctx); err != nil {
		for _, j := range jobs {
			j.failed(err)
		}
	}
}

// endCommand ends the command of a timer, which may have begun since the check, and has systemd forget that it failed or was ended: nobody
// could look at why once its unit is gone.
func (t *Timers) endCommand(ctx context.Context, j *job) error {
	s, err := t.units.Unit(ctx, j.service.unit)
	if err == nil && isRunning(s) {
		j.result.Changed = true
		if err = t.units.Stop(ctx, j.service.unit); err == nil {
			s, err = t.units.Unit(ctx, j.service.unit)
		}
	}
	if err == nil && s.ActiveState == "failed" {
		err = t.units.ResetFailed(ctx, j.service.unit)
	}
	return err
}

// originalTimer is the stored form of what was there before tako set a timer up. Later versions read it too: fields may be added, and none
// ever gets another meaning.
type originalTimer struct {
	Timer   original `json:"timer"`
	Service original `json:"service"`
	Enabled bool     `json:"enabled"`
	Started bool     `json:"started"`
}

// Original describes the files and the timer.
func (t *Timers) Original(ctx context.Context, res host.Resource) ([]byte, error) {
	r := res.(*timer)
	s, err := t.units.Unit(ctx, r.unit())
	if err != nil {
		return nil, err
	}
	o := originalTimer{Enabled: s.UnitFileState == wordEnabled, Started: s.ActiveState == "active"}
	if o.Timer, err = t.original(&r.timer); err != nil {
		return nil, err
	}
	own, err := t.isOwn(r)
	if err == nil && own {
		o.Service, err = t.original(&r.service)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// Remove takes a timer down, with its command, or makes everything as it was.
func (t *Timers) Remove(ctx context.Context, res host.Resource, how declare.OnRemove, originally []byte) error {
	r := res.(*timer)
	var o originalTimer
	switch how {
	case declare.OnRemoveDelete:
	case declare.OnRemoveRestore:
		if err := json.Unmarshal(originally, &o); err != nil {
			return &reason.Error{Code: reason.RestoreLost, Doing: "restore timer " + r.name, Cause: err}
		}
	case declare.OnRemoveKeep:
		return &reason.Error{Code: reason.InternalFault, Doing: "remove timer " + r.name, Cause: errors.New("onRemove is neither delete nor restore")}
	}
	if !o.Timer.There {
		gone := &timer{name: r.name, absent: true, timer: r.timer, service: r.service, body: r.body}
		plan := t.Check(ctx, []host.Resource{gone}, host.Deep)[0]
		if plan.Err == nil && !plan.Empty() {
			plan.Err = t.Apply(ctx, []host.Plan{plan})[0].Err
		}
		if plan.Err != nil || !o.Service.There {
			return plan.Err
		}
	}
	return t.restoreFiles(ctx, r, o)
}

// restoreFiles puts both files back, and then the state of the timer.
func (t *Timers) restoreFiles(ctx context.Context, r *timer, o originalTimer) error {
	if err := ctx.Err(); err != nil {
		return reason.Ended("restore timer "+r.name, err)
	}
	changed, err := t.files.restore(ctx, &r.timer, o.Timer)
	if err != nil {
		return err
	}
	own, err := t.isOwn(r)
	if err == nil && (own || o.Service.There) {
		var also bool
		also, err = t.files.restore(ctx, &r.service, o.Service)
		changed = changed || also
	}
	if err == nil && (changed || t.forgotten(ctx, &r.timer)) {
		err = t.reload(ctx)
	}
	if err != nil || !o.Timer.There {
		return err
	}
	s, err := t.units.Unit(ctx, r.unit())
	if err != nil {
		return err
	}
	return t.restoreState(ctx, r, s, o)
}

func (t *Timers) restoreState(ctx context.Context, r *timer, s systemd.UnitState, o originalTimer) error {
	names := []string{r.unit()}
	enabled, started := s.UnitFileState == wordEnabled, s.ActiveState == "active"
	var errs []error
	switch {
	case o.Enabled && !enabled:
		errs = t.units.EnableAll(ctx, names)
	case !o.Enabled && enabled:
		errs = t.units.DisableAll(ctx, names)
	}
	if errs != nil && errs[0] != nil {
		return errs[0]
	}
	if errs != nil {
		if err := t.reload(ctx); err != nil {
			return err
		}
	}
	switch {
	case o.Started && !started:
		return t.units.Start(ctx, r.unit())
	case !o.Started && started:
		return t.units.Stop(ctx, r.unit())
	}
	return nil
}
