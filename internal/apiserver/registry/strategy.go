package registry

import (
	"context"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"tako.dev/tako/internal/apiserver/misfit"
)

// strategy is how objects of one kind are created, updated and deleted.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	kind *Kind
}

var (
	_ rest.RESTCreateUpdateStrategy        = strategy{}
	_ rest.RESTDeleteStrategy              = strategy{}
	_ rest.GarbageCollectionDeleteStrategy = strategy{}
	_ rest.ResetFieldsStrategy             = strategy{}
)

// NamespaceScoped reports whether objects are in namespaces.
func (s strategy) NamespaceScoped() bool { return s.kind.Namespaced }

// AllowCreateOnUpdate lets a PUT create: a declaration says what should be, not how it gets there.
func (s strategy) AllowCreateOnUpdate(context.Context) bool { return !s.kind.CreateOnly }

// AllowUnconditionalUpdate lets a writer leave out the version that he has read.
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return true }

// DefaultGarbageCollectionPolicy deletes what an object owns after it.
func (strategy) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.DeleteDependents
}

// Canonicalize changes nothing: what is declared is kept as it was written.
func (strategy) Canonicalize(runtime.Object) {}

// WarningsOnCreate are none.
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// WarningsOnUpdate are none.
func (strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// PrepareForCreate takes away what a creator may not decide.
func (s strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.fill(obj)
	if s.kind.HasStatus {
		part(obj, statusField).SetZero()
	}
	if part(obj, specField).IsValid() {
		metadata(obj).SetGeneration(1)
	}
	if s.kind.Prepare != nil {
		s.kind.Prepare(ctx, obj, nil)
	}
}

// PrepareForUpdate keeps the status, and counts the generation where the spec has changed.
func (s strategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	s.fill(obj)
	if s.kind.HasStatus {
		part(obj, statusField).Set(part(old, statusField))
	}
	if s.kind.Prepare != nil {
		s.kind.Prepare(ctx, obj, old)
	}
	spec := part(obj, specField)
	if spec.IsValid() && !equality.Semantic.DeepEqual(spec.Interface(), part(old, specField).Interface()) {
		metadata(obj).SetGeneration(metadata(old).GetGeneration() + 1)
	}
}

func (s strategy) fill(obj runtime.Object) {
	if s.kind.Default != nil {
		s.kind.Default(obj)
	}
}

// Validate returns every mistake of a new object.
func (s strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaAccessor(metadata(obj), s.kind.Namespaced, s.validName(), field.NewPath("metadata"))
	if s.kind.Validate != nil {
		errs = append(errs, s.kind.Validate(ctx, obj, nil)...)
	}
	return atMost(errs)
}

// atMost keeps the first mistakes, and says how many more there are.
func atMost(errs field.ErrorList) field.ErrorList {
	if len(errs) <= misfit.MistakesMax {
		return errs
	}
	at, _, _ := strings.Cut(errs[misfit.MistakesMax].Field, ".")
	more := &field.Error{Type: field.ErrorTypeInvalid, Field: at, BadValue: field.OmitValueType{}, Detail: misfit.More(len(errs) - misfit.MistakesMax)}
	return append(errs[:misfit.MistakesMax:misfit.MistakesMax], more)
}

// ValidateUpdate returns every mistake of a changed object.
func (s strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaAccessor(metadata(obj), s.kind.Namespaced, s.validName(), field.NewPath("metadata"))
	errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(metadata(obj), metadata(old), field.NewPath("metadata"))...)
	if s.kind.Validate != nil {
		errs = append(errs, s.kind.Validate(ctx, obj, old)...)
	}
	return atMost(errs)
}

func (s strategy) validName() apivalidation.ValidateNameFunc {
	if s.kind.ValidName != nil {
		return s.kind.ValidName
	}
	return apivalidation.NameIsDNSSubdomain
}

// GetResetFields says that nobody who writes an object owns its status.
func (s strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if !s.kind.HasStatus {
		return nil
	}
	return s.kind.reset("status")
}

func (k *Kind) reset(field string) map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(k.GVK.GroupVersion().String()): fieldpath.NewSet(fieldpath.MakePathOrDie(field)),
	}
}

// statusStrategy is how the status alone is updated.
type statusStrategy struct{ strategy }

// AllowCreateOnUpdate is false: a status is that of something.
func (statusStrategy) AllowCreateOnUpdate(context.Context) bool { return false }

// PrepareForUpdate keeps everything but the status.
func (s statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	status := part(obj, statusField).Interface()
	meta := metadata(obj)
	version, managed := meta.GetResourceVersion(), meta.GetManagedFields()
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(old.DeepCopyObject()).Elem())
	part(obj, statusField).Set(reflect.ValueOf(status))
	meta = metadata(obj)
	meta.SetResourceVersion(version)
	meta.SetManagedFields(managed)
}

// ValidateUpdate has nothing to refuse: a status is written by those who may.
func (statusStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

// GetResetFields says that who writes a status owns nothing else.
func (s statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.kind.reset("spec")
}

// Parts of an object, by their Go names.
const (
	specField   = "Spec"
	statusField = "Status"
)

// part is a part of an object; it is not valid where the object has none.
func part(obj runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

func metadata(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err) // every kind has metadata
	}
	return m
}
