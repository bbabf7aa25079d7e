package facts

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
)

func TestMachine(t *testing.T) {
	for _, c := range []struct{ hostname, hosts, want string }{
		{"web-1.example.com", "", "web-1.example.com"},
		{"web-1", "127.0.1.1 web-1.example.com web-1\n", "web-1.example.com"},
		{"web-1", "127.0.1.1\tweb-1 web-1.example.com # web-1.no\n", "web-1.example.com"},
		{"web-1", "# 127.0.1.1 web-1.example.com web-1\n::1 localhost\n", ""},
		{"web-1", "192.0.2.1 web-10.example.com web-10\n", ""},
		{"web-1", "192.0.2.1 web-1.example.com\n", ""},
		{"", "192.0.2.1 .example.com\n", ""},
	} {
		if got := fqdnOf(c.hostname, []byte(c.hosts)); got != c.want {
			t.Errorf("%s in %q: got %q, want %q", c.hostname, c.hosts, got, c.want)
		}
	}
	for target, want := range map[string]string{"/usr/share/zoneinfo/Europe/Berlin": "Europe/Berlin", "../usr/share/zoneinfo/UTC": "UTC", "/etc/own": ""} {
		if got := parseZone(target); got != want {
			t.Errorf("%s: got %q", target, got)
		}
	}
	for name, want := range map[string]int64{"libsystemd-shared-252.so": 252, "libsystemd-shared-257.9-1.el10.so": 257, "libsystemd-shared-.so": 0, "252.so": 0} {
		if got := parseSystemdLibrary(name); got != want {
			t.Errorf("%s: got %d", name, got)
		}
	}
	for in, want := range map[string]int64{"2048": 1 << 20, "": 0, "-1": 0, "9223372036854775807": 0} {
		if got := parseSectors(in); got != want {
			t.Errorf("%q: got %d", in, got)
		}
	}
	for name, want := range map[string]bool{"sda": true, "nvme0n1": true, "vda": true, "sr0": false, "loop7": false, "zram0": false, "mmcblk0": true, "mmcblk0boot0": false, "srx": true} {
		if isDisk(name) != want {
			t.Errorf("%s: is a disk: %v", name, !want)
		}
	}
}

func TestMessagesAboutDisks(t *testing.T) {
	for message, want := range map[string]bool{
		"add@/devices/x/block/sdb\x00ACTION=add\x00SUBSYSTEM=block\x00DEVTYPE=disk\x00":       true,
		"add@/devices/x/block/sdb/sdb1\x00ACTION=add\x00SUBSYSTEM=block\x00DEVTYPE=partition": false,
		"add@/devices/virtual/net/veth0\x00SUBSYSTEM=net\x00":                                 false,
		"": false,
	} {
		if isOfDisk([]byte(message)) != want {
			t.Errorf("%q: %v", message, !want)
		}
	}
}

// TestEveryNameIsKnown: what Names lists, Get knows, with the type that expressions think it has; and all of it counts in the sum.
func TestEveryNameIsKnown(t *testing.T) {
	host := full
	host.Own = map[string]any{"facts.custom.app.role": "web"}
	names := host.Names()
	if want := len(declare.FactNames()) + 2*3 + 3 + 1; len(names) != want {
		t.Errorf("%d names, want %d: %v", len(names), want, names)
	}
	for _, name := range names {
		x, ok := host.Get(name)
		v, valid := declare.ValueOf(x)
		if !ok || !valid {
			t.Errorf("%s is %v", name, x)
			continue
		}
		when := map[declare.ValueType]string{declare.Text: name + " == 'x'", declare.Integer: name + " > 1", declare.Boolean: name, declare.List: "'x' in " + name}[v.Type()]
		e, err := declare.ParseWhen(when)
		if err == nil {
			_, err = e.Eval(declare.Scope{Fact: host.Get}.Lookup)
		}
		if err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
}

// TestSumTellsEveryChange of an own fact or a disk, and nothing else.
func TestSumTellsEveryChange(t *testing.T) {
	value := rapid.OneOf(rapid.Just[any]("1"), rapid.Just[any](int64(1)), rapid.Just[any](true), rapid.Just[any]([]string{"1"}), rapid.Just[any]([]string{"1", ""}), rapid.Just[any]("[\"1\"]"))
	draw := func(t *rapid.T, label string) Facts {
		f := full
		f.Own = rapid.MapOfN(rapid.SampledFrom([]string{"facts.custom.a.x", "facts.custom.a.y"}), value, 0, 2).Draw(t, label)
		f.Disks = []Disk{{Name: "sda", Bytes: int64(rapid.IntRange(1, 2).Draw(t, label+" size"))}}
		return f
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		same := reflect.DeepEqual(a.Disks, b.Disks) && len(a.Own) == len(b.Own)
		for name, x := range a.Own {
			same = same && reflect.DeepEqual(x, b.Own[name])
		}
		if (a.sum() == b.sum()) != same {
			t.Fatalf("%v and %v", a, b)
		}
	})
}

func FuzzMachine(f *testing.F) {
	f.Add([]byte("127.0.1.1 a.b a\n"))
	f.Add([]byte("model name : x\n"))
	f.Add([]byte("libsystemd-shared-1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := parseSectors(string(b)); n < 0 || n%512 != 0 {
			t.Errorf("%d bytes", n)
		}
		if n := parseSystemdLibrary(string(b)); n < 0 {
			t.Errorf("systemd %d", n)
		}
		for _, s := range []string{parseCPUModel(b), fqdnOf("a", b), parseZone(string(b)), printable(string(b))} {
			if s != printable(s) {
				t.Errorf("%q", s)
			}
		}
		isOfDisk(b)
	})
}
