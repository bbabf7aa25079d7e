package plan

import (
	"bytes"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"tako.dev/tako/internal/cli/remote"
)

// staysShownMax bounds how many fields a warning names: enough to see which part of the object it is.
const staysShownMax = 3

// Stays says which fields stay though the document does not have them, because somebody else has applied them with this command
// line; "" for none. A person who takes over a file from a colleague would otherwise not see why a field that was removed from it
// is still there. Fields of controllers and of other tools are theirs to keep, and are not told.
func (c *Change) Stays(manager string) string {
	if c.After == nil {
		return ""
	}
	mine := ownedBy(c.After.GetManagedFields(), manager)
	for _, entry := range c.After.GetManagedFields() {
		if entry.Manager == manager || entry.Manager != remote.FieldManager && !strings.HasPrefix(entry.Manager, remote.PersonalManager) {
			continue
		}
		theirs := ownedBy([]metav1.ManagedFieldsEntry{entry}, entry.Manager)
		var paths []string
		theirs.Difference(mine).Leaves().Iterate(func(path fieldpath.Path) {
			paths = append(paths, strings.TrimPrefix(path.String(), "."))
		})
		if len(paths) == 0 {
			continue
		}
		named := strings.Join(paths[:min(len(paths), staysShownMax)], ", ")
		if more := len(paths) - staysShownMax; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		return fmt.Sprintf("%s keeps what %q has applied and the documents do not have: %s; who applies with --field-manager=%s takes it away",
			c.Ref.Long(), entry.Manager, named, shellWord(entry.Manager))
	}
	return ""
}

// ownedBy are the fields that a manager owns by apply. What cannot be read is nobody's.
func ownedBy(entries []metav1.ManagedFieldsEntry, manager string) *fieldpath.Set {
	owned := &fieldpath.Set{}
	for _, e := range entries {
		if e.Manager != manager || e.Operation != metav1.ManagedFieldsOperationApply || e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		one := &fieldpath.Set{}
		if err := one.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err == nil {
			owned = owned.Union(one)
		}
	}
	return owned
}
