package registry

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"tako.dev/tako/internal/fleet/exposed"
)

const (
	// dataBytesMax bounds what a ConfigMap or a Secret holds, as in Kubernetes: etcd takes 1.5 MiB in one request.
	dataBytesMax = 1 << 20
	// eventTTL is how long an Event is kept, seconds. What must be remembered longer is in an object's status, or on a host.
	eventTTL = 3600
	// eventMessageMax bounds an Event's message, bytes, as in Kubernetes.
	eventMessageMax = 1024
)

func coreKinds() []*Kind {
	return []*Kind{namespaces(), configMaps(), secrets(), eventKind(), leases()}
}

func namespaces() *Kind {
	k := of[core.Namespace, core.NamespaceList](core.SchemeGroupVersion, "Namespace", Names{Plural: "namespaces", Short: []string{"ns"}})
	k.HasStatus = true
	k.ValidName = apivalidation.ValidateNamespaceName
	k.Columns = []Column{{Name: "Status", Type: "string", Description: "Active, or Terminating while what is in it is deleted",
		Value: func(o runtime.Object) any { return string(o.(*core.Namespace).Status.Phase) }}}
	k.Prepare = func(_ context.Context, obj, old runtime.Object) {
		ns := obj.(*core.Namespace)
		if old == nil {
			ns.Status.Phase = core.NamespaceActive
			if !slices.Contains(ns.Spec.Finalizers, core.FinalizerKubernetes) {
				ns.Spec.Finalizers = append(ns.Spec.Finalizers, core.FinalizerKubernetes)
			}
		} else {
			ns.Spec.Finalizers = old.(*core.Namespace).Spec.Finalizers // the finalize subresource is for that
		}
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		ns.Labels[core.LabelMetadataName] = ns.Name
	}
	k.Fields = func(o runtime.Object) fields.Set {
		return fields.Set{"status.phase": string(o.(*core.Namespace).Status.Phase)}
	}
	return k
}

func configMaps() *Kind {
	k := of[core.ConfigMap, core.ConfigMapList](core.SchemeGroupVersion, "ConfigMap", Names{Plural: "configmaps", Short: []string{"cm"}})
	k.Namespaced = true
	k.Columns = []Column{{Name: "Data", Type: "integer", Description: "number of keys",
		Value: func(o runtime.Object) any { c := o.(*core.ConfigMap); return len(c.Data) + len(c.BinaryData) }}}
	k.Validate = func(_ context.Context, obj, old runtime.Object) field.ErrorList {
		c := obj.(*core.ConfigMap)
		var errs field.ErrorList
		size := 0
		for key, value := range c.Data {
			errs = append(errs, validKey("data", key)...)
			if _, twice := c.BinaryData[key]; twice {
				errs = append(errs, field.Duplicate(field.NewPath("binaryData").Key(key), key))
			}
			size += len(value)
		}
		for key, value := range c.BinaryData {
			errs = append(errs, validKey("binaryData", key)...)
			size += len(value)
		}
		errs = append(errs, validSize(size)...)
		if was, ok := old.(*core.ConfigMap); ok && isSet(was.Immutable) {
			same := isSet(c.Immutable) && equality.Semantic.DeepEqual(c.Data, was.Data) && equality.Semantic.DeepEqual(c.BinaryData, was.BinaryData)
			errs = append(errs, unchanged(same)...)
		}
		return errs
	}
	return k
}

func secrets() *Kind {
	k := of[core.Secret, core.SecretList](core.SchemeGroupVersion, "Secret", Names{Plural: "secrets"})
	k.Namespaced = true
	k.Columns = []Column{
		{Name: "Type", Type: "string", Description: "what the keys mean", Value: func(o runtime.Object) any { return string(o.(*core.Secret).Type) }},
		{Name: "Data", Type: "integer", Description: "number of keys", Value: func(o runtime.Object) any { return len(o.(*core.Secret).Data) }},
		{Name: "Exposed", Type: "integer", Wide: true, Description: "number of keys with a value that a host could read which is none any more, or another", Value: exposedKeys},
	}
	k.Prepare = keepExposed
	k.Default = func(o runtime.Object) {
		s := o.(*core.Secret)
		if s.Type == "" {
			s.Type = core.SecretTypeOpaque
		}
		for key, value := range s.StringData {
			if s.Data == nil {
				s.Data = map[string][]byte{}
			}
			s.Data[key] = []byte(value)
		}
		s.StringData = nil
	}
	k.Validate = func(_ context.Context, obj, old runtime.Object) field.ErrorList {
		s := obj.(*core.Secret)
		var errs field.ErrorList
		size := 0
		for key, value := range s.Data {
			errs = append(errs, validKey("data", key)...)
			size += len(value)
		}
		errs = append(errs, validSize(size)...)
		was, ok := old.(*core.Secret)
		if ok && s.Type != was.Type {
			errs = append(errs, field.Invalid(field.NewPath("type"), s.Type, "cannot be changed: delete the secret and make another"))
		}
		if ok && isSet(was.Immutable) {
			errs = append(errs, unchanged(isSet(s.Immutable) && equality.Semantic.DeepEqual(s.Data, was.Data))...)
		}
		return errs
	}
	k.Fields = func(o runtime.Object) fields.Set {
		s := o.(*core.Secret)
		return fields.Set{"type": string(s.Type), "exposed": strconv.FormatBool(s.Annotations[exposed.Annotation] != "")}
	}
	return k
}

func validKey(in, key string) field.ErrorList {
	var errs field.ErrorList
	for _, why := range validation.IsConfigMapKey(key) {
		errs = append(errs, field.Invalid(field.NewPath(in).Key(key), key, why))
	}
	return errs
}

func validSize(size int) field.ErrorList {
	if size <= dataBytesMax {
		return nil
	}
	return field.ErrorList{field.TooLong(field.NewPath("data"), "", dataBytesMax)}
}

func isSet(b *bool) bool { return b != nil && *b }

func unchanged(same bool) field.ErrorList {
	if same {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("data"), "immutable is set: delete the object and make another")}
}

func eventKind() *Kind {
	k := of[core.Event, core.EventList](core.SchemeGroupVersion, "Event", Names{Plural: "events", Short: []string{"ev"}})
	k.Namespaced = true
	k.TTL = eventTTL
	k.Columns = []Column{
		{Name: "Last Seen", Type: "string", Description: "time since it happened last", Value: func(o runtime.Object) any { return since(lastSeen(o.(*core.Event))) }},
		{Name: "Type", Type: "string", Description: "Normal or Warning", Value: func(o runtime.Object) any { return o.(*core.Event).Type }},
		{Name: "Reason", Type: "string", Description: "what happened, in one word", Value: func(o runtime.Object) any { return o.(*core.Event).Reason }},
		{Name: "Object", Type: "string", Description: "what it happened to", Value: func(o runtime.Object) any {
			r := o.(*core.Event).InvolvedObject
			return fmt.Sprintf("%s/%s", r.Kind, r.Name)
		}},
		{Name: "Count", Type: "integer", Wide: true, Description: "how often it happened", Value: func(o runtime.Object) any { return o.(*core.Event).Count }},
		{Name: "Message", Type: "string", Description: "what happened, in words", Value: func(o runtime.Object) any { return o.(*core.Event).Message }},
	}
	k.Validate = func(_ context.Context, obj, _ runtime.Object) field.ErrorList {
		e := obj.(*core.Event)
		var errs field.ErrorList
		if e.InvolvedObject.Namespace != "" && e.InvolvedObject.Namespace != e.Namespace {
			errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), e.InvolvedObject.Namespace, "must be the event's own"))
		}
		if len(e.Message) > eventMessageMax {
			errs = append(errs, field.TooLong(field.NewPath("message"), "", eventMessageMax))
		}
		return errs
	}
	k.Fields = func(o runtime.Object) fields.Set {
		e := o.(*core.Event)
		return fields.Set{
			"involvedObject.kind": e.InvolvedObject.Kind, "involvedObject.namespace": e.InvolvedObject.Namespace,
			"involvedObject.name": e.InvolvedObject.Name, "involvedObject.uid": string(e.InvolvedObject.UID),
			"involvedObject.apiVersion": e.InvolvedObject.APIVersion, "reason": e.Reason, "type": e.Type,
			"reportingComponent": e.ReportingController, "source": e.Source.Component,
		}
	}
	return k
}

// lastSeen is when an event happened last: series, then count, then the one time.
func lastSeen(e *core.Event) metav1.Time {
	switch {
	case e.Series != nil:
		return metav1.Time{Time: e.Series.LastObservedTime.Time}
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp
	}
	return metav1.Time{Time: e.EventTime.Time}
}

func leases() *Kind {
	k := of[coordination.Lease, coordination.LeaseList](coordination.SchemeGroupVersion, "Lease", Names{Plural: "leases"})
	k.Namespaced = true
	k.Columns = []Column{{Name: "Holder", Type: "string", Description: "who holds it", Value: func(o runtime.Object) any {
		if h := o.(*coordination.Lease).Spec.HolderIdentity; h != nil {
			return *h
		}
		return ""
	}}}
	k.Validate = func(_ context.Context, obj, _ runtime.Object) field.ErrorList {
		s := obj.(*coordination.Lease).Spec
		var errs field.ErrorList
		if s.LeaseDurationSeconds != nil && *s.LeaseDurationSeconds <= 0 {
			errs = append(errs, field.Invalid(field.NewPath("spec", "leaseDurationSeconds"), *s.LeaseDurationSeconds, "must be greater than 0"))
		}
		if s.LeaseTransitions != nil && *s.LeaseTransitions < 0 {
			errs = append(errs, field.Invalid(field.NewPath("spec", "leaseTransitions"), *s.LeaseTransitions, "must not be negative"))
		}
		return errs
	}
	return k
}
