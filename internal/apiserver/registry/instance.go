package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/api/v1alpha1"
)

func instances() *Kind {
	k := of[v1alpha1.Instance, v1alpha1.InstanceList](v1alpha1.SchemeGroupVersion, v1alpha1.KindInstance,
		Names{Plural: v1alpha1.ResourceInstances, Short: []string{"inst"}, Categories: []string{category}})
	k.Namespaced = true
	k.HasStatus, k.SealedStatus = true, true
	k.Columns = instanceColumns(func(o runtime.Object) *v1alpha1.Instance { return o.(*v1alpha1.Instance) })
	k.Validate = func(_ context.Context, obj, old runtime.Object) field.ErrorList {
		before, _ := old.(*v1alpha1.Instance)
		return fieldErrors(v1alpha1.ValidateInstance(obj.(*v1alpha1.Instance), before))
	}
	k.Fields = func(o runtime.Object) fields.Set {
		s := &o.(*v1alpha1.Instance).Spec
		return fields.Set{"spec.node": s.Node, "spec.workload": s.Workload}
	}
	return k
}

func instanceColumns(instance func(runtime.Object) *v1alpha1.Instance) []Column {
	return []Column{
		{Name: "Workload", Type: "string", Description: "what it is a copy of", Value: func(o runtime.Object) any { return instance(o).Spec.Workload }},
		{Name: "Revision", Type: "string", Description: "name of the revision that it runs", Value: func(o runtime.Object) any { return instance(o).Spec.Revision }},
		{Name: "Node", Type: "string", Description: "where it is", Value: func(o runtime.Object) any { return instance(o).Spec.Node }},
		{Name: "Phase", Type: "string", Description: "how far it has come", Value: func(o runtime.Object) any { return instancePhase(instance(o)) }},
		{Name: "Ready", Type: "boolean", Description: "whether it can be used", Value: func(o runtime.Object) any { return instance(o).Status.Ready }},
		{Name: "Restarts", Type: "integer", Description: "how often its tasks were started again", Value: func(o runtime.Object) any { return instance(o).Status.Restarts }},
		{Name: "Ports", Type: "string", Wide: true, Description: "numbers of its ports", Value: func(o runtime.Object) any { return portsText(instance(o).Status.Ports) }},
		{Name: "Message", Type: "string", Wide: true, Description: "why it does not work", Value: func(o runtime.Object) any {
			if f := instance(o).Status.Failure; f != nil {
				return strings.TrimSpace(f.Code + " " + f.Message)
			}
			return ""
		}},
	}
}

// instancePhase is how far an instance has come: what was decided about it counts more than what was heard last, unless it is over.
func instancePhase(i *v1alpha1.Instance) string {
	switch s := &i.Status; {
	case s.Phase == v1alpha1.InstanceFailed, s.Phase == v1alpha1.InstanceDone:
		return string(s.Phase)
	case s.Abandoned != nil:
		return "Abandoned"
	case i.Spec.Stop != nil:
		return string(v1alpha1.InstanceTerminating)
	case s.Phase == "":
		return "Unknown"
	default:
		return string(s.Phase)
	}
}

// portsText is ports for a column.
func portsText(ports map[string]int32) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		texts = append(texts, fmt.Sprintf("%s=%d", name, ports[name]))
	}
	return strings.Join(texts, ",")
}

var errInstance = errors.New("tako makes and ends instances as their workload declares, and nobody else writes one: change the Workload, or its number with tako or kubectl scale")

// instanceStore is the storage of instances: only the server writes them, and who reads one is shown what is heard of it and not stored. The
// server's own controllers go past it (Local), and never store what was added here.
type instanceStore struct {
	derivedStore
	live *live
}

var _ rest.StandardStorage = instanceStore{}

// Get reads one.
func (s instanceStore) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.live.shown(s.derivedStore.Get(ctx, name, options))
}

// List reads many.
func (s instanceStore) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	return s.live.shown(s.derivedStore.List(ctx, options))
}

// Watch follows changes of what is stored. What is not stored comes with those.
func (s instanceStore) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	if s.live.instances == nil {
		return s.derivedStore.Watch(ctx, options)
	}
	return s.live.following(s.derivedStore.Watch(ctx, options))
}
