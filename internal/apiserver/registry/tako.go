package registry

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/fleet/rollout"
)

// category is what "all of tako" is called.
const category = "tako"

func takoKinds() []*Kind {
	return slices.Concat(configs(), revisions(), []*Kind{nodes(), assignments(), tokens(), sources(), workloads(), instances()})
}

func configs() []*Kind {
	config := of[v1alpha1.NodeConfig, v1alpha1.NodeConfigList](v1alpha1.SchemeGroupVersion, v1alpha1.KindNodeConfig,
		Names{Plural: v1alpha1.ResourceNodeConfigs, Short: []string{"nc"}, Categories: []string{category}})
	config.Namespaced = true
	config.Validate = func(_ context.Context, o, _ runtime.Object) field.ErrorList {
		return fieldErrors(v1alpha1.ValidateNodeConfig(o.(*v1alpha1.NodeConfig)))
	}
	config.Columns = configColumns(func(o runtime.Object) (*declare.NodeConfigSpec, *v1alpha1.NodeConfigStatus) {
		c := o.(*v1alpha1.NodeConfig)
		return &c.Spec, &c.Status
	})
	cluster := of[v1alpha1.ClusterNodeConfig, v1alpha1.ClusterNodeConfigList](v1alpha1.SchemeGroupVersion, v1alpha1.KindClusterNodeConfig,
		Names{Plural: v1alpha1.ResourceClusterNodeConfigs, Short: []string{"cnc"}, Categories: []string{category}})
	cluster.Validate = func(_ context.Context, o, _ runtime.Object) field.ErrorList {
		return fieldErrors(v1alpha1.ValidateClusterNodeConfig(o.(*v1alpha1.ClusterNodeConfig)))
	}
	cluster.Columns = configColumns(func(o runtime.Object) (*declare.NodeConfigSpec, *v1alpha1.NodeConfigStatus) {
		c := o.(*v1alpha1.ClusterNodeConfig)
		return &c.Spec, &c.Status
	})
	config.Prepare = func(ctx context.Context, o, _ runtime.Object) {
		emptied(ctx, &o.(*v1alpha1.NodeConfig).Spec)
	}
	cluster.Prepare = func(ctx context.Context, o, _ runtime.Object) {
		emptied(ctx, &o.(*v1alpha1.ClusterNodeConfig).Spec)
	}
	config.HasStatus, cluster.HasStatus = true, true
	return []*Kind{config, cluster}
}

// emptied tells a list of resources that a patch has emptied from one that was forgotten: server-side apply drops a list with
// its last item.
func emptied(ctx context.Context, spec *declare.NodeConfigSpec) {
	if info, known := request.RequestInfoFrom(ctx); known && info.Verb == "patch" && spec.Resources == nil {
		spec.Resources = []declare.Resource{}
	}
}

func configColumns(parts func(runtime.Object) (*declare.NodeConfigSpec, *v1alpha1.NodeConfigStatus)) []Column {
	return []Column{
		{Name: "Resources", Type: "integer", Description: "number of resources", Value: func(o runtime.Object) any {
			spec, _ := parts(o)
			return len(spec.Resources)
		}},
		{Name: "Revision", Type: "string", Description: "name of the present revision", Value: func(o runtime.Object) any {
			_, status := parts(o)
			return status.Revision
		}},
		{Name: "Rollout", Type: "string", Description: "nodes that have converged on it, of those that are to, and how it goes on", Value: func(o runtime.Object) any {
			_, status := parts(o)
			return rolloutText(status.Rollout)
		}},
		{Name: "Ready", Type: "string", Description: "whether everything is as declared", Value: func(o runtime.Object) any {
			_, status := parts(o)
			return conditionStatus(status.Conditions, v1alpha1.ConditionReady)
		}},
		{Name: "Message", Type: "string", Wide: true, Description: "why it is not", Value: func(o runtime.Object) any {
			_, status := parts(o)
			if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); c != nil {
				return c.Message
			}
			return ""
		}},
	}
}

// rolloutText is how a rollout stands, in a word or two.
func rolloutText(r *v1alpha1.RolloutStatus) string {
	switch {
	case r == nil:
		return ""
	case r.Selected == 0:
		return r.Phase
	case r.Phase == string(rollout.Halted) && len(r.Culprits) > 0:
		return fmt.Sprintf("%d/%d %s at %s", r.Done, r.Selected, r.Phase, r.Culprits[0].Node)
	}
	return fmt.Sprintf("%d/%d %s", r.Done, r.Selected, r.Phase)
}

func conditionStatus(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return string(c.Status)
	}
	return string(metav1.ConditionUnknown)
}

func revisions() []*Kind {
	revision := of[v1alpha1.Revision, v1alpha1.RevisionList](v1alpha1.SchemeGroupVersion, v1alpha1.KindRevision,
		Names{Plural: v1alpha1.ResourceRevisions, Short: []string{"rev"}, Categories: []string{category}})
	revision.Namespaced = true
	cluster := of[v1alpha1.ClusterRevision, v1alpha1.ClusterRevisionList](v1alpha1.SchemeGroupVersion, v1alpha1.KindClusterRevision,
		Names{Plural: v1alpha1.ResourceClusterRevisions, Short: []string{"crev"}, Categories: []string{category}})
	for k, spec := range map[*Kind]func(runtime.Object) *v1alpha1.RevisionSpec{
		revision: func(o runtime.Object) *v1alpha1.RevisionSpec { return &o.(*v1alpha1.Revision).Spec },
		cluster:  func(o runtime.Object) *v1alpha1.RevisionSpec { return &o.(*v1alpha1.ClusterRevision).Spec },
	} {
		k.Columns = []Column{
			{Name: "Config", Type: "string", Description: "what it is a copy of", Value: func(o runtime.Object) any {
				if s := spec(o).Source; s != nil {
					return s.Name
				}
				return ""
			}},
			{Name: "Resources", Type: "integer", Description: "number of resources, of a workload of tasks", Value: func(o runtime.Object) any {
				if t := spec(o).Template; t != nil {
					return len(t.Tasks)
				}
				return len(spec(o).Resources)
			}},
		}
	}
	revision.Columns = append(revision.Columns, Column{Name: "Number", Type: "string", Wide: true, Description: "of a workload, from 1: the higher one is newer", Value: func(o runtime.Object) any {
		return metadata(o).GetAnnotations()[v1alpha1.AnnotationNumber]
	}})
	revision.Validate = func(_ context.Context, obj, old runtime.Object) field.ErrorList {
		if old != nil {
			return fieldErrors(v1alpha1.ValidateRevisionUpdate(obj.(*v1alpha1.Revision), old.(*v1alpha1.Revision)))
		}
		return fieldErrors(v1alpha1.ValidateRevision(obj.(*v1alpha1.Revision)))
	}
	cluster.Validate = func(_ context.Context, obj, old runtime.Object) field.ErrorList {
		if old != nil {
			return fieldErrors(v1alpha1.ValidateClusterRevisionUpdate(obj.(*v1alpha1.ClusterRevision), old.(*v1alpha1.ClusterRevision)))
		}
		return fieldErrors(v1alpha1.ValidateClusterRevision(obj.(*v1alpha1.ClusterRevision)))
	}
	return []*Kind{revision, cluster}
}

func tokens() *Kind {
	k := of[v1alpha1.Token, v1alpha1.TokenList](v1alpha1.SchemeGroupVersion, v1alpha1.KindToken, Names{Plural: v1alpha1.ResourceTokens})
	// Who could write the hash could make a token of his own that of somebody else.
	k.HasStatus, k.SealedStatus, k.CreateOnly = true, true, true
	k.Columns = []Column{
		{Name: "Type", Type: "string", Description: "join or user", Value: func(o runtime.Object) any { return string(o.(*v1alpha1.Token).Spec.Type) }},
		{Name: "For", Type: "string", Description: "who the bearer is, or what a host is called", Value: func(o runtime.Object) any { return bearer(o.(*v1alpha1.Token)) }},
		{Name: "Uses", Type: "integer", Description: "hosts that have joined with it", Value: func(o runtime.Object) any { return o.(*v1alpha1.Token).Status.Uses }},
		{Name: "Expires", Type: "string", Description: "when it ends", Value: func(o runtime.Object) any {
			if t := o.(*v1alpha1.Token).Spec.Expires; t != nil {
				return t.UTC().Format("2006-01-02T15:04:05Z")
			}
			return "never"
		}},
	}
	k.Validate = func(_ context.Context, obj, old runtime.Object) field.ErrorList {
		if old != nil {
			return fieldErrors(v1alpha1.ValidateTokenUpdate(obj.(*v1alpha1.Token), old.(*v1alpha1.Token)))
		}
		return fieldErrors(v1alpha1.ValidateToken(obj.(*v1alpha1.Token), time.Now()))
	}
	return k
}

func bearer(t *v1alpha1.Token) string {
	switch {
	case t.Spec.User != nil:
		return t.Spec.User.Name
	case t.Spec.Join != nil && t.Spec.Join.Name != "":
		return t.Spec.Join.Name
	case t.Spec.Join != nil:
		return t.Spec.Join.Pattern
	}
	return ""
}

// FieldErrors is faults in the library's form, for what is not stored here.
func FieldErrors(faults []declare.Fault) field.ErrorList { return fieldErrors(faults) }

// fieldErrors is faults in the library's form. The words are those that everybody gets who makes the mistake, wherever.
func fieldErrors(faults []declare.Fault) field.ErrorList {
	var errs field.ErrorList
	for _, f := range faults {
		detail := f.Code.String() + ": " + f.Message
		if f.Hint != "" {
			detail += "; " + f.Hint
		}
		errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: f.Path, BadValue: field.OmitValueType{}, Detail: detail})
	}
	return errs
}
