package packages

import (
	"context"
	"errors"
	"os"
	"slices"

	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// Apply carries out all plans in one transaction.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	x := transaction{t: t}
	for i, p := range plans {
		x.jobs = append(x.jobs, &job{resource: p.Resource.(*resource), seen: p.State.(entry), result: &results[i]})
	}
	x.run(ctx)
	return results
}

// job is one plan of a transaction.
type job struct {
	*resource
	seen   entry // what the database said when the plan was made
	result *host.Result
	over   bool
}

func (j *job) fail(err error) { j.result.Err, j.over = err, true }

// transaction is one call of Apply. Its steps take the jobs further that are not over yet.
type transaction struct {
	t         *Type
	jobs      []*job
	refetched bool // package lists were found to be old and fetched again
}

func (x *transaction) run(ctx context.Context) {
	x.mayBegin(ctx)
	x.refuseOutdated()
	x.repair(ctx)
	x.find(ctx)
	x.attempt(ctx, x.open())
}

// attempt installs and removes what of jobs a simulation finds possible together. Nothing is ever done that was not simulated
// with just these packages and these lists before.
//
// A package whose own scripts fail has apt-get leave others half-way, so what is not done after dpkg has finished what it
// can is tried again in halves, until those that fail are alone with their words.
func (x *transaction) attempt(ctx context.Context, jobs []*job) {
	jobs = x.simulate(ctx, jobs)
	if len(jobs) == 0 {
		return
	}
	output, err := x.install(ctx, jobs)
	if isFinal(output, err) {
		for _, j := range jobs {
			j.fail(toolError(j.doing(), output, err))
		}
		return
	}
	x.accept(jobs)
	left := slices.DeleteFunc(slices.Clone(jobs), func(j *job) bool { return j.over })
	switch half := len(left) / 2; {
	case len(left) == 0:
	case isStale(output) && !x.refetched && x.t.update(ctx, true) == nil:
		x.refetched = true
		x.attempt(ctx, left)
	case err == nil || len(jobs) == 1:
		for _, j := range left {
			j.fail(x.blame(j, output, err))
		}
	case half == 0:
		x.attempt(ctx, left)
	default:
		x.attempt(ctx, left[:half])
		x.attempt(ctx, left[half:])
	}
}

// install runs apt-get. After a failure it has dpkg finish what has been unpacked.
func (x *transaction) install(ctx context.Context, jobs []*job) ([]byte, error) {
	output, err := run(ctx, command{args: installArguments(resourcesOf(jobs)), max: transactionMax, lasting: true})
	if err == nil || isFinal(output, err) {
		return output, err
	}
	if more, repairErr := x.configure(ctx); isFinal(more, repairErr) {
		return more, repairErr
	}
	return output, err
}

// open returns the jobs that are not over.
func (x *transaction) open() []*job {
	var open []*job
	for _, j := range x.jobs {
		if !j.over {
			open = append(open, j)
		}
	}
	return open
}

// failOpen ends all open jobs with an error of their own.
func (x *transaction) failOpen(err func(j *job) error) {
	for _, j := range x.open() {
		j.fail(err(j))
	}
}

// mayBegin ends the transaction where it cannot even be tried.
func (x *transaction) mayBegin(ctx context.Context) {
	if err := ctx.Err(); err != nil {
		x.failOpen(func(j *job) error { return ended(j.doing(), err) })
		return
	}
	if os.Geteuid() != 0 {
		x.failOpen(func(j *job) error {
			return &reason.Error{Code: reason.PermissionDenied, Doing: j.doing(), Hint: "run the agent as root"}
		})
		return
	}
	holder, err := lockHolder(x.t.database.dir)
	switch {
	case err != nil:
		x.failOpen(func(j *job) error { return &reason.Error{Code: reason.SystemCallFailed, Doing: j.doing(), Cause: err} })
	case holder != "":
		x.failOpen(func(j *job) error { return lockError(j.doing(), holder) })
	}
}

// refuseOutdated ends the jobs whose package is not any more as it was when their plan was made: with success where somebody
// else has made it as declared.
func (x *transaction) refuseOutdated() {
	open := x.open()
	for i, e := range x.look(open).entries {
		switch j := open[i]; {
		case len(j.changes(e)) == 0:
			j.over = true
		case e != j.seen:
			j.fail(&reason.Error{Code: reason.ConcurrentEdit, Doing: j.doing()})
		}
	}
}

// accept looks at the packages of jobs after we have acted, and ends those that are as declared.
func (x *transaction) accept(jobs []*job) {
	for i, e := range x.look(jobs).entries {
		j := jobs[i]
		j.result.Changed = j.result.Changed || e != j.seen
		j.over = j.over || len(j.changes(e)) == 0
	}
}

// look reads the packages of jobs anew. Where that fails it ends the jobs, and there are no entries.
func (x *transaction) look(jobs []*job) snapshot {
	if len(jobs) == 0 {
		return snapshot{}
	}
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.name
	}
	now, err := x.t.database.look(names, true)
	if err != nil {
		for _, j := range jobs {
			j.fail(err)
		}
	}
	return now
}

// repair has dpkg finish what was interrupted. What it cannot finish may still be helped by apt-get, for example by another
// version, unless dpkg could not even note what it had done before.
func (x *transaction) repair(ctx context.Context) {
	open := x.open()
	if now := x.look(open); !now.journal && len(now.unfinished) == 0 {
		return
	}
	output, err := x.configure(ctx)
	if isFinal(output, err) {
		x.failOpen(func(j *job) error { return toolError(j.doing(), output, err) })
		return
	}
	x.accept(open)
	if after := x.look(open); after.journal {
		x.failOpen(func(j *job) error {
			return &reason.Error{Code: reason.PackageInterrupted, Doing: j.doing(), Cause: err, Evidence: reason.Clip(output),
				Hint: "`dpkg --configure -a` shows what keeps it from finishing"}
		})
	}
}

func (x *transaction) configure(ctx context.Context) ([]byte, error) {
	return run(ctx, command{args: []string{dpkgPath, "--force-confold", "--force-confdef", "--configure", "-a"}, max: transactionMax, lasting: true})
}

// blame is the error of a package that is not as declared after its transaction.
func (x *transaction) blame(j *job, output []byte, err error) error {
	if err == nil {
		err = errors.New("apt-get ended well, and the package is not as declared")
	}
	e := reason.Of(toolError(j.doing(), output, err))
	for _, now := range x.look([]*job{j}).entries {
		if e.Code == reason.PackageToolFailed && !now.finished() {
			e.Code, e.Cause = reason.PackageInterrupted, errors.New("it is "+now.state.String())
			e.Hint = "its own scripts did not succeed; `dpkg --configure " + j.name + "` runs them again"
		}
	}
	return e
}

// isFinal reports whether a command did not end by itself, or somebody else holds a lock: then there is no use in going on.
func isFinal(output []byte, err error) bool {
	_, refused := lockRefusal(output)
	return refused && err != nil || errors.Is(err, errStopped) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func resourcesOf(jobs []*job) []*resource {
	rs := make([]*resource, len(jobs))
	for i, j := range jobs {
		rs[i] = j.resource
	}
	return rs
}
