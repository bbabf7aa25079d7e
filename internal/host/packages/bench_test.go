package packages

import (
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/internal/host"
)

// BenchmarkCheck checks a hundred packages in a database of 3,000: with a forced look, and with one while nothing changed.
func BenchmarkCheck(b *testing.B) {
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "Package: package-%d\nStatus: install ok installed\nVersion: 1.0-%d\nArchitecture: amd64\nDepends: libc6 (>= 2.34)\nDescription: short\n%s\n", i, i, strings.Repeat(" a line of a description that nobody looks at here\n", 15))
	}
	dir := b.TempDir()
	d := newDatabase(dir)
	put(b, dir, "status", text.String())
	typ := &Type{database: d}
	var rs []host.Resource
	for i := range 100 {
		rs = append(rs, &resource{name: fmt.Sprintf("package-%d", 30*i), present: true})
	}
	for name, depth := range map[string]host.Depth{"shallow": host.Shallow, "deep": host.Deep} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, p := range typ.Check(b.Context(), rs, depth) {
					if !p.Empty() {
						b.Fatalf("%+v", p)
					}
				}
			}
		})
	}
}
