package packages

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

const (
	// versionsShown and namesShown bound how much an error lists.
	versionsShown = 5
	namesShown    = 10
	// selectionMax bounds how long bad packages are looked for: a hundred simulations on a slow machine. What has not been
	// looked at by then waits for the next attempt, which begins with what is good done.
	selectionMax = 5 * time.Minute
)

// find ends the jobs of packages and versions that no list has, after fetching new lists if that may help.
func (x *transaction) find(ctx context.Context) {
	offers, err := x.offers(ctx)
	missing := x.missing(offers)
	if err != nil || len(missing) == 0 {
		return
	}
	updateErr := x.t.update(ctx, false)
	if updateErr == nil {
		if offers, err = x.offers(ctx); err != nil {
			return
		}
	}
	for _, j := range x.missing(offers) {
		if reason.Is(updateErr, reason.PackageLock) || reason.Is(updateErr, reason.Interrupted) {
			j.fail(updateErr)
			continue
		}
		j.fail(j.notOffered(offers[j.name], updateErr))
	}
}

// offers asks what the package lists have of the packages that are to be installed. Where that cannot be told, all jobs end.
func (x *transaction) offers(ctx context.Context) (map[string]offer, error) {
	args := []string{"/usr/bin/apt-cache", "policy"}
	for _, j := range x.open() {
		if j.present {
			args = append(args, j.name)
		}
	}
	const nobody = 2
	if len(args) == nobody {
		return nil, nil
	}
	output, err := run(ctx, command{args: args, max: questionMax})
	if err != nil {
		x.failOpen(func(j *job) error { return toolError(j.doing(), output, err) })
	}
	return parsePolicy(output), err
}

func (x *transaction) missing(offers map[string]offer) []*job {
	return slices.DeleteFunc(x.open(), func(j *job) bool { return !j.present || offers[j.name].has(j.resource) })
}

// notOffered is the error of a package that cannot be installed as declared; updateErr says why the lists may be old.
func (j *job) notOffered(o offer, updateErr error) error {
	e := &reason.Error{Code: reason.PackageNotFound, Doing: j.doing(), Hint: "check the name, and that /etc/apt/sources.list names a repository that has it"}
	if j.version != "" && len(o.versions) > 0 {
		e.Code = reason.PackageVersionGone
		e.Hint = "there are: " + strings.Join(o.versions[:min(len(o.versions), versionsShown)], ", ")
	}
	if updateErr != nil {
		e.Cause = errors.New("and new package lists could not be fetched")
		e.Evidence = reason.Of(updateErr).Evidence
	}
	return e
}

// simulate returns those of jobs that can be done together, and ends the others.
func (x *transaction) simulate(ctx context.Context, jobs []*job) []*job {
	if len(jobs) == 0 {
		return nil
	}
	s := selection{absent: map[string]bool{}}
	for _, j := range x.jobs {
		if !j.present {
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
		jobs[0].fail(err)
	default:
		half := len(jobs) / 2
		s.add(ctx, jobs[:half])
		s.add(ctx, jobs[half:])
	}
}

// try simulates what is good already together with jobs; the error is about the last of them.
func (s *selection) try(ctx context.Context, jobs []*job) error {
	doing := jobs[len(jobs)-1].doing()
	args := installArguments(resourcesOf(append(slices.Clip(s.good), jobs...)))
	output, err := run(ctx, command{args: append(args, "--simulate"), max: questionMax})
	if err != nil {
		return toolError(doing, output, err)
	}
	also := slices.DeleteFunc(parseRemovals(output), func(name string) bool { return s.absent[name] })
	if len(also) == 0 {
		return nil
	}
	return &reason.Error{Code: reason.PackageToolFailed, Doing: doing, Evidence: reason.Clip(output),
		Cause: errors.New("it would also remove " + list(also)), Hint: "declare these absent too if that is meant"}
}

// list is names for a person.
func list(names []string) string {
	if len(names) > namesShown {
		return strings.Join(names[:namesShown], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
