package admission

import (
	"context"
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/component-helpers/auth/rbac/validation"

	"tako.dev/tako/api/v1alpha1"
)

// book is who has which rules, and which roles there are, by kind and name.
type book struct {
	rules map[string][]rbac.PolicyRule
	roles map[string][]rbac.PolicyRule
}

func (b book) Rules(who user.Info, _ string) []rbac.PolicyRule { return b.rules[who.GetName()] }

func (b book) RoleRules(ref rbac.RoleRef, namespace string) ([]rbac.PolicyRule, bool) {
	rules, known := b.roles[ref.Kind+" "+namespace+"/"+ref.Name]
	return rules, known
}

func (b book) HasRole(_ context.Context, ref rbac.RoleRef, namespace string) (bool, error) {
	_, known := b.RoleRules(ref, namespace)
	return known, nil
}

// Authorize allows what a rule of the user allows.
func (b book) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	wanted := rbac.PolicyRule{Verbs: []string{a.GetVerb()}, APIGroups: []string{a.GetAPIGroup()}, Resources: []string{a.GetResource()}, ResourceNames: []string{a.GetName()}}
	if ok, _ := validation.Covers(b.rules[a.GetUser().GetName()], []rbac.PolicyRule{wanted}); ok {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func rule(verb, group, resource string, names ...string) rbac.PolicyRule {
	return rbac.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func role(rules ...rbac.PolicyRule) *rbac.Role {
	return &rbac.Role{ObjectMeta: meta("qa", "r"), Rules: rules}
}

func clusterRole(rules ...rbac.PolicyRule) *rbac.ClusterRole {
	return &rbac.ClusterRole{ObjectMeta: meta("", "r"), Rules: rules}
}

func binding(kind, name string, subjects ...string) *rbac.RoleBinding {
	b := &rbac.RoleBinding{ObjectMeta: meta("qa", "b"), RoleRef: rbac.RoleRef{Kind: kind, Name: name}}
	for _, s := range subjects {
		b.Subjects = append(b.Subjects, rbac.Subject{Kind: rbac.UserKind, Name: s})
	}
	return b
}

func clusterBinding(name string, subjects ...string) *rbac.ClusterRoleBinding {
	b := binding("ClusterRole", name, subjects...)
	return &rbac.ClusterRoleBinding{ObjectMeta: meta("", "b"), RoleRef: b.RoleRef, Subjects: b.Subjects}
}

func token(name string, groups ...string) *v1alpha1.Token {
	return &v1alpha1.Token{ObjectMeta: meta("", "t"), Spec: v1alpha1.TokenSpec{Type: v1alpha1.TokenUser, User: &v1alpha1.UserToken{Name: name, Groups: groups}}}
}

// attributes is a request of a user; old is nil for a create.
func attributes(who user.Info, sub string, obj, old runtime.Object) admission.Attributes {
	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	m := obj.(metav1.Object)
	return admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{}, m.GetNamespace(), m.GetName(), schema.GroupVersionResource{Resource: "things"}, sub, operation, nil, false, who)
}

// readRule and writeRule are the rights that these tests are about.
func readRule() rbac.PolicyRule  { return rule("get", "tako.dev", "nodeconfigs") }
func writeRule() rbac.PolicyRule { return rule("update", "tako.dev", "nodeconfigs") }

// holders are users, each with the rights that his name hints at, and roles.
func holders() book {
	read, write := readRule(), writeRule()
	const group = rbac.GroupName
	return book{
		rules: map[string][]rbac.PolicyRule{
			"ann":  {read, rule("create", "*", "*")},
			"esc":  {rule("escalate", group, "roles", "r")},
			"cesc": {rule("escalate", group, "clusterroles")},
			"bind": {rule("bind", group, "clusterroles", "writers", "later"), rule("bind", group, "roles", "local")},
			"imp":  {rule("impersonate", "", "users", "bob"), rule("impersonate", "", "groups", "web")},
			"star": {{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}},
		},
		roles: map[string][]rbac.PolicyRule{
			"ClusterRole qa/readers": {read}, "ClusterRole /readers": {read}, "ClusterRole qa/writers": {write}, "ClusterRole /writers": {write},
			"Role qa/local": {write}, "ClusterRole qa/empty": nil,
		},
	}
}

func TestRights(t *testing.T) {
	b, read, write := holders(), readRule(), writeRule()
	plugin := NewRights(b, authorizer.AuthorizerFunc(b.Authorize))
	for _, c := range []struct {
		what     string
		by       string
		obj, old runtime.Object
		sub      string
		groups   []string
		refused  string // part of why; "" is allowed
	}{
		{what: "a role of a right that she has", by: "ann", obj: role(read)},
		{what: "of one that she has not", by: "ann", obj: role(read, write), refused: `may not escalate roles: update nodeconfigs of group "tako.dev"`},
		{what: "of no rights", by: "nobody", obj: role()},
		{what: "a cluster's role of one that she has not", by: "ann", obj: clusterRole(write), refused: "may not escalate clusterroles"},
		{what: "of a path", by: "ann", obj: clusterRole(rbac.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}), refused: "get /metrics"},
		{what: "a role of anything by who may escalate that one", by: "esc", obj: role(write)},
		{what: "but not a cluster's", by: "esc", obj: clusterRole(write), refused: "may not escalate"},
		{what: "a cluster's by who may escalate those", by: "cesc", obj: clusterRole(write)},
		{what: "everything by who has everything", by: "star", obj: clusterRole(rule("*", "*", "*"))},
		{what: "a role of a right that she has not, unchanged", by: "ann", obj: role(write), old: role(write)},
		{what: "with one more", by: "ann", obj: role(write, rule("delete", "tako.dev", "nodeconfigs")), old: role(write), refused: "escalate"},
		{what: "with one less", by: "nobody", obj: role(), old: role(write)},

		{what: "a binding to a role that she has", by: "ann", obj: binding("ClusterRole", "readers", "eve")},
		{what: "to one that she has not", by: "ann", obj: binding("ClusterRole", "writers", "ann"), refused: "may not bind clusterroles"},
		{what: "to a local one that she has not", by: "ann", obj: binding("Role", "local", "ann"), refused: "may not bind roles"},
		{what: "for the cluster", by: "ann", obj: clusterBinding("writers", "ann"), refused: "may not bind clusterroles"},
		{what: "for the cluster to one that she has", by: "ann", obj: clusterBinding("readers", "eve")},
		{what: "to an empty one", by: "nobody", obj: binding("ClusterRole", "empty", "eve")},
		{what: "to one that is not there", by: "ann", obj: binding("ClusterRole", "later", "ann"), refused: `there is no ClusterRole "later" yet`},
		{what: "to one that is not there, by who has everything there is", by: "star", obj: binding("ClusterRole", "later", "ann")},
		{what: "to one that is not there, by who may bind it", by: "bind", obj: clusterBinding("later", "eve")},
		{what: "by who may bind it", by: "bind", obj: binding("ClusterRole", "writers", "eve")},
		{what: "to a local one by who may bind it", by: "bind", obj: binding("Role", "local", "eve")},
		{what: "with the same subjects", by: "nobody", obj: binding("ClusterRole", "writers", "eve"), old: binding("ClusterRole", "writers", "eve")},
		{what: "with one more", by: "ann", obj: binding("ClusterRole", "writers", "eve", "ann"), old: binding("ClusterRole", "writers", "eve"), refused: "may not bind"},
		{what: "of the cluster with one more", by: "ann", obj: clusterBinding("writers", "eve", "ann"), old: clusterBinding("writers", "eve"), refused: "may not bind"},

		{what: "a token of one's own", by: "ann", obj: token("ann")},
		{what: "of one's own groups", by: "ann", groups: []string{"web", "db"}, obj: token("ann", "db", "web")},
		{what: "of a group that is another's", by: "ann", groups: []string{"web"}, obj: token("ann", "web", "db"), refused: `may not impersonate group "db"`},
		{what: "of administrators", by: "ann", obj: token("ann", user.SystemPrivilegedGroup), refused: `may not impersonate group "system:masters"`},
		{what: "of another", by: "ann", obj: token("bob"), refused: `may not impersonate user "bob"`},
		{what: "of one whom one may be", by: "imp", obj: token("bob", "web")},
		{what: "of one whom one may be, and a group too many", by: "imp", obj: token("bob", "web", "db"), refused: `group "db"`},
		{what: "of another than one may be", by: "imp", obj: token("eve"), refused: `user "eve"`},
		{what: "for hosts", by: "ann", obj: &v1alpha1.Token{ObjectMeta: meta("", "t")}},
		{what: "with a label, for another", by: "nobody", obj: token("bob"), old: token("bob")},

		{what: "anything by an administrator", by: "x", groups: []string{user.SystemPrivilegedGroup}, obj: clusterRole(rule("*", "*", "*"))},
		{what: "another kind", by: "nobody", obj: &v1alpha1.NodeConfig{ObjectMeta: meta("qa", "c")}},
		{what: "a part", by: "nobody", obj: role(write), sub: "status"},
	} {
		err := plugin.Validate(t.Context(), attributes(&user.DefaultInfo{Name: c.by, Groups: c.groups}, c.sub, c.obj, c.old), nil)
		if c.refused == "" && err != nil || c.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s, by %s: %v, want %q", c.what, c.by, err, c.refused)
		}
	}
}

// said keeps warnings.
type said []string

// AddWarning keeps one.
func (s *said) AddWarning(_, text string) { *s = append(*s, text) }

// TestRightsWarn: who binds a role that is not there is told so, an administrator too.
func TestRightsWarn(t *testing.T) {
	b := holders()
	plugin := NewRights(b, authorizer.AuthorizerFunc(b.Authorize))
	for _, c := range []struct {
		obj  runtime.Object
		want string
	}{
		{binding("ClusterRole", "readers", "eve"), ""},
		{binding("Role", "local", "eve"), ""},
		{binding("Role", "typo", "eve"), `there is no Role "typo": the binding gives nothing until there is one`},
		{clusterBinding("typo", "eve"), `there is no ClusterRole "typo": the binding gives nothing until there is one`},
		{role(readRule()), ""},
	} {
		var warnings said
		ctx := warning.WithWarningRecorder(t.Context(), &warnings)
		if err := plugin.Validate(ctx, attributes(&user.DefaultInfo{Name: "x", Groups: []string{user.SystemPrivilegedGroup}}, "", c.obj, nil), nil); err != nil {
			t.Error(err)
		}
		if got := strings.Join(warnings, "\n"); got != c.want {
			t.Errorf("warned %q, want %q", got, c.want)
		}
	}
}

// TestRightsHandles: what is only deleted gives nobody anything.
func TestRightsHandles(t *testing.T) {
	plugin := NewRights(book{}, nil)
	for operation, want := range map[admission.Operation]bool{admission.Create: true, admission.Update: true, admission.Delete: false, admission.Connect: false} {
		if plugin.Handles(operation) != want {
			t.Errorf("%s: %v", operation, !want)
		}
	}
}

// TestShown: a long list of rights is not told whole.
func TestShown(t *testing.T) {
	if got := shown(slices.Repeat([]rbac.PolicyRule{rule("get", "", "pods")}, 12)); strings.Count(got, "get pods") != 5 || !strings.HasSuffix(got, "and 7 more") {
		t.Error(got)
	}
}
