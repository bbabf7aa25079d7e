// Package mask takes out of objects what is shown to nobody: the data of Secrets, the content of files that only their
// owner may read, and the hashes of passwords. It is pure.
package mask

import (
	"crypto/sha256"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
)

// Secrets returns two states of an object with every secret in them replaced by words that say whether it is the same in
// both. What is secret in one state is not shown of the other. Neither is changed; either may be nil.
func Secrets(before, after *unstructured.Unstructured) (*unstructured.Unstructured, *unstructured.Unstructured) {
	before, after = copyOf(before), copyOf(after)
	private := map[string]bool{}
	for _, object := range []*unstructured.Unstructured{before, after} {
		for name, file := range bodiesOf(object, declare.TypeFile) {
			mode, _ := file["mode"].(string)
			private[name] = private[name] || (&declare.File{Mode: declare.Mode(mode)}).Private()
		}
	}
	old, fresh := secretsOf(before, private), secretsOf(after, private)
	for key, s := range old {
		other, ok := fresh[key]
		switch {
		case ok && other.value == s.value:
			s.set("(secret)")
			other.set("(secret)")
		case ok:
			s.set("(secret, old)")
			other.set("(secret, new)")
		default:
			s.set("(secret)")
		}
	}
	for key, s := range fresh {
		if _, ok := old[key]; !ok {
			s.set("(secret)")
		}
	}
	return before, after
}

// lastApplied is an annotation in which kubectl keeps a whole object once more, secrets included.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// copyOf copies an object without what repeats it.
func copyOf(object *unstructured.Unstructured) *unstructured.Unstructured {
	if object == nil {
		return nil
	}
	object = object.DeepCopy()
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", lastApplied)
	if annotations, ok, _ := unstructured.NestedMap(object.Object, "metadata", "annotations"); ok && len(annotations) == 0 {
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations")
	}
	return object
}

// secret is a value that is not shown, as a digest to compare, with the way to replace it.
type secret struct {
	value [sha256.Size]byte
	set   func(words string)
}

// secretsOf finds the values of an object that are shown nowhere: the data of a Secret, the content of files that only
// their owner may read, and hashes of passwords, by a name that is the same in every state of the object.
func secretsOf(object *unstructured.Unstructured, private map[string]bool) map[string]secret {
	found := map[string]secret{}
	if object == nil {
		return found
	}
	add := func(name string, fields map[string]any, key string) {
		value := sha256.Sum256(fmt.Append(nil, fields[key]))
		found[name] = secret{value, func(words string) { fields[key] = words }}
	}
	if gvk := object.GroupVersionKind(); gvk.Group == "" && gvk.Kind == "Secret" {
		for _, field := range []string{"data", "stringData"} {
			fields, _ := object.Object[field].(map[string]any)
			for key := range fields {
				add(field+"/"+key, fields, key)
			}
		}
	}
	for name, file := range bodiesOf(object, declare.TypeFile) {
		if private[name] && file["content"] != nil {
			add(name, file, "content")
		}
	}
	for name, user := range bodiesOf(object, declare.TypeUser) {
		if user["passwordHash"] != nil {
			add(name, user, "passwordHash")
		}
	}
	return found
}

// bodiesOf are the resources of a type of a config, or of a revision of one, by their names.
func bodiesOf(object *unstructured.Unstructured, of declare.ResourceType) map[string]map[string]any {
	bodies := map[string]map[string]any{}
	if object == nil || object.GroupVersionKind().Group != v1alpha1.GroupName {
		return bodies
	}
	spec, _ := object.Object["spec"].(map[string]any)
	resources, _ := spec["resources"].([]any)
	for _, r := range resources {
		resource, _ := r.(map[string]any)
		name, _ := resource["name"].(string)
		if body, ok := resource[string(of)].(map[string]any); ok {
			bodies[name] = body
		}
	}
	return bodies
}
