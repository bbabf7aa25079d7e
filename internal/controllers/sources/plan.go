package sources

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

// writesAtOnce is how many objects are written at a time: as many as are asked about (package plan).
const writesAtOnce = 8

// part says what is done with a document.
type part uint8

const (
	leave part = iota // it is known to be as it should be, or to have changed and to stay so
	take              // it is new to this source: what others own of it is a conflict
	keep              // the object is ours, and is made as declared, whoever has changed it
	judge             // the object is ours, and nobody knows whether others have changed it: that would be told, and stay
)

// plan asks the server about all that is not known to be there as declared.
func (r *run) plan(ctx context.Context, list []documents.Document, refs []remote.Ref) error {
	parts := map[part][]documents.Document{}
	r.source.Status.Drifted = nil
	for i := range list {
		p := r.partOf(refs[i])
		parts[p] = append(parts[p], list[i])
	}
	of := make(map[string]*documents.Document, len(list))
	for i := range list {
		of[refs[i].Long()] = &list[i]
	}
	var faults declare.Faults
	for _, p := range []part{take, keep, judge} {
		if len(parts[p]) == 0 {
			continue
		}
		options := r.options
		options.Force = p != take
		changes, err := plan.Make(ctx, r.server, &documents.Source{Documents: parts[p]}, options)
		var refused *failure.Refused
		if err != nil && !errors.As(err, &refused) {
			return err
		}
		if refused != nil {
			faults = append(faults, refused.Faults...)
		}
		faults = r.claims(faults, changes, of)
		r.sort(p, changes)
	}
	if len(faults) > 0 {
		return declare.Faults(declare.SortFaults(r.explain(faults)))
	}
	return nil
}

// partOf decides about one object.
func (r *run) partOf(ref remote.Ref) part {
	was, name := &r.memory.applied, ref.Long()
	before, ours := was.objects[name]
	next := r.next[name]
	drifted := r.drifted[name] || was.drifted[name]
	switch {
	case !ours:
		return take
	case r.source.Spec.Drift == v1alpha1.SourceDriftReport && before.digest == next.digest && drifted:
		r.report(ref)
		return leave
	case r.source.Spec.Drift == v1alpha1.SourceDriftReport && !was.known && before.origin.Digest == next.digest:
		return judge
	case drifted || before.digest != next.digest || before.origin != next.origin:
		return keep
	}
	return leave
}

// sort puts changes where they are carried out, or not.
func (r *run) sort(p part, changes []*plan.Change) {
	for _, c := range changes {
		name := c.Ref.Long()
		if p != judge {
			same := r.memory.applied.objects[name].origin == r.next[name].origin
			r.touched = append(r.touched, touched{c, p == keep, p == keep && same && (r.drifted[name] || !r.memory.applied.known)})
			continue
		}
		if c.Verb() != "unchanged" {
			r.report(c.Ref)
			continue
		}
		r.kept = append(r.kept, c)
	}
}

// report notes drift that stays.
func (r *run) report(ref remote.Ref) {
	r.memory.applied.drifted[ref.Long()] = true
	if len(r.source.Status.Drifted) < shownMax {
		r.source.Status.Drifted = append(r.source.Status.Drifted, v1alpha1.SourceObject{
			APIVersion: ref.Kind.GroupVersion().String(), Kind: ref.Kind.Kind, Namespace: ref.Namespace, Name: ref.Name, Message: "others have changed what the source declares",
		})
	}
}

// leftovers are what goes: what the source has applied and declares no more.
func (r *run) leftovers(ctx context.Context, refs []remote.Ref) ([]prune.Leftover, error) {
	if p := r.source.Spec.Prune; p != nil && !*p {
		return nil, nil
	}
	was := &r.memory.applied
	gone := !was.known || was.is.generation != r.source.Generation // what it was not to delete before is not among the objects
	for name := range was.objects {
		if _, declared := r.next[name]; !declared {
			gone = true
		}
	}
	if !gone {
		return nil, nil
	}
	leftovers, err := r.options.Set.Leftovers(ctx, r.server, refs, prune.Options{All: r.source.Spec.AllowEmpty, Warn: r.warn})
	var failed *failure.Error
	if errors.As(err, &failed) && failed.Code == reason.Conflict {
		failed.Hint = "is this the right repository and path? spec.allowEmpty: true says that it is meant"
	}
	return leftovers, err
}

// carryOut writes what was planned. Guards wait meanwhile, so that what is written here is no drift.
func (r *run) carryOut(ctx context.Context, leftovers []prune.Leftover) error {
	r.guard.hold()
	defer r.guard.release()
	was := &r.memory.applied
	if len(r.touched)+len(leftovers) > 0 {
		was.is = version{} // until all of it is there
	}
	if err := r.writeAll(ctx); err != nil {
		return err
	}
	for _, c := range r.kept {
		r.guard.expect(c.Ref, c.After)
	}
	for _, left := range leftovers {
		r.guard.forget(left.Ref)
		deleted, err := left.Delete(ctx, r.server, false)
		if err != nil {
			return failure.Of(err, "delete "+left.Ref.Long())
		}
		if deleted {
			r.wrote++
		}
	}
	return nil
}

// writeAll carries out all changes: what others need before them, and what is of one rank together.
func (r *run) writeAll(ctx context.Context) error {
	rank := func(t touched) int { return documents.Rank(t.Ref.Kind.GroupKind()) }
	slices.SortStableFunc(r.touched, func(a, b touched) int { return cmp.Compare(rank(a), rank(b)) })
	for rest := r.touched; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(t touched) bool { return rank(t) != rank(rest[0]) })
		if n < 0 {
			n = len(rest)
		}
		var group errgroup.Group // those that are on their way when one fails end as they end, so that somebody knows how
		var failed atomic.Bool
		group.SetLimit(writesAtOnce)
		if slices.ContainsFunc(rest[:n], func(t touched) bool { return t.Unchecked != "" || t.Ref.Kind.Kind == "CustomResourceDefinition" }) {
			group.SetLimit(1) // they change which kinds there are
		}
		for _, t := range rest[:n] {
			group.Go(func() error {
				if failed.Load() {
					return nil
				}
				err := r.write(ctx, t)
				if err != nil {
					failed.Store(true)
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// write carries out one change. Several do it at once.
func (r *run) write(ctx context.Context, t touched) error {
	name := t.Ref.Long()
	changed := t.Unchecked != "" || t.Verb() != "unchanged"
	if changed {
		// A source that does not come to its end knows of it nevertheless, so that a later commit without it deletes it.
		r.mu.Lock()
		r.memory.applied.objects[name] = object{ref: t.Ref, origin: r.next[name].origin}
		r.mu.Unlock()
		options := r.options
		options.Force = t.force
		if err := t.Apply(ctx, r.server, options, newKindMax); err != nil {
			var refused *failure.Refused
			if errors.As(err, &refused) {
				refused.Faults = r.explain(refused.Faults)
			}
			return err
		}
		if t.drift {
			r.tellDrift(t.Change)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if changed {
		r.wrote++
	}
	delete(r.memory.applied.drifted, name)
	r.guard.expect(t.Ref, t.After)
	return nil
}
