package content

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// ageMax is how long an object is kept for a person who may want it: longer than a holiday, and than the 7 days of the
	// history that names digests.
	ageMax = 30 * 24 * time.Hour
	// ageMin is how long it is kept when room gets short: who has just stored it may not have written down yet that he needs it,
	// and what was overwritten by mistake is missed within a day.
	ageMin = 24 * time.Hour
	// scarce is the part of the quota, one in scarce, that may be in use before objects younger than ageMax go: so at least
	// half of it is there for what is to be stored until the next Trim.
	scarce = 2
)

// object is one content in the store.
type object struct {
	digest Digest
	bytes  int64
	stored time.Time // when it was put last
}

// Trim removes the objects that are not needed and were put last more than 30 days ago, and where more than half of the quota
// is in use then also younger ones, the oldest first, but none that was put within a day. It returns how many went and their
// bytes. needed must not call the store. What cannot be removed is passed over and joined into the error.
func (s *Store) Trim(now time.Time, needed func(Digest) bool) (removed int, freed int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var objects []object
	err = s.each(func(_ string, d Digest, st fs.FileInfo) error {
		if !needed(d) {
			objects = append(objects, object{digest: d, bytes: st.Size(), stored: st.ModTime()})
		}
		return nil
	})
	errs := []error{err}
	for _, o := range superfluous(objects, now, s.used-s.quota/scarce) {
		if err := os.Remove(s.path(o.digest)); err != nil {
			errs = append(errs, err)
			continue
		}
		removed++
		freed += o.bytes
	}
	s.used -= freed
	if err := errors.Join(errs...); err != nil {
		return removed, freed, &reason.Error{Code: reason.StateUnwritable, Doing: "trim content store " + disk.Shown(s.dir), Cause: err}
	}
	return removed, freed, nil
}

// superfluous decides which of the objects that nobody needs go, oldest first; excess is by how many bytes too many are in use.
func superfluous(objects []object, now time.Time, excess int64) []object {
	slices.SortFunc(objects, func(a, b object) int { return a.stored.Compare(b.stored) })
	for i, o := range objects {
		age := now.Sub(o.stored)
		if age <= ageMax && (excess <= 0 || age <= ageMin) {
			return objects[:i]
		}
		excess -= o.bytes
	}
	return objects
}
