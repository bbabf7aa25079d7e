package describe

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/fleet/exposed"
	"tako.dev/tako/internal/present"
)

// withoutExposed leaves out the annotation that writeExposed writes.
func withoutExposed(annotations map[string]string) map[string]string {
	annotations = maps.Clone(annotations)
	delete(annotations, exposed.Annotation)
	return annotations
}

// writeExposed writes which hosts have had values of a Secret that are still the values.
func writeExposed(b *strings.Builder, object *unstructured.Unstructured, now time.Time) {
	title := "Exposed:"
	for _, e := range exposed.Read(object.GetAnnotations()[exposed.Annotation]) {
		text := fmt.Sprintf("%s, to node/%s, which %s %s", cmp.Or(strings.Join(e.Keys, ", "), "all keys"), e.Node, e.Why, since(e.At, now))
		if e.More > 0 {
			text += fmt.Sprintf(", and %d before", e.More)
		}
		fmt.Fprintf(b, "%-13s %s\n", title, present.Escape(text))
		title = ""
	}
}
