package v1alpha1

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// ValidateRevision returns every mistake of a revision that can be seen in it alone.
func ValidateRevision(r *Revision) []declare.Fault {
	if r.Spec.Template != nil || r.Spec.Source != nil && r.Spec.Source.Kind == KindWorkload {
		return validateTemplateRevision(r)
	}
	return validateRevision(KindNodeConfig, &r.ObjectMeta, &r.Spec)
}

// ValidateClusterRevision returns every mistake of a revision that can be seen in it alone.
func ValidateClusterRevision(r *ClusterRevision) []declare.Fault {
	faults := validateRevision(KindClusterNodeConfig, &r.ObjectMeta, &r.Spec)
	if r.Spec.Template != nil {
		var v validator
		v.fault("spec.template", reason.FieldNotAllowed, "a workload is in a namespace, and its template in a Revision", "remove it")
		faults = append(v.faults, faults...)
	}
	return faults
}

// validateRevision checks a revision as the config of a kind that it is a copy of.
func validateRevision(kind string, meta *metav1.ObjectMeta, s *RevisionSpec) []declare.Fault {
	var v validator
	v.revisionSource(s.Source, kind)
	resources := s.Resources
	if s.Source != nil && resources == nil {
		resources = []declare.Resource{} // of a config that declares nothing: an empty list is left out where it is stored
	}
	config := declaration(kind, meta, declare.NodeConfigSpec{Resources: resources, Bundle: s.Bundle})
	return append(v.faults, validateConfig(config)...)
}

// validateTemplateRevision checks the revision of a workload.
func validateTemplateRevision(r *Revision) []declare.Fault {
	var v validator
	v.revisionSource(r.Spec.Source, KindWorkload)
	v.revisionNumber(&r.ObjectMeta)
	if r.Spec.Resources != nil {
		v.fault("spec.resources", reason.FieldNotAllowed, "a revision with a template has no resources", "keep one of them")
	}
	if r.Spec.Bundle != nil {
		v.fault("spec.bundle", reason.FieldNotAllowed, "a revision with a template has no bundle", "keep one of them")
	}
	if r.Spec.Template == nil {
		v.fault("spec.template", reason.MissingField, `spec has no "template"`, "")
		return v.faults
	}
	return append(v.faults, workload.ValidateTemplate(r.Spec.Template)...)
}

// revisionSource checks what a revision says that it is a copy of, which must be of a kind.
func (v *validator) revisionSource(source *RevisionSource, kind string) {
	if source == nil {
		return
	}
	if source.Kind != kind {
		v.invalid("spec.source.kind", fmt.Sprintf("a revision of this kind is of a %s, not of a %q", kind, clip(source.Kind)), "write "+kind)
	}
	v.given("spec.source", "name", source.Name)
	v.given("spec.source", "uid", string(source.UID))
}

// Number is that of the revision of a workload; 0 where it has none.
func (r *Revision) Number() int {
	n, err := strconv.ParseUint(r.Annotations[AnnotationNumber], 10, 31) // 31 bits: two thousand million changes of one workload
	if err != nil {
		return 0
	}
	return int(n)
}

// revisionNumber wants the number by which the newer one of two is known.
func (v *validator) revisionNumber(meta *metav1.ObjectMeta) {
	path := declare.KeyPath("metadata.annotations", AnnotationNumber)
	text, given := meta.Annotations[AnnotationNumber]
	switch r := (Revision{ObjectMeta: *meta}); {
	case !given:
		v.fault(path, reason.MissingField, "the revision of a workload has no number", "it is counted from 1: the higher one is newer")
	case strconv.Itoa(r.Number()) != text || r.Number() == 0:
		v.invalid(path, fmt.Sprintf("%q is not the number of a revision", clip(text)), "it is counted from 1: the higher one is newer")
	}
}

// ValidateRevisionUpdate refuses any change of a revision's spec. The number of a workload's may grow.
func ValidateRevisionUpdate(changed, old *Revision) []declare.Fault {
	kind := KindNodeConfig
	var v validator
	if old.Spec.Template != nil {
		kind = KindWorkload
		v.revisionNumber(&changed.ObjectMeta)
		if is, was := changed.Number(), old.Number(); len(v.faults) == 0 && is < was {
			v.invalid(declare.KeyPath("metadata.annotations", AnnotationNumber), fmt.Sprintf("the number goes from %d back to %d", was, is), "it only grows")
		}
	}
	return append(v.faults, unchangedRevision(&changed.Spec, &old.Spec, kind)...)
}

// ValidateClusterRevisionUpdate refuses any change of a revision's spec.
func ValidateClusterRevisionUpdate(changed, old *ClusterRevision) []declare.Fault {
	return unchangedRevision(&changed.Spec, &old.Spec, KindClusterNodeConfig)
}

func unchangedRevision(changed, old *RevisionSpec, kind string) []declare.Fault {
	if equality.Semantic.DeepEqual(changed, old) {
		return nil
	}
	var v validator
	v.fault("spec", reason.FieldNotAllowed, "the spec of a revision never changes", fmt.Sprintf("change the %s: it gets a new revision", kind))
	return v.faults
}
