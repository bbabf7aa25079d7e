package auth

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// Sources are the storages that roles and bindings are read from.
type Sources struct{ Roles, RoleBindings, ClusterRoles, ClusterRoleBindings Source }

// RBAC decides by roles and bindings.
type RBAC struct {
	roles, roleBindings, clusterRoles, clusterRoleBindings cache.SharedIndexInformer
	stored                                                 Sources
	changes                                                atomic.Uint64 // that roles and bindings have gone through
}

var (
	_ authorizer.UnconditionalAuthorizer = (*RBAC)(nil)
	_ authorizer.RuleResolver            = (*RBAC)(nil)
)

// NewRBAC makes the authorizer; it knows nothing before Run.
func NewRBAC(s Sources) *RBAC {
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	r := &RBAC{
		roles: follow(s.Roles, nil), roleBindings: follow(s.RoleBindings, byNamespace),
		clusterRoles: follow(s.ClusterRoles, nil), clusterRoleBindings: follow(s.ClusterRoleBindings, nil),
		stored: s,
	}
	changed := func() { r.changes.Add(1) }
	for _, i := range r.informers() {
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
		})
		if err != nil {
			panic(err) // only an informer that has stopped refuses
		}
	}
	return r
}

// Changes counts what has changed in roles and bindings. An answer of Authorize holds at least until the count is another one than
// it was before the question.
func (r *RBAC) Changes() uint64 { return r.changes.Load() }

func (r *RBAC) informers() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{r.roles, r.roleBindings, r.clusterRoles, r.clusterRoleBindings}
}

// Run follows roles and bindings until the context ends.
func (r *RBAC) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, i := range r.informers() {
		all.Go(func() { i.RunWithContext(ctx) })
	}
	all.Wait()
}

// Ready reports whether all roles and bindings have been read.
func (r *RBAC) Ready() bool {
	return !slices.ContainsFunc(r.informers(), func(i cache.SharedIndexInformer) bool { return !i.HasSynced() })
}

// Authorize allows what some rule allows. It never denies: other authorizers may know more.
func (r *RBAC) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if !r.Ready() {
		noteOf(ctx).later = true
		return authorizer.DecisionNoOpinion, "roles have not been read yet: try again in a moment", nil
	}
	wanted := asRule(a)
	for rule := range r.rulesOf(a.GetUser(), a.GetNamespace()) {
		if allows(rule, wanted, a) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// asRule is the rule that would allow just one request.
func asRule(a authorizer.Attributes) rbac.PolicyRule {
	if !a.IsResourceRequest() {
		return rbac.PolicyRule{Verbs: []string{a.GetVerb()}, NonResourceURLs: []string{a.GetPath()}}
	}
	resource := a.GetResource()
	if sub := a.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	rule := rbac.PolicyRule{Verbs: []string{a.GetVerb()}, APIGroups: []string{a.GetAPIGroup()}, Resources: []string{resource}}
	if name := a.GetName(); name != "" {
		rule.ResourceNames = []string{name}
	}
	return rule
}

func allows(rule, wanted rbac.PolicyRule, a authorizer.Attributes) bool {
	// Rules for paths are for nothing else, and the other way round.
	if a.IsResourceRequest() != (len(rule.NonResourceURLs) == 0) {
		return false
	}
	covers, _ := validation.Covers([]rbac.PolicyRule{rule}, []rbac.PolicyRule{wanted})
	return covers
}

// Rules are the rules that a user has in a namespace; "" is those of the whole cluster only.
func (r *RBAC) Rules(u user.Info, namespace string) []rbac.PolicyRule {
	return slices.Collect(r.rulesOf(u, namespace))
}

// rulesOf goes through the rules that a user has.
func (r *RBAC) rulesOf(u user.Info, namespace string) func(yield func(rbac.PolicyRule) bool) {
	return func(yield func(rbac.PolicyRule) bool) {
		each := func(ref rbac.RoleRef, namespace string) bool {
			rules, _ := r.RoleRules(ref, namespace)
			for _, rule := range rules {
				if !yield(rule) {
					return false
				}
			}
			return true
		}
		for _, o := range r.clusterRoleBindings.GetStore().List() {
			if b := o.(*rbac.ClusterRoleBinding); applies(b.Subjects, u) && !each(b.RoleRef, "") {
				return
			}
		}
		if namespace == "" {
			return
		}
		bindings, err := r.roleBindings.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
		if err != nil {
			return // there is no such index: not possible
		}
		for _, o := range bindings {
			if b := o.(*rbac.RoleBinding); applies(b.Subjects, u) && !each(b.RoleRef, namespace) {
				return
			}
		}
	}
}

// RoleRules are the rules of a role; known is false when there is no such role.
func (r *RBAC) RoleRules(ref rbac.RoleRef, namespace string) (rules []rbac.PolicyRule, known bool) {
	if ref.Kind == "Role" {
		o, known, _ := r.roles.GetStore().GetByKey(namespace + "/" + ref.Name)
		if known {
			rules = o.(*rbac.Role).Rules
		}
		return rules, known
	}
	o, known, _ := r.clusterRoles.GetStore().GetByKey(ref.Name)
	if known {
		rules = o.(*rbac.ClusterRole).Rules
	}
	return rules, known
}

// HasRole says whether a role is stored now, also when RoleRules does not know it yet.
func (r *RBAC) HasRole(ctx context.Context, ref rbac.RoleRef, namespace string) (bool, error) {
	from := r.stored.ClusterRoles
	if ref.Kind == "Role" {
		from = r.stored.Roles
	} else {
		namespace = ""
	}
	if _, known := r.RoleRules(ref, namespace); known {
		return true, nil
	}
	list, err := from.List(request.WithNamespace(ctx, namespace), &metainternal.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", ref.Name)})
	if err != nil {
		return false, err
	}
	return meta.LenList(list) > 0, nil
}

func applies(subjects []rbac.Subject, u user.Info) bool {
	return slices.ContainsFunc(subjects, func(s rbac.Subject) bool {
		switch s.Kind {
		case rbac.UserKind:
			return s.Name == u.GetName()
		case rbac.GroupKind:
			return slices.Contains(u.GetGroups(), s.Name)
		}
		return false
	})
}

// RulesFor lists a user's rules for the library, which shows them to him.
func (r *RBAC) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	var resources []authorizer.ResourceRuleInfo
	var paths []authorizer.NonResourceRuleInfo
	for rule := range r.rulesOf(u, namespace) {
		if len(rule.NonResourceURLs) > 0 {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
			continue
		}
		resources = append(resources, &authorizer.DefaultResourceRuleInfo{Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames})
	}
	return resources, paths, !r.Ready(), nil
}
