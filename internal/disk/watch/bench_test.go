package watch

import (
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkWatch subscribes to 1,000 files.
func BenchmarkWatch(b *testing.B) {
	r := hostRoot(b)
	const files = 1000
	dir := b.TempDir()
	b.ReportAllocs()
	for b.Loop() {
		w, err := New(r)
		if err != nil {
			b.Fatal(err)
		}
		for i := range files {
			if err := w.Watch(filepath.Join(dir, fmt.Sprint(i)), ID(i)); err != nil {
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
