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
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.max = 100
	line := append(bytes.Repeat([]byte("x"), 29), '\n')
	for range 40 { // three lines a file, and the first shares its with what was there
		if _, err := f.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 1+filesKept {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		st, err := os.Stat(name)
		if err != nil || st.Size() > f.max || st.Size()%30 != 0 || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
}
