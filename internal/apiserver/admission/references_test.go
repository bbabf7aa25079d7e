package admission

import (
	"cmp"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
)

// from is files with contents from Secrets, by SECRET or NAMESPACE/SECRET, and from ConfigMaps, which begin with an @. A #KEY at the end
// says which value.
func from(sources ...string) []declare.Resource {
	resources := []declare.Resource{{Name: "plain", File: &declare.File{Path: "/plain"}}, {Name: "vim", Package: &declare.Package{}}}
	for _, text := range sources {
		name, isMap := strings.CutPrefix(text, "@")
		name, key, _ := strings.Cut(name, "#")
		s := &declare.KeySelector{Name: name, Key: cmp.Or(key, "k")}
		if namespace, name, ok := strings.Cut(name, "/"); ok {
			s.Namespace, s.Name = namespace, name
		}
		source := &declare.ContentSource{Secret: s}
		if isMap {
			source = &declare.ContentSource{ConfigMap: s}
		}
		resources = append(resources, declare.Resource{Name: "of " + text, File: &declare.File{Path: "/" + text, ContentFrom: source}})
	}
	return resources
}

// TestRightsToContents: a config names only what its author may read, unless it was named before.
func TestRightsToContents(t *testing.T) {
	b := book{rules: map[string][]rbac.PolicyRule{
		"ann":   {rule("get", "", "secrets", "web"), rule("get", "", "configmaps")},
		"lists": {rule("list", "", "secrets"), rule("get", "apps", "secrets")},
	}}
	plugin := NewRights(b, authorizer.AuthorizerFunc(b.Authorize))
	config := func(sources ...string) runtime.Object {
		return &v1alpha1.NodeConfig{ObjectMeta: meta("qa", "c"), Spec: declare.NodeConfigSpec{Resources: from(sources...)}}
	}
	cluster := func(sources ...string) runtime.Object {
		return &v1alpha1.ClusterNodeConfig{ObjectMeta: meta("", "c"), Spec: declare.NodeConfigSpec{Resources: from(sources...)}}
	}
	revision := func(sources ...string) runtime.Object {
		return &v1alpha1.Revision{ObjectMeta: meta("qa", "r"), Spec: v1alpha1.RevisionSpec{Resources: from(sources...)}}
	}
	template := func(secret, configMap string) workload.Template {
		t := workload.Template{Tasks: []workload.Task{{Name: "plain"}, {Name: "web"}}}
		task := &t.Tasks[1]
		task.Env = []workload.EnvVar{{Name: "A", Value: "a"}, {Name: "B", ValueFrom: &workload.EnvSource{Field: "node.name"}}}
		if secret != "" {
			task.Env = append(task.Env, workload.EnvVar{Name: "PASSWORD", ValueFrom: &workload.EnvSource{Secret: &declare.KeySelector{Name: secret, Key: "k"}}})
			task.Files = append(task.Files, workload.File{Path: "/key", Secret: &declare.KeySelector{Name: secret, Key: "key"}})
		}
		if configMap != "" {
			task.Files = append(task.Files, workload.File{Path: "/conf", ConfigMap: &declare.KeySelector{Name: configMap, Key: "k"}})
			task.Env = append(task.Env, workload.EnvVar{Name: "MODE", ValueFrom: &workload.EnvSource{ConfigMap: &declare.KeySelector{Name: configMap, Key: "mode"}}})
		}
		return t
	}
	running := func(secret, configMap string) runtime.Object {
		return &v1alpha1.Workload{ObjectMeta: meta("qa", "w"), Spec: workload.Spec{Template: template(secret, configMap)}}
	}
	templated := func(secret, configMap string) runtime.Object {
		t := template(secret, configMap)
		return &v1alpha1.Revision{ObjectMeta: meta("qa", "r"), Spec: v1alpha1.RevisionSpec{Template: &t}}
	}
	source := func(spec v1alpha1.SourceSpec) runtime.Object {
		return &v1alpha1.Source{ObjectMeta: meta("qa", "s"), Spec: spec}
	}
	scaled := func(server string, p declare.PrometheusQuery) runtime.Object {
		p.Server = server
		return &v1alpha1.Workload{ObjectMeta: meta("qa", "w"), Spec: workload.Spec{Scale: &workload.Scale{Targets: []workload.ScaleTarget{{Name: "cpu"}, {Name: "queue", Prometheus: &workload.PrometheusTarget{PrometheusQuery: p}}}}}}
	}
	gated := func(server string, p declare.PrometheusQuery) runtime.Object {
		p.Server = server
		return &v1alpha1.Workload{ObjectMeta: meta("qa", "w"), Spec: workload.Spec{Rollout: workload.Rollout{Gates: []declare.Gate{{Name: "errors", Prometheus: p}}}}}
	}
	gatedConfig := func(p declare.PrometheusQuery) runtime.Object {
		return &v1alpha1.NodeConfig{ObjectMeta: meta("qa", "c"), Spec: declare.NodeConfigSpec{Rollout: declare.Rollout{Gates: []declare.Gate{{Name: "errors", Prometheus: p}}}}}
	}
	gatedCluster := func(namespace, name string) runtime.Object {
		p := declare.PrometheusQuery{Auth: &declare.PrometheusAuth{Token: &declare.KeySelector{Namespace: namespace, Name: name, Key: "k"}}}
		return &v1alpha1.ClusterNodeConfig{ObjectMeta: meta("", "c"), Spec: declare.NodeConfigSpec{Rollout: declare.Rollout{Gates: []declare.Gate{{Name: "errors", Prometheus: p}}}}}
	}
	valueOf := func(name string) *declare.KeySelector { return &declare.KeySelector{Name: name, Key: "k"} }
	token := declare.PrometheusQuery{Auth: &declare.PrometheusAuth{Token: valueOf("web")}}
	password := declare.PrometheusQuery{Auth: &declare.PrometheusAuth{Username: valueOf("web"), Password: valueOf("db")}}
	known := declare.PrometheusQuery{CA: &declare.PrometheusCA{ConfigMap: valueOf("authorities")}}
	const here, there = "https://git.example.com/a.git", "https://evil.example.com/a.git"
	for _, c := range []struct {
		what     string
		by       string
		obj, old runtime.Object
		sub      string
		groups   []string
		refused  string // part of why; "" is allowed
	}{
		{what: "nothing", by: "nobody", obj: config()},
		{what: "what she may read", by: "ann", obj: config("web", "@web", "@any")},
		{what: "another secret", by: "ann", obj: config("web", "db"), refused: `user "ann" may not get secrets "db" in namespace "qa", which the content of resource "of db" is taken from`},
		{what: "who may only list", by: "lists", obj: config("web"), refused: `may not get secrets "web"`},
		{what: "a map by who may not", by: "nobody", obj: config("@web"), refused: `may not get configmaps "web" in namespace "qa"`},
		{what: "in another namespace, by a config of the cluster", by: "ann", obj: cluster("prod/web", "prod/db"), refused: `secrets "db" in namespace "prod"`},
		{what: "what she may read, by a config of the cluster", by: "ann", obj: cluster("prod/web", "@prod/db")},
		{what: "what was there before", by: "nobody", obj: config("web"), old: config("web", "@any")},
		{what: "one more", by: "ann", obj: config("web", "db", "@any"), old: config("web"), refused: `"db"`},
		{what: "a map instead of the secret", by: "nobody", obj: config("@web"), old: config("web"), refused: `configmaps "web"`},
		{what: "another value of the secret", by: "nobody", obj: config("web#private"), old: config("web#public"), refused: `may not get secrets "web"`},
		{what: "another value of what she may read", by: "ann", obj: config("web#private"), old: config("web#public")},
		{what: "of another namespace", by: "nobody", obj: cluster("qa/web"), old: cluster("prod/web"), refused: `"qa"`},
		{what: "a revision of one's own", by: "nobody", obj: revision("web"), refused: `may not get secrets "web"`},
		{what: "the server's revision", by: user.APIServerUser, groups: []string{user.SystemPrivilegedGroup}, obj: revision("web")},
		{what: "a workload of nothing", by: "nobody", obj: running("", "")},
		{what: "a workload of what she may read", by: "ann", obj: running("web", "any")},
		{what: "a workload of another secret", by: "ann", obj: running("db", ""), refused: `secrets "db" in namespace "qa", which variable "PASSWORD" of task "web" is taken from`},
		{what: "a workload of a secret as before", by: "nobody", obj: running("db", ""), old: running("db", "any")},
		{what: "a workload of a map", by: "nobody", obj: running("", "any"), refused: `configmaps "any" in namespace "qa"`},
		{what: "a scale by who may ask without a proof", by: "nobody", obj: scaled("main", declare.PrometheusQuery{})},
		{what: "a token for a Prometheus", by: "ann", obj: scaled("main", token)},
		{what: "a token for a Prometheus by who may not", by: "nobody", obj: scaled("main", token), refused: `secrets "web" in namespace "qa", which auth.token of target "queue" is taken from`},
		{what: "a token for a Prometheus as before", by: "nobody", obj: scaled("main", token), old: scaled("main", token)},
		{what: "a token shown to another Prometheus", by: "nobody", obj: scaled("other", token), old: scaled("main", token), refused: `secrets "web"`},
		{what: "a password for a Prometheus", by: "ann", obj: scaled("main", password), refused: `secrets "db" in namespace "qa", which auth.password of target "queue" is taken from`},
		{what: "authorities of a Prometheus", by: "nobody", obj: scaled("main", known), refused: `configmaps "authorities" in namespace "qa", which ca of target "queue" is taken from`},
		{what: "a gate by who may ask without a proof", by: "nobody", obj: gated("main", declare.PrometheusQuery{})},
		{what: "a token for a gate by who may not", by: "nobody", obj: gated("main", token), refused: `secrets "web" in namespace "qa", which auth.token of gate "errors" is taken from`},
		{what: "a gate with what the scale shows", by: "nobody", obj: gated("main", token), old: scaled("main", token)},
		{what: "a token for the gate of a config", by: "ann", obj: gatedConfig(token)},
		{what: "a token for the gate of a config by who may not", by: "nobody", obj: gatedConfig(token), refused: `secrets "web" in namespace "qa", which auth.token of gate "errors" is taken from`},
		{what: "a token for the gate of a config of the cluster", by: "ann", obj: gatedCluster("prod", "web")},
		{what: "another one", by: "ann", obj: gatedCluster("prod", "db"), refused: `secrets "db" in namespace "prod", which auth.token of gate "errors" is taken from`},
		{what: "a revision of a workload", by: "nobody", obj: templated("web", ""), refused: `may not get secrets "web"`},
		{what: "a source", by: "nobody", obj: source(v1alpha1.SourceSpec{URL: here})},
		{what: "credentials that she may read", by: "ann", obj: source(v1alpha1.SourceSpec{URL: here, Credentials: "web"})},
		{what: "credentials", by: "nobody", obj: source(v1alpha1.SourceSpec{URL: here, Credentials: "web"}), refused: `may not get secrets "web" in namespace "qa", which spec.credentials is taken from`},
		{what: "credentials as before", by: "nobody", obj: source(v1alpha1.SourceSpec{URL: here, Credentials: "web", Path: "b"}), old: source(v1alpha1.SourceSpec{URL: here, Credentials: "web"})},
		{what: "credentials shown to somebody else", by: "nobody", obj: source(v1alpha1.SourceSpec{URL: there, Credentials: "web"}), old: source(v1alpha1.SourceSpec{URL: here, Credentials: "web"}), refused: `secrets "web"`},
		{what: "keys", by: "nobody", obj: source(v1alpha1.SourceSpec{URL: here, Verify: &v1alpha1.SourceVerify{Keys: "people"}}), refused: `configmaps "people" in namespace "qa", which spec.verify.keys is taken from`},
		{what: "the secret of a webhook", by: "nobody", obj: source(v1alpha1.SourceSpec{URL: here, Webhook: &v1alpha1.SourceWebhook{Secret: "hook"}}), refused: `secrets "hook"`},
		{what: "a token shown to somebody else", by: "nobody", obj: source(v1alpha1.SourceSpec{URL: here, Report: &v1alpha1.SourceReport{Secret: "web", API: there}}), old: source(v1alpha1.SourceSpec{URL: here, Report: &v1alpha1.SourceReport{Secret: "web"}}), refused: `which spec.report.secret is taken from`},
		{what: "the status", by: "nobody", obj: config("web"), old: config(), sub: "status"},
	} {
		err := plugin.Validate(t.Context(), attributes(&user.DefaultInfo{Name: c.by, Groups: c.groups}, c.sub, c.obj, c.old), nil)
		if c.refused == "" && err != nil || c.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s, by %s: %v, want %q", c.what, c.by, err, c.refused)
		}
	}
}
