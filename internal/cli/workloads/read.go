package workloads

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
)

// Workload is a workload with its instances, as the server has them.
type Workload struct {
	v1alpha1.Workload
	Instances []v1alpha1.Instance // by slot
	// Unseen says that the instances may not be seen.
	Unseen bool
	ref    remote.Ref
}

// Read asks for a workload and its instances.
func Read(ctx context.Context, server *remote.Server, ref remote.Ref) (*Workload, error) {
	object, err := get(ctx, server, ref)
	if err != nil {
		return nil, err
	}
	w := &Workload{ref: ref}
	if w.Workload, err = as[v1alpha1.Workload](object); err != nil {
		return nil, err
	}
	kind, err := server.Find(ctx, v1alpha1.ResourceInstances+"."+v1alpha1.GroupName)
	if err != nil {
		return nil, failure.Of(err, "ask which kinds there are")
	}
	_, err = server.List(ctx, remote.Query{Kind: kind, Namespace: ref.Namespace, Fields: "spec.workload=" + ref.Name}, func(o *unstructured.Unstructured) error {
		i, err := as[v1alpha1.Instance](o)
		w.Instances = append(w.Instances, i)
		return err
	})
	switch {
	case apierrors.IsForbidden(err):
		w.Unseen = true
	case err != nil:
		return nil, failure.Of(err, "list "+kind.Resource)
	}
	slices.SortFunc(w.Instances, func(a, b v1alpha1.Instance) int { return cmp.Compare(a.Spec.Slot, b.Spec.Slot) })
	return w, nil
}

// Ref names the workload to the server.
func (w *Workload) Ref() remote.Ref { return w.ref }

// Argument is how the workload is named on a command line.
func (w *Workload) Argument() string { return "workload/" + w.Name + " -n " + w.Namespace }

// ReadInstance asks for an instance, and for its node where that may be seen.
func ReadInstance(ctx context.Context, server *remote.Server, ref remote.Ref) (*Instance, error) {
	object, err := get(ctx, server, ref)
	if err != nil {
		return nil, err
	}
	i := &Instance{}
	if i.Instance, err = as[v1alpha1.Instance](object); err != nil {
		return nil, err
	}
	kind, err := server.Find(ctx, v1alpha1.ResourceNodes+"."+v1alpha1.GroupName)
	if err != nil {
		return nil, failure.Of(err, "ask which kinds there are")
	}
	object, err = server.Get(ctx, remote.Ref{Kind: kind, Name: i.Spec.Node})
	switch {
	case apierrors.IsForbidden(err):
		return i, nil
	case apierrors.IsNotFound(err):
		i.NodeGone = true
		return i, nil
	case err != nil:
		return nil, failure.Of(err, "read node/"+i.Spec.Node)
	}
	n, err := as[v1alpha1.Node](object)
	i.Node, i.NodeGone = &n, n.UID != i.Spec.NodeUID
	return i, err
}

// Instance is an instance with its node, as the server has them.
type Instance struct {
	v1alpha1.Instance
	Node *v1alpha1.Node // nil: not known
	// NodeGone says that the node that the instance was placed on is not there any more.
	NodeGone bool
}

// Argument is how the instance is named on a command line.
func (i *Instance) Argument() string { return argumentOf(i.Name, i.Namespace) }

func argumentOf(instance, namespace string) string {
	return "instance/" + instance + " -n " + namespace
}

func get(ctx context.Context, server *remote.Server, ref remote.Ref) (*unstructured.Unstructured, error) {
	object, err := server.Get(ctx, ref)
	switch {
	case apierrors.IsNotFound(err):
		return nil, failure.NotFound("read "+ref.Long(), "there is none", "tako get "+ref.Kind.Resource+" -A")
	case err != nil:
		return nil, failure.Of(err, "read "+ref.Long())
	}
	return object, nil
}

func as[T any](o *unstructured.Unstructured) (T, error) {
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &typed); err != nil {
		return typed, fmt.Errorf("read %s/%s of the server: %w", o.GetKind(), o.GetName(), err)
	}
	return typed, nil
}
