// Package describe writes all about one object for a person: what is declared, how it is, what happened to it. It is pure;
// secrets are not shown.
package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"tako.dev/tako/internal/cli/mask"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/present"
)

// Object is an object for a person. Secrets in it are not shown.
func Object(object *unstructured.Unstructured, happened []Happening, now time.Time, style present.Style) (string, error) {
	_, object = mask.Secrets(nil, object)
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-13s %s\n", name+":", present.Escape(value))
		}
	}
	line("Name", object.GetName())
	line("Namespace", object.GetNamespace())
	line("Kind", object.GetKind()+" ("+object.GetAPIVersion()+")")
	line("Created", since(object.GetCreationTimestamp().Time, now))
	if end := object.GetDeletionTimestamp(); end != nil {
		line("Deletion", "asked for "+since(end.Time, now)+"; "+waitsFor(object))
	}
	if generation := object.GetGeneration(); generation > 0 {
		line("Generation", fmt.Sprint(generation))
	}
	writePairs(&b, "Labels", object.GetLabels())
	writePairs(&b, "Annotations", withoutExposed(object.GetAnnotations()))
	writeExposed(&b, object, now)
	for _, owner := range object.GetOwnerReferences() {
		line("Owner", owner.Kind+"/"+owner.Name)
	}
	if err := writeRest(&b, object); err != nil {
		return "", err
	}
	if err := writeConditions(&b, object, now, style); err != nil {
		return "", err
	}
	if err := writeHappenings(&b, happened, now, style); err != nil {
		return "", err
	}
	return b.String(), nil
}

// waitsFor says what an object that goes waits for. What keeps a namespace stands in its spec and in its conditions.
func waitsFor(object *unstructured.Unstructured) string {
	finalizers := object.GetFinalizers()
	more, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "finalizers")
	switch finalizers = append(finalizers, more...); {
	case len(finalizers) > 0:
		return "waits for " + strings.Join(finalizers, ", ")
	case object.GetKind() == "Namespace":
		return "waits until what is in it is gone"
	}
	return "it goes any moment"
}

func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339) + " (" + present.Ago(t, now) + ")"
}

func writePairs(b *strings.Builder, name string, pairs map[string]string) {
	title := name + ":"
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		fmt.Fprintf(b, "%-13s %s\n", title, present.Escape(key+"="+pairs[key]))
		title = ""
	}
}

// writeRest writes every field that is not written in another form, as YAML.
func writeRest(b *strings.Builder, object *unstructured.Unstructured) error {
	for _, key := range slices.Sorted(maps.Keys(object.Object)) {
		value := object.Object[key]
		switch key {
		case "apiVersion", "kind", "metadata":
			continue
		case "status":
			if fields, ok := value.(map[string]any); ok {
				fields = maps.Clone(fields)
				delete(fields, "conditions")
				value = fields
			}
		}
		if fields, ok := value.(map[string]any); ok && len(fields) == 0 {
			continue
		}
		text, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("write %s of %s: %w", key, object.GetName(), err)
		}
		title := present.Escape(strings.ToUpper(key[:1]) + key[1:] + ":")
		if isSimple(value) {
			fmt.Fprintf(b, "%-13s %s\n", title, present.Escape(strings.TrimSpace(string(text))))
			continue
		}
		b.WriteString(title + "\n")
		for text := range strings.Lines(string(text)) {
			b.WriteString("  " + present.Escape(strings.TrimSuffix(text, "\n")) + "\n")
		}
	}
	return nil
}

// isSimple reports whether a value stands on one line.
func isSimple(value any) bool {
	switch value := value.(type) {
	case map[string]any, []any:
		return false
	case string:
		return !strings.Contains(value, "\n")
	}
	return true
}

func writeConditions(b *strings.Builder, object *unstructured.Unstructured, now time.Time, style present.Style) error {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	if len(list) == 0 {
		return nil
	}
	table := present.Table{Header: []string{"  CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"}}
	for _, item := range list {
		c, ok := item.(map[string]any)
		if !ok {
			continue
		}
		word := func(key string) string {
			s, _ := c[key].(string)
			return s
		}
		changed, err := time.Parse(time.RFC3339, word("lastTransitionTime"))
		if err != nil {
			changed = time.Time{} // shown as not known
		}
		table.Add("  "+word("type"), word("status"), output.Age(changed, now), word("reason"), word("message"))
	}
	b.WriteString("Conditions:\n")
	return table.Write(b, style)
}

func writeHappenings(b *strings.Builder, happened []Happening, now time.Time, style present.Style) error {
	if len(happened) == 0 {
		b.WriteString("Events:       none\n")
		return nil
	}
	table := present.Table{Header: []string{"  LAST SEEN", "TYPE", "REASON", "COUNT", "MESSAGE"}}
	for _, h := range happened {
		table.Add("  "+output.Age(h.Last, now), h.Kind, h.Reason, fmt.Sprint(h.Count), h.Message)
	}
	b.WriteString("Events:\n")
	return table.Write(b, style)
}
