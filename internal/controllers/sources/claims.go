package sources

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/origin"
)

// ownersShown is how many owners of an object are named.
const ownersShown = 3

// claims puts into the place of conflicts about whole objects who has them, and what can be done about it where there is no command line.
func (r *run) claims(faults declare.Faults, changes []*plan.Change, of map[string]*documents.Document) declare.Faults {
	for _, c := range changes {
		f := r.notes[c.Ref.Long()].claim
		if f == nil {
			continue
		}
		located := of[c.Ref.Long()].Locate([]declare.Fault{*f})
		faults = slices.DeleteFunc(faults, func(old declare.Fault) bool {
			return old.Code == reason.Conflict && old.File == located[0].File && old.Line == located[0].Line && old.Column == located[0].Column
		})
		faults = append(faults, located...)
	}
	return faults
}

// claim says that somebody else has the object of a change; nil for nobody.
func (r *run) claim(c *plan.Change, d *documents.Document) *declare.Fault {
	if c.Before == nil || d == nil {
		return nil
	}
	f := r.options.Set.Fault(c.Before, d.Object)
	if f != nil {
		f.Message, f.Hint = claimWords(c, r.options.Set)
	}
	return f
}

// claimWords say who has an object.
func claimWords(c *plan.Change, set prune.Set) (message, hint string) {
	have := c.Before.GetLabels()[prune.Label]
	managers := managersOf(c.Before)
	switch {
	case have != "" && have != set.String() && slices.Contains(managers, origin.Manager):
		other := strings.Replace(have, ".", "/", 1)
		return fmt.Sprintf("%s is of source %s, which declares it too", c.Ref.Long(), other), "declare it in one of the two: as long as both do, " + other + " has it"
	case have != "" && have != set.String():
		return fmt.Sprintf("%s is of set %q, which somebody applies by hand", c.Ref.Long(), have), "leave it out here, or delete it there: then the source makes it"
	}
	by := "others"
	if len(managers) > 0 {
		by = strings.Join(managers[:min(len(managers), ownersShown)], ", ")
	}
	return fmt.Sprintf("%s is there already, made by %s", c.Ref.Long(), by), "leave it out here, or delete it: then the source makes it"
}

// managersOf are those who have written an object, but for its status.
func managersOf(o *unstructured.Unstructured) []string {
	var all []string
	for _, m := range o.GetManagedFields() {
		if m.Subresource == "" && !slices.Contains(all, m.Manager) {
			all = append(all, m.Manager)
		}
	}
	return all
}

// explain gives faults the hints that fit a source.
func (r *run) explain(faults []declare.Fault) []declare.Fault {
	for i := range faults {
		f := &faults[i]
		switch {
		case f.Code == reason.NotAllowed:
			f.Hint = r.rightsHint()
		case f.Code == reason.Conflict && strings.Contains(f.Hint, "--"):
			f.Hint = "leave the field out here, or have its owner give it up"
		}
	}
	return faults
}

// rightsHint says how a source gets rights.
func (l *look) rightsHint() string {
	user, _ := origin.User(l.key.Namespace, l.key.Name)
	return fmt.Sprintf("who may, gives the right: kubectl create rolebinding %s --clusterrole=admin --user=%s -n %s (a clusterrolebinding for what stands in no namespace)", l.key.Name, user, l.key.Namespace)
}
