package v1alpha1

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// ValidateWorkload returns every mistake of a workload that can be seen in it alone, and what of it cannot be changed: what package workload
// finds, in the same words. old is nil for a new one.
func ValidateWorkload(w, old *Workload) []declare.Fault {
	var v validator
	v.approval(w.Annotations)
	if old != nil {
		return append(v.faults, workload.ValidateUpdate(w.Name, w.Namespace, &w.Spec, &old.Spec)...)
	}
	return append(v.faults, workload.Validate(w.Name, w.Namespace, &w.Spec)...)
}

// Approval is what people have approved of a workload, by its annotation: a revision, and the step of a canary up to which; 0 of a green half.
// False where they have approved of nothing.
func Approval(annotations map[string]string) (revision string, step int, ok bool) {
	revision, digits, ok := strings.Cut(annotations[AnnotationApproved], "/")
	const stepsMax = 8 // bits: no canary has as many
	n, err := strconv.ParseUint(digits, 10, stepsMax)
	return revision, int(n), ok && err == nil && revision != ""
}

// ApprovalText is the value of the annotation that Approval reads.
func ApprovalText(revision string, step int) string { return revision + "/" + strconv.Itoa(step) }

// approval refuses an annotation that looks as if it approved of something, and does not.
func (v *validator) approval(annotations map[string]string) {
	text, given := annotations[AnnotationApproved]
	if _, _, ok := Approval(annotations); given && !ok {
		v.invalid(declare.KeyPath("metadata.annotations", AnnotationApproved), fmt.Sprintf("%q approves of nothing", clip(text)), "write REVISION/STEP, or run tako rollout promote")
	}
}

// uidBytesMax is above what a UID has, which is a UUID of 36.
const uidBytesMax = 64

// ValidateInstance returns every mistake of an instance, and what of it cannot be changed; old is nil for a new one. Nobody but tako writes one: a
// mistake is tako's, and is refused before a host gets it.
func ValidateInstance(i, old *Instance) []declare.Fault {
	var v validator
	s := &i.Spec
	v.instanceName("spec", "workload", s.Workload)
	v.instanceName("spec", "revision", s.Revision)
	v.instanceName("spec", "node", s.Node)
	v.given("spec", "nodeUID", string(s.NodeUID))
	v.uid("spec.nodeUID", s.NodeUID)
	v.uid("spec.replaces", s.Replaces)
	if s.Slot < 0 {
		v.invalid("spec.slot", fmt.Sprintf("%d is not the number of an instance", s.Slot), "")
	}
	if want := InstanceName(s.Workload, s.Slot); s.Workload != "" && i.Name != want {
		v.invalid("metadata.name", fmt.Sprintf("%q is not the name of slot %d", clip(i.Name), s.Slot), "it is "+want)
	}
	if label := i.Labels[LabelWorkload]; label != s.Workload {
		v.invalid(declare.KeyPath("metadata.labels", LabelWorkload), fmt.Sprintf("%q is not the workload of the spec", clip(label)), "")
	}
	if owner := metav1.GetControllerOf(i); owner == nil || owner.Kind != KindWorkload || owner.APIVersion != declare.APIVersion || owner.Name != s.Workload {
		v.invalid("metadata.ownerReferences", "the workload does not control it", "it goes with its workload")
	}
	if s.LeaseSeconds < 0 {
		v.invalid("spec.leaseSeconds", fmt.Sprintf("%d seconds are no time", s.LeaseSeconds), "")
	}
	if stop := s.Stop; stop != nil {
		v.code("spec.stop.code", stop.Code)
	}
	if old != nil {
		v.unchangedInstance(s, &old.Spec)
	}
	return v.faults
}

// InstanceName is the name of the instance with a slot.
func InstanceName(workload string, slot int32) string { return fmt.Sprintf("%s-%d", workload, slot) }

// unchangedInstance refuses what would make another instance of it, and taking back that it is to end.
func (v *validator) unchangedInstance(s, old *InstanceSpec) {
	a, b := *s, *old
	a.Stop, b.Stop, a.Revision, b.Revision, a.LeaseSeconds, b.LeaseSeconds = nil, nil, "", "", 0, 0
	if !equality.Semantic.DeepEqual(a, b) {
		v.fault("spec", reason.FieldNotAllowed, "of an instance only stop, revision and lease change", "another instance takes its place")
	}
	if old.Stop != nil && s.Stop == nil {
		v.fault("spec.stop", reason.FieldNotAllowed, "what was told to end does not go on", "another instance takes its place")
	}
}

func (v *validator) instanceName(parent, field, name string) {
	v.given(parent, field, name)
	v.objectName(parent+"."+field, name)
}

func (v *validator) uid(path string, uid types.UID) {
	if len(uid) > uidBytesMax {
		v.invalid(path, fmt.Sprintf("%q is no UID", clip(string(uid))), "")
	}
}

// code wants a text in the form of the code of a reason. Which one it is, a later version may know better.
func (v *validator) code(path, text string) {
	const prefix, digits = "TK", 4
	if n, ok := strings.CutPrefix(text, prefix); !ok || len(n) != digits || strings.Trim(n, "0123456789") != "" {
		v.invalid(path, fmt.Sprintf("%q is not the code of a reason", clip(text)), "")
	}
}
