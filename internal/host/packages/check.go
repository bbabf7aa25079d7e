package packages

import (
	"context"
	"errors"
	"fmt"

	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// Check looks the packages up in the database, and in the lists where these matter.
func (t *Type) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	resources := make([]*resource, len(rs))
	for i, res := range rs {
		plans[i].Resource, resources[i] = res, res.(*resource)
	}
	if len(rs) == 0 {
		return plans
	}
	goals, errs := t.goals(ctx, resources, depth)
	for i, r := range resources {
		err := errs[i]
		if err == nil {
			err = r.refused(goals[i])
		}
		if plans[i].Err = err; err == nil {
			plans[i].Changes, plans[i].State = r.changes(goals[i]), goals[i]
		}
	}
	return plans
}

// goals looks at packages and says what is to become of each.
func (t *Type) goals(ctx context.Context, rs []*resource, depth host.Depth) ([]goal, []error) {
	goals, errs := make([]goal, len(rs)), make([]error, len(rs))
	now, err := lookAt(ctx, rs, depth != host.Shallow)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return goals, errs
	}
	known, err := t.view(ctx, rs, now.Entries)
	for i, r := range rs {
		e := now.Entries[i]
		if r.needsOffer(e) && err != nil {
			errs[i] = doing(r.doing(), err)
			continue
		}
		goals[i] = r.goalOf(e, known.of(question{r.name, e.Version}))
		if goals[i].install {
			errs[i] = t.stillMissing(r, goals[i], known)
		}
	}
	return goals, errs
}

// view is what the lists have of the packages for which that matters. Where it matters for none, nobody looks.
func (t *Type) view(ctx context.Context, rs []*resource, entries []Entry) (view, error) {
	var asked []question
	installs := false
	for i, r := range rs {
		installs = installs || r.goalOf(entries[i], Offer{}).install
		if r.needsOffer(entries[i]) {
			asked = append(asked, question{r.name, entries[i].Version})
		}
	}
	if !installs && len(asked) == 0 {
		return view{}, nil
	}
	return t.offered(ctx, rs[0].back, asked)
}

// lookAt reads the packages of resources, of which there is one at least.
func lookAt(ctx context.Context, rs []*resource, fresh bool) (Snapshot, error) {
	what := "read the package database"
	if err := ctx.Err(); err != nil {
		return Snapshot{}, doing(what, Ended(err))
	}
	names := make([]string, len(rs))
	for i, r := range rs {
		names[i] = r.name
	}
	now, err := rs[0].back.Look(names, fresh)
	return now, doing(what, err)
}

func errOlder(from, to string) error { return fmt.Errorf("%s is installed, and %s is older", from, to) }

// stillMissing is the error of what the lists are known not to have, while it is too early to fetch new ones.
func (t *Type) stillMissing(r *resource, g goal, known view) error {
	o, asked := known.known[question{r.name, g.seen.Version}]
	if !asked || g.seen.State == Unfinished || g.offered(r, o) || !t.recent(known.lists) {
		return nil
	}
	return r.notOffered(o, nil)
}

// notOffered is the error of a package that cannot be installed as declared; updateErr says why the lists may be old.
func (r *resource) notOffered(o Offer, updateErr error) *reason.Error {
	e := &reason.Error{Code: reason.PackageNotFound, Doing: r.doing(), Hint: "check the name, and that " + r.back.Ways().Sources + " names a repository that has it"}
	if (r.version.Exact != "" || r.version.Bounded()) && len(o.Versions) > 0 {
		e.Code = reason.PackageVersionGone
		e.Hint = "there are: " + list(o.Versions, versionsShown)
	}
	if updateErr != nil {
		e.Cause = errors.New("and new package lists could not be fetched")
		e.Evidence = reason.Of(updateErr).Evidence
	}
	return e
}
