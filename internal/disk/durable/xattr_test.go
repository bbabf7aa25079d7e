package durable

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk/disktest"
	"tako.dev/tako/internal/reason"
)

func TestDeclaredAttributes(t *testing.T) {
	disktest.NeedRoot(t)
	dir := t.TempDir()
	r := hostRoot(t)
	if err := unix.Setxattr(dir, "user.probe", nil, 0); err != nil {
		t.Skipf("needs extended attributes in %s: %v", dir, err)
	}
	get := func(p, name string) string {
		b := make([]byte, 100)
		n, err := unix.Lgetxattr(p, name, b)
		if err != nil {
			return err.Error()
		}
		return string(b[:n])
	}
	const missing = "no data available"
	one, two, none := Attribute{"user.one", []byte("1")}, Attribute{"user.two", []byte{}}, Attribute{Name: "user.two"}
	p := dir + "/f"
	write := func(content string, attributes ...Attribute) error {
		_, err := Write(bg, r, WriteSpec{Path: p, Content: strings.NewReader(content), Size: int64(len(content)), Mode: 0o600, UID: 7, GID: 8, Attributes: attributes})
		return err
	}
	disktest.Must(t, write("a", one, two))
	if get(p, "user.one") != "1" || get(p, "user.two") != "" {
		t.Errorf("made with %q, %q", get(p, "user.one"), get(p, "user.two"))
	}
	disktest.Must(t, write("b", none))
	if get(p, "user.one") != "1" || get(p, "user.two") != missing {
		t.Errorf("replaced with %q, %q", get(p, "user.one"), get(p, "user.two"))
	}
	disktest.WantCode(t, write("c", Attribute{"nonsense.x", []byte("y")}), reason.AttributeUnsupported)
	disktest.WantCode(t, write("c", Attribute{"security.capability", []byte("y")}), reason.AttributeRefused)
	if b, err := os.ReadFile(p); string(b) != "b" || err != nil {
		t.Errorf("what could not have its attributes is there: %q, %v", b, err)
	}
	_, err := SetAttributes(bg, r, AttributeSpec{Path: p, Mode: Keep, UID: Keep, GID: Keep, Attributes: []Attribute{two, {Name: "user.one"}, {Name: "nonsense.x"}}})
	disktest.Must(t, err)
	if get(p, "user.one") != missing || get(p, "user.two") != "" {
		t.Errorf("set to %q, %q", get(p, "user.one"), get(p, "user.two"))
	}
	disktest.Must(t, os.Symlink("f", dir+"/l"))
	if _, err := SetAttributes(bg, r, AttributeSpec{Path: dir + "/l", Mode: Keep, UID: Keep, GID: Keep, Attributes: []Attribute{one}}); err == nil || get(p, "user.one") != missing {
		t.Errorf("an attribute was set through a symlink: %v, %q", err, get(p, "user.one"))
	}
	_, err = Mkdir(bg, r, MkdirSpec{Path: dir + "/d", Mode: 0o700, UID: 7, GID: 8, Attributes: []Attribute{one}})
	disktest.Must(t, err)
	if get(dir+"/d", "user.one") != "1" {
		t.Errorf("a directory was made with %q", get(dir+"/d", "user.one"))
	}
	wantNoTemporaries(t, dir)
	d, err := r.Dir(dir)
	disktest.Must(t, err)
	defer d.Close()
	if b, err := d.Attribute("f", "user.two"); b == nil || len(b) != 0 || err != nil {
		t.Errorf("read %v, %v", b, err)
	}
	if b, err := d.Attribute("f", "user.one"); b != nil || err != nil {
		t.Errorf("read %v, %v", b, err)
	}
	if b, err := d.Attribute("l", "user.two"); b != nil {
		t.Errorf("read through a symlink: %v, %v", b, err)
	}
	long := []byte(strings.Repeat("x", 1000))
	disktest.Must(t, unix.Setxattr(p, "user.long", long, 0))
	if b, err := d.Attribute("f", "user.long"); string(b) != string(long) || err != nil {
		t.Errorf("read %d bytes, %v", len(b), err)
	}
	_, err = d.Attribute("none", "user.one")
	disktest.WantCode(t, err, reason.ConcurrentEdit)
}
