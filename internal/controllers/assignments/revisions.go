package assignments

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/fleet/assign"
)

// revisions keeps what revisions want, while something names them. They are immutable, and named by their content.
type revisions struct {
	read    map[assign.RevisionID]*assign.Revision
	missing bool // one could not be read
}

func newRevisions() *revisions {
	return &revisions{read: map[assign.RevisionID]*assign.Revision{}}
}

// keep forgets all others.
func (r *revisions) keep(named map[assign.RevisionID]*assign.Revision) {
	for id := range r.read {
		if named[id] == nil {
			delete(r.read, id)
		}
	}
}

// revision is what a revision wants; nil when it cannot be read now.
func (a *Assignments) revision(ctx context.Context, w *world, id assign.RevisionID) *assign.Revision {
	if r := w.revisions.read[id]; r != nil {
		return r
	}
	resources, err := a.readRevision(ctx, id)
	var r *assign.Revision
	if err == nil {
		r, err = assign.NewRevision(resources)
	}
	if err != nil {
		w.revisions.missing = true
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			a.options.Log.Warn("revision cannot be read", "config", id.Config, "revision", id.Name, "err", err)
		}
		return nil
	}
	w.revisions.read[id] = r
	return r
}

func (a *Assignments) readRevision(ctx context.Context, id assign.RevisionID) ([]declare.Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	parts := strings.Split(id.Config, "/")
	if parts[0] == v1alpha1.KindClusterNodeConfig {
		o := &v1alpha1.ClusterRevision{}
		err := a.options.Objects.Get(ctx, types.NamespacedName{Name: id.Name}, o)
		return o.Spec.Resources, err
	}
	o := &v1alpha1.Revision{}
	err := a.options.Objects.Get(ctx, types.NamespacedName{Namespace: parts[1], Name: id.Name}, o)
	return o.Spec.Resources, err
}
