package workloads

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/remote"
)

// OnNode finds what is to be said of the instances on a node: why those that are to leave are still there, and what does not work. Who may not
// see instances is told nothing of them.
func OnNode(ctx context.Context, server *remote.Server, node string) ([]fleet.Finding, error) {
	kind, err := server.Find(ctx, v1alpha1.ResourceInstances+"."+v1alpha1.GroupName)
	if err != nil {
		return nil, failure.Of(err, "ask which kinds there are")
	}
	var instances []v1alpha1.Instance
	_, err = server.List(ctx, remote.Query{Kind: kind, Fields: "spec.node=" + node}, func(o *unstructured.Unstructured) error {
		i, err := as[v1alpha1.Instance](o)
		instances = append(instances, i)
		return err
	})
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, failure.Of(err, "list "+kind.Resource)
	}
	leaving, err := leavingOf(ctx, server, instances)
	if err != nil {
		return nil, err
	}
	return onNode(node, instances, leaving), nil
}

// leavingOf is what holds up the instances of a node that are to leave, by their names, as their workloads say.
func leavingOf(ctx context.Context, server *remote.Server, instances []v1alpha1.Instance) (map[types.NamespacedName]v1alpha1.WorkloadCulprit, error) {
	leaving, read := map[types.NamespacedName]v1alpha1.WorkloadCulprit{}, map[types.NamespacedName]bool{}
	kind, err := server.Find(ctx, v1alpha1.ResourceWorkloads+"."+v1alpha1.GroupName)
	if err != nil {
		return nil, failure.Of(err, "ask which kinds there are")
	}
	for i := range instances {
		in := &instances[i]
		key := types.NamespacedName{Namespace: in.Namespace, Name: in.Spec.Workload}
		if in.Status.Leave == nil || in.Spec.Stop != nil || read[key] {
			continue
		}
		read[key] = true
		object, err := server.Get(ctx, remote.Ref{Kind: kind, Namespace: key.Namespace, Name: key.Name})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			continue
		case err != nil:
			return nil, failure.Of(err, "read workload/"+key.Name)
		}
		w, err := as[v1alpha1.Workload](object)
		if err != nil {
			return nil, err
		}
		for _, c := range w.Status.Leaving {
			leaving[types.NamespacedName{Namespace: key.Namespace, Name: c.Instance}] = c
		}
	}
	return leaving, nil
}

// onNode is what is to be said of instances, the heaviest first and no more than a person reads.
func onNode(node string, instances []v1alpha1.Instance, leaving map[types.NamespacedName]v1alpha1.WorkloadCulprit) []fleet.Finding {
	var list []fleet.Finding
	for i := range instances {
		in := &Instance{Instance: instances[i]}
		for _, x := range in.Findings() {
			if x.What == leavingWhat {
				if c, is := leaving[types.NamespacedName{Namespace: in.Namespace, Name: in.Name}]; is {
					x.Text, x.Code = "held by workload/"+in.Spec.Workload+": "+c.Message, c.Code
				}
			}
			if x.Weight > fleet.Note {
				list = append(list, x)
			}
		}
	}
	list = ranked(list)
	if more := len(list) - unwellMax; more > 0 {
		list = append(slices.Clip(list[:unwellMax]), fleet.Finding{Weight: fleet.Waiting, Subject: "node/" + node, What: "More", Text: fmt.Sprintf("%d more things are to be said of its instances", more),
			Next: "tako get instances -A --field-selector spec.node=" + node})
	}
	return list
}
