package apiserver

import (
	"fmt"

	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/component-helpers/auth/rbac/reconciliation"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/bundles"
	"tako.dev/tako/internal/apiserver/objects"
)

// Verbs of roles.
var (
	readVerbs  = []string{"get", "list", "watch"}
	writeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}
)

// basicRole is what everybody may who has a name: to see what the server can do, and what he himself may.
const basicRole = "system:basic-user"

// defaultRoles are there from the start, and put right at each start where somebody has taken from them.
func defaultRoles() []rbac.ClusterRole {
	const scale = v1alpha1.ResourceWorkloads + "/scale"
	declared := []string{v1alpha1.ResourceNodeConfigs, v1alpha1.ResourceRevisions, v1alpha1.ResourceSources, v1alpha1.ResourceWorkloads, v1alpha1.ResourceInstances}
	plain := []string{"configmaps", "events"}
	role := func(name string, rules ...rbac.PolicyRule) rbac.ClusterRole {
		return rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	}
	on := func(group string, resources, verbs []string) rbac.PolicyRule {
		return rbac.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	question := func(names ...string) rbac.PolicyRule {
		for i, name := range names {
			names[i] = v1alpha1.ResourceNodes + "/" + name
		}
		return on(v1alpha1.GroupName, names, []string{"get"})
	}
	view := []rbac.PolicyRule{
		on(v1alpha1.GroupName, append([]string{v1alpha1.ResourceNodes, v1alpha1.ResourceAssignments, v1alpha1.ResourceServers, v1alpha1.ResourceClusterNodeConfigs, v1alpha1.ResourceClusterRevisions}, declared...), readVerbs),
		on(v1alpha1.GroupName, []string{scale}, []string{"get"}),
		question(v1alpha1.NodeHistory, v1alpha1.NodeEvidence, v1alpha1.NodeGraph),
		on(core.GroupName, append([]string{"namespaces"}, plain...), readVerbs),
		on("coordination.k8s.io", []string{"leases"}, readVerbs),
	}
	// What a unit logs may hold anything: it is for those who may read secrets.
	edit := append(view[:len(view):len(view)],
		question(v1alpha1.NodeLogs, v1alpha1.NodeUsage),
		on(v1alpha1.GroupName, []string{v1alpha1.ResourceNodeConfigs, v1alpha1.ResourceWorkloads}, writeVerbs),
		on(v1alpha1.GroupName, []string{scale}, []string{"update", "patch"}),
		on(core.GroupName, plain, writeVerbs),
		on(core.GroupName, []string{"secrets"}, append(readVerbs[:len(readVerbs):len(readVerbs)], writeVerbs...)),
		on("coordination.k8s.io", []string{"leases"}, writeVerbs),
	)
	// A source has rights of its own, and who may point it elsewhere has them too.
	admin := append(edit[:len(edit):len(edit)],
		on(v1alpha1.GroupName, []string{v1alpha1.ResourceSources}, writeVerbs),
		on(rbac.GroupName, []string{"roles", "rolebindings"}, append(readVerbs[:len(readVerbs):len(readVerbs)], writeVerbs...)),
	)
	return []rbac.ClusterRole{
		role("cluster-admin", on("*", []string{"*"}, []string{"*"}), rbac.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}),
		role("admin", admin...), role("edit", edit...), role("view", view...),
		// Bound for all of the cluster: an object is in no namespace.
		role("content-writer", rbac.PolicyRule{Verbs: []string{"get", "patch"}, NonResourceURLs: []string{objects.Path + "*"}}),
		role(basicRole,
			on("authorization.k8s.io", []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}, []string{"create"}),
			on("authentication.k8s.io", []string{"selfsubjectreviews"}, []string{"create"}),
			// About which workloads somebody may ask follows from which he may apply: that is asked there.
			on(v1alpha1.GroupName, []string{v1alpha1.ResourcePlans}, []string{"create"}),
			// Which bundles somebody may push follows from which configs he may update: that is asked there.
			rbac.PolicyRule{Verbs: []string{"get", "post", "patch"}, NonResourceURLs: []string{bundles.Path + "*"}},
			rbac.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/version/", "/healthz", "/livez", "/readyz"}},
		),
	}
}

func defaultBindings() []rbac.ClusterRoleBinding {
	bind := func(role, group string) rbac.ClusterRoleBinding {
		return rbac.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbac.Subject{{APIGroup: rbac.GroupName, Kind: rbac.GroupKind, Name: group}},
		}
	}
	return []rbac.ClusterRoleBinding{bind("cluster-admin", user.SystemPrivilegedGroup), bind(basicRole, user.AllAuthenticated)}
}

// makeRoles makes the default roles and bindings, and puts back what they lack. What was added to them stays. A role whose
// annotation rbac.authorization.kubernetes.io/autoupdate is false is left alone.
func makeRoles(loopback *rest.Config) error {
	client, err := rbacclient.NewForConfig(loopback)
	if err != nil {
		return err
	}
	for _, role := range defaultRoles() {
		o := reconciliation.ReconcileRoleOptions{
			Role: reconciliation.ClusterRoleRuleOwner{ClusterRole: &role}, Confirm: true,
			Client: reconciliation.ClusterRoleModifier{Client: client.ClusterRoles()},
		}
		if _, err := o.Run(); err != nil {
			return fmt.Errorf("make cluster role %s: %w", role.Name, err)
		}
	}
	for _, binding := range defaultBindings() {
		o := reconciliation.ReconcileRoleBindingOptions{
			RoleBinding: reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &binding}, Confirm: true,
			Client: reconciliation.ClusterRoleBindingClientAdapter{Client: client.ClusterRoleBindings()},
		}
		if _, err := o.Run(); err != nil {
			return fmt.Errorf("bind cluster role %s: %w", binding.RoleRef.Name, err)
		}
	}
	return nil
}
