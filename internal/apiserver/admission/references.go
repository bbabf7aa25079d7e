package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
)

// reference is an object whose values leave the server: they end up in files of hosts, or are shown to another server.
type reference struct {
	resource  string // secrets or configmaps
	namespace string
	name      string
	key       string // of its data: who may not read an object brings no other value of it to a host either
	to        string // where it is shown, if it is not a host: who may not read it does not have it shown elsewhere either
}

func compareReferences(a, b reference) int {
	return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name), cmp.Compare(a.key, b.key), cmp.Compare(a.to, b.to))
}

// references are what an object takes values from, each with what does.
func references(o runtime.Object) map[reference]string {
	var resources []declare.Resource
	namespace, found := "", map[reference]string{}
	switch o := o.(type) {
	case *v1alpha1.NodeConfig:
		resources, namespace = o.Spec.Resources, o.Namespace
		addGates(found, o.Namespace, o.Spec.Rollout.Gates)
	case *v1alpha1.ClusterNodeConfig:
		resources = o.Spec.Resources
		addGates(found, "", o.Spec.Rollout.Gates)
	case *v1alpha1.Workload:
		found = ofTemplate(o.Namespace, &o.Spec.Template)
		addTargets(found, o.Namespace, o.Spec.Scale)
		addGates(found, o.Namespace, o.Spec.Rollout.Gates)
		return found
	case *v1alpha1.Revision:
		if o.Spec.Template != nil {
			return ofTemplate(o.Namespace, o.Spec.Template)
		}
		resources, namespace = o.Spec.Resources, o.Namespace
	case *v1alpha1.ClusterRevision:
		resources = o.Spec.Resources
	case *v1alpha1.Source:
		return ofSource(o)
	}
	add := func(by, resource string, s *declare.KeySelector) {
		if s != nil {
			found[reference{resource: resource, namespace: cmp.Or(namespace, s.Namespace), name: s.Name, key: s.Key}] = fmt.Sprintf("the content of resource %q", by)
		}
	}
	for i := range resources {
		if s := resources[i].Source(); s != nil {
			add(resources[i].Name, "secrets", s.Secret)
			add(resources[i].Name, "configmaps", s.ConfigMap)
		}
	}
	return found
}

// ofTemplate is what the tasks of a workload have in their environment and in files.
func ofTemplate(namespace string, t *workload.Template) map[reference]string {
	found := map[reference]string{}
	add := func(by, resource string, s *declare.KeySelector) {
		if s != nil {
			found[reference{resource: resource, namespace: namespace, name: s.Name, key: s.Key}] = by
		}
	}
	for i := range t.Tasks {
		task := &t.Tasks[i]
		for j := range task.Env {
			if from := task.Env[j].ValueFrom; from != nil {
				by := fmt.Sprintf("variable %q of task %q", task.Env[j].Name, task.Name)
				add(by, "secrets", from.Secret)
				add(by, "configmaps", from.ConfigMap)
			}
		}
		for j := range task.Files {
			by := fmt.Sprintf("file %q of task %q", task.Files[j].Path, task.Name)
			add(by, "secrets", task.Files[j].Secret)
			add(by, "configmaps", task.Files[j].ConfigMap)
		}
	}
	return found
}

// addTargets adds what a Prometheus is shown for the targets of a scale.
func addTargets(found map[reference]string, namespace string, scale *workload.Scale) {
	if scale == nil {
		return
	}
	for i := range scale.Targets {
		if t := &scale.Targets[i]; t.Prometheus != nil {
			addQuery(found, namespace, fmt.Sprintf("target %q", t.Name), &t.Prometheus.PrometheusQuery)
		}
	}
}

// addGates adds what a Prometheus is shown for the gates of a rollout.
func addGates(found map[reference]string, namespace string, gates []declare.Gate) {
	for i := range gates {
		addQuery(found, namespace, fmt.Sprintf("gate %q", gates[i].Name), &gates[i].Prometheus)
	}
}

// addQuery adds what a Prometheus is shown, and by what it is known.
func addQuery(found map[reference]string, namespace, by string, q *declare.PrometheusQuery) {
	add := func(field, resource string, s *declare.KeySelector) {
		if s != nil {
			found[reference{resource: resource, namespace: cmp.Or(namespace, s.Namespace), name: s.Name, key: s.Key, to: q.ServerOrDefault()}] = field + " of " + by
		}
	}
	if a := q.Auth; a != nil {
		add("auth.token", "secrets", a.Token)
		add("auth.username", "secrets", a.Username)
		add("auth.password", "secrets", a.Password)
	}
	if c := q.CA; c != nil {
		add("ca", "secrets", c.Secret)
		add("ca", "configmaps", c.ConfigMap)
	}
}

// ofSource is what a source proves with who it is, and by which it knows others.
func ofSource(s *v1alpha1.Source) map[reference]string {
	found := map[reference]string{}
	add := func(by, resource, name, to string) {
		if name != "" {
			found[reference{resource: resource, namespace: s.Namespace, name: name, to: to}] = by
		}
	}
	spec := &s.Spec
	add("spec.credentials", "secrets", spec.Credentials, spec.URL)
	if v := spec.Verify; v != nil {
		add("spec.verify.keys", "configmaps", v.Keys, "")
	}
	if w := spec.Webhook; w != nil {
		add("spec.webhook.secret", "secrets", w.Secret, "")
	}
	if r := spec.Report; r != nil {
		add("spec.report.secret", "secrets", r.Secret, r.API+" "+spec.URL)
	}
	return found
}

// reads refuses an object that takes values from what its author may not read: it would bring them to where he can. What it named before
// is not asked for again, so that one who may read less can change the rest.
func (r *Rights) reads(ctx context.Context, a admission.Attributes) error {
	wanted, before := references(a.GetObject()), references(a.GetOldObject())
	who := a.GetUserInfo()
	for _, ref := range slices.SortedFunc(maps.Keys(wanted), compareReferences) {
		if _, had := before[ref]; had {
			continue
		}
		allowed, err := r.may(ctx, authorizer.AttributesRecord{
			User: who, Verb: "get", APIGroup: core.GroupName, APIVersion: "v1", Resource: ref.resource, Namespace: ref.namespace, Name: ref.name, ResourceRequest: true,
		})
		if err != nil {
			return err
		}
		if !allowed {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf(
				"user %q may not get %s %q in namespace %q, which %s is taken from: who declares it must be allowed to read it", who.GetName(), ref.resource, ref.name, ref.namespace, wanted[ref]))
		}
	}
	return nil
}
