package sources

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
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
	// largeLook is how many objects make a look a large one: some ten kB of garbage each.
	largeLook = 1000
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
	copied   bool           // it was applied from the copy: there may be objects that it does not declare
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
	digest string // empty where nobody knows whether it is as declared
	origin origin.Origin
	from   *unstructured.Unstructured // as it was read of the commit; nil for one that was found
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
	server   *remote.Server
	options  plan.Options
	commit   git.Commit
	author   string               // of the commit
	next     map[string]object    // what is declared, by remote.Ref.Long
	found    map[string]*expected // what a server that has just begun has found as it was written, by remote.Ref.Long
	notes    map[string]note      // what the server says about each change, by remote.Ref.Long
	members  []prune.Leftover     // what there is of the set, where it was listed; without the object of what is declared
	unlisted []func()             // tell what the Source may not list
	touched  []touched

	mu sync.Mutex // guards notes while the server is asked; then what writes note: wrote, and in memory.applied what is there, and what others have changed
}

// note is what is kept of a change that the server was asked about.
type note struct {
	verb  string
	left  *expected      // how the object is once it is applied; nil where the server could not say
	claim *declare.Fault // somebody else has the object
}

// touched is a change that is carried out.
type touched struct {
	*plan.Change
	name  string // by remote.Ref.Long
	force bool   // the object is ours: what others have changed in it is taken back
	drift bool   // others have changed it
}

// apply makes the API say what the commit declares. Nothing is written before all of it is planned.
func (l *look) apply(ctx context.Context, commit git.Commit, result *render.Result) error {
	began := time.Now()
	r, err := l.begin()
	if err != nil {
		return err
	}
	r.commit, r.author = commit, person(commit.Author)
	r.found, r.notes = map[string]*expected{}, map[string]note{}
	list, refs, err := r.place(ctx, result)
	if err != nil {
		return err
	}
	l.large = len(refs) >= largeLook
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
	l.guard.follow(ctx, impersonated(l.of.options.Config, l.source), r.options.Set.String(), r.placed(refs))
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
	read := make(map[*unstructured.Unstructured]*unstructured.Unstructured, len(list))
	for i, d := range result.Documents {
		list[i] = d
		list[i].Object = withOwnMetadata(d.Object) // the other stays as it was read, for the next time
		read[list[i].Object] = d.Object
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
		name := refs[i].Long()
		next, err := r.objectOf(&list[i], r.memory.applied.objects[name], read[list[i].Object])
		if err != nil {
			return nil, nil, err
		}
		mark(&list[i], next.origin)
		r.next[name] = next
	}
	for i := range r.members {
		if _, declared := r.next[r.members[i].Ref.Long()]; declared {
			r.members[i].Object = nil
		}
	}
	return list, refs, nil
}

// objectOf says what a document declares, of which the content was read before perhaps.
func (r *run) objectOf(d *documents.Document, before object, read *unstructured.Unstructured) (next object, err error) {
	next = object{digest: before.digest, origin: before.origin, from: read}
	if before.from == read && before.digest != "" {
		return next, nil
	}
	if next.digest, err = origin.Digest(d.Object.Object); err != nil {
		return next, &reason.Error{Code: reason.InternalFault, Doing: "apply a source", Cause: err}
	}
	// The place is that in the commit which has brought the content there, so that a line that is moved by others above it is no write.
	if before.origin.Digest == next.digest && before.origin.File == d.File {
		next.origin.File = d.File // one text in memory
		return next, nil
	}
	at := d.Place("")
	next.origin = origin.Origin{File: at.File, Line: at.Line, Commit: string(r.commit.ID), Author: r.author, Digest: next.digest}
	return next, nil
}

// mark has a document say where it is from.
func mark(d *documents.Document, from origin.Origin) {
	annotations := d.Object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[origin.Annotation] = from.String()
	d.Object.SetAnnotations(annotations)
}

// withOwnMetadata copies an object as far as it is changed here: namespace, labels and annotations are set, and each of those anew.
func withOwnMetadata(o *unstructured.Unstructured) *unstructured.Unstructured {
	fields := maps.Clone(o.Object)
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		fields["metadata"] = maps.Clone(metadata)
	}
	return &unstructured.Unstructured{Object: fields}
}

// remember reads from the objects themselves where they were from: a server that has just begun knows nothing else. Of one whose fields
// are all the Source's, as they were when it was written, nobody else can have changed what is declared. Who asks for a look wants more.
func (r *run) remember(ctx context.Context) (err error) {
	unlisted := func(left prune.Leftover, held prune.Held) {
		r.unlisted = append(r.unlisted, func() { r.left(left, held) })
	}
	if r.members, err = r.options.Set.Members(ctx, r.server, r.pruning(unlisted)); err != nil {
		return err
	}
	members := r.members
	r.memory.applied.objects, r.memory.applied.drifted = make(map[string]object, len(members)), map[string]bool{}
	texts := map[string]string{} // most objects are of one commit, and of one author
	once := func(text string) string {
		if _, there := texts[text]; !there {
			texts[text] = text
		}
		return texts[text]
	}
	for _, m := range members {
		name, is := m.Ref.Long(), object{origin: origin.Of(m.Object.GetAnnotations())}
		is.origin.Commit, is.origin.Author = once(is.origin.Commit), once(is.origin.Author)
		if !r.isRequested() && isIntact(m.Object, is.origin) {
			is.digest, r.found[name] = is.origin.Digest, newExpected(m.Ref, m.Object)
		}
		r.memory.applied.objects[name] = is
	}
	return nil
}

// isIntact tells whether a Source owns of an object what it came to own when it wrote it, the annotation that says so included: who
// changes a field, or the annotation, owns that from then on.
func isIntact(o *unstructured.Unstructured, from origin.Origin) bool {
	owned := ownedBy(o)
	var fields struct {
		Metadata struct {
			Annotations map[string]json.RawMessage `json:"f:annotations"`
		} `json:"f:metadata"`
	}
	if from.Fields == "" || from.Fields != origin.DigestOfFields(owned) || json.Unmarshal(owned, &fields) != nil {
		return false
	}
	_, ours := fields.Metadata.Annotations["f:"+origin.Annotation]
	return ours
}

func (r *run) warn(text string) { r.log.Info("apply a source", "warning", text) }
