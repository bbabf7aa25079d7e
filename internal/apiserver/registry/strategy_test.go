package registry

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage/names"

	"tako.dev/tako/internal/apiserver/misfit"
)

// kindOf finds a kind by its plural.
func kindOf(t *testing.T, plural string) *Kind {
	t.Helper()
	for _, k := range Kinds() {
		if k.Names.Plural == plural {
			return k
		}
	}
	t.Fatalf("no kind %s", plural)
	return nil
}

// parse makes an object of a kind.
func parse(t *testing.T, k *Kind, text string) runtime.Object {
	t.Helper()
	o := k.New()
	if err := json.Unmarshal([]byte(text), o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o
}

func strategyOf(k *Kind) strategy {
	return strategy{NameGenerator: names.SimpleNameGenerator, kind: k}
}

// partText is a part of an object as its reader sees it.
func partText(t *testing.T, o runtime.Object, name string) string {
	t.Helper()
	b, err := json.Marshal(part(o, name).Interface())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// twoParts is a kind with a status: two specs and two statuses that differ.
type twoParts struct {
	kind                   string
	spec, other            string
	status, newer, created string // created is the status of a new object
}

func kindsWithStatus() []twoParts {
	const resources = `{"resources":[]}`
	return []twoParts{
		{"nodeconfigs", resources, `{"priority":7,"resources":[]}`, `{"revision":"r1"}`, `{"revision":"r2"}`, `{}`},
		{"clusternodeconfigs", resources, `{"priority":1007,"resources":[]}`, `{"revision":"r1"}`, `{"revision":"r2"}`, `{}`},
		{"nodes", `{"environment":"qa"}`, `{"environment":"prod"}`, `{"promises":{"kept":1}}`, `{"promises":{"kept":2}}`, `{}`},
		{"tokens", `{"type":"join"}`, `{"type":"user"}`, `{"hash":"sha256:1"}`, `{"hash":"sha256:2"}`, `{}`},
		{"sources", `{"url":"https://example.com/a.git"}`, `{"url":"https://example.com/b.git"}`, `{"objects":1}`, `{"objects":2}`, `{}`},
		{"workloads", `{"template":{"tasks":[]}}`, `{"replicas":2,"template":{"tasks":[]}}`, `{"wanted":1,"replicas":1}`, `{"wanted":1,"replicas":2}`, `{}`},
		{"instances", `{"workload":"w","revision":"r","slot":0,"node":"n","nodeUID":"u"}`, `{"workload":"w","revision":"r","slot":0,"node":"n","nodeUID":"v"}`, `{"losses":1}`, `{"losses":2}`, `{}`},
		{"namespaces", `{"finalizers":["kubernetes"]}`, `{"finalizers":["kubernetes"]}`, `{"phase":"Terminating"}`, `{"phase":"Active"}`, `{"phase":"Active"}`},
	}
}

// TestKindsWithStatus: the table has all of them.
func TestKindsWithStatus(t *testing.T) {
	tried := map[string]bool{}
	for _, k := range kindsWithStatus() {
		tried[k.kind] = true
	}
	for _, k := range Kinds() {
		if k.HasStatus != tried[k.Names.Plural] {
			t.Errorf("%s: has a status: %v, is tried: %v", k.Names.Plural, k.HasStatus, !k.HasStatus)
		}
		if k.HasStatus && !part(k.New(), statusField).IsValid() {
			t.Errorf("%s has no field for its status", k.Names.Plural)
		}
	}
}

// TestPartsAreApart: who writes the one part of an object changes nothing of the other, and only another spec is a new generation.
func TestPartsAreApart(t *testing.T) {
	for _, c := range kindsWithStatus() {
		k := kindOf(t, c.kind)
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: "update"})
		object := func(version, label, spec, status string) runtime.Object {
			return parse(t, k, `{"metadata":{"name":"a","resourceVersion":"`+version+`","labels":{"l":"`+label+`"}},"spec":`+spec+`,"status":`+status+`}`)
		}
		whole := strategyOf(k)
		made := object("", "1", c.spec, c.status)
		whole.PrepareForCreate(ctx, made)
		wantPart(t, c.kind+" made", made, "status", statusField, c.created)
		if g := metadata(made).GetGeneration(); g != 1 {
			t.Errorf("%s made: generation %d", c.kind, g)
		}

		stored := object("5", "1", c.spec, c.status)
		metadata(stored).SetGeneration(3)
		written := object("5", "2", c.spec, c.newer)
		metadata(written).SetGeneration(3)
		whole.PrepareForUpdate(ctx, written, stored)
		wantPart(t, c.kind+" written", written, "status", statusField, c.status)
		if m := metadata(written); m.GetGeneration() != 3 || m.GetLabels()["l"] != "2" {
			t.Errorf("%s labelled: %+v", c.kind, m)
		}
		if c.other != c.spec {
			written = object("5", "1", c.other, c.newer)
			metadata(written).SetGeneration(3)
			whole.PrepareForUpdate(ctx, written, stored)
			wantPart(t, c.kind+" with another spec", written, "spec", specField, c.other)
			if g := metadata(written).GetGeneration(); g != 4 {
				t.Errorf("%s with another spec: generation %d", c.kind, g)
			}
		}

		reported := object("6", "2", c.other, c.newer)
		statusStrategy{whole}.PrepareForUpdate(ctx, reported, stored)
		wantPart(t, c.kind+" reported", reported, "status", statusField, c.newer)
		wantPart(t, c.kind+" reported", reported, "spec", specField, partText(t, stored, specField))
		if m := metadata(reported); m.GetGeneration() != 3 || m.GetLabels()["l"] != "1" || m.GetResourceVersion() != "6" {
			t.Errorf("%s reported: %+v", c.kind, m)
		}
	}
}

// wantPart compares a part of an object with what it is to be, as JSON.
func wantPart(t *testing.T, what string, o runtime.Object, called, field, want string) {
	t.Helper()
	whole := reflect.New(reflect.TypeOf(o).Elem()).Interface().(runtime.Object)
	if err := json.Unmarshal([]byte(`{"`+called+`":`+want+`}`), whole); err != nil {
		t.Fatal(err)
	}
	if got, want := partText(t, o, field), partText(t, whole, field); got != want {
		t.Errorf("%s: %s is %s, want %s", what, called, got, want)
	}
}

// TestWhoMakes: a PUT makes what is not there, but no token, and no status of nothing.
func TestWhoMakes(t *testing.T) {
	for _, k := range Kinds() {
		if makes := strategyOf(k).AllowCreateOnUpdate(t.Context()); makes != (k.Names.Plural != "tokens") {
			t.Errorf("a PUT makes one of %s: %v", k.Names.Plural, makes)
		}
		if (statusStrategy{strategyOf(k)}).AllowCreateOnUpdate(t.Context()) {
			t.Errorf("a status makes one of %s", k.Names.Plural)
		}
	}
}

// TestFinalize: the finalizers of a namespace change by the way for that, and nothing else does.
func TestFinalize(t *testing.T) {
	k := kindOf(t, "namespaces")
	stored := parse(t, k, `{"metadata":{"name":"a","resourceVersion":"5","labels":{"l":"1"}},"spec":{"finalizers":["kubernetes","mine"]},"status":{"phase":"Terminating"}}`)
	done := parse(t, k, `{"metadata":{"name":"a","resourceVersion":"6","labels":{"l":"2"}},"spec":{"finalizers":["mine"]},"status":{"phase":"Active"}}`)
	finalizeStrategy{statusStrategy{strategyOf(k)}}.PrepareForUpdate(t.Context(), done, stored)
	ns := done.(*core.Namespace)
	if len(ns.Spec.Finalizers) != 1 || ns.Status.Phase != core.NamespaceTerminating || ns.Labels["l"] != "1" || ns.ResourceVersion != "6" {
		t.Errorf("%+v", ns)
	}
	written := parse(t, k, `{"metadata":{"name":"a"},"spec":{"finalizers":[]}}`)
	strategyOf(k).PrepareForUpdate(t.Context(), written, stored)
	if got := written.(*core.Namespace).Spec.Finalizers; len(got) != 2 {
		t.Errorf("a plain write leaves the finalizers %v", got)
	}
}

// TestEmptiedList: a patch that takes the last resource leaves an empty list; a config that was sent without one has forgotten it.
func TestEmptiedList(t *testing.T) {
	for verb, want := range map[string]string{"patch": "", "create": "spec.resources", "update": "spec.resources"} {
		k := kindOf(t, "nodeconfigs")
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: verb})
		o := parse(t, k, `{"apiVersion":"tako.dev/v1alpha1","kind":"NodeConfig","metadata":{"name":"a","namespace":"qa"},"spec":{}}`)
		strategyOf(k).PrepareForCreate(ctx, o)
		if got := complaints(t, k, o, nil); got != want {
			t.Errorf("%s: %q, want %q", verb, got, want)
		}
	}
}

// complaints are the fields that validation does not like, joined.
func complaints(t *testing.T, k *Kind, o, old runtime.Object) string {
	t.Helper()
	errs := strategyOf(k).Validate(t.Context(), o)
	if old != nil {
		errs = strategyOf(k).ValidateUpdate(t.Context(), o, old)
	}
	var fields []string
	for _, e := range errs {
		fields = append(fields, e.Field)
	}
	return strings.Join(fields, " ")
}

// TestValidation has what the kinds of others refuse; our own are declare's and the API package's.
func TestValidation(t *testing.T) {
	long := strings.Repeat("x", dataBytesMax+1)
	for _, c := range []struct {
		what, kind string
		object     string // without its name
		old        string
		want       string
	}{
		{"plain", "configmaps", `"data":{"a.b":"c"},"binaryData":{"d":"AA=="}`, "", ""},
		{"a key", "configmaps", `"data":{"a/b":"c"}`, "", "data[a/b]"},
		{"a key twice", "configmaps", `"data":{"a":"c"},"binaryData":{"a":"AA=="}`, "", "binaryData[a]"},
		{"too much", "configmaps", `"data":{"a":"` + long + `"}`, "", "data"},
		{"as much as may be", "configmaps", `"data":{"a":"` + long[1:] + `"}`, "", ""},
		{"changed", "configmaps", `"data":{"a":"2"}`, `"data":{"a":"1"}`, ""},
		{"immutable, changed", "configmaps", `"immutable":true,"data":{"a":"2"}`, `"immutable":true,"data":{"a":"1"}`, "data"},
		{"immutable no more", "configmaps", `"data":{"a":"1"}`, `"immutable":true,"data":{"a":"1"}`, "data"},
		{"immutable, the same", "configmaps", `"immutable":true,"data":{"a":"1"}`, `"immutable":true,"data":{"a":"1"}`, ""},

		{"plain", "secrets", `"data":{"a":"AA=="}`, "", ""},
		{"a key", "secrets", `"data":{"a b":"AA=="}`, "", "data[a b]"},
		{"text too long", "secrets", `"stringData":{"a":"` + long + `"}`, "", "data"},
		{"another type", "secrets", `"type":"b"`, `"type":"a"`, "type"},
		{"immutable, changed", "secrets", `"immutable":true,"stringData":{"a":"2"}`, `"immutable":true,"stringData":{"a":"1"}`, "data"},

		{"plain", "events", `"involvedObject":{"namespace":"qa"},"message":"m"`, "", ""},
		{"about another namespace", "events", `"involvedObject":{"namespace":"prod"}`, "", "involvedObject.namespace"},
		{"a long message", "events", `"message":"` + strings.Repeat("m", eventMessageMax+1) + `"`, "", "message"},

		{"plain", "leases", `"spec":{"leaseDurationSeconds":1,"leaseTransitions":0}`, "", ""},
		{"no time", "leases", `"spec":{"leaseDurationSeconds":0}`, "", "spec.leaseDurationSeconds"},
		{"less than never", "leases", `"spec":{"leaseTransitions":-1}`, "", "spec.leaseTransitions"},

		{"plain", "roles", `"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]`, "", ""},
		{"nothing", "roles", `"rules":[{}]`, "", "rules[0].verbs rules[0].apiGroups rules[0].resources"},
		{"a path", "roles", `"rules":[{"verbs":["get"],"nonResourceURLs":["/a"]}]`, "", "rules[0].nonResourceURLs"},
		{"a path", "clusterroles", `"rules":[{"verbs":["get"],"nonResourceURLs":["/a"]}]`, "", ""},
		{"both", "clusterroles", `"rules":[{"verbs":["get"],"nonResourceURLs":["/a"],"resources":["pods"]}]`, "", "rules[0].nonResourceURLs"},
		{"plain", "rolebindings", `"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"ann"}]`, "", ""},
		{"nothing", "rolebindings", `"subjects":[{}]`, "", "roleRef.kind roleRef.name subjects[0].name subjects[0].kind"},
		{"a local role", "clusterrolebindings", `"roleRef":{"kind":"Role","name":"r"}`, "", "roleRef.kind"},
		{"an account", "clusterrolebindings", `"roleRef":{"kind":"ClusterRole","name":"r"},"subjects":[{"kind":"ServiceAccount","name":"a"}]`, "", "subjects[0].kind"},
		{"another role", "clusterrolebindings", `"roleRef":{"kind":"ClusterRole","name":"s"}`, `"roleRef":{"kind":"ClusterRole","name":"r"}`, "roleRef"},

		{"a token, changed", "tokens", `"spec":{"type":"user","user":{"name":"bob"}}`, `"spec":{"type":"user","user":{"name":"ann"}}`, "spec"},
		{"a revision, changed", "revisions", `"spec":{"resources":[{"name":"a","package":{"package":"bb"}}]}`, `"spec":{"resources":[{"name":"a","package":{"package":"aa"}}]}`, "spec"},
		{"a cluster's revision, changed", "clusterrevisions", `"spec":{"resources":[]}`, `"spec":{"resources":[{"name":"a","package":{"package":"aa"}}]}`, "spec"},
		{"a revision, labelled", "revisions", `"spec":{"resources":[]}`, `"spec":{"resources":[]}`, ""},
	} {
		k := kindOf(t, c.kind)
		object := func(rest string) runtime.Object {
			namespace := ""
			if k.Namespaced {
				namespace = `,"namespace":"qa"`
			}
			o := parse(t, k, `{"metadata":{"name":"a","resourceVersion":"1"`+namespace+`},`+rest+`}`)
			strategyOf(k).fill(o)
			return o
		}
		var old runtime.Object
		if c.old != "" {
			old = object(c.old)
		}
		if got := complaints(t, k, object(c.object), old); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.kind, c.what, got, c.want)
		}
	}
}

// TestDefaults: what may be left out is filled in.
func TestDefaults(t *testing.T) {
	secret := parse(t, kindOf(t, "secrets"), `{"data":{"a":"MQ==","b":"MQ=="},"stringData":{"a":"2"}}`).(*core.Secret)
	strategyOf(kindOf(t, "secrets")).fill(secret)
	if secret.Type != core.SecretTypeOpaque || string(secret.Data["a"]) != "2" || string(secret.Data["b"]) != "1" || secret.StringData != nil {
		t.Errorf("%+v", secret)
	}
	binding := parse(t, kindOf(t, "rolebindings"), `{"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"ann"},{"kind":"ServiceAccount","name":"a"}]}`).(*rbac.RoleBinding)
	strategyOf(kindOf(t, "rolebindings")).fill(binding)
	if binding.RoleRef.APIGroup != rbac.GroupName || binding.Subjects[0].APIGroup != rbac.GroupName || binding.Subjects[1].APIGroup != "" {
		t.Errorf("%+v", binding)
	}
}

// TestNames: names of roles are as in Kubernetes, those of the rest are for DNS too.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		kind, name string
		ok         bool
	}{
		{"clusterroles", "system:basic-user", true}, {"clusterroles", "a/b", false}, {"clusterroles", "..", false},
		{"configmaps", "a.b-c", true}, {"configmaps", "system:a", false}, {"configmaps", strings.Repeat("a", 254), false},
		{"namespaces", "qa", true}, {"namespaces", "q.a", false}, {"nodeconfigs", "Web", false},
	} {
		if got := len(strategyOf(kindOf(t, c.kind)).validName()(c.name, false)) == 0; got != c.ok {
			t.Errorf("%s %q: %v", c.kind, c.name, got)
		}
	}
}

// TestSelectable: a selector names fields that there are, and is told which.
func TestSelectable(t *testing.T) {
	for _, k := range Kinds() {
		for _, name := range k.fieldNames() {
			if _, _, err := k.selectable(name, "x"); err != nil {
				t.Errorf("%s: %v", k.Names.Plural, err)
			}
		}
		_, _, err := k.selectable("spec.nonsense", "x")
		if err == nil || !strings.Contains(err.Error(), "metadata.name") {
			t.Errorf("%s: %v", k.Names.Plural, err)
		}
		if _, _, err := k.selectable("metadata.namespace", "x"); (err == nil) != k.Namespaced {
			t.Errorf("%s by namespace: %v", k.Names.Plural, err)
		}
	}
}

// TestManyMistakes: an answer has the first of them, and how many there are beside.
func TestManyMistakes(t *testing.T) {
	var errs field.ErrorList
	for i := range 5000 {
		errs = append(errs, field.Invalid(field.NewPath("spec", fmt.Sprintf("f%d", i)), i, "bad"))
	}
	some := atMost(errs)
	if last := some[len(some)-1]; len(some) != misfit.MistakesMax+1 || last.Error() != "spec: Invalid value: and 4900 more mistakes" || some[99].Field != "spec.f99" {
		t.Errorf("%d mistakes, the last is %v", len(some), last)
	}
	if got := atMost(errs[:misfit.MistakesMax]); len(got) != misfit.MistakesMax {
		t.Errorf("%d of %d are told", len(got), misfit.MistakesMax)
	}
}
