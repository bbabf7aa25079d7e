package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
)

// Fleet is all that the server knows about hosts and what they are to have.
type Fleet struct {
	Nodes       []v1alpha1.Node     // by name
	Configs     []Config            // by ID
	Sources     []v1alpha1.Source   // by namespace and name
	Workloads   []v1alpha1.Workload // by namespace and name
	Assignments map[string]*v1alpha1.Assignment
	// Exposed are the Secrets that have values which a host could read that is none any more, or another.
	Exposed []Secret
	// Unseen are kinds that the reader may not see, in words.
	Unseen []string
}

// Config is a NodeConfig or ClusterNodeConfig.
type Config struct {
	ID     string // as catalog.ConfigName says
	Meta   metav1.ObjectMeta
	Spec   declare.NodeConfigSpec
	Status v1alpha1.NodeConfigStatus
	ref    remote.Ref
}

// Argument is how the config is named on a command line.
func (c *Config) Argument() string {
	if c.Meta.Namespace == "" {
		return "clusternodeconfig/" + c.Meta.Name
	}
	return "nodeconfig/" + c.Meta.Name + " -n " + c.Meta.Namespace
}

// Ref names the config to the server.
func (c *Config) Ref() remote.Ref { return c.ref }

// Read asks for everything of a namespace, of all where it is empty; nodes and what is for the whole cluster always. A kind that may
// not be seen is left out and said. Who may not see a kind in all namespaces sees what is in that of home, and is told so.
func Read(ctx context.Context, server *remote.Server, namespace, home string) (*Fleet, error) {
	f := &Fleet{Assignments: map[string]*v1alpha1.Assignment{}}
	steps := []struct {
		resource string // with its group
		fields   string // selector
		take     func(remote.Kind, *unstructured.Unstructured) error
	}{
		{v1alpha1.ResourceNodes + "." + v1alpha1.GroupName, "", f.takeNode},
		{v1alpha1.ResourceNodeConfigs + "." + v1alpha1.GroupName, "", f.takeConfig},
		{v1alpha1.ResourceClusterNodeConfigs + "." + v1alpha1.GroupName, "", f.takeClusterConfig},
		{v1alpha1.ResourceAssignments + "." + v1alpha1.GroupName, "", f.takeAssignment},
		{v1alpha1.ResourceSources + "." + v1alpha1.GroupName, "", f.takeSource},
		{v1alpha1.ResourceWorkloads + "." + v1alpha1.GroupName, "", f.takeWorkload},
		{"secrets", "exposed=true", f.takeSecret},
	}
	for _, step := range steps {
		kind, err := server.Find(ctx, step.resource)
		var unknown *remote.UnknownKind
		if errors.As(err, &unknown) && (strings.HasPrefix(step.resource, v1alpha1.ResourceSources+".") || strings.HasPrefix(step.resource, v1alpha1.ResourceWorkloads+".")) {
			continue // an older server has none
		}
		if err != nil {
			return nil, failure.Of(err, "ask which kinds there are")
		}
		query := remote.Query{Kind: kind, Fields: step.fields}
		if kind.Namespaced {
			query.Namespace = namespace
		}
		take := func(o *unstructured.Unstructured) error { return step.take(kind, o) }
		_, err = server.List(ctx, query, take)
		if apierrors.IsForbidden(err) && kind.Namespaced && namespace == "" && home != "" {
			query.Namespace = home
			if _, err = server.List(ctx, query, take); err == nil {
				f.Unseen = append(f.Unseen, kind.Resource+" outside of namespace "+home)
			}
		}
		if err == nil {
			continue
		}
		if !apierrors.IsForbidden(err) {
			return nil, failure.Of(err, "list "+kind.Resource)
		}
		f.Unseen = append(f.Unseen, kind.Resource)
	}
	slices.SortFunc(f.Nodes, func(a, b v1alpha1.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(f.Sources, func(a, b v1alpha1.Source) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(f.Workloads, func(a, b v1alpha1.Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(f.Configs, func(a, b Config) int { return cmp.Compare(a.ID, b.ID) })
	return f, nil
}

func (f *Fleet) takeWorkload(_ remote.Kind, o *unstructured.Unstructured) error {
	w, err := as[v1alpha1.Workload](o)
	f.Workloads = append(f.Workloads, w)
	return err
}

// CheckNamespace is the error that there is no such namespace, which is a mistyped one as a rule; empty is none. Who may not see it is
// told nothing.
func (f *Fleet) CheckNamespace(ctx context.Context, server *remote.Server, name string) error {
	if name == "" || slices.ContainsFunc(f.Configs, func(c Config) bool { return c.Meta.Namespace == name }) {
		return nil
	}
	kind, err := server.Find(ctx, "namespaces")
	if err != nil {
		return failure.Of(err, "ask which kinds there are")
	}
	if _, err = server.Get(ctx, remote.Ref{Kind: kind, Name: name}); apierrors.IsNotFound(err) {
		return failure.NotFound("show namespace "+name, "there is none", "tako get namespaces")
	}
	return nil
}

// Node finds a node by its name.
func (f *Fleet) Node(name string) *v1alpha1.Node {
	for i := range f.Nodes {
		if f.Nodes[i].Name == name {
			return &f.Nodes[i]
		}
	}
	return nil
}

// ConfigOf finds a config by how the server names it.
func (f *Fleet) ConfigOf(ref remote.Ref) *Config {
	for i := range f.Configs {
		own := f.Configs[i].ref
		if own.Kind.Kind == ref.Kind.Kind && own.Namespace == ref.Namespace && own.Name == ref.Name {
			return &f.Configs[i]
		}
	}
	return nil
}

// HavingConfig are the names of the nodes that a config is assigned to.
func (f *Fleet) HavingConfig(id string) []string {
	var names []string
	for i := range f.Nodes {
		if a := f.Assignments[f.Nodes[i].Name]; a != nil && layerOf(a, id) != nil {
			names = append(names, f.Nodes[i].Name)
		}
	}
	return names
}

// layerOf is the layer of a config in an assignment; nil where it has none.
func layerOf(a *v1alpha1.Assignment, id string) *v1alpha1.AssignedLayer {
	for i := range a.Spec.Layers {
		if a.Spec.Layers[i].Config == id {
			return &a.Spec.Layers[i]
		}
	}
	return nil
}

// Declaring names a config to the server, by its ID.
func Declaring(ctx context.Context, server *remote.Server, id string) (remote.Ref, error) {
	parts := strings.Split(id, "/")
	resource, namespace := v1alpha1.ResourceClusterNodeConfigs, ""
	if len(parts) > 2 {
		resource, namespace = v1alpha1.ResourceNodeConfigs, parts[1]
	}
	kind, err := server.Find(ctx, resource+"."+v1alpha1.GroupName)
	return remote.Ref{Kind: kind, Namespace: namespace, Name: parts[len(parts)-1]}, err
}

// HasNewest reports whether a host has the newest of a config: against an older one its differences say nothing about what is declared.
func HasNewest(ctx context.Context, server *remote.Server, node, id string, config *unstructured.Unstructured) (bool, error) {
	kind, err := server.Find(ctx, v1alpha1.ResourceAssignments+"."+v1alpha1.GroupName)
	if err != nil {
		return false, err
	}
	object, err := server.Get(ctx, remote.Ref{Kind: kind, Name: node})
	if err != nil {
		return false, err
	}
	layers, _, _ := unstructured.NestedSlice(object.Object, "spec", "layers")
	newest, _, _ := unstructured.NestedString(config.Object, "status", "revision")
	observed, _, _ := unstructured.NestedInt64(config.Object, "status", "observedGeneration")
	return observed == config.GetGeneration() && slices.ContainsFunc(layers, func(item any) bool {
		layer, ok := item.(map[string]any)
		return ok && layer["config"] == id && layer["revision"] == newest
	}), nil
}

func as[T any](o *unstructured.Unstructured) (T, error) {
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &typed); err != nil {
		return typed, fmt.Errorf("read %s/%s of the server: %w", o.GetKind(), o.GetName(), err)
	}
	return typed, nil
}

func (f *Fleet) takeNode(_ remote.Kind, o *unstructured.Unstructured) error {
	n, err := as[v1alpha1.Node](o)
	f.Nodes = append(f.Nodes, n)
	return err
}

func (f *Fleet) takeConfig(kind remote.Kind, o *unstructured.Unstructured) error {
	c, err := as[v1alpha1.NodeConfig](o)
	f.Configs = append(f.Configs, Config{ID: catalog.ConfigName(c.Declaration()), Meta: c.ObjectMeta, Spec: c.Spec, Status: c.Status, ref: remote.RefOf(kind, o)})
	return err
}

func (f *Fleet) takeClusterConfig(kind remote.Kind, o *unstructured.Unstructured) error {
	c, err := as[v1alpha1.ClusterNodeConfig](o)
	f.Configs = append(f.Configs, Config{ID: catalog.ConfigName(c.Declaration()), Meta: c.ObjectMeta, Spec: c.Spec, Status: c.Status, ref: remote.RefOf(kind, o)})
	return err
}

func (f *Fleet) takeAssignment(_ remote.Kind, o *unstructured.Unstructured) error {
	a, err := as[v1alpha1.Assignment](o)
	f.Assignments[a.Name] = &a
	return err
}
