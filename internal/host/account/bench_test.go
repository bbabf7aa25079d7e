package account

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
)

// BenchmarkCheck checks 1,000 users of a host that has just these: shallow when nothing has changed, and deep as after each change of
// the files.
func BenchmarkCheck(b *testing.B) {
	const users = 1000
	dir := b.TempDir()
	var passwd, group, shadow strings.Builder
	var rs []host.Resource
	for i := range users {
		name := fmt.Sprintf("user-%04d", i)
		fmt.Fprintf(&passwd, "%s:x:%d:%d::/home/%s:/bin/bash\n", name, 2000+i, 2000+i, name)
		fmt.Fprintf(&group, "%s:x:%d:\n", name, 2000+i)
		fmt.Fprintf(&shadow, "%s:%s:20000:0:99999:7:::\n", name, hash)
		u := declare.User{User: name, UID: ptr(int64(2000 + i)), CreateHome: ptr(false), PasswordHash: hash, Groups: []string{"user-0000"}}
		rs = append(rs, newUser(&u, name))
	}
	members := strings.ReplaceAll(strings.TrimSuffix(group.String(), "\n"), "user-0000:x:2000:\n", "user-0000:x:2000:"+allNames(users)+"\n")
	for name, text := range map[string]string{"passwd": passwd.String(), "group": members + "\n", "shadow": shadow.String()} {
		if err := os.MkdirAll(filepath.Join(dir, "etc"), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	root, err := disk.OpenRoot(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close()
	typ := New(Options{Root: root})
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

func allNames(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("user-%04d", i)
	}
	return strings.Join(names, ",")
}
