package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Kind is one kind of object.
type Kind struct {
	GVK        schema.GroupVersionKind
	Names      Names
	Namespaced bool
	New        func() runtime.Object
	NewList    func() runtime.Object
	// HasStatus says that status is a subresource: a writer of the object never changes it, nor a writer of status the rest.
	HasStatus bool
	// SealedStatus says that the status is written by the server alone, so that there is no subresource.
	SealedStatus bool
	// CreateOnly says that an object is made by a create and nothing else.
	CreateOnly bool
	Columns    []Column
	// Default fills in what may be left out. It is called before every validation.
	Default func(obj runtime.Object)
	// Prepare settles what a writer may not decide; old is nil on create.
	Prepare func(ctx context.Context, obj, old runtime.Object)
	// Validate returns every mistake; old is nil on create. Names and metadata are the library's work.
	Validate func(ctx context.Context, obj, old runtime.Object) field.ErrorList
	// ValidName says what is wrong with a name; nil wants an RFC 1123 subdomain.
	ValidName func(name string, prefix bool) []string
	// Fields are those that a field selector may name, beside metadata.name and metadata.namespace.
	Fields func(obj runtime.Object) fields.Set
	// TTL in seconds of a new object, 0 for ever.
	TTL uint64
}

// Names are what people call a kind.
type Names struct {
	Plural     string
	Singular   string
	Short      []string
	Categories []string
}

// Resource is the kind's group and resource.
func (k *Kind) Resource() schema.GroupResource {
	return schema.GroupResource{Group: k.GVK.Group, Resource: k.Names.Plural}
}

// Column is one column of the table that people see.
type Column struct {
	Name        string
	Type        string // as in OpenAPI: string, integer, boolean, date
	Format      string // name marks the object's name
	Wide        bool   // shown with -o wide only
	Description string
	Value       func(obj runtime.Object) any
}
