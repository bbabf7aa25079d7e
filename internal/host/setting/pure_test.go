package setting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

func TestRefused(t *testing.T) {
	for err, code := range map[error]reason.Code{
		unix.EROFS: reason.SettingRefused, unix.EACCES: reason.SettingRefused, unix.EPERM: reason.SettingRefused, unix.EINVAL: reason.SettingRefused,
		unix.EIO: reason.SystemCallFailed,
	} {
		if got := refused("x", &os.PathError{Op: "write", Path: "p", Err: err}); !reason.Is(got, code) || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestAssignments(t *testing.T) {
	got := assignments("# c\n; c\n\na.b=1\n a.b = 2  3\t4 \n-c/d.e/f=x=y\n*.g=1\nno value\n=1\n  -h.i  =\r\nj.k=1")
	want := map[string]assignment{"a.b": {line: 5, value: "2 3 4"}, "c.d/e.f": {line: 6, value: "x=y"}, "h.i": {line: 10}, "j.k": {line: 11, value: "1"}}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	for key, a := range want {
		if got[key] != a {
			t.Errorf("%s: %+v, want %+v", key, got[key], a)
		}
	}
}

func FuzzAssignments(f *testing.F) {
	f.Add("a.b = 1\n-c/d=2\n#\n")
	f.Add("=\n\x00=\xff\n/=1")
	f.Fuzz(func(t *testing.T, body string) {
		for key, a := range assignments(body) {
			if a.line < 1 || a.line > strings.Count(body, "\n")+1 || strings.TrimSpace(key) != key {
				t.Fatalf("%q: %q %+v", body, key, a)
			}
		}
	})
}

// hostsDraw draws hosts files with few addresses and names, so that they meet.
func hostsDraw() *rapid.Generator[string] {
	line := rapid.Custom(func(t *rapid.T) string {
		address := rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "::1", "0:0::1", "fe80::1%a", "", "#", "no address"}).Draw(t, "address")
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "A", "b", "c", "d.e"}), 0, 4).Draw(t, "names")
		blank := rapid.SampledFrom([]string{" ", "\t", "  \t"}).Draw(t, "blank")
		tail := rapid.SampledFrom([]string{"", " ", "# c", " # a b", "#"}).Draw(t, "tail")
		head := rapid.SampledFrom([]string{"", " ", "\t"}).Draw(t, "head")
		return head + address + blank + strings.Join(names, blank) + tail + rapid.SampledFrom([]string{"\n", "\n", "\r\n"}).Draw(t, "end")
	})
	return rapid.Custom(func(t *rapid.T) string {
		body := strings.Join(rapid.SliceOfN(line, 0, 8).Draw(t, "lines"), "")
		if rapid.Bool().Draw(t, "cut") {
			body = strings.TrimSuffix(body, "\n")
		}
		return body
	})
}

// lookUp is what a resolver makes of a hosts file: the first address of a kind that has a name.
func lookUp(body, name string, four bool) string {
	for line := range strings.Lines(body) {
		entry, _, _ := strings.Cut(line, "#")
		w := strings.Fields(entry)
		if len(w) == 0 {
			continue
		}
		a, err := netip.ParseAddr(w[0])
		if err == nil && a.Is4() == four && slices.ContainsFunc(w[1:], func(n string) bool { return strings.EqualFold(n, name) }) {
			return a.String()
		}
	}
	return ""
}

// others are the lines of a file that have not the address, or none of the names.
func (h *hosts) others(lines []hostsLine) []string {
	var out []string
	for _, l := range lines {
		if !h.same(l) || !l.hasAny(h.names) {
			out = append(out, strings.TrimRight(l.raw, "\n"))
		}
	}
	return out
}

// TestHostsProperties edits drawn files: names lead where they shall, other lines stay, a second time changes nothing, and what was can be
// put back.
func TestHostsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := hostsDraw().Draw(t, "body")
		text := rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "::1", "fe80::1%a"}).Draw(t, "address")
		h := &hosts{address: netip.MustParseAddr(text), text: text, names: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "f"}), 1, 3, rapid.ID[string]).Draw(t, "names")}
		lines := parseHosts(body)
		if got := joinHosts(lines); got != body {
			t.Fatalf("%q is read as %q", body, got)
		}
		there := joinHosts(h.present(lines))
		for _, name := range h.names {
			if got := lookUp(there, name, h.address.Is4()); got != h.address.String() {
				t.Fatalf("%q: %s leads to %q in %q", body, name, got, there)
			}
		}
		e := &hostEntry{hosts: *h}
		if changes, _ := e.compare(e.see(parseHosts(there))); len(changes) > 0 {
			t.Fatalf("%q: there is still %v in %q", body, changes, there)
		}
		if changes, _ := e.compare(e.see(lines)); (len(changes) > 0) != (there != body) {
			t.Fatalf("%q: planned %v, done %q", body, changes, there)
		}
		gone := joinHosts(h.absent(lines))
		for _, l := range parseHosts(gone) {
			if h.same(l) && l.hasAny(h.names) {
				t.Fatalf("%q: %q is left", body, l.raw)
			}
		}
		a := &hostEntry{hosts: *h, gone: true}
		if changes, _ := a.compare(a.see(lines)); (len(changes) > 0) != (gone != body) {
			t.Fatalf("%q: planned %v, done %q", body, changes, gone)
		}
		for name, after := range map[string]string{"present": there, "absent": gone} {
			now := parseHosts(after)
			if name == "present" && !slices.Equal(h.others(lines), h.others(now)) {
				t.Fatalf("%q: other lines in %q", body, after)
			}
			back := joinHosts(h.restore(now, h.old(lines), name == "absent"))
			if strings.TrimRight(back, "\n") != strings.TrimRight(body, "\n") {
				t.Fatalf("%s: %q became %q and is restored to %q", name, body, after, back)
			}
		}
	})
}

func FuzzHosts(f *testing.F) {
	f.Add("127.0.0.1 localhost # c\n::1\tx y\r\n", "x")
	f.Add("10.0.0.1 \x00\n#\n 1.1.1.1 a", "a")
	f.Fuzz(func(t *testing.T, body, name string) {
		lines := parseHosts(body)
		if joinHosts(lines) != body {
			t.Fatalf("%q is read as %q", body, joinHosts(lines))
		}
		if strings.ContainsAny(name, "# \t\r\n\v\f\u0085\u00a0") || name == "" || strings.Fields(name)[0] != name {
			return
		}
		h := &hosts{address: netip.MustParseAddr("10.0.0.1"), text: "10.0.0.1", names: []string{name}}
		there := parseHosts(joinHosts(h.present(lines)))
		if !slices.ContainsFunc(there, h.complete) {
			t.Fatalf("%q: %q is not in %q", body, name, joinHosts(there))
		}
	})
}

func TestVariables(t *testing.T) {
	for _, c := range []struct{ body, name, value, want string }{
		{"", "LANG", "C", "LANG=C\n"}, {"X=1", "LANG", "C", "X=1\nLANG=C\n"}, {"LANG=a\nX=1\nLANG=b\n", "LANG", "C", "LANG=C\nX=1\n"},
		{"X=1\n LANG=a\n", "LANG", "", "X=1\n"}, {"LANGUAGE=x\n", "LANG", "C", "LANGUAGE=x\nLANG=C\n"}, {"#LANG=a\n", "LANG", "C", "#LANG=a\nLANG=C\n"},
	} {
		got := withVariable(c.body, c.name, c.value)
		if got != c.want || variable(got, c.name) != c.value {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := variable("LANG='a'\nLANG=\"b.c\"  \n", "LANG"); got != "b.c" {
		t.Errorf("%q", got)
	}
}

func TestLocaleNames(t *testing.T) {
	for name, want := range map[string]string{
		"de_DE.UTF-8": "de_DE.utf8", "C": "C", "ca_ES.UTF-8@valencia": "ca_ES.utf8@valencia", "de_DE.ISO-8859-15@euro": "de_DE.iso885915@euro", "C.utf8": "C.utf8",
	} {
		if got := normalLocale(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, c := range []struct{ body, name, want string }{
		{"# de_DE.UTF-8 UTF-8\n# x\n", "de_DE.UTF-8", "de_DE.UTF-8 UTF-8\n# x\n"}, {"x", "de_DE.UTF-8", "x\nde_DE.UTF-8 UTF-8\n"}, {"", "a_B.UTF-8@c", "a_B.UTF-8@c UTF-8\n"},
		{"# de_DE ISO-8859-1\n#de_DE.UTF-8 UTF-8  \n", "de_DE.UTF-8", "# de_DE ISO-8859-1\nde_DE.UTF-8 UTF-8  \n"},
	} {
		if got := withLocale(c.body, c.name); got != c.want {
			t.Errorf("%q: %q", c.body, got)
		}
	}
	if got := withSet("aa_ER@saaho", "UTF-8"); got != "aa_ER.UTF-8@saaho" {
		t.Error(got)
	}
}

// archiveOf is an archive with names, as far as names go.
func archiveOf(names ...string) []byte {
	b := make([]byte, archiveHead)
	put := func(at int, n uint32) { binary.NativeEndian.PutUint32(b[at:], n) }
	put(0, archiveMagic)
	put(8, archiveHead)
	put(16, uint32(len(names)+1))
	texts := make([]byte, 0)
	for _, name := range append(names, "") {
		locale := uint32(1)
		if name == "" {
			locale = 0
		}
		b = binary.NativeEndian.AppendUint32(b, 7)
		b = binary.NativeEndian.AppendUint32(b, uint32(archiveHead+(len(names)+1)*archiveEntry+len(texts)))
		b = binary.NativeEndian.AppendUint32(b, locale)
		texts = append(append(texts, name...), 0)
	}
	return append(b, texts...)
}

func TestArchive(t *testing.T) {
	names, err := archiveNames(bytes.NewReader(archiveOf("de_DE.utf8", "fr_FR")))
	if err != nil || !slices.Equal(names, []string{"de_DE.utf8", "fr_FR"}) {
		t.Errorf("%v, %v", names, err)
	}
	for _, bad := range [][]byte{nil, make([]byte, 100), archiveOf("x")[:archiveHead+3], archiveOf(strings.Repeat("x", 100))} {
		if names, err := archiveNames(bytes.NewReader(bad)); err == nil {
			t.Errorf("%v", names)
		}
	}
	// What `locale -a` lists is what the type finds on this host.
	out, err := exec.CommandContext(t.Context(), "locale", "-a").Output()
	if err != nil {
		t.Skip("needs locale")
	}
	g := newGround(t, "/")
	for _, typ := range g.types {
		have, err := typ.(*Type).compiledLocales()
		for name := range strings.FieldsSeq(string(out)) {
			if err != nil || strings.Contains(name, "_") && !have[normalLocale(name)] {
				t.Errorf("%s: %v, %v", name, have, err)
			}
		}
		break
	}
}

func FuzzArchive(f *testing.F) {
	f.Add(archiveOf("de_DE.utf8", "C"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = archiveNames(bytes.NewReader(b))
	})
}
