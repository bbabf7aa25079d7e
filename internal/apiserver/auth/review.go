package auth

import (
	"context"
	"errors"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Review answers one kind of question about rights. A question is created, and never stored.
type Review struct {
	singular   string
	namespaced bool
	fresh      func() runtime.Object
	answer     func(ctx context.Context, who user.Info, question runtime.Object) error
}

var (
	_ rest.Creater              = (*Review)(nil)
	_ rest.Scoper               = (*Review)(nil)
	_ rest.SingularNameProvider = (*Review)(nil)
)

// New makes an empty question.
func (r *Review) New() runtime.Object { return r.fresh() }

// Destroy does nothing: nothing is kept.
func (*Review) Destroy() {}

// NamespaceScoped reports whether the question is about one namespace by its path.
func (r *Review) NamespaceScoped() bool { return r.namespaced }

// GetSingularName is the question's name.
func (r *Review) GetSingularName() string { return r.singular }

// Create answers.
func (r *Review) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	who, known := request.UserFrom(ctx)
	if !known {
		return nil, apierrors.NewBadRequest("nobody asks")
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if err := r.answer(ctx, who, obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return obj, nil
}

// WhoAmI answers who asks.
func WhoAmI() *Review {
	return &Review{
		singular: "selfsubjectreview",
		fresh:    func() runtime.Object { return &authentication.SelfSubjectReview{} },
		answer: func(_ context.Context, who user.Info, q runtime.Object) error {
			info := authentication.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
			for k, v := range who.GetExtra() {
				if info.Extra == nil {
					info.Extra = map[string]authentication.ExtraValue{}
				}
				info.Extra[k] = v
			}
			q.(*authentication.SelfSubjectReview).Status.UserInfo = info
			return nil
		},
	}
}

// MayI answers whether who asks may do something.
func MayI(a authorizer.Authorizer) *Review {
	return &Review{
		singular: "selfsubjectaccessreview",
		fresh:    func() runtime.Object { return &authorization.SelfSubjectAccessReview{} },
		answer: func(ctx context.Context, who user.Info, q runtime.Object) error {
			review := q.(*authorization.SelfSubjectAccessReview)
			var err error
			review.Status, err = decide(ctx, a, who, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
			return err
		},
	}
}

// MaySomebody answers whether somebody else may do something.
func MaySomebody(a authorizer.Authorizer) *Review {
	return &Review{
		singular: "subjectaccessreview",
		fresh:    func() runtime.Object { return &authorization.SubjectAccessReview{} },
		answer: func(ctx context.Context, _ user.Info, q runtime.Object) error {
			review := q.(*authorization.SubjectAccessReview)
			somebody := &user.DefaultInfo{Name: review.Spec.User, Groups: review.Spec.Groups, UID: review.Spec.UID}
			if somebody.Name == "" && len(somebody.Groups) == 0 {
				return errors.New("spec.user or spec.groups is needed: who is meant?")
			}
			var err error
			review.Status, err = decide(ctx, a, somebody, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
			return err
		},
	}
}

// WhatMayI lists what who asks may do in a namespace.
func WhatMayI(rules authorizer.RuleResolver) *Review {
	return &Review{
		singular: "selfsubjectrulesreview",
		fresh:    func() runtime.Object { return &authorization.SelfSubjectRulesReview{} },
		answer: func(ctx context.Context, who user.Info, q runtime.Object) error {
			review := q.(*authorization.SelfSubjectRulesReview)
			if review.Spec.Namespace == "" {
				return errors.New("spec.namespace is needed")
			}
			resources, paths, incomplete, err := rules.RulesFor(ctx, who, review.Spec.Namespace)
			review.Status = authorization.SubjectRulesReviewStatus{Incomplete: incomplete, ResourceRules: []authorization.ResourceRule{}, NonResourceRules: []authorization.NonResourceRule{}}
			if err != nil {
				review.Status.EvaluationError = err.Error()
			}
			for _, r := range resources {
				review.Status.ResourceRules = append(review.Status.ResourceRules, authorization.ResourceRule{Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames()})
			}
			for _, r := range paths {
				review.Status.NonResourceRules = append(review.Status.NonResourceRules, authorization.NonResourceRule{Verbs: r.GetVerbs(), NonResourceURLs: r.GetNonResourceURLs()})
			}
			return nil
		},
	}
}

// decide asks the authorizer about one action.
func decide(ctx context.Context, a authorizer.Authorizer, who user.Info, resource *authorization.ResourceAttributes, path *authorization.NonResourceAttributes) (authorization.SubjectAccessReviewStatus, error) {
	var out authorization.SubjectAccessReviewStatus
	if (resource == nil) == (path == nil) {
		return out, errors.New("exactly one of spec.resourceAttributes and spec.nonResourceAttributes is needed")
	}
	action := authorizer.AttributesRecord{User: who}
	if path != nil {
		action.Verb, action.Path = path.Verb, path.Path
	} else {
		action.ResourceRequest = true
		action.Verb, action.Namespace, action.APIGroup, action.APIVersion = resource.Verb, resource.Namespace, resource.Group, resource.Version
		action.Resource, action.Subresource, action.Name = resource.Resource, resource.Subresource, resource.Name
	}
	decision, why, err := a.Authorize(ctx, action)
	out.Allowed, out.Denied, out.Reason = decision == authorizer.DecisionAllow, decision == authorizer.DecisionDeny, why
	if err != nil {
		out.EvaluationError = err.Error()
	}
	return out, nil
}
