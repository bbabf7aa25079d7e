package file

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const passwdText = "root:x:0:0:root:/root:/bin/bash\n# a comment\nbroken:x\nwww-data:x:33:33:www-data:/var/www:\nwww-data:x:34:34::/:\nweb:x:33:33::/:\nlast:x:4000000000:0::/:"

// sandboxOwners are owners of a sandbox with a passwd file.
func sandboxOwners(t *testing.T) (o *owners, passwd string) {
	t.Helper()
	dir := t.TempDir()
	passwd = filepath.Join(dir, "etc", "passwd")
	if err := os.Mkdir(filepath.Dir(passwd), 0o755); err != nil {
		t.Fatal(err)
	}
	writeTable(t, passwd, passwdText)
	return newOwners(openRoot(t, dir)), passwd
}

func openRoot(t *testing.T, dir string) *disk.Root {
	t.Helper()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func writeTable(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOwnersNumber(t *testing.T) {
	o, _ := sandboxOwners(t)
	for _, c := range []struct {
		of   table
		name string
		want uint32
		code reason.Code
	}{
		{users, "root", 0, 0},
		{users, "www-data", 33, 0},
		{users, "web", 33, 0},
		{users, "last", 4000000000, 0},
		{users, "1234", 1234, 0},
		{users, "broken", 0, reason.UnknownOwner},
		{users, "# a comment", 0, reason.UnknownOwner},
		{users, "nobody-has-this-name", 0, reason.UnknownOwner},
		{groups, "root", 0, 0}, // there is no group file
		{groups, "www-data", 0, reason.UnknownOwner},
		{groups, "0", 0, 0},
	} {
		for range 2 { // the second time as remembered
			got, err := o.number(t.Context(), c.of, c.name)
			if c.code != 0 {
				if !reason.Is(err, c.code) || !strings.Contains(err.Error(), c.name) {
					t.Errorf("%s %s: error %v, want %v", c.of.noun, c.name, err, c.code)
				}
			} else if err != nil || got != c.want {
				t.Errorf("%s %s: %d, %v, want %d", c.of.noun, c.name, got, err, c.want)
			}
		}
	}
	if got := o.name(users, 33); got != "www-data" {
		t.Errorf("user 33 is %q", got)
	}
	if got := o.name(users, 77); got != "77" {
		t.Errorf("user 77, who has no name, is %q", got)
	}
}

func TestOwnersFollowTheFile(t *testing.T) {
	o, passwd := sandboxOwners(t)
	if _, err := o.number(t.Context(), users, "new"); !reason.Is(err, reason.UnknownOwner) {
		t.Fatalf("before: %v", err)
	}
	writeTable(t, passwd, passwdText+"\nnew:x:55:55::/:\n")
	if got, err := o.number(t.Context(), users, "new"); got != 55 || err != nil {
		t.Errorf("after it was added: %d, %v", got, err)
	}
	writeTable(t, passwd, passwdText+"\nnew:x:56:56::/:\nmore:x:57:57::/:\n")
	if got, err := o.number(t.Context(), users, "new"); got != 56 || err != nil {
		t.Errorf("after it was changed: %d, %v", got, err)
	}
}

func TestOwnersAskTheHost(t *testing.T) {
	o := newOwners(openRoot(t, "/"))
	if got, err := o.number(t.Context(), users, "root"); got != 0 || err != nil {
		t.Errorf("root is %d, %v", got, err)
	}
	const name = "tako-nobody-has-this"
	if _, err := o.number(t.Context(), users, name); !reason.Is(err, reason.UnknownOwner) {
		t.Errorf("%s: %v, want unknown", name, err)
	}
	if got, err := getent(t.Context(), users, "root"); got != 0 || err != nil {
		t.Errorf("getent of root: %d, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := getent(ctx, users, "root"); !reason.Is(err, reason.Interrupted) {
		t.Errorf("getent of nobody's interest: %v", err)
	}
}

func FuzzIDOf(f *testing.F) {
	f.Add([]byte(passwdText), "www-data")
	f.Add([]byte("a:b:c"), "a")
	f.Add([]byte("::1\n:x:2:\n"), "")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		id, ok := idOf(data, name)
		// The naive reading: split everything.
		for _, line := range strings.Split(string(data), "\n") {
			fields := strings.Split(line, ":")
			if len(fields) < 3 || fields[0] != name || name == "" {
				continue
			}
			n, err := strconv.ParseUint(fields[2], 10, 32)
			if err != nil {
				continue
			}
			if !ok || id != uint32(n) {
				t.Fatalf("%q in %q: %d, %v, want %d", name, data, id, ok, n)
			}
			if _, ok := nameOf(data, id); !ok {
				t.Fatalf("%d has no name in %q", id, data)
			}
			return
		}
		if ok {
			t.Fatalf("%q in %q: %d, want none", name, data, id)
		}
	})
}

// A name that comes to mean another number, as where a uid is declared, means that from then on: without another declaration, and told by
// the file of names.
func TestOwnerIsRenumbered(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives files away")
	}
	dir := t.TempDir()
	passwd := filepath.Join(dir, "etc", "passwd")
	if err := os.Mkdir(filepath.Dir(passwd), 0o755); err != nil {
		t.Fatal(err)
	}
	writeTable(t, passwd, "web:x:4001:4001::/:\n")
	typ := New(Options{Root: openRoot(t, dir)})
	declared := declare.Resource{Name: "f", File: &declare.File{Path: "/f", Owner: "web", Group: "4001"}}
	r, err := typ.Bind(t.Context(), host.Declared{Title: "file/f", Resource: declared, Body: func() (declare.Resource, error) { return declared, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Watches(); len(got) != 2 || got[1].Name != "/etc/passwd" {
		t.Errorf("it watches %v: a group by its number needs nothing, a user by name does", got)
	}
	converged := func(uid uint32) {
		t.Helper()
		plans := typ.Check(t.Context(), []host.Resource{r}, host.Shallow)
		if plans[0].Err != nil || plans[0].Empty() {
			t.Fatalf("the plan is %+v", plans[0])
		}
		if res := typ.Apply(t.Context(), plans); res[0].Err != nil {
			t.Fatal(res[0].Err)
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, "f"), &st); err != nil || st.Uid != uid {
			t.Errorf("it is %d's, want %d (%v)", st.Uid, uid, err)
		}
		if again := typ.Check(t.Context(), []host.Resource{r}, host.Shallow); !again[0].Empty() || !again[0].Recognised {
			t.Errorf("just applied: %+v", again[0])
		}
	}
	converged(4001)
	writeTable(t, passwd, "web:x:4002:4001::/:\nother:x:1:1::/:\n")
	converged(4002)
	writeTable(t, passwd, "other:x:1:1::/:\n")
	if p := typ.Check(t.Context(), []host.Resource{r}, host.Shallow)[0]; !reason.Is(p.Err, reason.UnknownOwner) {
		t.Errorf("nobody has the name any more: %+v", p)
	}
}
