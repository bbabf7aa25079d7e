package sources

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/source/origin"
)

// suchMax is how many fields of an owner are named.
const suchMax = 3

// ownersOf are who has written fields of an object, the last first; statuses do not count.
func ownersOf(object *unstructured.Unstructured) []Owner {
	var owners []Owner
	for _, m := range object.GetManagedFields() {
		if m.Subresource != "" || m.FieldsV1 == nil {
			continue
		}
		o := Owner{Name: m.Manager, How: string(m.Operation)}
		if m.Time != nil {
			o.At = *m.Time
		}
		var set fieldpath.Set
		if err := set.FromJSON(bytes.NewReader(m.FieldsV1.GetRawBytes())); err == nil {
			set.Leaves().Iterate(func(path fieldpath.Path) {
				if o.Fields++; o.Fields <= suchMax {
					o.Such = append(o.Such, strings.TrimPrefix(path.String(), "."))
				}
			})
		}
		owners = append(owners, o)
	}
	slices.SortStableFunc(owners, func(a, b Owner) int { return b.At.Compare(a.At.Time) })
	return owners
}

// text is the trace for a person.
func (t *Trace) text(now time.Time) string {
	var b strings.Builder
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-9s%s\n", name, present.Escape(text))
		}
	}
	fmt.Fprintf(&b, "● %s\n", present.Escape(t.Object))
	if t.Of != "" {
		line("Of", t.Of)
	}
	if t.Source == nil {
		line("Source", "none: it was applied by hand or by a program")
		line("Set", t.Set)
	} else {
		line("Source", strings.TrimSpace(t.Source.Name+"  "+t.Source.URL))
		line("Commit", strings.TrimSpace(t.Commit+"  "+t.Subject))
		line("Author", t.Author)
		line("File", t.place())
		line("Applied", t.Source.Applied)
	}
	for i, o := range t.Owners {
		name := ""
		if i == 0 {
			name = "Owners"
		}
		line(name+" ", o.text(now))
	}
	b.WriteString(t.problems())
	return b.String()
}

func (t *Trace) place() string {
	if t.Line == 0 {
		return t.File
	}
	return fmt.Sprintf("%s:%d", t.File, t.Line)
}

// problems are what keeps an object from being as the newest commit declares.
func (t *Trace) problems() string {
	if t.Source == nil {
		return ""
	}
	text := ""
	if t.Drift != "" {
		text += "  ✗ Drifted: " + present.Escape(t.Drift) + "\n"
	}
	if t.Source.Ready != string(metav1.ConditionTrue) && t.Source.Message != "" {
		text += "  ✗ Source:  " + present.Escape(t.Source.Message) + "\n"
	}
	if text != "" {
		text += "  next: tako why " + present.Escape(t.Source.Name) + "\n"
	}
	return text
}

// text says who has written what, and when.
func (o *Owner) text(now time.Time) string {
	verb := "changed"
	if o.How == string(metav1.ManagedFieldsOperationApply) {
		verb = "applied"
	}
	text := o.Name + " " + verb + " " + strings.Join(o.Such, ", ")
	if o.Name == origin.Manager {
		text = o.Name + " " + verb + fmt.Sprintf(" %d fields", o.Fields)
	} else if more := o.Fields - len(o.Such); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if !o.At.IsZero() {
		text += " (" + present.Ago(o.At.Time, now) + ")"
	}
	return text
}
