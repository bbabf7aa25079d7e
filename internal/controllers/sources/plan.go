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

// writesAtOnce is how many objects are written at a time: etcd commits to the disk together what comes together, so that 32 take hardly
// longer than one. It is a small part of what the server takes at once.
const writesAtOnce = 32

// unchanged is the verb of a change that changes nothing.
const unchanged = "unchanged"

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
	r.options.Asked = func(c *plan.Change) { r.asked(c, of[c.Ref.Long()]) }
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
		r.sort(p, changes, of)
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
func (r *run) sort(p part, changes []*plan.Change, of map[string]*documents.Document) {
	for _, c := range changes {
		name := c.Ref.Long()
		n := r.notes[name]
		if p == judge {
			if n.verb != unchanged {
				r.report(c.Ref)
				continue
			}
			r.found[name] = n.left
			continue
		}
		next := r.next[name]
		same := r.memory.applied.objects[name].origin == next.origin
		if n.left != nil && n.verb != unchanged {
			next.origin.Fields = n.left.owned
			mark(of[name], next.origin)
			r.next[name] = next
		}
		r.touched = append(r.touched, touched{c, name, p == keep, p == keep && same && (r.drifted[name] || !r.memory.applied.known)})
	}
}

// asked keeps of a change what is needed later, and no more: what there is and what there would be of ten thousand objects is a hundred
// megabytes.
func (r *run) asked(c *plan.Change, d *documents.Document) {
	n := note{verb: c.Verb(), claim: r.claim(c, d)}
	if c.After != nil {
		n.left = newExpected(c.Ref, c.After)
	}
	c.Before, c.After = nil, nil
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes[c.Ref.Long()] = n
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
		r.source.Status.Left = nil
		return nil, nil
	}
	was := &r.memory.applied
	if r.copied {
		return nil, nil
	}
	// What it was not to delete before is not among the objects, unless they have just been listed.
	gone := r.members == nil && was.is.generation != r.source.Generation || r.members != nil && len(r.source.Status.Left)+len(r.unlisted) > 0
	for name := range was.objects {
		if _, declared := r.next[name]; !declared {
			gone = true
		}
	}
	if !gone {
		return nil, nil
	}
	r.source.Status.Left = nil
	for _, tell := range r.unlisted {
		tell()
	}
	options := r.pruning(r.left)
	options.All, options.Members = r.source.Spec.AllowEmpty, r.members
	leftovers, err := r.options.Set.Leftovers(ctx, r.server, refs, options)
	var failed *failure.Error
	if errors.As(err, &failed) && failed.Code == reason.Conflict {
		failed.Hint = "is this the right repository and path? spec.allowEmpty: true says that it is meant"
	}
	leftovers = slices.DeleteFunc(leftovers, func(l prune.Leftover) bool {
		if r.isItself(l.Ref) {
			r.left(l, prune.Held{Words: "a source does not delete itself", Allowed: true})
			return true
		}
		return false
	})
	return r.rightsLast(leftovers), err
}

// carryOut writes what was planned. Guards wait meanwhile, so that what is written here is no drift.
func (r *run) carryOut(ctx context.Context, leftovers []prune.Leftover) error {
	r.guard.hold()
	defer r.guard.release()
	was := &r.memory.applied
	if len(r.touched)+len(leftovers) > 0 {
		was.is = version{} // until all of it is there
	}
	for name, left := range r.found {
		if _, declared := r.next[name]; declared {
			r.guard.expect(name, left)
		}
	}
	if err := r.writeAll(ctx); err != nil {
		return err
	}
	for _, left := range leftovers {
		if err := r.stopped(); err != nil {
			return err
		}
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
				err := r.stopped()
				if err == nil {
					err = r.write(ctx, t)
				}
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
	n := r.notes[t.name]
	changed := t.Unchecked != "" || n.verb != unchanged
	if changed {
		// A source that does not come to its end knows of it nevertheless, so that a later commit without it deletes it.
		r.mu.Lock()
		r.memory.applied.objects[t.name] = object{origin: r.next[t.name].origin}
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
		n.left = newExpected(t.Ref, t.After)
		t.Before, t.After = nil, nil
		if t.drift {
			r.tellDrift(t.Change)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if changed {
		r.wrote++
	}
	delete(r.memory.applied.drifted, t.name)
	r.guard.expect(t.Ref.Long(), n.left) // of a kind that the commit defines, that is more than was known before
	return nil
}
