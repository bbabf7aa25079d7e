package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

// The reasons in the condition Revised of a config.
const (
	reasonRevisionMade     = "RevisionMade"     // True
	reasonRevisionPending  = "RevisionPending"  // Unknown: an earlier revision of that name has to go first
	reasonRevisionConflict = "RevisionConflict" // False: something else has the revision's name
)

const (
	// predecessorWait is how long to wait for a revision of the same name that is going away. Its end is watched too.
	predecessorWait = time.Second
	// conflictWait is how long until it is looked again whether somebody has made way. That is not watched.
	conflictWait = 5 * time.Second
)

// ownedBy is the index of revisions by the UID of the config that controls them.
const ownedBy = "controller.uid"

// revisionKind is a kind of config with its kind of revision.
type revisionKind struct {
	config, revision string // kinds
	newConfig        func() client.Object
	newRevision      func() client.Object
	spec             func(config client.Object) *declare.NodeConfigSpec
	status           func(config client.Object) *v1alpha1.NodeConfigStatus
	content          func(revision client.Object) *v1alpha1.RevisionSpec
}

func revisionKinds() []revisionKind {
	return []revisionKind{
		{
			config: v1alpha1.KindNodeConfig, revision: v1alpha1.KindRevision,
			newConfig:   func() client.Object { return &v1alpha1.NodeConfig{} },
			newRevision: func() client.Object { return &v1alpha1.Revision{} },
			spec:        func(o client.Object) *declare.NodeConfigSpec { return &o.(*v1alpha1.NodeConfig).Spec },
			status:      func(o client.Object) *v1alpha1.NodeConfigStatus { return &o.(*v1alpha1.NodeConfig).Status },
			content:     func(o client.Object) *v1alpha1.RevisionSpec { return &o.(*v1alpha1.Revision).Spec },
		},
		{
			config: v1alpha1.KindClusterNodeConfig, revision: v1alpha1.KindClusterRevision,
			newConfig:   func() client.Object { return &v1alpha1.ClusterNodeConfig{} },
			newRevision: func() client.Object { return &v1alpha1.ClusterRevision{} },
			spec:        func(o client.Object) *declare.NodeConfigSpec { return &o.(*v1alpha1.ClusterNodeConfig).Spec },
			status:      func(o client.Object) *v1alpha1.NodeConfigStatus { return &o.(*v1alpha1.ClusterNodeConfig).Status },
			content:     func(o client.Object) *v1alpha1.RevisionSpec { return &o.(*v1alpha1.ClusterRevision).Spec },
		},
	}
}

// withoutSpec keeps of a config in the manager's cache what tells whether there is something to do: metadata and status. The
// spec is read when there is; ten thousand of them would be most of the server's memory.
func withoutSpec(obj any) (any, error) {
	switch o := obj.(type) {
	case *v1alpha1.NodeConfig:
		o.Spec, o.ManagedFields, o.Annotations = declare.NodeConfigSpec{}, nil, nil
	case *v1alpha1.ClusterNodeConfig:
		o.Spec, o.ManagedFields, o.Annotations = declare.NodeConfigSpec{}, nil, nil
	}
	return obj, nil
}

// revisions makes the revisions of one kind of config.
type revisions struct {
	kind    revisionKind
	cached  client.Client
	objects Objects
	keep    int
	paces   paces
	log     *slog.Logger
	metrics *metrics
}

func (c *Controllers) addRevisions(ctx context.Context, m manager.Manager, k revisionKind) error {
	r := &revisions{kind: k, cached: m.GetClient(), objects: c.options.Objects, keep: c.options.RevisionsKept,
		log: c.options.Log.With("component", "revisions", "kind", k.config), metrics: c.metrics}
	if err := m.GetFieldIndexer().IndexField(ctx, r.metadata(), ownedBy, controllerUID); err != nil {
		return err
	}
	return builder.ControllerManagedBy(m).Named("revisions-of-"+k.config).For(k.newConfig()).Owns(k.newRevision(), builder.OnlyMetadata).Complete(r)
}

func controllerUID(o client.Object) []string {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return []string{string(ref.UID)}
	}
	return nil
}

// metadata is a revision of which only the metadata is read.
func (r *revisions) metadata() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(r.gvk(r.kind.revision))
	return o
}

func (r *revisions) gvk(kind string) schema.GroupVersionKind {
	return v1alpha1.SchemeGroupVersion.WithKind(kind)
}

// Reconcile makes the revision of a config, says so in its status, and removes old ones.
func (r *revisions) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := r.reconcile(ctx, request.NamespacedName)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: retryMin}, nil // somebody was faster; look again
	case apierrors.HasStatusCause(err, core.NamespaceTerminatingCause):
		return reconcile.Result{}, nil // the config goes with its namespace
	case err != nil:
		r.metrics.failures.WithLabelValues("revisions").Inc()
	}
	return result, err
}

func (r *revisions) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	config := r.kind.newConfig()
	if err := r.cached.Get(ctx, key, config); err != nil {
		if apierrors.IsNotFound(err) {
			r.paces.forget(key)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if config.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	made, err := r.list(ctx, config)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !settled(config, r.kind.status(config), made) {
		if wait := r.paces.wait(key, config.GetUID(), config.GetGeneration(), time.Now()); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
		config = r.kind.newConfig()
		if err := r.objects.Get(ctx, key, config); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		outcome, err := r.make(ctx, config)
		if err != nil {
			return reconcile.Result{}, err
		}
		if err := r.tell(ctx, config, outcome); err != nil || outcome.reason != reasonRevisionMade {
			return reconcile.Result{RequeueAfter: outcome.again}, client.IgnoreNotFound(err)
		}
		r.paces.made(key, config.GetUID(), config.GetGeneration(), time.Now())
	}
	return reconcile.Result{}, r.prune(ctx, config, made)
}

// list returns the revisions that a config controls, as the cache has them.
func (r *revisions) list(ctx context.Context, config client.Object) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(r.gvk(r.kind.revision + "List"))
	err := r.cached.List(ctx, list, client.InNamespace(config.GetNamespace()), client.MatchingFields{ownedBy: string(config.GetUID())})
	return list.Items, err
}

// outcome is what became of the try to make a revision.
type outcome struct {
	revision string
	reason   string // one of the reasons above
	words    string
	again    time.Duration
}

// make makes the revision of a config, unless it is there. It mostly is not.
func (r *revisions) make(ctx context.Context, config client.Object) (outcome, error) {
	digest, err := catalog.RevisionDigestWith(r.kind.spec(config).Effective(), r.kind.spec(config).Bundle)
	if err != nil {
		return outcome{}, err
	}
	name := catalog.RevisionName(config.GetName(), digest)
	err = r.create(ctx, config, name)
	if err == nil {
		return outcome{revision: name, reason: reasonRevisionMade, words: "holds what is declared"}, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return outcome{}, err
	}
	there := r.kind.newRevision()
	if err := r.objects.Get(ctx, types.NamespacedName{Namespace: config.GetNamespace(), Name: name}, there); err != nil {
		return outcome{}, err // one that has gone meanwhile is made in the next try
	}
	return r.compare(config, there, digest)
}

// compare says what it means that there is a revision of that name.
func (r *revisions) compare(config, there client.Object, digest catalog.Digest) (outcome, error) {
	o := outcome{revision: there.GetName()}
	have, err := catalog.RevisionDigestWith(r.kind.content(there).Resources, r.kind.content(there).Bundle)
	if err != nil {
		return outcome{}, err
	}
	owner := metav1.GetControllerOf(there)
	switch {
	case there.GetDeletionTimestamp() != nil, owner != nil && owner.Kind == r.kind.config && owner.Name == config.GetName() && owner.UID != config.GetUID():
		// It is going away, or its config was deleted and made anew, and garbage collection takes it.
		o.reason, o.again = reasonRevisionPending, predecessorWait
		o.words = fmt.Sprintf("waits until an earlier %s %s is gone", r.kind.revision, there.GetName())
	case owner == nil || owner.UID != config.GetUID():
		o.again = conflictWait
		o.reason, o.words = reasonRevisionConflict, fmt.Sprintf("there is a %s %s that does not belong to this %s: delete or rename it", r.kind.revision, there.GetName(), r.kind.config)
	case have != digest:
		o.again = conflictWait
		o.reason, o.words = reasonRevisionConflict, fmt.Sprintf("there is a %s %s with other content: delete it, if nothing needs it", r.kind.revision, there.GetName())
	default:
		o.reason, o.words = reasonRevisionMade, "holds what is declared"
	}
	return o, nil
}

func (r *revisions) create(ctx context.Context, config client.Object, name string) error {
	yes := true
	o := r.kind.newRevision()
	o.SetName(name)
	o.SetNamespace(config.GetNamespace())
	o.SetLabels(map[string]string{v1alpha1.LabelConfigUID: string(config.GetUID())})
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: declare.APIVersion, Kind: r.kind.config, Name: config.GetName(), UID: config.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes,
	}})
	*r.kind.content(o) = v1alpha1.RevisionSpec{
		Source:    &v1alpha1.RevisionSource{Kind: r.kind.config, Name: config.GetName(), UID: config.GetUID()},
		Resources: r.kind.spec(config).Effective(),
		Bundle:    r.kind.spec(config).Bundle,
	}
	if err := r.objects.Create(ctx, o); err != nil {
		return err
	}
	r.metrics.made.WithLabelValues(r.kind.revision).Inc()
	r.log.Info("revision made", "namespace", config.GetNamespace(), "name", config.GetName(), "revision", name, "generation", config.GetGeneration())
	return nil
}

// tell writes what became of it into the status of a config, which was read live.
func (r *revisions) tell(ctx context.Context, config client.Object, o outcome) error {
	describe(r.kind.status(config), config.GetGeneration(), r.kind.revision, o)
	return r.objects.UpdateStatus(ctx, config)
}

// describe sets revision and the condition Revised of a status by what became of the revision of a generation. Until there is a new
// one, the status names the old one, which is what nodes still have. All else in the status is written by whoever assigns revisions to
// nodes (package assignments).
func describe(status *v1alpha1.NodeConfigStatus, generation int64, kind string, o outcome) {
	revised := metav1.Condition{Type: v1alpha1.ConditionRevised, Reason: o.reason, Message: o.words, ObservedGeneration: generation}
	switch o.reason {
	case reasonRevisionMade:
		status.Revision = o.revision
		revised.Status, revised.Message = metav1.ConditionTrue, fmt.Sprintf("%s %s %s", kind, o.revision, o.words)
	case reasonRevisionPending:
		revised.Status = metav1.ConditionUnknown
	case reasonRevisionConflict:
		revised.Status = metav1.ConditionFalse
	}
	meta.SetStatusCondition(&status.Conditions, revised)
}
