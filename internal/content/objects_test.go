package content

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

func openObjects(t *testing.T, quota int64) *Objects {
	t.Helper()
	o, err := OpenObjects(filepath.Join(t.TempDir(), "objects"), Options{QuotaBytes: quota})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func part(t *testing.T, o *Objects, d Digest, text string) int64 {
	t.Helper()
	f, at, err := o.Part(d)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.WriteString(f, text); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestObjectsInParts(t *testing.T) {
	o := openObjects(t, 0)
	w := Wanted{Digest: DigestOf([]byte("one two")), Size: 7}
	if at := part(t, o, w.Digest, "one "); at != 0 {
		t.Errorf("a new part begins at %d", at)
	}
	if at := part(t, o, w.Digest, "two"); at != 4 {
		t.Errorf("it goes on at %d", at)
	}
	if err := o.Add(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	f, err := o.Open(w)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "one two" || o.store.Size() != 7 {
		t.Errorf("%q, %v; %d bytes in use", b, err, o.store.Size())
	}
	// The same once more takes no more room.
	part(t, o, w.Digest, "one two")
	if err := o.Add(t.Context(), w); err != nil || o.store.Size() != 7 {
		t.Errorf("%v; %d bytes in use", err, o.store.Size())
	}
}

func TestObjectsRefuse(t *testing.T) {
	o := openObjects(t, 10)
	w := Wanted{Digest: DigestOf([]byte("right")), Size: 5}
	for _, text := range []string{"wrong", "righ", "rightly", ""} {
		part(t, o, w.Digest, text)
		if err := o.Add(t.Context(), w); !reason.Is(err, reason.ContentMismatch) {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := os.Lstat(o.partPath(w.Digest)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q is still there", text)
		}
	}
	large := strings.Repeat("x", 11)
	w = Wanted{Digest: DigestOf([]byte(large)), Size: 11}
	if err := o.Room(w); !reason.Is(err, reason.ObjectUnstored) {
		t.Errorf("room above the quota: %v", err)
	}
	part(t, o, w.Digest, large)
	if err := o.Add(t.Context(), w); !reason.Is(err, reason.ObjectUnstored) || o.store.Size() != 0 {
		t.Errorf("above the quota: %v; %d bytes in use", err, o.store.Size())
	}
	if err := errors.Join(o.Discard(w.Digest), o.Discard(w.Digest)); err != nil {
		t.Error(err)
	}
}

// What is damaged on the disk is fetched anew.
func TestObjectsDamaged(t *testing.T) {
	o := openObjects(t, 0)
	o.Fetched()
	w := Wanted{Digest: DigestOf([]byte("right")), Size: 5}
	part(t, o, w.Digest, "right")
	if err := o.Add(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.store.path(w.Digest), []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Open(w); !reason.Is(err, reason.ObjectComing) || len(o.Wanted()) != 1 || o.Has(w.Digest) {
		t.Errorf("%v, wanted %v", err, o.Wanted())
	}
}

func TestObjectsTrim(t *testing.T) {
	o := openObjects(t, 0)
	var digests []Digest
	for _, text := range []string{"used", "not used"} {
		w := Wanted{Digest: DigestOf([]byte(text)), Size: int64(len(text))}
		part(t, o, w.Digest, text)
		if err := o.Add(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		digests = append(digests, w.Digest)
	}
	o.Use(digests[0])
	part(t, o, DigestOf(nil), "begun")
	if err := o.Trim(time.Now().Add(ageMax + time.Minute)); err != nil {
		t.Fatal(err)
	}
	if !o.Has(digests[0]) || o.Has(digests[1]) {
		t.Error("what is used stays, and nothing else")
	}
	if _, err := os.Lstat(o.partPath(DigestOf(nil))); err == nil {
		t.Error("an old part stays")
	}
	o.Release(digests[0])
	if err := o.Trim(time.Now().Add(ageMax + time.Minute)); err != nil || o.Has(digests[0]) {
		t.Errorf("%v: what is used no more goes", err)
	}
}
