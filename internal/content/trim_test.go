package content

import (
	"bytes"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestSuperfluous compares with what the comment of Trim says, object by object.
func TestSuperfluous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var objects []object
		for i := range rapid.IntRange(0, 12).Draw(t, "objects") {
			hours := rapid.SampledFrom([]int{-1, 0, 23, 24, 25, 100, 719, 720, 721, 9000}).Draw(t, "age")
			objects = append(objects, object{digest: Digest{byte(i)}, bytes: int64(rapid.IntRange(0, 100).Draw(t, "bytes")),
				stored: noon.Add(-time.Duration(hours) * time.Hour)})
		}
		excess := int64(rapid.IntRange(-100, 500).Draw(t, "excess"))
		gone := superfluous(slices.Clone(objects), noon, excess)
		var freed int64
		for _, o := range gone {
			if age := noon.Sub(o.stored); age <= ageMin || age <= ageMax && freed >= excess {
				t.Fatalf("%v old went after %d of %d bytes", age, freed, excess)
			}
			freed += o.bytes
		}
		for _, o := range objects {
			if slices.Contains(gone, o) {
				continue
			}
			age := noon.Sub(o.stored)
			if age > ageMax || age > ageMin && freed < excess {
				t.Fatalf("%v old stays, with %d of %d bytes freed", age, freed, excess)
			}
			if slices.ContainsFunc(gone, func(g object) bool { return g.stored.After(o.stored) }) {
				t.Fatal("a younger one went instead of an older one")
			}
		}
	})
}

// backdate makes an object look as if it had been put at another time.
func backdate(t *testing.T, s *Store, d Digest, at time.Time) {
	t.Helper()
	if err := os.Chtimes(s.path(d), at, at); err != nil {
		t.Fatal(err)
	}
}

func TestTrimKeepsWhatIsNeededOrWantedAgain(t *testing.T) {
	s, err := Open(t.TempDir(), Options{QuotaBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	needed, old, again := put(t, s, "needed"), put(t, s, "old"), put(t, s, "again")
	later := time.Now().Add(ageMax + time.Hour)
	for _, d := range []Digest{needed, old, again} {
		backdate(t, s, d, time.Now().Add(-ageMax-time.Hour))
	}
	if put(t, s, "again") != again {
		t.Fatal("another digest")
	}
	n, freed, err := s.Trim(time.Now(), func(d Digest) bool { return d == needed })
	if n != 1 || freed != 3 || err != nil || !s.Has(needed) || s.Has(old) || !s.Has(again) || s.Size() != int64(len("neededagain")) {
		t.Errorf("removed %d, %d bytes, %v; %d bytes are left", n, freed, err, s.Size())
	}
	// It has gone from under whoever puts it next, who makes it whole again.
	if put(t, s, "old") != old || !s.Has(old) {
		t.Error("what was trimmed cannot be stored again")
	}
	if n, _, err := s.Trim(later, func(d Digest) bool { return d == needed }); n != 2 || err != nil {
		t.Errorf("later %d went, %v", n, err)
	}
}

// TestTrimMakesRoom: a store that is more than half full gives up its older objects before their time.
func TestTrimMakesRoom(t *testing.T) {
	s, err := Open(t.TempDir(), Options{QuotaBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	text := func(c byte) string { return string(bytes.Repeat([]byte{c}, 30)) }
	oldest, older, young := put(t, s, text('a')), put(t, s, text('b')), put(t, s, text('c'))
	backdate(t, s, oldest, time.Now().Add(-3*ageMin))
	backdate(t, s, older, time.Now().Add(-2*ageMin))
	if n, _, err := s.Trim(time.Now(), func(Digest) bool { return false }); n != 2 || err != nil || s.Has(older) || !s.Has(young) {
		t.Errorf("%d went, %v; %d bytes are left", n, err, s.Size())
	}
}
