package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/fleet/rollout"
	"tako.dev/tako/internal/present"
)

// valuesMax is how many values one answer asks about: what was changed last is what a person looks at, and each is a question.
const valuesMax = 20

// value is one that a config takes from a Secret or a ConfigMap, and what is known of its last change.
type value struct {
	resource, namespace, name, key string
	who                            string // empty: not known
	at                             time.Time
	gone, unseen                   bool
}

// ofOtherValue: what all nodes had converged on is the revision that is on its way now, and a value that it takes is another. No revision
// brings that back.
func ofOtherValue(r *v1alpha1.RolloutStatus) bool {
	return r.Target == r.Proven && r.TargetPriority == r.ProvenPriority && r.TargetRoot != r.ProvenRoot && r.TargetRoot != "" && r.ProvenRoot != ""
}

// takes are the values that a config takes, each once.
func (c *Config) takes() []value {
	var all []value
	for i := range c.Spec.Resources {
		source := c.Spec.Resources[i].Source()
		if source == nil {
			continue
		}
		for resource, from := range map[string]*declare.KeySelector{"configmaps": source.ConfigMap, "secrets": source.Secret} {
			if from == nil {
				continue
			}
			v := value{resource: resource, namespace: cmp.Or(from.Namespace, c.Meta.Namespace), name: from.Name, key: from.Key}
			if !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
	}
	return all
}

// NameValues completes what was found of a rollout that another value has halted: which one it may be, who changed it, and what helps.
func NameValues(ctx context.Context, server *remote.Server, c *Config, found []Finding, now time.Time) {
	r := c.Status.Rollout
	i := slices.IndexFunc(found, func(x Finding) bool { return x.What == string(rollout.Halted) && x.Subject == c.Argument() })
	if r == nil || i < 0 || !ofOtherValue(r) {
		return
	}
	all := c.takes()
	for i := range all[:min(len(all), valuesMax)] {
		all[i].look(ctx, server)
	}
	if r.ProvenAt != nil { // what is older is what was proven
		all = slices.DeleteFunc(all, func(v value) bool { return !v.at.IsZero() && v.at.Before(r.ProvenAt.Time) })
	}
	slices.SortStableFunc(all, func(a, b value) int { return b.at.Compare(a.at) })
	lines := []string{}
	for i := range all {
		lines = append(lines, all[i].line(now))
	}
	if len(all) > 0 {
		found[i].Evidence = strings.TrimSpace(strings.Join(lines, "\n") + "\n" + found[i].Evidence)
		found[i].Next = "tako edit " + all[0].argument()
	}
}

// look asks who has changed the value last. It asks for no more than the object's metadata: a value is nobody's business here.
func (v *value) look(ctx context.Context, server *remote.Server) {
	kind, err := server.Find(ctx, v.resource)
	if err != nil {
		return
	}
	table, err := server.Table(ctx, remote.Ref{Kind: kind, Namespace: v.namespace, Name: v.name})
	switch {
	case err != nil:
		v.gone, v.unseen = apierrors.IsNotFound(err), apierrors.IsForbidden(err)
	case len(table.Rows) > 0 && table.Rows[0].Object != nil:
		v.who, v.at = setLast(table.Rows[0].Object.GetManagedFields(), v.key)
	}
}

// setLast is who of those that own a key of an object has changed it last, and when that one did.
func setLast(managed []metav1.ManagedFieldsEntry, key string) (who string, at time.Time) {
	for _, entry := range managed {
		if entry.FieldsV1 == nil || entry.Time == nil || entry.Time.Time.Before(at) {
			continue
		}
		var owned map[string]map[string]json.RawMessage
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			continue
		}
		for _, field := range []string{"f:data", "f:binaryData", "f:stringData"} {
			if _, ok := owned[field]["f:"+key]; ok {
				who, at = entry.Manager, entry.Time.Time
			}
		}
	}
	return who, at
}

// argument is how the object is named on a command line.
func (v *value) argument() string {
	return strings.TrimSuffix(v.resource, "s") + "/" + v.name + " -n " + v.namespace
}

func (v *value) line(now time.Time) string {
	text := v.argument() + ", key " + v.key
	switch {
	case v.gone:
		text += ": it is gone"
	case v.unseen:
		text += ": you may not see it"
	case v.who != "":
		text += fmt.Sprintf(": changed by %s at %s, %s", v.who, v.at.UTC().Format(time.RFC3339), present.Ago(v.at, now))
	}
	return text
}
