package systemd

import (
	"testing"

	"github.com/godbus/dbus/v5"
	"pgregory.net/rapid"
)

func TestUnitPath(t *testing.T) {
	for name, label := range map[string]string{
		"nginx.service":            "nginx_2eservice",
		"-.mount":                  "_2d_2emount",
		"getty@tty1.service":       "getty_40tty1_2eservice",
		"3proxy.service":           "_33proxy_2eservice",
		`dev-disk-by\x2duuid.swap`: "dev_2ddisk_2dby_5cx2duuid_2eswap",
		"a_b.service":              "a_5fb_2eservice",
		"ü.service":                "_c3_bc_2eservice",
	} {
		want := dbus.ObjectPath(unitPathPrefix + label)
		if got := unitPath(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		if back, ok := unitOfPath(want); !ok || back != name {
			t.Errorf("%s: back to %q, %v", want, back, ok)
		}
	}
	for _, path := range []string{
		"", "/", unitPathPrefix, unitPathPrefix + "_", "/org/freedesktop/systemd1/job/1", unitPathPrefix + "a_2", unitPathPrefix + "a_",
		unitPathPrefix + "a_2E", unitPathPrefix + "a_zz", unitPathPrefix + "3proxy", unitPathPrefix + "_61", unitPathPrefix + "a/b",
	} {
		if name, ok := unitOfPath(dbus.ObjectPath(path)); ok {
			t.Errorf("%q is the path of %q", path, name)
		}
	}
}

func TestUnitPathRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := string(rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "name"))
		path := unitPath(name)
		if !path.IsValid() {
			t.Fatalf("%q: %s is no object path", name, path)
		}
		if back, ok := unitOfPath(path); !ok || back != name {
			t.Fatalf("%q became %q, %v", name, back, ok)
		}
	})
}

func FuzzUnitOfPath(f *testing.F) {
	for _, seed := range []string{unitPathPrefix + "nginx_2eservice", unitPathPrefix + "_", unitPathPrefix + "_3", "/", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if name, ok := unitOfPath(dbus.ObjectPath(path)); ok && (name == "" || string(unitPath(name)) != path) {
			t.Errorf("%q: taken for %q", path, name)
		}
	})
}
