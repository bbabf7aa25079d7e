package disk

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
)

const benchFiles = 1000

func benchDir(b *testing.B) (dir string, names []string, specs []WriteSpec) {
	dir = b.TempDir()
	for i := range benchFiles {
		name := fmt.Sprintf("file-%04d.conf", i)
		names = append(names, name)
		specs = append(specs, textSpec(filepath.Join(dir, name), "key = value\n"))
	}
	return dir, names, specs
}

// BenchmarkWriteAll makes 1,000 small files durable in one directory.
func BenchmarkWriteAll(b *testing.B) {
	r := hostRoot(b)
	_, _, specs := benchDir(b)
	for b.Loop() {
		for _, res := range r.WriteAll(context.Background(), specs) {
			if res.Err != nil {
				b.Fatal(res.Err)
			}
		}
	}
}

// BenchmarkStatAll is the shallow check of 1,000 files.
func BenchmarkStatAll(b *testing.B) {
	r := hostRoot(b)
	dir, names, specs := benchDir(b)
	r.WriteAll(context.Background(), specs)
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
	dir, names, specs := benchDir(b)
	r.WriteAll(context.Background(), specs)
	h := NewHasher()
	b.ReportAllocs()
	for b.Loop() {
		d, err := r.Dir(dir)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range names {
			if _, _, err := h.File(d, name); err != nil {
				b.Fatal(err)
			}
		}
		d.Close()
	}
}

// BenchmarkWatch subscribes to 1,000 files.
func BenchmarkWatch(b *testing.B) {
	r := hostRoot(b)
	_, _, specs := benchDir(b)
	b.ReportAllocs()
	for b.Loop() {
		w, err := NewWatcher(r)
		if err != nil {
			b.Fatal(err)
		}
		for i := range specs {
			if err := w.Watch(specs[i].Path, ID(i)); err != nil {
				b.Fatal(err)
			}
		}
		if n := w.Stats().Watches; n > 2 {
			b.Fatalf("%d watches", n)
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
