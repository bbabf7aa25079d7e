package workload

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/cron"
	"tako.dev/tako/internal/reason"
)

// Bounds of what is declared. Where the comment of a field says a bound, it is one of these.
const (
	// NameBytesMax bounds the name of a workload: what an instance or a run of it is called adds up to 11 signs, and is a label of DNS, which
	// has 63.
	NameBytesMax     = 52
	replicasMax      = 100_000
	priorityMax      = 1000
	historyMax       = 100
	backoffLimitMax  = 1000
	canaryStepsMax   = 20
	scaleTargetsMax  = 8
	scheduledMax     = 32
	tasksMax         = 16
	volumesMax       = 32
	labelsMax        = 64
	environmentMax   = 256
	portsMax         = 64
	mountsMax        = 64
	filesMax         = 64
	devicesMax       = 16
	deviceCountMax   = 64
	preferredMax     = 32
	affinitiesMax    = 16
	spreadsMax       = 8
	skewMax          = 1000
	tolerationsMax   = 32
	architecturesMax = 16
	namespacesMax    = 64
	weightMax        = 100

	day      = 24 * time.Hour
	week     = 7 * day
	longest  = 366 * day // of what is kept or waited for: what is never thought of for a year has been forgotten
	shortest = time.Second
)

// GangMax is how many instances of a job may be placed together: they are one decision, and one transaction of the scheduler.
const GangMax = 1000

// faultsMax bounds what is said of one workload: far more than anybody reads.
const faultsMax = 1000

// Validate returns every mistake of a workload that can be seen in it alone, each with its path and without a place.
func Validate(name, namespace string, s *Spec) []declare.Fault {
	v := validator{spec: s}
	v.names(name, namespace)
	v.modes()
	v.job()
	v.schedule()
	v.add(declare.CheckSelector("spec.selector", &s.Selector))
	v.number("spec.priority", int64(s.Priority), 0, priorityMax)
	v.placement()
	v.template()
	v.rollout()
	v.disruption()
	v.scale()
	v.unreachable()
	v.count("spec.revisionHistoryLimit", s.RevisionHistoryLimit, 1, historyMax)
	return v.faults
}

// ValidateTemplate returns every mistake of a template that can be seen in it alone: of one whose workload has the mode that its restart
// policy goes with. The paths are those of a whole workload.
func ValidateTemplate(t *Template) []declare.Fault {
	s := Spec{Template: *t}
	if p := t.Restart.Policy; p == RestartOnFailure || p == RestartNever {
		s.Mode = RunToCompletion
	}
	v := validator{spec: &s}
	v.template()
	return v.faults
}

// ValidateUpdate returns every mistake of a workload that takes the place of another one: its own, and what cannot be changed.
func ValidateUpdate(name, namespace string, s, old *Spec) []declare.Fault {
	v := validator{spec: s, faults: Validate(name, namespace, s)}
	if is, was := s.ModeOrDefault(), old.ModeOrDefault(); is != was {
		v.fault("spec.mode", reason.FieldNotAllowed, fmt.Sprintf("the mode is %s and cannot become %s", was, is), "declare another workload, and delete this one when that works")
	}
	return v.faults
}

// validator collects the mistakes of one workload.
//
// +k8s:deepcopy-gen=false
// +k8s:openapi-gen=false
type validator struct {
	spec   *Spec
	faults []declare.Fault
}

// fault records a mistake and returns it to be completed at once.
func (v *validator) fault(path string, code reason.Code, message, hint string) *declare.Fault {
	f := declare.Fault{Code: code, Path: path, Message: message, Hint: hint}
	if len(v.faults) >= faultsMax {
		return &f
	}
	v.faults = append(v.faults, f)
	return &v.faults[len(v.faults)-1]
}

func (v *validator) add(faults []declare.Fault) {
	v.faults = append(v.faults, faults[:min(len(faults), faultsMax-min(len(v.faults), faultsMax))]...)
}

func (v *validator) invalid(path, message, hint string) {
	v.fault(path, reason.InvalidValue, message, hint)
}

func (v *validator) missing(path, field, hint string) {
	v.fault(path+"."+field, reason.MissingField, fmt.Sprintf("%s has no %q", path, field), hint)
}

func (v *validator) notAllowed(path, message, hint string) {
	v.fault(path, reason.FieldNotAllowed, message, hint)
}

// atMost refuses a list of more than limit members, which nobody need look at one by one then.
func (v *validator) atMost(path string, n, limit int, what string) bool {
	if n > limit {
		v.invalid(path, fmt.Sprintf("there are %d %s, at most %d are allowed", n, what, limit), "")
	}
	return n <= limit
}

// unique refuses a name that stands in the list already.
func (v *validator) unique(seen map[string]string, path, name, what string) {
	if first, twice := seen[name]; twice {
		f := v.fault(path, reason.DuplicateName, fmt.Sprintf("%s %q is there already", what, declare.ClipText(name)), "choose another one, or remove one of them")
		f.Related = []declare.Place{{Path: first, Note: "first given here"}}
		return
	}
	seen[name] = path
}

func (v *validator) number(path string, n, least, most int64) {
	if n < least || n > most {
		v.invalid(path, fmt.Sprintf("%d is not a number from %d to %d", n, least, most), "")
	}
}

// count checks a number that may be left out.
func (v *validator) count(path string, n *int32, least, most int64) {
	if n != nil {
		v.number(path, int64(*n), least, most)
	}
}

// duration checks a time that may be left out.
func (v *validator) duration(path, text string, least, most time.Duration) {
	if text == "" {
		return
	}
	if d, err := time.ParseDuration(text); err != nil || d < least || d > most {
		v.invalid(path, fmt.Sprintf("%q is not a time from %s to %s", declare.ClipText(text), words(least), words(most)), `write for example "500ms", "30s" or "1h30m"`)
	}
}

// words writes a duration without the zeros that it ends in, and days as days.
func words(d time.Duration) string {
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	text := d.String()
	if text != "0s" && strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// share checks a number or percentage that may be left out. least is the fewest that a number may say, percentMax the most percent.
func (v *validator) share(path string, p declare.IntOrPercent, least, percentMax int) bool {
	if p == "" {
		return false
	}
	n, percent, ok := p.Parse()
	if !ok || n < least || percent && n > percentMax || !percent && n > replicasMax {
		v.invalid(path, fmt.Sprintf("%q is neither a number from %d to %d nor a percentage from %d%% to %d%%", declare.ClipText(string(p)), least, replicasMax, least, percentMax),
			`write for example 3 or "25%"`)
		return false
	}
	return true
}

// none reports whether a number or percentage is declared and is nothing.
func none(p declare.IntOrPercent) bool {
	n, _, ok := p.Parse()
	return ok && n == 0
}

func (v *validator) names(name, namespace string) {
	const rule = "a letter or digit first and last, and up to 52 of a-z, 0-9 and -"
	if name == "" {
		v.missing("metadata", "name", "")
	} else if !declare.IsDomainLabel(name) || len(name) > NameBytesMax {
		v.invalid("metadata.name", fmt.Sprintf("%q is not the name of a workload", declare.ClipText(name)), rule)
	}
	if namespace != "" && !declare.IsDomainLabel(namespace) {
		v.invalid("metadata.namespace", fmt.Sprintf("%q is not a namespace", declare.ClipText(namespace)), "up to 63 of a-z, 0-9 and -, with a letter or digit first and last")
	}
}

// modes checks the mode, the number of replicas, and that no field is one of another mode.
func (v *validator) modes() {
	s := v.spec
	v.add(declare.CheckWord("spec.mode", "mode", s.Mode, Replicated, PerNode, RunToCompletion))
	mode := s.ModeOrDefault()
	only := func(path string, given bool, want Mode) {
		if given && mode != want {
			v.notAllowed(path, fmt.Sprintf("%s goes with mode %s only, and the mode is %s", strings.TrimPrefix(path, "spec."), want, mode), "remove it, or change the mode")
		}
	}
	only("spec.replicas", s.Replicas != nil, Replicated)
	only("spec.scale", s.Scale != nil, Replicated)
	only("spec.job", s.Job != nil, RunToCompletion)
	only("spec.schedule", s.Schedule != nil, RunToCompletion)
	v.count("spec.replicas", s.Replicas, 0, replicasMax)
	if mode == RunToCompletion && !reflect.ValueOf(s.Rollout).IsZero() {
		v.notAllowed("spec.rollout", "a job has no rollout: what is changed holds from its next run on", "remove it")
	}
}

func (v *validator) job() {
	j := v.spec.Job
	if j == nil {
		return
	}
	v.count("spec.job.completions", j.Completions, 1, replicasMax)
	v.count("spec.job.parallelism", j.Parallelism, 1, replicasMax)
	if n := min(intOr(j.Completions, 1), intOr(j.Parallelism, 1)); j.Gang && n > GangMax {
		v.invalid("spec.job.parallelism", fmt.Sprintf("%d instances are to be placed together, at most %d are", n, GangMax), "declare a smaller parallelism, or no gang")
	}
	v.count("spec.job.backoffLimit", j.BackoffLimit, 0, backoffLimitMax)
	v.duration("spec.job.activeDeadline", j.ActiveDeadline, shortest, longest)
	v.duration("spec.job.keepFinished", j.KeepFinished, 0, longest)
}

func (v *validator) schedule() {
	s := v.spec.Schedule
	if s == nil {
		return
	}
	const hint = `write minute, hour, day of the month, month and day of the week, such as "30 2 * * 1-5", or @daily`
	if s.Cron == "" {
		v.missing("spec.schedule", "cron", hint)
	} else if e, err := cron.Parse(s.Cron); err != nil {
		v.invalid("spec.schedule.cron", fmt.Sprintf("%q is no schedule: %v", declare.ClipText(s.Cron), err), hint)
	} else if _, ever := e.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.UTC); !ever {
		v.invalid("spec.schedule.cron", fmt.Sprintf("%q is never", declare.ClipText(s.Cron)), "there is no such day in any year")
	}
	if s.TimeZone != "" && !isZoneName(s.TimeZone) {
		v.invalid("spec.schedule.timeZone", fmt.Sprintf("%q is not a time zone", declare.ClipText(s.TimeZone)), "write UTC, or a name such as Europe/Berlin")
	}
	v.add(declare.CheckWord("spec.schedule.concurrency", "concurrency", s.Concurrency, Forbid, Allow, Replace))
	v.add(declare.CheckWord("spec.schedule.missedRun", "answer to missed runs", s.MissedRun, RunOnce, Skip))
	v.duration("spec.schedule.startingDeadline", s.StartingDeadline, shortest, week)
}

// isZoneName tells names of the tz database by their form: whether there is one of that name, the database says that the servers have.
// Local, and abbreviations such as CEST, would mean another time on each server.
func isZoneName(name string) bool {
	if name == "UTC" {
		return true
	}
	area, place, ok := strings.Cut(name, "/")
	const bytesMax = 64 // ours: twice the longest
	return ok && area != "" && place != "" && len(name) <= bytesMax && !strings.Contains(name, "//") && !strings.HasSuffix(name, "/") &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-/") == ""
}

func (v *validator) rollout() {
	r := &v.spec.Rollout
	v.add(declare.CheckWord("spec.rollout.strategy", "strategy", r.Strategy, Rolling, Canary, BlueGreen))
	v.share("spec.rollout.maxSurge", r.MaxSurge, 0, 100)
	v.share("spec.rollout.maxUnavailable", r.MaxUnavailable, 0, 100)
	perNode := v.spec.ModeOrDefault() == PerNode
	switch {
	case perNode && r.MaxSurge != "" && !none(r.MaxSurge):
		v.notAllowed("spec.rollout.maxSurge", "with mode PerNode there is one instance on each node, and none beyond", "remove it: maxUnavailable paces the rollout")
	case none(r.MaxUnavailable) && (perNode || none(r.MaxSurge)):
		v.invalid("spec.rollout.maxUnavailable", "nothing may be missing, and nothing may come before something else goes: the rollout could never begin",
			"allow one of maxSurge and maxUnavailable at least 1")
	}
	if perNode && r.Strategy == BlueGreen {
		v.notAllowed("spec.rollout.strategy", "with mode PerNode there is one instance on each node, and no place for a green half", "write Rolling or Canary")
	}
	v.duration("spec.rollout.minReady", r.MinReady, 0, day)
	v.duration("spec.rollout.progressDeadline", r.ProgressDeadline, shortest, week)
	if least := r.MinReadyOrDefault(); least > 0 && r.ProgressDeadlineOrDefault() <= least {
		v.invalid("spec.rollout.progressDeadline", fmt.Sprintf("the deadline of %s is over before an instance can have been ready for %s (minReady)", words(r.ProgressDeadlineOrDefault()), words(least)),
			"make it longer than minReady, and the time that instances take to start")
	}
	v.canary()
	v.add(declare.CheckWord("spec.rollout.promotion", "promotion", r.Promotion, AutomaticPromotion, ManualPromotion))
	if r.KeepOld != "" && r.Strategy != BlueGreen {
		v.notAllowed("spec.rollout.keepOld", "there is a blue half with strategy BlueGreen only", "remove it, or write strategy: BlueGreen")
	}
	v.duration("spec.rollout.keepOld", r.KeepOld, 0, week)
	v.share("spec.rollout.maxFailures", r.MaxFailures, 1, 100)
	v.duration("spec.rollout.monitor", r.Monitor, 0, day)
	v.add(declare.CheckGates("spec.rollout.gates", r.Gates, ownKey))
	v.add(declare.CheckWord("spec.rollout.onFailure", "answer to a failure", r.OnFailure, declare.RollBack, declare.Halt))
}

// canary checks the steps: there are some where they are wanted, and none goes back.
func (v *validator) canary() {
	r := &v.spec.Rollout
	const path = "spec.rollout.steps"
	switch {
	case r.Strategy == Canary && len(r.Steps) == 0:
		v.missing("spec.rollout", "steps", `write for example steps: [{replicas: 1, pause: 10m}, {replicas: "50%"}]`)
		return
	case r.Strategy != Canary && len(r.Steps) > 0:
		v.notAllowed(path, "steps go with strategy Canary only", "remove them, or write strategy: Canary")
		return
	case !v.atMost(path, len(r.Steps), canaryStepsMax, "steps"):
		return
	}
	for i := range r.Steps {
		c, at := &r.Steps[i], declare.IndexPath(path, i)
		if c.Replicas == "" {
			v.missing(at, "replicas", `write for example 1 or "10%"`)
		} else if v.share(at+".replicas", c.Replicas, 1, 100) && i > 0 && v.fewer(c.Replicas, r.Steps[i-1].Replicas) {
			v.invalid(at+".replicas", fmt.Sprintf("the step goes from %s back to %s", r.Steps[i-1].Replicas, c.Replicas), "each step has at least as many as the one before")
		}
		v.duration(at+".pause", c.Pause, 0, week)
		v.add(declare.CheckWord(at+".promotion", "promotion", c.Promotion, AutomaticPromotion, ManualPromotion))
	}
}

// fewer reports whether a step has fewer instances than the one before. A number is compared with a percentage only where the replicas are
// known.
func (v *validator) fewer(step, before declare.IntOrPercent) bool {
	n, percent, ok := step.Parse()
	m, percentBefore, okBefore := before.Parse()
	switch s := v.spec; {
	case !ok || !okBefore:
		return false
	case percent == percentBefore:
		return n < m
	case s.ModeOrDefault() == Replicated && s.Scale == nil:
		total := s.ReplicasOrDefault()
		return min(total, step.Up(total)) < min(total, before.Up(total))
	}
	return false
}

func (v *validator) disruption() {
	b := v.spec.DisruptionBudget
	if b == nil {
		return
	}
	const path = "spec.disruptionBudget"
	switch {
	case b.MaxUnavailable == "" && b.MinAvailable == "":
		v.fault(path, reason.MissingField, path+` has neither "maxUnavailable" nor "minAvailable"`, "write for example maxUnavailable: 1")
	case b.MaxUnavailable != "" && b.MinAvailable != "":
		v.notAllowed(path+".minAvailable", "there is maxUnavailable already", "keep one of them")
	}
	v.share(path+".maxUnavailable", b.MaxUnavailable, 0, 100)
	v.share(path+".minAvailable", b.MinAvailable, 0, 100)
}

func (v *validator) unreachable() {
	o := v.spec.OnUnreachable
	if o == nil {
		return
	}
	const path = "spec.onUnreachable"
	v.add(declare.CheckWord(path+".action", "answer to unreachable nodes", o.Action, ReplaceUnreachable, KeepUnreachable, FenceUnreachable))
	const after = 15 * time.Second // what it takes to notice that a host is lost
	v.duration(path+".after", o.After, after, week)
	if o.After != "" && o.Action == KeepUnreachable {
		v.notAllowed(path+".after", "with action Keep nothing happens, however long it takes", "remove it, or write action: Replace")
	}
	v.add(declare.CheckWord(path+".reconnect", "copy to keep", o.Reconnect, KeepOriginal, KeepReplacement, KeepLongestReady))
	if o.Reconnect != "" && (o.Action == KeepUnreachable || o.Action == FenceUnreachable) {
		v.notAllowed(path+".reconnect", fmt.Sprintf("with action %s there are never two copies", o.Action), "remove it, or write action: Replace")
	}
}

// listName checks the name of a member of a list.
func (v *validator) listName(seen map[string]string, at, name, what string) {
	switch {
	case name == "":
		v.missing(at, "name", "")
	case !declare.IsDomainLabel(name):
		v.invalid(at+".name", fmt.Sprintf("%q is not a name", declare.ClipText(name)), "up to 63 of a-z, 0-9 and -, with a letter or digit first and last")
	default:
		v.unique(seen, at+".name", name, what)
	}
}

// oneOf refuses none and several of fields of which one must be given.
func (v *validator) oneOf(at, what string, fields []string, given ...bool) {
	var names []string
	for i, g := range given {
		if g {
			names = append(names, fields[i])
		}
	}
	switch len(names) {
	case 1:
	case 0:
		v.fault(at, reason.MissingField, fmt.Sprintf("%s does not say %s", at, what), "write one of: "+strings.Join(fields, ", "))
	default:
		v.notAllowed(at, fmt.Sprintf("%s says %s", at, strings.Join(names, " and ")), "keep one of them")
	}
}

// encodedBytes is how large the template is where it is stored.
func encodedBytes(t *Template) int {
	text, err := json.Marshal(t)
	if err != nil {
		return 0 // a template has nothing that JSON cannot say
	}
	return len(text)
}
