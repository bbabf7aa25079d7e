package assignments

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/fleet/assign"
)

// revisions keeps what revisions want, while something names them. They are immutable, and named by their content.
type revisions struct {
	read    map[assign.RevisionID]*assign.Revision
	vague   map[assign.RevisionID]bool // those of which not all contents are known
	missing bool                       // one could not be read
}

func newRevisions() *revisions {
	return &revisions{read: map[assign.RevisionID]*assign.Revision{}, vague: map[assign.RevisionID]bool{}}
}

// keep forgets all others.
func (r *revisions) keep(named map[assign.RevisionID]*assign.Revision) {
	for id := range r.read {
		if named[id] == nil {
			delete(r.read, id)
			delete(r.vague, id)
		}
	}
}

// revision is what a revision wants; nil when it cannot be read now.
func (a *Assignments) revision(ctx context.Context, w *world, id assign.RevisionID) *assign.Revision {
	known := w.revisions.read[id]
	if known != nil && !w.revisions.vague[id] {
		return known
	}
	if known != nil {
		if _, err := layerAt(ctx, a.options.Layers, id.Config, id.Name, id.Root); err != nil {
			return known
		}
	}
	r, vague, err := a.makeRevision(ctx, id)
	if err != nil {
		w.revisions.missing = true
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			a.options.Log.Warn("revision cannot be read", "config", id.Config, "revision", id.Name, "err", err)
		}
		return nil
	}
	w.revisions.read[id] = r
	delete(w.revisions.vague, id)
	if vague {
		w.revisions.vague[id] = true
	}
	return r
}

// makeRevision reads what a revision wants. Of what cannot be compiled any more, contents from elsewhere are compared by where they are
// from: that is vague.
func (a *Assignments) makeRevision(ctx context.Context, id assign.RevisionID) (r *assign.Revision, vague bool, err error) {
	resources, err := a.readRevision(ctx, id)
	if err != nil {
		return nil, false, err
	}
	if !slices.ContainsFunc(resources, func(r declare.Resource) bool { return r.Source() != nil }) {
		r, err = assign.NewRevision(resources)
		return r, false, err
	}
	layer, err := layerAt(ctx, a.options.Layers, id.Config, id.Name, id.Root)
	if err != nil && !lasting(err) {
		return nil, false, err
	}
	if layer == nil {
		r, err = assign.NewRevision(resources)
		return r, true, err
	}
	r, err = assign.NewRevisionWith(slices.Clone(resources), func(claim declare.Claim) (catalog.Desired, bool) {
		key := catalog.KeyOf(claim.String())
		digest, _, err := layer.Trie.Get(key)
		body, there := layer.Body(digest)
		if err != nil || !there {
			return catalog.Desired{}, false
		}
		d, err := catalog.DecodeBody(key, body)
		return d, err == nil
	})
	return r, false, err
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
