package registry

import (
	"context"
	"strings"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func rbacKinds() []*Kind {
	role := of[rbac.Role, rbac.RoleList](rbac.SchemeGroupVersion, "Role", Names{Plural: "roles"})
	role.Namespaced = true
	role.Validate = func(_ context.Context, o, _ runtime.Object) field.ErrorList {
		return validRules(o.(*rbac.Role).Rules, true)
	}
	clusterRole := of[rbac.ClusterRole, rbac.ClusterRoleList](rbac.SchemeGroupVersion, "ClusterRole", Names{Plural: "clusterroles"})
	clusterRole.Validate = func(_ context.Context, o, _ runtime.Object) field.ErrorList {
		return validRules(o.(*rbac.ClusterRole).Rules, false)
	}
	binding := of[rbac.RoleBinding, rbac.RoleBindingList](rbac.SchemeGroupVersion, "RoleBinding", Names{Plural: "rolebindings"})
	binding.Namespaced = true
	binding.Default = func(o runtime.Object) {
		b := o.(*rbac.RoleBinding)
		defaultRef(&b.RoleRef)
		defaultSubjects(b.Subjects)
	}
	binding.Validate = func(_ context.Context, o, old runtime.Object) field.ErrorList {
		b := o.(*rbac.RoleBinding)
		var was *rbac.RoleRef
		if old != nil {
			was = &old.(*rbac.RoleBinding).RoleRef
		}
		return validBinding(b.RoleRef, was, b.Subjects, "Role", "ClusterRole")
	}
	binding.Columns = bindingColumns(func(o runtime.Object) (rbac.RoleRef, []rbac.Subject) {
		b := o.(*rbac.RoleBinding)
		return b.RoleRef, b.Subjects
	})
	clusterBinding := of[rbac.ClusterRoleBinding, rbac.ClusterRoleBindingList](rbac.SchemeGroupVersion, "ClusterRoleBinding", Names{Plural: "clusterrolebindings"})
	clusterBinding.Default = func(o runtime.Object) {
		b := o.(*rbac.ClusterRoleBinding)
		defaultRef(&b.RoleRef)
		defaultSubjects(b.Subjects)
	}
	clusterBinding.Validate = func(_ context.Context, o, old runtime.Object) field.ErrorList {
		b := o.(*rbac.ClusterRoleBinding)
		var was *rbac.RoleRef
		if old != nil {
			was = &old.(*rbac.ClusterRoleBinding).RoleRef
		}
		return validBinding(b.RoleRef, was, b.Subjects, "ClusterRole")
	}
	clusterBinding.Columns = bindingColumns(func(o runtime.Object) (rbac.RoleRef, []rbac.Subject) {
		b := o.(*rbac.ClusterRoleBinding)
		return b.RoleRef, b.Subjects
	})
	kinds := []*Kind{role, clusterRole, binding, clusterBinding}
	for _, k := range kinds {
		k.ValidName = isPathSegment // system:authenticated and the like
	}
	return kinds
}

// isPathSegment allows every name that a URL can hold.
func isPathSegment(name string, prefix bool) []string {
	if prefix {
		name += "x"
	}
	return content.IsPathSegmentName(name)
}

func bindingColumns(parts func(runtime.Object) (rbac.RoleRef, []rbac.Subject)) []Column {
	return []Column{
		{Name: "Role", Type: "string", Description: "what is granted", Value: func(o runtime.Object) any {
			ref, _ := parts(o)
			return ref.Kind + "/" + ref.Name
		}},
		{Name: "Subjects", Type: "string", Wide: true, Description: "to whom", Value: func(o runtime.Object) any {
			_, subjects := parts(o)
			names := make([]string, len(subjects))
			for i, s := range subjects {
				names[i] = s.Kind + "/" + s.Name
			}
			return strings.Join(names, ", ")
		}},
	}
}

func defaultRef(r *rbac.RoleRef) {
	if r.APIGroup == "" {
		r.APIGroup = rbac.GroupName
	}
}

func defaultSubjects(subjects []rbac.Subject) {
	for i := range subjects {
		if subjects[i].APIGroup == "" && subjects[i].Kind != rbac.ServiceAccountKind {
			subjects[i].APIGroup = rbac.GroupName
		}
	}
}

// validRules checks the rules of a role. Paths are of no namespace.
func validRules(rules []rbac.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, r := range rules {
		at := field.NewPath("rules").Index(i)
		if len(r.Verbs) == 0 {
			errs = append(errs, field.Required(at.Child("verbs"), "at least one; * is all"))
		}
		if len(r.NonResourceURLs) > 0 {
			if namespaced {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs, "paths are of no namespace: use a ClusterRole"))
			}
			if len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0 {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs, "a rule is for paths or for resources"))
			}
			continue
		}
		if len(r.APIGroups) == 0 {
			errs = append(errs, field.Required(at.Child("apiGroups"), `at least one; "" is the core group`))
		}
		if len(r.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"), "at least one; * is all"))
		}
	}
	return errs
}

// validBinding checks a binding; was is its role before, which cannot change.
func validBinding(ref rbac.RoleRef, was *rbac.RoleRef, subjects []rbac.Subject, kinds ...string) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("roleRef")
	if ref.APIGroup != rbac.GroupName {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup, []string{rbac.GroupName}))
	}
	known := false
	for _, k := range kinds {
		known = known || ref.Kind == k
	}
	if !known {
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "the role that is granted"))
	}
	if was != nil && *was != ref {
		errs = append(errs, field.Invalid(at, ref, "cannot be changed: delete the binding and make another"))
	}
	for i, s := range subjects {
		at := field.NewPath("subjects").Index(i)
		if s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "who is meant"))
		}
		if s.Kind != rbac.UserKind && s.Kind != rbac.GroupKind {
			errs = append(errs, field.NotSupported(at.Child("kind"), s.Kind, []string{rbac.UserKind, rbac.GroupKind}))
		}
	}
	return errs
}
