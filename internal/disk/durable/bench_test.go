package durable

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
		for _, res := range WriteAll(context.Background(), r, specs) {
			if res.Err != nil {
				b.Fatal(res.Err)
			}
		}
	}
}
