package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/component-helpers/auth/rbac/validation"

	"tako.dev/tako/api/v1alpha1"
)

// Roles knows who has which rules.
type Roles interface {
	// Rules are a user's rules in a namespace.
	Rules(who user.Info, namespace string) []rbac.PolicyRule
	// RoleRules are the rules of a role, if there is one; namespace is that of the binding.
	RoleRules(ref rbac.RoleRef, namespace string) (rules []rbac.PolicyRule, known bool)
	// HasRole says whether there is a role, as of now.
	HasRole(ctx context.Context, ref rbac.RoleRef, namespace string) (bool, error)
}

// Rights lets nobody give a right that he does not have: not by a role, not by a binding, not by a token, and not by a config that
// brings to a host what he may not read.
type Rights struct {
	*admission.Handler
	roles      Roles
	authorizer authorizer.Authorizer
}

var _ admission.ValidationInterface = (*Rights)(nil)

// NewRights makes the plugin.
func NewRights(roles Roles, a authorizer.Authorizer) *Rights {
	return &Rights{Handler: admission.NewHandler(admission.Create, admission.Update), roles: roles, authorizer: a}
}

// Validate compares what is given with what its giver has.
func (r *Rights) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	r.warn(ctx, a)
	if a.GetSubresource() != "" || slices.Contains(a.GetUserInfo().GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	switch o := a.GetObject().(type) {
	case *rbac.Role:
		old, _ := a.GetOldObject().(*rbac.Role)
		if old != nil && equality.Semantic.DeepEqual(old.Rules, o.Rules) {
			return nil
		}
		return r.covers(ctx, a, "escalate", "roles", o.Name, o.Rules)
	case *rbac.ClusterRole:
		old, _ := a.GetOldObject().(*rbac.ClusterRole)
		if old != nil && equality.Semantic.DeepEqual(old.Rules, o.Rules) {
			return nil
		}
		return r.covers(ctx, a, "escalate", "clusterroles", o.Name, o.Rules)
	case *rbac.RoleBinding:
		old, _ := a.GetOldObject().(*rbac.RoleBinding)
		if old != nil && equality.Semantic.DeepEqual(old.Subjects, o.Subjects) {
			return nil
		}
		return r.binds(ctx, a, o.RoleRef)
	case *rbac.ClusterRoleBinding:
		old, _ := a.GetOldObject().(*rbac.ClusterRoleBinding)
		if old != nil && equality.Semantic.DeepEqual(old.Subjects, o.Subjects) {
			return nil
		}
		return r.binds(ctx, a, o.RoleRef)
	case *v1alpha1.Token:
		return r.impersonates(ctx, a, o)
	case *v1alpha1.NodeConfig, *v1alpha1.ClusterNodeConfig, *v1alpha1.Revision, *v1alpha1.ClusterRevision, *v1alpha1.Source, *v1alpha1.Workload:
		return r.reads(ctx, a)
	}
	return nil
}

// warn tells who makes a binding that its role is not there: it gives nothing yet, and perhaps its name is a mistake.
func (r *Rights) warn(ctx context.Context, a admission.Attributes) {
	var ref rbac.RoleRef
	switch o := a.GetObject().(type) {
	case *rbac.RoleBinding:
		ref = o.RoleRef
	case *rbac.ClusterRoleBinding:
		ref = o.RoleRef
	default:
		return
	}
	// What was made just before is perhaps not among the rules yet.
	if is, err := r.roles.HasRole(ctx, ref, a.GetNamespace()); err == nil && !is {
		warning.AddWarning(ctx, "", fmt.Sprintf("there is no %s %q: the binding gives nothing until there is one", ref.Kind, ref.Name))
	}
}

func resourceOf(ref rbac.RoleRef) string { return strings.ToLower(ref.Kind) + "s" }

// binds refuses a binding to a role that its maker does not have. Nobody has a role that is not there: whoever makes it later
// would give it without knowing.
func (r *Rights) binds(ctx context.Context, a admission.Attributes, ref rbac.RoleRef) error {
	rules, known := r.roles.RoleRules(ref, a.GetNamespace())
	if known {
		return r.covers(ctx, a, "bind", resourceOf(ref), ref.Name, rules)
	}
	allowed, err := r.may(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "bind", APIGroup: rbac.GroupName, APIVersion: "v1", Resource: resourceOf(ref), Name: ref.Name, Namespace: a.GetNamespace(), ResourceRequest: true,
	})
	if err != nil || allowed {
		return err
	}
	return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("there is no %s %q yet: user %q cannot bind it", ref.Kind, ref.Name, a.GetUserInfo().GetName()))
}

// covers refuses rules that the giver does not have himself, unless he has the verb that allows it.
func (r *Rights) covers(ctx context.Context, a admission.Attributes, verb, resource, name string, rules []rbac.PolicyRule) error {
	who := a.GetUserInfo()
	ok, missing := validation.Covers(r.roles.Rules(who, a.GetNamespace()), rules)
	if ok {
		return nil
	}
	allowed, err := r.may(ctx, authorizer.AttributesRecord{
		User: who, Verb: verb, APIGroup: rbac.GroupName, APIVersion: "v1", Resource: resource, Name: name, Namespace: a.GetNamespace(), ResourceRequest: true,
	})
	if err != nil || allowed {
		return err
	}
	return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(),
		fmt.Errorf("user %q gives rights that he does not have, and may not %s %s: %s", who.GetName(), verb, resource, shown(missing)))
}

// shown writes rules on one line; what does not fit is counted.
func shown(rules []rbac.PolicyRule) string {
	const shownMax = 5
	var out []string
	for i, r := range rules {
		if i == shownMax {
			out = append(out, fmt.Sprintf("and %d more", len(rules)-i))
			break
		}
		target := append(slices.Clone(r.Resources), r.NonResourceURLs...)
		out = append(out, strings.Join(r.Verbs, ",")+" "+strings.Join(target, ",")+" of group "+fmt.Sprintf("%q", strings.Join(r.APIGroups, ",")))
	}
	return strings.Join(out, "; ")
}

// impersonates refuses a token of somebody whom its creator may not act as.
func (r *Rights) impersonates(ctx context.Context, a admission.Attributes, t *v1alpha1.Token) error {
	if a.GetOperation() != admission.Create || t.Spec.User == nil {
		return nil
	}
	as := func(resource, name string) error {
		allowed, err := r.may(ctx, authorizer.AttributesRecord{User: a.GetUserInfo(), Verb: "impersonate", APIVersion: "v1", Resource: resource, Name: name, ResourceRequest: true})
		if err != nil || allowed {
			return err
		}
		return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(),
			fmt.Errorf("user %q may not impersonate %s %q: a token would let him", a.GetUserInfo().GetName(), strings.TrimSuffix(resource, "s"), name))
	}
	if t.Spec.User.Name != a.GetUserInfo().GetName() {
		if err := as("users", t.Spec.User.Name); err != nil {
			return err
		}
	}
	for _, g := range t.Spec.User.Groups {
		if slices.Contains(a.GetUserInfo().GetGroups(), g) {
			continue
		}
		if err := as("groups", g); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rights) may(ctx context.Context, what authorizer.AttributesRecord) (bool, error) {
	decision, _, err := r.authorizer.Authorize(ctx, what)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	return decision == authorizer.DecisionAllow, nil
}
