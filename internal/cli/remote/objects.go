package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
)

// Ref names an object. Namespace is empty for kinds without one.
type Ref struct {
	Kind      Kind
	Namespace string
	Name      string
}

// String is KIND.GROUP/NAME.
func (r Ref) String() string { return r.Kind.Name() + "/" + r.Name }

// Long adds the namespace, for sentences.
func (r Ref) Long() string {
	if r.Namespace == "" {
		return r.String()
	}
	return r.String() + " in namespace " + r.Namespace
}

// Argument is how the object is named on a command line.
func (r Ref) Argument() string {
	if r.Namespace == "" {
		return r.String()
	}
	return r.String() + " -n " + r.Namespace
}

// RefOf names an object of a kind.
func RefOf(kind Kind, object *unstructured.Unstructured) Ref {
	return Ref{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// collection is the path of all objects of a kind in a namespace, or of all there are.
func collection(kind Kind, namespace string) []string {
	path := []string{"apis", kind.Group, kind.Version}
	if kind.Group == "" {
		path = []string{"api", kind.Version}
	}
	if kind.Namespaced && namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	return append(path, kind.Resource)
}

func (r Ref) path() []string { return append(collection(r.Kind, r.Namespace), r.Name) }

// ask sends one request and reads an object, or the status that the server answers with.
func (s *Server) ask(ctx context.Context, request *rest.Request) (*unstructured.Unstructured, error) {
	return within(ctx, s, func(ctx context.Context) (*unstructured.Unstructured, error) {
		text, err := send(ctx, request.SetHeader("Accept", "application/json"))
		if err != nil {
			return nil, err
		}
		return decode(text)
	})
}

// decode reads an object. Whole numbers become int64, as the accessors of unstructured objects need them.
func decode(text []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(text, &object.Object); err != nil {
		return nil, fmt.Errorf("read an object of the server: %w", err)
	}
	return object, nil
}

// Get returns an object.
func (s *Server) Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	return s.ask(ctx, s.client.Get().AbsPath(ref.path()...))
}

// ApplyOptions say how to apply.
type ApplyOptions struct {
	DryRun bool // change nothing, but answer as if
	Force  bool // take over fields that others own
	// Manager is who owns the fields afterwards. Default FieldManager.
	Manager string
}

// Apply sends what a person has declared of an object as server-side apply, and returns the object as it is then.
func (s *Server) Apply(ctx context.Context, ref Ref, declared *unstructured.Unstructured, options ApplyOptions) (*unstructured.Unstructured, error) {
	body, err := declared.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", ref, err)
	}
	request := s.client.Patch(types.ApplyPatchType).AbsPath(ref.path()...).Body(body).
		Param("fieldManager", cmp.Or(options.Manager, FieldManager)).Param("fieldValidation", metav1.FieldValidationStrict)
	if options.Force {
		request = request.Param("force", "true")
	}
	return s.ask(ctx, dryRun(request, options.DryRun))
}

// WhoAmI asks the server for the name of the user as whom it is asked.
func (s *Server) WhoAmI(ctx context.Context) (string, error) {
	const question = `{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`
	answer, err := s.ask(ctx, s.client.Post().AbsPath("/apis/authentication.k8s.io/v1/selfsubjectreviews").
		SetHeader("Content-Type", "application/json").Body([]byte(question)))
	if err != nil {
		return "", err
	}
	name, _, err := unstructured.NestedString(answer.Object, "status", "userInfo", "username")
	return name, err
}

// Create makes a new object.
func (s *Server) Create(ctx context.Context, kind Kind, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	body, err := object.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", kind.Name(), err)
	}
	return s.ask(ctx, s.client.Post().AbsPath(collection(kind, object.GetNamespace())...).SetHeader("Content-Type", "application/json").Body(body).
		Param("fieldManager", FieldManager).Param("fieldValidation", metav1.FieldValidationStrict))
}

// Update replaces an object; it is refused as a conflict when the object has another resource version than the one given.
func (s *Server) Update(ctx context.Context, ref Ref, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	body, err := object.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", ref, err)
	}
	return s.ask(ctx, s.client.Put().AbsPath(ref.path()...).SetHeader("Content-Type", "application/json").Body(body).
		Param("fieldManager", EditManager).Param("fieldValidation", metav1.FieldValidationStrict))
}

// DeleteOptions say how to delete.
type DeleteOptions struct {
	DryRun          bool
	Cascade         metav1.DeletionPropagation // empty leaves it to the server
	UID             types.UID                  // delete this object only, and not another of its name; empty deletes either
	ResourceVersion string                     // delete it only as it was then; empty deletes it as it is
}

// Delete asks for the end of an object, and returns which one that is: another may have its name later. With finalizers it
// may take time.
func (s *Server) Delete(ctx context.Context, ref Ref, options DeleteOptions) (types.UID, error) {
	body := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}
	if options.Cascade != "" {
		body.PropagationPolicy = &options.Cascade
	}
	if options.UID != "" || options.ResourceVersion != "" {
		body.Preconditions = &metav1.Preconditions{}
	}
	if options.UID != "" {
		body.Preconditions.UID = &options.UID
	}
	if options.ResourceVersion != "" {
		body.Preconditions.ResourceVersion = &options.ResourceVersion
	}
	if options.DryRun {
		body.DryRun = []string{metav1.DryRunAll}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return "", fmt.Errorf("write the options of deleting %s: %w", ref, err)
	}
	answer, err := s.ask(ctx, s.client.Delete().AbsPath(ref.path()...).SetHeader("Content-Type", "application/json").Body(text))
	if err != nil {
		return "", err
	}
	// The answer is the object where it takes time, and a status about it where it is gone.
	if uid := answer.GetUID(); uid != "" {
		return uid, nil
	}
	uid, _, _ := unstructured.NestedString(answer.Object, "details", "uid")
	return types.UID(uid), nil
}

func dryRun(request *rest.Request, dry bool) *rest.Request {
	if dry {
		return request.Param("dryRun", metav1.DryRunAll)
	}
	return request
}

// Patch changes some fields of an object, by a merge patch; fields are owned by manager afterwards.
func (s *Server) Patch(ctx context.Context, ref Ref, changes map[string]any, manager string) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(changes)
	if err != nil {
		return nil, fmt.Errorf("write changes of %s: %w", ref, err)
	}
	return s.ask(ctx, s.client.Patch(types.MergePatchType).AbsPath(ref.path()...).Body(body).
		Param("fieldManager", cmp.Or(manager, FieldManager)).Param("fieldValidation", metav1.FieldValidationStrict))
}

// Stream reads a subresource that is no object, as it comes. The caller closes it; it ends with the context.
func (s *Server) Stream(ctx context.Context, ref Ref, subresource string, query map[string]string) (io.ReadCloser, error) {
	request := s.client.Get().AbsPath(append(ref.path(), subresource)...)
	for key, value := range query {
		request = request.Param(key, value)
	}
	return request.Stream(ctx)
}
