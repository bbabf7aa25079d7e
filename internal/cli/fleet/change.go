package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
)

// Hold adds a hold to a node, in the place of the one of the same thing, and returns what to say.
func Hold(n *v1alpha1.Node, x v1alpha1.NodeHold) string {
	n.Spec.Holds = append(without(n.Spec.Holds, x), x)
	return "held until " + x.Until.UTC().Format(time.RFC3339)
}

// without is a list of holds without the one of the same thing.
func without(list []v1alpha1.NodeHold, x v1alpha1.NodeHold) []v1alpha1.NodeHold {
	return slices.DeleteFunc(slices.Clone(list), func(h v1alpha1.NodeHold) bool { return h.Config == x.Config && h.Resource == x.Resource })
}

// Resume ends the hold of a thing on a node. Where x names nothing, it ends all, and consents to the state that the host has withheld.
// It returns what to say, and nothing where nothing was held.
func Resume(n *v1alpha1.Node, x v1alpha1.NodeHold) string {
	before := len(n.Spec.Holds)
	if x.Config == "" && x.Resource == "" {
		n.Spec.Holds = nil
		if v := n.Status.Verdict; v != nil && v.Type == v1alpha1.VerdictWithheld {
			n.Spec.AllowDeletions = strings.TrimPrefix(v.Root, "sha256:")
			return "may go on to the state that it withheld"
		}
	} else {
		n.Spec.Holds = without(n.Spec.Holds, x)
	}
	if before == len(n.Spec.Holds) {
		return ""
	}
	return "resumed"
}

// attemptsMax is how often an object that others change too is read again.
const attemptsMax = 5

// errBusy is an object that others change all the time.
var errBusy = errors.New("others change it at the same time")

// ChangeNode changes the spec of a node. change returns what to say of it; nothing means that there is nothing to change, and then
// nothing is sent.
func ChangeNode(ctx context.Context, server *remote.Server, name string, change func(*v1alpha1.Node) string) (ref remote.Ref, said string, err error) {
	kind, err := server.Find(ctx, v1alpha1.ResourceNodes+"."+v1alpha1.GroupName)
	if err != nil {
		return ref, "", failure.Of(err, "ask which kinds there are")
	}
	ref = remote.Ref{Kind: kind, Name: name}
	for range attemptsMax {
		object, err := server.Get(ctx, ref)
		if err != nil {
			return ref, "", failure.Of(err, "get "+ref.String())
		}
		n, err := as[v1alpha1.Node](object)
		if err != nil {
			return ref, "", err
		}
		said := change(&n)
		if said == "" {
			return ref, "", nil
		}
		if err := setSpec(object, n.Spec); err != nil {
			return ref, "", err
		}
		if _, err = server.Update(ctx, ref, object); err == nil {
			return ref, said, nil
		}
		if !apierrors.IsConflict(err) {
			return ref, "", failure.Of(err, "change "+ref.String())
		}
	}
	return ref, "", failure.Of(cmp.Or(ctx.Err(), errBusy), "change "+ref.String())
}

// setSpec replaces the spec of an object.
func setSpec(object *unstructured.Unstructured, spec any) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write the spec of %s: %w", object.GetName(), err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return fmt.Errorf("write the spec of %s: %w", object.GetName(), err)
	}
	object.Object["spec"] = fields
	return nil
}
