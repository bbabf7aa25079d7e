package auth

import (
	"context"
	"slices"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func on(verbs, groups, resources []string, names ...string) rbac.PolicyRule {
	return rbac.PolicyRule{Verbs: verbs, APIGroups: groups, Resources: resources, ResourceNames: names}
}

func list(s ...string) []string { return s }

func ofUser(name string) rbac.Subject      { return rbac.Subject{Kind: rbac.UserKind, Name: name} }
func ofGroup(name string) rbac.Subject     { return rbac.Subject{Kind: rbac.GroupKind, Name: name} }
func toRole(name string) rbac.RoleRef      { return rbac.RoleRef{Kind: "Role", Name: name} }
func toCluster(n string) rbac.RoleRef      { return rbac.RoleRef{Kind: "ClusterRole", Name: n} }
func in(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

// newRoles is what the tests are about: ann reads configs everywhere, bob too but in qa only, web writes one config in qa, and
// everybody reads /version.
func newRoles() *RBAC {
	readers := list("get", "list")
	return NewRBAC(Sources{
		Roles: newShelf[rbac.Role, rbac.RoleList](
			&rbac.Role{ObjectMeta: in("qa", "writer"), Rules: []rbac.PolicyRule{on(list("update"), list("tako.dev"), list("nodeconfigs", "nodeconfigs/status"), "web")}},
			&rbac.Role{ObjectMeta: in("prod", "all"), Rules: []rbac.PolicyRule{on(list("*"), list("*"), list("*"))}}),
		ClusterRoles: newShelf[rbac.ClusterRole, rbac.ClusterRoleList](
			&rbac.ClusterRole{ObjectMeta: in("", "reader"), Rules: []rbac.PolicyRule{on(readers, list("tako.dev"), list("nodeconfigs"))}},
			&rbac.ClusterRole{ObjectMeta: in("", "all"), Rules: []rbac.PolicyRule{on(list("*"), list("*"), list("*"))}},
			&rbac.ClusterRole{ObjectMeta: in("", "version"), Rules: []rbac.PolicyRule{{Verbs: list("get"), NonResourceURLs: list("/version", "/openapi/*")}}}),
		RoleBindings: newShelf[rbac.RoleBinding, rbac.RoleBindingList](
			&rbac.RoleBinding{ObjectMeta: in("qa", "bob"), RoleRef: toCluster("reader"), Subjects: []rbac.Subject{ofUser("bob")}},
			&rbac.RoleBinding{ObjectMeta: in("qa", "web"), RoleRef: toRole("writer"), Subjects: []rbac.Subject{ofUser("nobody"), ofGroup("web")}},
			// Of the role's name in another namespace, which is not meant, and of one that is not there.
			&rbac.RoleBinding{ObjectMeta: in("qa", "all"), RoleRef: toRole("all"), Subjects: []rbac.Subject{ofUser("bob")}},
			&rbac.RoleBinding{ObjectMeta: in("qa", "paths"), RoleRef: toCluster("version"), Subjects: []rbac.Subject{ofUser("carl")}}),
		ClusterRoleBindings: newShelf[rbac.ClusterRoleBinding, rbac.ClusterRoleBindingList](
			&rbac.ClusterRoleBinding{ObjectMeta: in("", "ann"), RoleRef: toCluster("reader"), Subjects: []rbac.Subject{ofUser("ann")}},
			&rbac.ClusterRoleBinding{ObjectMeta: in("", "root"), RoleRef: toCluster("all"), Subjects: []rbac.Subject{ofUser("root")}},
			&rbac.ClusterRoleBinding{ObjectMeta: in("", "version"), RoleRef: toCluster("version"), Subjects: []rbac.Subject{ofGroup(user.AllAuthenticated)}}),
	})
}

func who(name string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}
}

// asks is a question about an object; sub is a part of it.
func asks(u user.Info, verb, namespace, resource, sub, name string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{User: u, Verb: verb, Namespace: namespace, APIGroup: "tako.dev", APIVersion: "v1alpha1", Resource: resource, Subresource: sub, Name: name, ResourceRequest: true}
}

func visits(u user.Info, verb, path string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{User: u, Verb: verb, Path: path}
}

func TestAuthorizers(t *testing.T) {
	roles := newRoles()
	a, err := Authorizers(roles)
	if err != nil {
		t.Fatal(err)
	}
	master := &user.DefaultInfo{Name: "admin", Groups: list(user.SystemPrivilegedGroup)}
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: list(user.AllUnauthenticated)}
	allowed := func(q authorizer.AttributesRecord) bool {
		decision, _, err := a.Authorize(t.Context(), q)
		if err != nil {
			t.Errorf("%+v: %v", q, err)
		}
		return decision == authorizer.DecisionAllow
	}
	if allowed(asks(who("root"), "get", "qa", "nodeconfigs", "", "x")) || !allowed(asks(master, "get", "qa", "nodeconfigs", "", "x")) {
		t.Error("before roles are known only administrators may do anything")
	}
	run(t, roles.Run)
	eventually(t, "roles are known", roles.Ready)
	for _, c := range []struct {
		what string
		q    authorizer.AttributesRecord
		want bool
	}{
		{"an administrator, anything", asks(master, "burn", "qa", "everything", "", ""), true},
		{"root, anything", asks(who("root"), "burn", "prod", "everything", "at/once", ""), true},
		{"root, a path: a rule for resources says nothing about it", visits(who("root"), "get", "/metrics"), false},
		{"ann reads in any namespace", asks(who("ann"), "get", "qa", "nodeconfigs", "", "web"), true},
		{"ann lists all", asks(who("ann"), "list", "", "nodeconfigs", "", ""), true},
		{"ann does not write", asks(who("ann"), "update", "qa", "nodeconfigs", "", "web"), false},
		{"ann does not read a part", asks(who("ann"), "get", "qa", "nodeconfigs", "status", "web"), false},
		{"ann does not read others", asks(who("ann"), "get", "qa", "tokens", "", "web"), false},
		{"bob reads in his namespace", asks(who("bob"), "get", "qa", "nodeconfigs", "", "web"), true},
		{"bob does not in another", asks(who("bob"), "get", "prod", "nodeconfigs", "", "web"), false},
		{"bob does not list all", asks(who("bob"), "list", "", "nodeconfigs", "", ""), false},
		{"bob has no role of another namespace", asks(who("bob"), "delete", "qa", "nodeconfigs", "", "web"), false},
		{"web writes its config", asks(who("eve", "web"), "update", "qa", "nodeconfigs", "", "web"), true},
		{"web writes a part of it", asks(who("eve", "web"), "update", "qa", "nodeconfigs", "status", "web"), true},
		{"web writes no other", asks(who("eve", "web"), "update", "qa", "nodeconfigs", "", "db"), false},
		{"web writes none without a name", asks(who("eve", "web"), "update", "qa", "nodeconfigs", "", ""), false},
		{"a user of a group's name is not the group", asks(who("web"), "update", "qa", "nodeconfigs", "", "web"), false},
		{"a group of a user's name is not the user", asks(who("eve", "ann"), "get", "qa", "nodeconfigs", "", "web"), false},
		{"everybody reads a path", visits(who("eve"), "get", "/version"), true},
		{"below a star", visits(who("eve"), "get", "/openapi/v3/apis"), true},
		{"not another", visits(who("eve"), "get", "/versions"), false},
		{"not by another verb", visits(who("eve"), "post", "/version"), false},
		{"anybody is told of health", visits(anonymous, "get", "/readyz"), true},
		{"and of no single check", visits(anonymous, "get", "/readyz/etcd"), false},
		{"and changes nothing there", visits(anonymous, "post", "/readyz"), false},
		{"nobody reads", asks(anonymous, "get", "qa", "nodeconfigs", "", "web"), false},
		{"nobody reads a path", visits(anonymous, "get", "/version"), false},
	} {
		if allowed(c.q) != c.want {
			t.Errorf("%s: %v", c.what, !c.want)
		}
	}
}

func TestRulesOfAUser(t *testing.T) {
	roles := newRoles()
	run(t, roles.Run)
	eventually(t, "roles are known", roles.Ready)
	count := func(u user.Info, namespace string) int { return len(roles.Rules(u, namespace)) }
	for what, got := range map[string][2]int{
		"ann, of the cluster":     {count(who("ann"), ""), 2},
		"ann, of a namespace too": {count(who("ann"), "qa"), 2},
		"bob, of the cluster":     {count(who("bob"), ""), 1},
		"bob, in qa":              {count(who("bob"), "qa"), 2},
		"web, in qa":              {count(who("x", "web"), "qa"), 2},
		"nobody":                  {count(&user.DefaultInfo{}, "qa"), 0},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d rules, want %d", what, got[0], got[1])
		}
	}
	for ref, want := range map[rbac.RoleRef]bool{toRole("writer"): true, toRole("all"): false, toCluster("reader"): true, toCluster("writer"): false} {
		if _, known := roles.RoleRules(ref, "qa"); known != want {
			t.Errorf("%v is known: %v", ref, known)
		}
	}
}

// TestReviews asks each question as a person does.
func TestReviews(t *testing.T) {
	roles := newRoles()
	run(t, roles.Run)
	eventually(t, "roles are known", roles.Ready)
	a, err := Authorizers(roles)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *Review, u user.Info, q runtime.Object) (runtime.Object, error) {
		return r.Create(request.WithUser(t.Context(), u), q, func(context.Context, runtime.Object) error { return nil }, &metav1.CreateOptions{})
	}
	read := &authorization.ResourceAttributes{Verb: "get", Namespace: "qa", Group: "tako.dev", Resource: "nodeconfigs", Name: "web"}
	path := &authorization.NonResourceAttributes{Verb: "get", Path: "/version"}
	for _, c := range []struct {
		what    string
		by      user.Info
		q       runtime.Object
		allowed bool
		refused bool
	}{
		{"may bob read", who("bob"), &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: read}}, true, false},
		{"may carl read", who("carl"), &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: read}}, false, false},
		{"may carl see a path", who("carl"), &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{NonResourceAttributes: path}}, true, false},
		{"nothing asked", who("bob"), &authorization.SelfSubjectAccessReview{}, false, true},
		{"two things asked", who("bob"), &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: read, NonResourceAttributes: path}}, false, true},
		{"may bob, asks carl", who("carl"), &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{User: "bob", ResourceAttributes: read}}, true, false},
		{"may carl, asks bob", who("bob"), &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{User: "carl", ResourceAttributes: read}}, false, false},
		{"may a group", who("bob"), &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{Groups: list("system:masters"), ResourceAttributes: read}}, true, false},
		{"may nobody", who("bob"), &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{ResourceAttributes: read}}, false, true},
	} {
		var r *Review
		var status *authorization.SubjectAccessReviewStatus
		switch q := c.q.(type) {
		case *authorization.SelfSubjectAccessReview:
			r, status = MayI(a), &q.Status
		case *authorization.SubjectAccessReview:
			r, status = MaySomebody(a), &q.Status
		}
		_, err := ask(r, c.by, c.q)
		if status.Allowed != c.allowed || apierrors.IsBadRequest(err) != c.refused || !c.refused && err != nil {
			t.Errorf("%s: %+v, %v", c.what, status, err)
		}
	}
	got, err := ask(WhoAmI(), &user.DefaultInfo{Name: "ann", UID: "7", Groups: list("g"), Extra: map[string][]string{"k": {"v"}}}, &authentication.SelfSubjectReview{})
	if info := got.(*authentication.SelfSubjectReview).Status.UserInfo; err != nil || info.Username != "ann" || info.UID != "7" || !slices.Equal(info.Groups, list("g")) || info.Extra["k"][0] != "v" {
		t.Errorf("who am I: %+v, %v", info, err)
	}
	got, err = ask(WhatMayI(roles), who("bob"), &authorization.SelfSubjectRulesReview{Spec: authorization.SelfSubjectRulesReviewSpec{Namespace: "qa"}})
	if may := got.(*authorization.SelfSubjectRulesReview).Status; err != nil || len(may.ResourceRules) != 1 || len(may.NonResourceRules) != 1 || may.Incomplete {
		t.Errorf("what may I: %+v, %v", may, err)
	}
	if _, err := ask(WhatMayI(roles), who("bob"), &authorization.SelfSubjectRulesReview{}); !apierrors.IsBadRequest(err) {
		t.Errorf("what may I, nowhere: %v", err)
	}
	if _, err := MayI(a).Create(t.Context(), &authorization.SelfSubjectAccessReview{}, nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("nobody asks: %v", err)
	}
	invalid := apierrors.NewBadRequest("not so")
	if _, err := MayI(a).Create(request.WithUser(t.Context(), who("bob")), &authorization.SelfSubjectAccessReview{}, func(context.Context, runtime.Object) error { return invalid }, nil); err != error(invalid) {
		t.Errorf("what admission refuses: %v", err)
	}
}
