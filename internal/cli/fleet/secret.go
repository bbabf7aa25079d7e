package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/fleet/exposed"
)

// Secret is who has had the values of a Secret; not the values.
type Secret struct {
	Namespace, Name string
	Exposures       []exposed.Exposure
}

// SecretOf reads what is to be known of a Secret.
func SecretOf(o *unstructured.Unstructured) Secret {
	return Secret{Namespace: o.GetNamespace(), Name: o.GetName(), Exposures: exposed.Read(o.GetAnnotations()[exposed.Annotation])}
}

func (f *Fleet) takeSecret(_ remote.Kind, o *unstructured.Unstructured) error {
	f.Exposed = append(f.Exposed, SecretOf(o))
	return nil
}

// Argument is how the Secret is named on a command line.
func (s *Secret) Argument() string { return "secret/" + s.Name + " -n " + s.Namespace }

// OfSecret is what is to be said of a Secret: who has had its values, and who has them now.
func (f *Fleet) OfSecret(s *Secret) []Finding {
	var list []Finding
	if keys, some := exposed.Keys(s.Exposures); some {
		newest := s.Exposures[len(s.Exposures)-1]
		found := Finding{Weight: Broken, Subject: s.Argument(), What: "Exposed", Since: metav1.NewTime(newest.At), Next: "tako edit " + s.Argument(),
			Text: fmt.Sprintf("change the %s: %s could read what is the value still", keysText(keys), holdersText(s.Exposures))}
		var lines []string
		for i := range s.Exposures {
			lines = append(lines, exposureText(&s.Exposures[i]))
		}
		found.Evidence = strings.Join(lines, "\n")
		list = append(list, found)
	}
	on := f.given(s)
	given := Finding{Weight: Note, Subject: s.Argument(), What: "Given", Text: "to no node"}
	if len(on) > 0 {
		given.Text = fmt.Sprintf("to %d nodes: %s", len(on), few(on))
	}
	return append(list, given)
}

// given are the nodes that have a key to a value of a Secret, by name.
func (f *Fleet) given(s *Secret) []string {
	var on []string
	for name, a := range f.Assignments {
		if a.Spec.Own == nil {
			continue
		}
		for i := range a.Spec.Own.Keys {
			if strings.HasPrefix(a.Spec.Own.Keys[i].Secret, s.Namespace+"/"+s.Name+"/") {
				on = append(on, name)
				break
			}
		}
	}
	slices.Sort(on)
	return on
}

// keysText names keys; none stands for all.
func keysText(keys []string) string {
	switch len(keys) {
	case 0:
		return "values of all keys"
	case 1:
		return "value of " + keys[0]
	}
	return "values of " + few(keys)
}

// holdersText names the last host, and counts the others.
func holdersText(list []exposed.Exposure) string {
	more := len(list) - 1
	for i := range list {
		more += list[i].More
	}
	last := &list[len(list)-1]
	text := "node " + last.Node + ", which " + last.Why + ","
	if more > 0 {
		text = fmt.Sprintf("node %s, which %s, and %d before", last.Node, last.Why, more)
	}
	return text
}

// exposureText is one host on one line.
func exposureText(e *exposed.Exposure) string {
	text := fmt.Sprintf("node/%s %s at %s and could read the %s", e.Node, e.Why, e.At.UTC().Format(time.RFC3339), keysText(e.Keys))
	if e.More > 0 {
		text += fmt.Sprintf(", as could %d before", e.More)
	}
	return text
}
