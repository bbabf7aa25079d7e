package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte("before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const kept = 7
	f, err := openFile(path, bounds{size: 100, kept: kept})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	line := append(bytes.Repeat([]byte("x"), 29), '\n')
	for range 40 { // three lines a file, and the first shares its with what was there
		if _, err := f.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 1+kept {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		st, err := os.Stat(name)
		if err != nil || st.Size() > f.bounds.size || st.Size()%30 != 0 || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
}

// TestRotationFails: while a full file cannot be put aside it is written on, and is put aside when that can be done again.
func TestRotationFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	f, err := openFile(path, bounds{size: 100, kept: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// A directory that is not empty cannot be renamed over, not even by root.
	if err := os.MkdirAll(filepath.Join(path+".1", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path+".2", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte("x"), 59), '\n')
	for range 10 {
		if _, err := f.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(path); err != nil || len(b) != 600 {
		t.Errorf("%v: %d bytes, want 600", err, len(b))
	}
	if err := os.RemoveAll(path + ".1"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Repeat([]byte("y"), retryAfter)); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path + ".1"); err != nil || len(b) != 600 {
		t.Errorf("%v: %d bytes are put aside, want 600", err, len(b))
	}
}
