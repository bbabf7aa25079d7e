package apt

import (
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/packages"
)

// BenchmarkCheck checks a hundred packages in a database of 3,000: with a forced look, and with one while nothing changed.
func BenchmarkCheck(b *testing.B) {
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "Package: package-%d\nStatus: install ok installed\nVersion: 1.0-%d\nArchitecture: amd64\nDepends: libc6 (>= 2.34)\nDescription: short\n%s\n", i, i, strings.Repeat(" a line of a description that nobody looks at here\n", 15))
	}
	dir := b.TempDir()
	put(b, dir, "status", text.String())
	back := &Apt{database: newDatabase(dir)}
	if back.Here() != nil {
		b.Skip("needs apt-get: this is no Debian")
	}
	typ := packages.New(packages.Options{Backends: []packages.Backend{back}})
	var rs []host.Resource
	for i := range 100 {
		p := &declare.Package{Package: fmt.Sprintf("package-%d", 30*i), Version: ">=1 <2"}
		r, err := typ.Bind(b.Context(), host.Declared{Resource: declare.Resource{Package: p}})
		if err != nil {
			b.Fatal(err)
		}
		rs = append(rs, r)
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
