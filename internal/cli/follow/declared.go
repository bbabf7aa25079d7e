package follow

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/await"
	"tako.dev/tako/internal/cli/remote"
)

// Declared is what is declared for nodes. Several waits share one, so that each config is read twice a second at most, however many
// nodes are waited for.
type Declared struct {
	server *remote.Server
	say    func(text string)
	mu     sync.Mutex // guards what follows
	read   map[string]reading
	unseen map[string]bool // kinds that the reader may not see
}

// reading is what there was of the configs of a namespace, or of those without one.
type reading struct {
	at      time.Time
	configs []await.Config
}

// NewDeclared reads nothing yet. say is told once of each kind that may not be seen.
func NewDeclared(server *remote.Server, say func(text string)) *Declared {
	return &Declared{server: server, say: say, read: map[string]reading{}, unseen: map[string]bool{}}
}

// judge judges a node that seems to be decided. The configs are read first, then what is assigned, and the node last: each can only be
// newer than what is held against it.
func (d *Declared) judge(ctx context.Context, ref remote.Ref, goal await.Goal) (await.Verdict, error) {
	before, _, err := d.node(ctx, ref)
	if err != nil {
		return await.Verdict{}, err
	}
	configs, err := d.configs(ctx, before.Spec.Environment)
	if err != nil {
		return await.Verdict{}, err
	}
	assigned, err := d.assigned(ctx, ref.Name)
	if err != nil {
		return await.Verdict{}, err
	}
	n, object, err := d.node(ctx, ref)
	if err != nil {
		return await.Verdict{}, err
	}
	if d.seesAll() {
		if n.Spec.Environment != before.Spec.Environment {
			return await.Verdict{State: await.Pending, Words: "nobody has looked at its environment yet"}, nil
		}
		if v := await.Taken(n, assigned, configs, time.Now()); v.State != await.Reached {
			return v, nil
		}
		if v := await.Caught(n, assigned); v.State != await.Reached {
			return v, nil
		}
	}
	return goal.Look(object), nil
}

func (d *Declared) node(ctx context.Context, ref remote.Ref) (*v1alpha1.Node, *unstructured.Unstructured, error) {
	object, err := d.server.Get(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	n := &v1alpha1.Node{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, n); err != nil {
		return nil, nil, fmt.Errorf("read %s of the server: %w", ref, err)
	}
	return n, object, nil
}

// assigned is the Assignment of a node, nil where there is none.
func (d *Declared) assigned(ctx context.Context, node string) (*v1alpha1.Assignment, error) {
	kind, err := d.server.Find(ctx, v1alpha1.ResourceAssignments+"."+v1alpha1.GroupName)
	if err != nil {
		return nil, err
	}
	object, err := d.server.Get(ctx, remote.Ref{Kind: kind, Name: node})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		d.mu.Lock()
		defer d.mu.Unlock()
		return nil, d.skipLocked(kind, err)
	}
	a := &v1alpha1.Assignment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, a); err != nil {
		return nil, fmt.Errorf("read what is assigned to node %s: %w", node, err)
	}
	return a, nil
}

// configs are those that may be for a node of an environment.
func (d *Declared) configs(ctx context.Context, environment string) ([]await.Config, error) {
	d.mu.Lock() // while it is asked too: who comes meanwhile takes the same answer
	defer d.mu.Unlock()
	all, err := d.configsLocked(ctx, v1alpha1.ResourceClusterNodeConfigs, "")
	if err != nil || environment == "" {
		return all, err
	}
	own, err := d.configsLocked(ctx, v1alpha1.ResourceNodeConfigs, environment)
	return slices.Concat(all, own), err
}

func (d *Declared) configsLocked(ctx context.Context, resource, namespace string) ([]await.Config, error) {
	if was, ok := d.read[namespace]; ok && time.Since(was.at) < softEvery {
		return was.configs, nil
	}
	kind, err := d.server.Find(ctx, resource+"."+v1alpha1.GroupName)
	if err != nil {
		return nil, err
	}
	now := reading{at: time.Now()}
	_, err = d.server.List(ctx, remote.Query{Kind: kind, Namespace: namespace}, func(o *unstructured.Unstructured) error {
		c, isThere, err := await.ConfigOf(o)
		if isThere {
			now.configs = append(now.configs, c)
		}
		return err
	})
	if err != nil {
		return nil, d.skipLocked(kind, err)
	}
	d.read[namespace] = now
	return now.configs, nil
}

// skipLocked goes on without a kind that may not be seen.
func (d *Declared) skipLocked(kind remote.Kind, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	if !d.unseen[kind.Resource] {
		d.unseen[kind.Resource] = true
		d.say("you may not see " + kind.Resource + ": what was declared a moment ago may not be waited for")
	}
	return nil
}

func (d *Declared) seesAll() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.unseen) == 0
}
