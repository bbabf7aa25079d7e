package sources

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/git"
	"tako.dev/tako/internal/source/origin"
	"tako.dev/tako/internal/source/render"
)

const (
	// newKindMax bounds the wait for a kind that a commit defines, until the server serves it: it takes a second.
	newKindMax = time.Minute
)

// applied is what a loop knows of what it has applied. The zero value is that it knows nothing: all is planned anew.
type applied struct {
	is       version        // what is applied whole; zero for nothing, or for something in part
	last     git.Commit     // the commit of is
	result   *render.Result // what it declares
	rendered *render.Result // of the newest commit, applied or not, so that the next one is read faster
	known    bool           // objects is all that there is
	objects  map[string]object
	drifted  map[string]bool // what others have changed and what stays so, by remote.Ref.Long
}

// version is a commit, as a generation of the spec has it applied.
type version struct {
	commit     string
	generation int64
}

// object is one that was applied, by remote.Ref.Long.
type object struct {
	ref    remote.Ref
	digest string // empty where nobody knows whether it is as declared
	origin origin.Origin
}

// impersonated is the way to the API with a Source's own rights.
func impersonated(config *rest.Config, src *v1alpha1.Source) *rest.Config {
	as := rest.CopyConfig(config)
	as.Impersonate.UserName, as.Impersonate.Groups = origin.User(src.Namespace, src.Name)
	return as
}

// run is the apply of one commit.
type run struct {
	*look
	server  *remote.Server
	options plan.Options
	commit  git.Commit
	next    map[string]object // what is declared, by remote.Ref.Long
	touched []touched
	kept    []*plan.Change // what is looked at and stays as it is

	mu sync.Mutex // guards what writes note: wrote, and in memory.applied what is there, and what others have changed
}

// touched is a change that is carried out.
type touched struct {
	*plan.Change
	force bool // the object is ours: what others have changed in it is taken back
	drift bool // others have changed it
}

// apply makes the API say what the commit declares. Nothing is written before all of it is planned.
func (l *look) apply(ctx context.Context, commit git.Commit, result *render.Result) error {
	began := time.Now()
	config := impersonated(l.of.options.Config, l.source)
	server, err := remote.New(config, remote.Options{UserAgent: origin.Manager})
	if err != nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "reach the API as a source", Cause: err}
	}
	set, err := prune.ParseSet(l.source.Namespace, l.source.Name)
	if err != nil {
		return err
	}
	r := &run{look: l, server: server, commit: commit, next: map[string]object{},
		options: plan.Options{Namespace: l.source.Namespace, Set: set.By(origin.Manager, ""), Manager: origin.Manager}}
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
	l.memory.applied.objects, l.memory.applied.known = r.next, true
	l.guard.follow(ctx, config, r.options.Set.String(), refs)
	l.applied(commit, len(refs))
	l.of.metrics.applied(time.Since(began))
	return nil
}

// applied notes that a commit is applied whole. The one that was seen last may be another one, while drift is put back.
func (l *look) applied(commit git.Commit, objects int) {
	s := &l.source.Status
	s.Objects = int32(objects)
	if s.Seen == nil || s.Seen.ID != string(commit.ID) {
		return
	}
	now := *s.Seen
	if was := s.Applied; was == nil || was.ID != now.ID {
		now.Since = metav1.NewTime(time.Now().Truncate(time.Second))
	} else {
		now.Since = was.Since
	}
	s.Applied = &now
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
		digest, err := origin.Digest(d.Object.Object)
		if err != nil {
			return nil, nil, &reason.Error{Code: reason.InternalFault, Doing: "apply a source", Cause: err}
		}
		at := d.Place("")
		from := origin.Origin{File: at.File, Line: at.Line, Commit: string(r.commit.ID), Author: person(r.commit.Author), Digest: digest}
		// The place is that in the commit which has brought the content there, so that a line that is moved by others above it is no write.
		if was := r.memory.applied.objects[name].origin; was.Digest == digest && was.File == at.File {
			from = was
		}
		annotations := d.Object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[origin.Annotation] = from.String()
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
	r.memory.applied.objects, r.memory.applied.drifted = make(map[string]object, len(members)), map[string]bool{}
	for _, m := range members {
		r.memory.applied.objects[m.Ref.Long()] = object{ref: m.Ref, origin: origin.Of(m.Object.GetAnnotations())}
	}
	return nil
}

func (r *run) warn(text string) { r.log.Info("apply a source", "warning", text) }
