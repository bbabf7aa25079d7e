package packages

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// selectionMax bounds how long bad packages are looked for: a hundred simulations on a slow machine. What has not been
// looked at by then waits for the next attempt, which begins with what is good done.
const selectionMax = 5 * time.Minute

// find says which version each package gets, and ends the jobs of packages and versions that no list has, after fetching new lists if
// that may help.
func (x *transaction) find(ctx context.Context) {
	jobs := x.which((*job).installs)
	missing, err := x.choose(ctx, jobs)
	if err != nil || len(missing) == 0 {
		return
	}
	updateErr := x.t.update(ctx, x.back, false)
	if updateErr == nil {
		if missing, err = x.choose(ctx, missing); err != nil {
			return
		}
	}
	known, err := x.t.offered(ctx, x.back, nil)
	for _, j := range missing {
		switch {
		case err != nil:
			j.failDoing(err)
		case updateErr != nil && ends(updateErr):
			j.fail(updateErr)
		default:
			e := j.notOffered(known.of(j.question()), updateErr)
			e.After = lookAgain
			j.fail(e)
		}
	}
}

func (j *job) question() question { return question{j.name, j.goal.seen.Version} }

// choose fills in the versions that plans left open, and returns the jobs of what no list has. Where the lists cannot be asked, the jobs
// end. A version that a plan names stays what it is, if it can still be had.
func (x *transaction) choose(ctx context.Context, jobs []*job) (missing []*job, err error) {
	asked := make([]question, len(jobs))
	for i, j := range jobs {
		asked[i] = j.question()
	}
	known, err := x.t.offered(ctx, x.back, asked)
	for _, j := range jobs {
		if err != nil {
			j.failDoing(err)
			continue
		}
		o := known.of(j.question())
		if j.goal.version == "" && j.version.Bounded() {
			j.goal.version = j.best(o)
			j.goal.back = j.goal.version != "" && j.goal.seen.Version != "" && j.resource.back.Compare(j.goal.version, j.goal.seen.Version) < 0
		}
		if !j.goal.offered(j.resource, o) {
			missing = append(missing, j)
		} else if err := j.refused(j.goal); err != nil {
			j.fail(err)
		}
	}
	return missing, err
}

// attempt installs and removes what of jobs a simulation finds possible together. Nothing is ever done that was not simulated
// with just these packages and these lists before.
//
// A package whose own scripts fail leaves others half-way, so what is not done after a repair has finished what it can is tried again in
// halves, until those that fail are alone with their words.
func (x *transaction) attempt(ctx context.Context, jobs []*job) {
	jobs = x.simulate(ctx, jobs)
	if len(jobs) == 0 {
		return
	}
	err := x.change(ctx, jobs)
	if err != nil && ends(err) {
		for _, j := range jobs {
			j.failDoing(err)
		}
		return
	}
	left := x.accept(ctx, jobs)
	switch half := len(left) / 2; {
	case len(left) == 0:
	case reason.Is(err, reason.PackageListsOld) && !x.refetched && x.t.update(ctx, x.back, true) == nil:
		x.refetched = true
		x.attempt(ctx, left)
	case err == nil || len(jobs) == 1:
		for i, e := range x.look(ctx, left).Entries {
			left[i].failDoing(x.blame(e, left[i], err))
		}
	case half == 0:
		x.attempt(ctx, left)
	default:
		x.attempt(ctx, left[:half])
		x.attempt(ctx, left[half:])
	}
}

// change carries jobs out. After a failure it has finished what was begun.
func (x *transaction) change(ctx context.Context, jobs []*job) error {
	err := x.back.Change(ctx, transactionOf(jobs))
	if r, can := x.back.(Repairer); can && err != nil && !ends(err) {
		if repairErr := r.Repair(ctx); repairErr != nil && ends(repairErr) {
			return repairErr
		}
	}
	return err
}

// transactionOf is what jobs are for the package manager. Those that install something make the same choices.
func transactionOf(jobs []*job) Transaction {
	var tx Transaction
	for _, j := range jobs {
		tx.Steps = append(tx.Steps, Step{Name: j.name, Remove: j.goal.remove, Version: j.goal.version})
		tx.Downgrade = tx.Downgrade || j.goal.back
		tx.Held = tx.Held || j.goal.held && !j.goal.unhold
		if j.goal.install {
			tx.Ways = j.choices
		}
	}
	return tx
}

// simulate returns those of jobs that can be done together, and ends the others.
func (x *transaction) simulate(ctx context.Context, jobs []*job) []*job {
	if len(jobs) == 0 {
		return nil
	}
	s := selection{x: x, absent: map[string]bool{}}
	for _, j := range x.jobs {
		if j.goal.remove {
			s.absent[j.name] = true
		}
	}
	limited, cancel := context.WithTimeout(ctx, selectionMax)
	defer cancel()
	s.add(limited, jobs)
	return s.good
}

// selection is a set of jobs that a simulation has found to work.
type selection struct {
	x      *transaction
	absent map[string]bool // what may be removed
	good   []*job
}

// add takes in jobs: all at once if that works, otherwise each half by itself, until what does not work is alone. So k bad
// ones of n cost about k log n simulations.
func (s *selection) add(ctx context.Context, jobs []*job) {
	err := s.try(ctx, jobs)
	switch {
	case err == nil:
		s.good = append(s.good, jobs...)
	case len(jobs) == 1:
		jobs[0].failDoing(err)
	default:
		half := len(jobs) / 2
		s.add(ctx, jobs[:half])
		s.add(ctx, jobs[half:])
	}
}

// try simulates what is good already together with jobs.
func (s *selection) try(ctx context.Context, jobs []*job) error {
	all := append(slices.Clip(s.good), jobs...)
	tx := transactionOf(all)
	outlook, err := s.x.back.Try(ctx, tx)
	if err != nil {
		return err
	}
	also := slices.DeleteFunc(outlook.Removes, func(name string) bool { return s.absent[name] })
	if len(also) > 0 {
		return &reason.Error{Code: reason.PackageToolFailed, Cause: errors.New("it would also remove " + list(also, namesShown)),
			Hint: "declare these absent too if that is meant"}
	}
	if tx.Downgrade || tx.Held {
		return s.x.others(outlook.Changes, all)
	}
	return nil
}

// others is the error of what a transaction would do to packages that it is not about: that some may go back, or change although they
// are marked to stay, is said for the whole transaction.
func (x *transaction) others(moves []Move, jobs []*job) error {
	about := map[string]*job{}
	for _, j := range jobs {
		about[j.name] = j
	}
	for _, m := range moves {
		j := about[m.Name]
		switch {
		case (j == nil || !j.goal.held) && slices.Contains(x.held, m.Name):
			return &reason.Error{Code: reason.PackageHeld, Cause: errors.New("it would also change " + m.Name + ", which is held"), Hint: "`" + x.back.Ways().Unhold + " " + m.Name + "` lets it change"}
		case (j == nil || !j.goal.back) && m.From != "" && x.back.Compare(m.To, m.From) < 0:
			return &reason.Error{Code: reason.PackageDowngrade, Cause: errors.New("it would also take " + m.Name + " from " + m.From + " back to " + m.To), Hint: "declare that version of it too if that is meant"}
		}
	}
	return nil
}

// list is words for a person, the first few.
func list(words []string, most int) string {
	if len(words) > most {
		return strings.Join(words[:most], ", ") + ", …"
	}
	return strings.Join(words, ", ")
}
