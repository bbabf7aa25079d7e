package packages

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	// versionsShown and namesShown bound how much an error lists.
	versionsShown = 5
	namesShown    = 10
	// lookAgain is when a package is looked at again after no list had it: at once, for the check that says so from then on.
	lookAgain = time.Second
)

// Apply carries out all plans in one transaction.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	if len(plans) == 0 {
		return results
	}
	x := transaction{t: t}
	for i, p := range plans {
		x.jobs = append(x.jobs, &job{resource: p.Resource.(*resource), goal: p.State.(goal), result: &results[i]})
	}
	x.back = x.jobs[0].back
	x.run(ctx)
	return results
}

// job is one plan of a transaction.
type job struct {
	*resource
	goal   goal
	result *host.Result
	met    bool // it has got its version, or has gone
	over   bool
}

func (j *job) installs() bool { return j.goal.install && !j.met }

func (j *job) removes() bool { return j.goal.remove && !j.met }

func (j *job) fail(err error) { j.result.Err, j.over = err, true }

// failDoing fails it with an error that does not say yet what was being done.
func (j *job) failDoing(err error) { j.fail(doing(j.doing(), err)) }

// transaction is one call of Apply. Its steps take the jobs further that are not over yet.
type transaction struct {
	t         *Type
	back      Backend
	jobs      []*job
	held      []string // what is marked to stay as it is, whoever did
	refetched bool     // package lists were found to be old and fetched again
}

func (x *transaction) run(ctx context.Context) {
	x.mayBegin(ctx)
	x.refuseOutdated(ctx)
	x.repair(ctx)
	x.find(ctx)
	x.mark(ctx, false, func(j *job) bool { return j.goal.unhold })
	x.answer(ctx)
	for _, jobs := range x.together() {
		x.attempt(ctx, jobs)
	}
	x.purge(ctx)
	x.mark(ctx, true, func(j *job) bool { return j.goal.hold })
	x.conclude(ctx)
}

// open returns the jobs that are not over, of those given.
func open(jobs []*job) []*job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j *job) bool { return j.over })
}

// which returns the open jobs of a kind.
func (x *transaction) which(is func(j *job) bool) []*job {
	return slices.DeleteFunc(open(x.jobs), func(j *job) bool { return !is(j) })
}

// failOpen ends all open jobs with an error.
func (x *transaction) failOpen(err error) {
	for _, j := range open(x.jobs) {
		j.failDoing(err)
	}
}

// mayBegin ends the transaction where it cannot even be tried.
func (x *transaction) mayBegin(ctx context.Context) {
	if err := ctx.Err(); err != nil {
		x.failOpen(Ended(err))
		return
	}
	if os.Geteuid() != 0 {
		x.failOpen(&reason.Error{Code: reason.PermissionDenied, Hint: "run the agent as root"})
		return
	}
	now := x.look(ctx, open(x.jobs))
	if x.held = now.Held; now.Holder != "" {
		x.failOpen(&reason.Error{Code: reason.PackageLock, Cause: errors.New("held by " + now.Holder), Holder: now.Holder, After: lockWait})
	}
}

// lockWait is when to try again after the database was locked. Nothing tells when a lock is given back, and trying costs a few system
// calls.
const lockWait = 5 * time.Second

// look reads the packages of jobs anew. Where that fails it ends the jobs, and there are no entries.
func (x *transaction) look(ctx context.Context, jobs []*job) Snapshot {
	if len(jobs) == 0 {
		return Snapshot{}
	}
	// The end of the context does not change what has been done.
	now, err := lookAt(context.WithoutCancel(ctx), resourcesOf(jobs), true)
	if err != nil {
		for _, j := range jobs {
			j.fail(err)
		}
	}
	return now
}

// refuseOutdated ends the jobs whose package is not any more as it was when their plan was made: with success where somebody
// else has made it as declared.
func (x *transaction) refuseOutdated(ctx context.Context) {
	jobs := open(x.jobs)
	for i, e := range x.look(ctx, jobs).Entries {
		switch j := jobs[i]; {
		case e == j.goal.seen:
		case j.done(e):
			j.over = true
		default:
			j.fail(&reason.Error{Code: reason.ConcurrentEdit, Doing: j.doing()})
		}
	}
}

// done reports whether nothing of the goal is left to do.
func (j *job) done(e Entry) bool {
	return j.goal.met(e) && !(j.goal.purge && e.State != Absent) && !(j.goal.hold && !e.Held) && !(j.goal.unhold && e.Held)
}

// accept looks at the packages of jobs after we have acted, and returns those that have not got their version, or have not gone.
func (x *transaction) accept(ctx context.Context, jobs []*job) []*job {
	var left []*job
	jobs = open(jobs)
	for i, e := range x.look(ctx, jobs).Entries {
		j := jobs[i]
		j.result.Changed = j.result.Changed || e != j.goal.seen
		if j.met = j.goal.met(e); !j.met {
			left = append(left, j)
		}
	}
	return left
}

// repair finishes what was interrupted. What cannot be finished may still be helped by another version, unless the database does not
// even say what had been done before.
func (x *transaction) repair(ctx context.Context) {
	r, can := x.back.(Repairer)
	jobs := open(x.jobs)
	if now := x.look(ctx, jobs); !can || !now.Unfinished {
		return
	}
	err := r.Repair(ctx)
	if err != nil && ends(err) {
		x.failOpen(err)
		return
	}
	x.accept(ctx, jobs)
	if after := x.look(ctx, open(x.jobs)); after.Interrupted {
		e := &reason.Error{Code: reason.PackageInterrupted, Cause: err, Hint: "`" + x.back.Ways().Finish + " -a` shows what keeps it from finishing"}
		if err != nil {
			e.Evidence = reason.Of(err).Evidence
		}
		x.failOpen(e)
	}
}

// mark sets or takes away the mark that keeps packages as they are, where it is not so already.
func (x *transaction) mark(ctx context.Context, held bool, wanted func(j *job) bool) {
	var jobs []*job
	all := x.which(wanted)
	for i, e := range x.look(ctx, all).Entries {
		if e.Held != held {
			jobs = append(jobs, all[i])
		}
	}
	if len(jobs) == 0 {
		return
	}
	err := x.back.(Holder).Hold(ctx, namesOf(jobs), held)
	x.accept(ctx, jobs)
	if err == nil {
		return
	}
	for _, j := range open(jobs) {
		j.failDoing(err)
	}
}

// answer notes answers to what packages ask. One whose answers are not taken is not installed.
func (x *transaction) answer(ctx context.Context) {
	for _, j := range x.which((*job).installs) {
		if j.body == nil {
			continue
		}
		res, err := j.body()
		if err == nil && (res.Package == nil || res.Package.Preseed == "") {
			err = &reason.Error{Code: reason.InternalFault, Cause: errors.New("its answers are not there")}
		}
		if err == nil {
			err = x.back.(Answerer).Answer(ctx, j.name, res.Package.Preseed)
		}
		if err != nil {
			j.failDoing(err)
		}
	}
}

// together are the jobs that install or remove something, by what holds for a whole transaction. A removal goes with the first.
func (x *transaction) together() [][]*job {
	var sets [][]*job
	byChoices := map[Choices]int{}
	jobs := x.which(func(j *job) bool { return j.installs() || j.removes() })
	for _, j := range jobs {
		if _, known := byChoices[j.choices]; j.goal.install && !known {
			byChoices[j.choices] = len(sets)
			sets = append(sets, nil)
		}
	}
	if len(sets) == 0 {
		sets = make([][]*job, 1)
	}
	for _, j := range jobs {
		at := 0
		if j.goal.install {
			at = byChoices[j.choices]
		}
		sets[at] = append(sets[at], j)
	}
	return sets
}

// purge removes what packages have left. Each is alone with its error.
func (x *transaction) purge(ctx context.Context) {
	p, can := x.back.(Purger)
	jobs := x.which(func(j *job) bool { return j.goal.purge })
	if len(jobs) == 0 || !can {
		return
	}
	if err := p.Purge(ctx, namesOf(jobs)); err == nil || ends(err) {
		for _, j := range jobs {
			if err != nil {
				j.failDoing(err)
			}
		}
		return
	}
	for _, j := range jobs {
		if err := p.Purge(ctx, []string{j.name}); err != nil {
			j.failDoing(err)
		}
	}
}

// conclude looks at everything once more, as a check will.
func (x *transaction) conclude(ctx context.Context) {
	jobs := open(x.jobs)
	for i, e := range x.look(ctx, jobs).Entries {
		j := jobs[i]
		j.result.Changed = j.result.Changed || e != j.goal.seen
		if !j.done(e) {
			j.failDoing(x.blame(e, j, nil))
		}
	}
}

// blame is the error of a package that is not as declared after its transaction.
func (x *transaction) blame(now Entry, j *job, err error) error {
	if err == nil {
		err = &reason.Error{Code: reason.PackageToolFailed, Cause: errors.New(x.back.Ways().Name + " ended well, and the package is not as declared")}
	}
	e := *reason.Of(err)
	if e.Code == reason.PackageToolFailed && now.State == Unfinished {
		e.Code, e.Cause = reason.PackageInterrupted, errors.New("it is "+now.Word)
		if finish := x.back.Ways().Finish; finish != "" {
			e.Hint = "its own scripts did not succeed; `" + finish + " " + j.name + "` runs them again"
		}
	}
	return &e
}

func resourcesOf(jobs []*job) []*resource {
	rs := make([]*resource, len(jobs))
	for i, j := range jobs {
		rs[i] = j.resource
	}
	return rs
}

func namesOf(jobs []*job) []string {
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.name
	}
	return names
}
