package await

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/fleet/assign"
)

// Config is what counts of a NodeConfig or ClusterNodeConfig for whether a node has it.
type Config struct {
	id        string // as catalog.ConfigName says
	of        assign.Config
	priority  int32
	isOld     bool // nobody has looked at what is declared now
	status    v1alpha1.NodeConfigStatus
	stalledBy string // empty: it goes on by itself
}

// ConfigOf reads a config as the server has it; false for one that is about to go.
func ConfigOf(object *unstructured.Unstructured) (c Config, isThere bool, err error) {
	var d *declare.NodeConfig
	if object.GetKind() == v1alpha1.KindClusterNodeConfig {
		var typed v1alpha1.ClusterNodeConfig
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed)
		d, c.status = typed.Declaration(), typed.Status
	} else {
		var typed v1alpha1.NodeConfig
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed)
		d, c.status = typed.Declaration(), typed.Status
	}
	if err != nil {
		return c, false, fmt.Errorf("read %s/%s of the server: %w", object.GetKind(), object.GetName(), err)
	}
	c.id, c.priority = catalog.ConfigName(d), int32(d.Priority())
	c.of = assign.Config{Kind: d.Kind, Namespace: object.GetNamespace(), Selector: d.Spec.Selector}
	c.isOld = c.status.ObservedGeneration < object.GetGeneration()
	if stalled, ok := conditionOf(object, "Stalled"); ok && stalled.status == string(metav1.ConditionTrue) && !stalled.isOld(object) {
		c.stalledBy = stalled.words()
	}
	return c, object.GetDeletionTimestamp() == nil, nil
}

// Taken judges whether what is assigned to a node is what its Node and these configs declare now. All that may select it must be among
// them, read before the Assignment, which is nil where there is none. Words are empty where the verdict is Reached.
func Taken(n *v1alpha1.Node, assigned *v1alpha1.Assignment, configs []Config, now time.Time) Verdict {
	if assigned == nil || assigned.Spec.NodeUID != n.UID {
		return Verdict{Pending, "nothing is assigned to it yet"}
	}
	if v := takenNode(n, &assigned.Spec, now); v.State != Reached {
		return v
	}
	due := map[string]bool{}
	for i := range configs {
		c := &configs[i]
		if !c.of.Selects(&assign.Node{Name: n.Name, Environment: n.Spec.Environment, Labels: n.Labels}) {
			continue
		}
		due[c.id] = true
		if v := c.takenOn(layerOf(assigned, c.id)); v.State != Reached {
			return v
		}
	}
	for i := range assigned.Spec.Layers {
		l := &assigned.Spec.Layers[i]
		if id := l.Config; !l.OfWorkload() && !due[id] {
			return Verdict{Pending, id + " is not for it any more, and is still assigned"}
		}
	}
	return Verdict{State: Reached}
}

func layerOf(a *v1alpha1.Assignment, config string) *v1alpha1.AssignedLayer {
	i := slices.IndexFunc(a.Spec.Layers, func(l v1alpha1.AssignedLayer) bool { return l.Config == config })
	if i < 0 {
		return nil
	}
	return &a.Spec.Layers[i]
}

// takenNode is about what the Node itself says.
func takenNode(n *v1alpha1.Node, a *v1alpha1.AssignmentSpec, now time.Time) Verdict {
	own := a.Own
	if own == nil {
		own = &v1alpha1.OwnLayer{}
	}
	switch {
	case a.Environment != n.Spec.Environment:
		return Verdict{Pending, "nobody has looked at its environment yet"}
	case !maps.Equal(own.Labels, n.Labels):
		return Verdict{Pending, "nobody has looked at its labels yet"}
	case !maps.Equal(lasting(own.Holds, now), lasting(n.Spec.Holds, now)):
		return Verdict{Pending, "nobody has looked at what is held yet"}
	}
	return Verdict{State: Reached}
}

// held is a thing that is held, and lasting the holds that have not ended: of a thing the one that ends last.
type held struct{ config, resource string }

func lasting(holds []v1alpha1.NodeHold, now time.Time) map[held]string {
	ends, words := map[held]time.Time{}, map[held]string{}
	for i := range holds {
		h := &holds[i]
		of := held{h.Config, h.Resource}
		if h.Until.After(now) && h.Until.After(ends[of]) {
			ends[of], words[of] = h.Until.Time, h.Until.UTC().String()+h.Owner+h.Reason
		}
	}
	return words
}

// takenOn judges the layer of a config on a node that it selects; nil: none.
func (c *Config) takenOn(layer *v1alpha1.AssignedLayer) Verdict {
	if c.isOld {
		return Verdict{Pending, "nobody has looked yet at what " + c.id + " declares now"}
	}
	r := c.status.Rollout
	is := layer != nil && layer.Revision == c.status.Revision && layer.Priority == c.priority &&
		(r == nil || r.Target != c.status.Revision || r.TargetRoot == "" || layer.Root == r.TargetRoot)
	switch {
	case is:
		return Verdict{State: Reached}
	case c.stalledBy != "":
		return Verdict{Stalled, "it does not get what " + c.id + " declares: " + c.stalledBy}
	case r != nil:
		return Verdict{Pending, fmt.Sprintf("it has not got what %s declares yet: %d of %d nodes have", c.id, r.Done, r.Selected)}
	}
	return Verdict{Pending, "it has not got what " + c.id + " declares yet"}
}

// Caught judges whether a node that was judged before is about what is assigned to it, or something newer.
func Caught(n *v1alpha1.Node, assigned *v1alpha1.Assignment) Verdict {
	version, err := strconv.ParseInt(assigned.ResourceVersion, 10, 64)
	if head := n.Status.AssignedHead; err == nil && head != nil && head.Version >= version {
		return Verdict{State: Reached}
	}
	return Verdict{Pending, fmt.Sprintf("state %s is there for it, and it does not show yet", assigned.ResourceVersion)}
}
