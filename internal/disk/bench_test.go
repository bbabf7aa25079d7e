package disk

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"tako.dev/tako/internal/disk/disktest"
)

const benchFiles = 1000

func benchDir(b *testing.B) (dir string, names []string) {
	dir = b.TempDir()
	for i := range benchFiles {
		name := fmt.Sprintf("file-%04d.conf", i)
		names = append(names, name)
		disktest.Must(b, os.WriteFile(filepath.Join(dir, name), []byte("key = value\n"), 0o644))
	}
	return dir, names
}

// BenchmarkStatAll is the shallow check of 1,000 files.
func BenchmarkStatAll(b *testing.B) {
	r := hostRoot(b)
	dir, names := benchDir(b)
	b.ReportAllocs()
	for b.Loop() {
		d, err := r.Dir(dir)
		if err != nil {
			b.Fatal(err)
		}
		if _, errs := d.StatAll(names); errs != nil {
			b.Fatal(errs)
		}
		d.Close()
	}
}

// BenchmarkHash is the deep check of 1,000 files.
func BenchmarkHash(b *testing.B) {
	r := hostRoot(b)
	dir, names := benchDir(b)
	h := NewHasher()
	b.ReportAllocs()
	for b.Loop() {
		d, err := r.Dir(dir)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range names {
			if _, _, err := h.File(d, name, math.MaxInt64); err != nil {
				b.Fatal(err)
			}
		}
		d.Close()
	}
}
