package sources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/git"
	"tako.dev/tako/internal/source/render"
)

const (
	// manager owns what Sources apply. Two Sources never own one object: it is of one set.
	manager = "tako-source"
	// userPrefix and the groups are who a Source is to the API.
	userPrefix  = "system:source:"
	groupAll    = "system:sources"
	groupPrefix = "system:sources:"
	// newKindMax bounds the wait for a kind that a commit defines, until the server serves it: it takes a second.
	newKindMax = time.Minute
)

// applied is what a loop knows of what it has applied. The zero value is that it knows nothing: all is planned anew.
type applied struct {
	commit     string
	generation int64
	rendered   *render.Result // of the newest commit, applied or not, so that the next one is read faster
	known      bool           // objects is all that there is
	objects    map[string]object
}

// object is one that was applied, by remote.Ref.Long.
type object struct {
	ref    remote.Ref
	digest string
	origin origin
}

// is tells whether a commit is applied, as a generation of the spec has it.
func (a *applied) is(commit string, generation int64) bool {
	return a.known && a.commit == commit && a.generation == generation
}

// impersonated is the way to the API with a Source's own rights.
func impersonated(config *rest.Config, src *v1alpha1.Source) *rest.Config {
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: userPrefix + src.Namespace + ":" + src.Name,
		Groups:   []string{groupAll, groupPrefix + src.Namespace, "system:authenticated"},
	}
	return as
}

// run is the apply of one commit.
type run struct {
	*look
	server  *remote.Server
	options plan.Options
	commit  git.Commit
	next    map[string]object // what is declared
	touched []*plan.Change
	forced  map[*plan.Change]bool
}

// apply makes the API say what the commit declares. Nothing is written before all of it is planned.
func (l *look) apply(ctx context.Context, commit git.Commit, result *render.Result) error {
	config := impersonated(l.of.options.Config, l.source)
	server, err := remote.New(config, remote.Options{UserAgent: manager})
	if err != nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "reach the API as a source", Cause: err}
	}
	set, err := prune.ParseSet(l.source.Namespace, l.source.Name)
	if err != nil {
		return err
	}
	r := &run{look: l, server: server, commit: commit, next: map[string]object{}, forced: map[*plan.Change]bool{},
		options: plan.Options{Namespace: l.source.Namespace, Set: set.By(manager, ""), Manager: manager}}
	list, refs, err := r.place(ctx, result)
	if err != nil {
		return err
	}
	if err := r.plan(ctx, list, refs); err != nil {
		return err
	}
	leftovers, err := r.leftovers(ctx, refs)
	if err != nil {
		return err
	}
	if err := r.carryOut(ctx, leftovers); err != nil {
		return err
	}
	l.memory.applied.commit, l.memory.applied.generation = string(commit.ID), l.source.Generation
	l.memory.applied.objects, l.memory.applied.known = r.next, true
	l.guard.follow(ctx, config, r.options.Set.String(), refs)
	now := *l.source.Status.Seen
	if was := l.source.Status.Applied; was == nil || was.ID != now.ID {
		now.Since = metav1.NewTime(time.Now().Truncate(time.Second))
	} else {
		now.Since = was.Since
	}
	l.source.Status.Applied, l.source.Status.Objects = &now, int32(len(refs))
	return nil
}

// place finds out which object each document is about, and gives it its origin.
func (r *run) place(ctx context.Context, result *render.Result) ([]documents.Document, []remote.Ref, error) {
	list := make([]documents.Document, len(result.Documents))
	for i, d := range result.Documents {
		list[i] = d
		list[i].Object = d.Object.DeepCopy() // the other stays as it was read, for the next time
	}
	all := &documents.Source{Documents: list}
	refs, err := plan.Refs(ctx, r.server, all, r.options)
	if err != nil {
		return nil, nil, err
	}
	if !r.memory.applied.known {
		if err := r.remember(ctx); err != nil {
			return nil, nil, err
		}
	}
	for i := range list {
		d, name := &list[i], refs[i].Long()
		digest, err := digestOf(d.Object)
		if err != nil {
			return nil, nil, err
		}
		at := d.Place("")
		from := origin{File: at.File, Line: at.Line, Commit: string(r.commit.ID), Author: person(r.commit.Author), Digest: digest}
		if was := r.memory.applied.objects[name].origin; was.Digest == digest {
			from.Commit, from.Author = was.Commit, was.Author
		}
		annotations := d.Object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[AnnotationOrigin] = from.String()
		d.Object.SetAnnotations(annotations)
		r.next[name] = object{refs[i], digest, from}
	}
	return list, refs, nil
}

// remember reads from the objects themselves where they were from: a server that has just begun knows nothing else.
func (r *run) remember(ctx context.Context) error {
	members, err := r.options.Set.Members(ctx, r.server, r.warn)
	if err != nil {
		return err
	}
	r.memory.applied.objects = make(map[string]object, len(members))
	for _, m := range members {
		r.memory.applied.objects[m.Ref.Long()] = object{ref: m.Ref, origin: originOf(m.Object.GetAnnotations())}
	}
	return nil
}

func (r *run) warn(text string) { r.log.Info("apply a source", "warning", text) }

// digestOf is the digest of what a document declares.
func digestOf(o *unstructured.Unstructured) (string, error) {
	b, err := json.Marshal(o.Object)
	if err != nil {
		return "", &reason.Error{Code: reason.InternalFault, Doing: "compare documents", Cause: err}
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8]), nil
}

// plan asks the server about all that is not known to be there as declared. What others have changed of what is ours is taken back; with
// anything else that others own there is a conflict, which is told.
func (r *run) plan(ctx context.Context, list []documents.Document, refs []remote.Ref) error {
	was := &r.memory.applied
	var fresh, back []documents.Document
	r.source.Status.Drifted = nil
	for i := range list {
		name := refs[i].Long()
		before, there := was.objects[name]
		changed := !was.known || !there || before.digest != r.next[name].digest || before.origin != r.next[name].origin
		switch {
		case r.drifted[name] && r.source.Spec.Drift == v1alpha1.SourceDriftReport && !changed:
			r.report(refs[i])
		case r.drifted[name] && r.source.Spec.Drift != v1alpha1.SourceDriftReport:
			back = append(back, list[i])
		case changed:
			fresh = append(fresh, list[i])
		}
	}
	var faults declare.Faults
	for _, part := range []struct {
		list  []documents.Document
		force bool
	}{{fresh, false}, {back, true}} {
		if len(part.list) == 0 {
			continue
		}
		options := r.options
		options.Force = part.force
		changes, err := plan.Make(ctx, r.server, &documents.Source{Documents: part.list}, options)
		var refused *failure.Refused
		if errors.As(err, &refused) {
			faults = append(faults, refused.Faults...)
			continue
		}
		if err != nil {
			return err
		}
		for _, c := range changes {
			r.touched = append(r.touched, c)
			r.forced[c] = part.force
		}
	}
	if len(faults) > 0 {
		return declare.Faults(declare.SortFaults(faults))
	}
	return nil
}

// report notes drift that stays.
func (r *run) report(ref remote.Ref) {
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
	gone := !r.memory.applied.known
	for name := range r.memory.applied.objects {
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
	for _, c := range r.touched {
		options := r.options
		options.Force = r.forced[c]
		if c.Unchecked != "" || c.Verb() != "unchanged" {
			if err := c.Apply(ctx, r.server, options, newKindMax); err != nil {
				return err
			}
			if options.Force {
				r.tellDrift(c)
			}
		}
		r.guard.expect(c.Ref, c.After)
	}
	for _, left := range leftovers {
		r.guard.forget(left.Ref)
		if _, err := left.Delete(ctx, r.server, false); err != nil {
			return failure.Of(err, "delete "+left.Ref.Long())
		}
	}
	return nil
}
