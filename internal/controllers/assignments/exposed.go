package assignments

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/exposed"
)

const (
	// finalizer keeps an Assignment with keys, after its node was deleted, until the Secrets say which values that host could read.
	finalizer = "tako.dev/exposed"
	// exposeMax is how often somebody else may change a Secret between reading and writing it, until that is tried again later.
	exposeMax = 8
)

// leaver is a host that is not given any more what it could read.
type leaver struct {
	node string
	uid  types.UID
	why  string // the rest of a sentence about it
	keys []v1alpha1.WrappedKey
}

// leaver is who loses keys by a plan; without keys: nobody does. A host that stays who and where it is loses nothing here: what it is not
// given any more, it has had as one of the fleet. Where something cannot be compiled now, nobody knows whether it needs a key, and
// that counts as lost: to say too much is the lesser evil.
func (p *planner) leaver(needed func(id string) bool) leaver {
	l := leaver{node: p.host.name, uid: p.host.uid}
	if p.was.Own == nil {
		return l
	}
	switch {
	case p.host.assigned.Annotations[sealedFor] != sealedTo(p.host.sealingKey):
		l.why, l.keys = "was replaced by another host", p.was.Own.Keys
	case p.was.Environment != p.host.environment:
		l.why = "was moved from " + environment(p.was.Environment) + " to " + environment(p.host.environment)
		for _, k := range p.was.Own.Keys {
			if !needed(k.ID) {
				l.keys = append(l.keys, k)
			}
		}
	}
	return l
}

func environment(name string) string {
	if name == "" {
		return "no environment"
	}
	return name
}

// expose notes on the Secrets which of their values a leaver could read. It may be done twice.
func (a *Assignments) expose(ctx context.Context, l leaver) error {
	bySecret := map[types.NamespacedName]map[string]string{} // key to ID
	for _, k := range l.keys {
		parts := strings.SplitN(k.Secret, "/", 3)
		if len(parts) < 3 {
			continue // nothing is written like that
		}
		of := types.NamespacedName{Namespace: parts[0], Name: parts[1]}
		if bySecret[of] == nil {
			bySecret[of] = map[string]string{}
		}
		bySecret[of][parts[2]] = k.ID
	}
	for of, ids := range bySecret {
		if err := a.exposeOne(ctx, l, of, ids); err != nil {
			return err
		}
	}
	return nil
}

// exposeOne notes it on one Secret. A value that has changed meanwhile is none that the host could read.
func (a *Assignments) exposeOne(ctx context.Context, l leaver, of types.NamespacedName, ids map[string]string) error {
	var err error
	for range exposeMax {
		s := &core.Secret{}
		if err = a.options.Objects.Get(ctx, of, s); apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		maps.DeleteFunc(ids, func(key, id string) bool {
			value, there := s.Data[key]
			return !there || a.options.Layers.KeyID(string(s.UID), key, value) != id
		})
		if len(ids) == 0 {
			return nil
		}
		keys := slices.Sorted(maps.Keys(ids))
		list := exposed.Read(s.Annotations[exposed.Annotation])
		text := exposed.Write(exposed.Add(list, exposed.Exposure{Node: l.node, UID: string(l.uid), Why: l.why, At: time.Now(), Keys: keys}))
		if text == exposed.Write(list) {
			return nil
		}
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, exposed.Annotation, text)
		if err = a.options.Objects.Update(ctx, s); err == nil {
			about := core.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: s.Namespace, Name: s.Name, UID: s.UID}
			a.options.Recorder.Tell(about, core.EventTypeWarning, "Exposed", "node "+l.node+", which could read "+named(keys)+", "+l.why+": change the values")
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return err
}

// named names keys for a text of bounded length, and counts the others.
func named(keys []string) string {
	const most = 3
	if len(keys) <= most {
		return strings.Join(keys, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(keys[:most], ", "), len(keys)-most)
}

// releaseJobs let Assignments go whose nodes were deleted.
func (a *Assignments) releaseJobs(w *world) []job {
	var jobs []job
	for _, name := range slices.Sorted(maps.Keys(w.leaving)) {
		o := w.leaving[name].DeepCopy()
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == finalizer })
		l := leaver{node: name, uid: o.Spec.NodeUID, why: "was deleted"}
		if o.Spec.Own != nil {
			l.keys = o.Spec.Own.Keys
		}
		jobs = append(jobs, job{
			do: func(ctx context.Context) error {
				if err := a.expose(ctx, l); err != nil {
					return err
				}
				return a.options.Objects.Update(ctx, o)
			},
			done: func(err error) {
				if err == nil || apierrors.IsNotFound(err) {
					delete(w.leaving, name)
					return
				}
				w.retry(time.Now())
				a.options.Log.Warn("what a host could read that has left is not noted", "node", name, "err", err)
			},
		})
	}
	return jobs
}

// notice notes an Assignment that waits to go.
func (w *world) notice(name string, p *v1alpha1.Assignment) {
	if p != nil && p.DeletionTimestamp != nil && slices.Contains(p.Finalizers, finalizer) {
		w.leaving[name] = p
	} else {
		delete(w.leaving, name)
	}
}
