package account

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
)

// TestKeysFollowTheHome: what tells about a file of keys changes with the user's home, when a check has seen that, and by Follow alone.
func TestKeysFollowTheHome(t *testing.T) {
	dir := t.TempDir()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	live := func(home string) {
		t.Helper()
		line := fmt.Sprintf("t-a:x:%d:%d::%s:/bin/sh\n", os.Geteuid(), os.Getegid(), home)
		for name, text := range map[string]string{"passwd": line, "group": "t-a:x:0:\n"} {
			p := filepath.Join(dir, "etc", name)
			if err := os.WriteFile(p+"+", []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(p+"+", p); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := func(p string) []host.Watch { return []host.Watch{{Kind: host.WatchPath, Name: p}} }
	const first, second = "/home/a/.ssh/authorized_keys", "/srv/a/.ssh/authorized_keys"
	live("/home/a")
	k := NewKeys(Options{Root: root})
	r, err := k.Bind(t.Context(), hosttest.Declared(keysOfA("", keyA)))
	if err != nil {
		t.Fatal(err)
	}
	f := r.(host.Following)
	watches := func(what, at string) {
		t.Helper()
		if got, want := r.Watches(), append(path("/etc/passwd"), path(at)...); !slices.Equal(got, want) {
			t.Errorf("%s: it watches %v, want %v", what, got, want)
		}
	}
	look := func() { k.Check(t.Context(), []host.Resource{r}, host.Shallow) }
	look()
	watches("bound", first)
	if drop, add := f.Follow(); drop != nil || add != nil {
		t.Errorf("where nothing has moved, it drops %v and adds %v", drop, add)
	}
	live("/srv/a")
	watches("moved, and not looked at", first)
	look()
	watches("looked at, and not followed", first)
	if drop, add := f.Follow(); !slices.Equal(drop, path(first)) || !slices.Equal(add, path(second)) {
		t.Errorf("it drops %v and adds %v", drop, add)
	}
	watches("followed", second)
	if drop, add := f.Follow(); drop != nil || add != nil {
		t.Errorf("once more, it drops %v and adds %v", drop, add)
	}
	fixed, err := k.Bind(t.Context(), hosttest.Declared(declare.Resource{AuthorizedKeys: &declare.AuthorizedKeys{User: "t-a", Path: "/etc/keys", Keys: []string{keyA}}}))
	if err != nil {
		t.Fatal(err)
	}
	live("/home/a")
	k.Check(t.Context(), []host.Resource{fixed}, host.Shallow)
	if drop, add := fixed.(host.Following).Follow(); drop != nil || add != nil {
		t.Errorf("of a path of its own, it drops %v and adds %v", drop, add)
	}
}
