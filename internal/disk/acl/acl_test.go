package acl

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// named draws entries of users and groups, nobody twice, perhaps with a mask.
func named(t *rapid.T) []Entry {
	ids := rapid.SliceOfNDistinct(rapid.Uint32Range(0, 70_000), 0, 5, rapid.ID[uint32])
	var entries []Entry
	for _, tag := range []Tag{User, Group} {
		for _, id := range ids.Draw(t, "ids") {
			entries = append(entries, Entry{tag, id, uint16(rapid.IntRange(0, permMax).Draw(t, "perm"))})
		}
	}
	if len(entries) > 0 && rapid.Bool().Draw(t, "masked") {
		entries = append(entries, Entry{Mask, 0, uint16(rapid.IntRange(0, permMax).Draw(t, "mask"))})
	}
	return entries
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries, mode := named(t), rapid.Uint32Range(0, 0o777).Draw(t, "mode")
		list, err := New(entries, mode)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(list.Encode())
		if err != nil || !slices.Equal(back, list) {
			t.Fatalf("%v came back as %v, %v", list, back, err)
		}
		if got := list.Mode(); got&0o707 != mode&0o707 {
			t.Fatalf("mode %o became %o", mode, got)
		}
		if others := list.Beside(); len(others) != len(slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return e.Tag == Mask }))+1 {
			t.Fatalf("%v: beside the mode it says %v", list, others)
		}
	})
}

func TestRefused(t *testing.T) {
	for _, entries := range [][]Entry{
		{{User, 7, 4}, {User, 7, 6}}, {{Owner, 0, 4}}, {{User, undefined, 4}}, {{User, 7, 8}}, {{0x40, 0, 4}}, {{Others, 0, 1}},
	} {
		if list, err := New(entries, 0o644); err == nil {
			t.Errorf("%v was taken as %v", entries, list)
		}
	}
	for _, b := range [][]byte{nil, {2, 0, 0}, {1, 0, 0, 0}, {2, 0, 0, 0}, {2, 0, 0, 0, 1}} {
		if list, err := Decode(b); err == nil {
			t.Errorf("%x was read as %v", b, list)
		}
	}
}

// TestAsSetfacl gives a file the list that setfacl makes of the same words, and has getfacl read ours.
func TestAsSetfacl(t *testing.T) {
	for _, tool := range []string{"setfacl", "getfacl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s", tool)
		}
	}
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "theirs"), filepath.Join(dir, "ours")
	for _, p := range []string{theirs, ours} {
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	number := func(_ bool, id uint32) string { return strconv.FormatUint(uint64(id), 10) }
	rounds := 0
	rapid.Check(t, func(rt *rapid.T) {
		if rounds++; rounds > 25 { // two processes each
			return
		}
		entries, mode := named(rt), rapid.Uint32Range(0, 0o777).Draw(rt, "mode")
		if len(entries) == 0 {
			return
		}
		list, err := New(entries, mode)
		if err != nil {
			rt.Fatal(err)
		}
		words := []string{"u::" + permText(uint16(mode>>6)&7), "g::" + permText(uint16(mode>>3)&7), "o::" + permText(uint16(mode)&7)}
		for _, e := range entries {
			whom := map[Tag]string{User: "u:", Group: "g:", Mask: "m:"}[e.Tag]
			if e.Tag != Mask {
				whom += number(false, e.ID)
			}
			words = append(words, whom+":"+permText(e.Perm))
		}
		if out, err := exec.Command("setfacl", "--set", strings.Join(words, ","), theirs).CombinedOutput(); err != nil {
			if strings.Contains(string(out), "not supported") {
				t.Skipf("needs access lists in %s", dir)
			}
			rt.Fatalf("setfacl %v: %v\n%s", words, err, out)
		}
		b := make([]byte, 1000)
		n, err := unix.Getxattr(theirs, Access, b)
		if err != nil || !bytes.Equal(b[:n], list.Encode()) {
			rt.Fatalf("%v: setfacl made %x of it, %v; we %x", words, b[:n], err, list.Encode())
		}
		if err := unix.Setxattr(ours, Access, list.Encode(), 0); err != nil {
			rt.Fatal(err)
		}
		out, err := exec.Command("getfacl", "-cpnE", ours).Output()
		if err != nil {
			rt.Fatal(err)
		}
		long := strings.NewReplacer("u:", "user:", "g:", "group:", "m:", "mask:", "o:", "other:")
		want := long.Replace(list.Text(number))
		if got := strings.Join(strings.Fields(string(out)), ","); got != want {
			rt.Fatalf("getfacl says %s, we %s", got, want)
		}
		if st, err := os.Stat(ours); err != nil || uint32(st.Mode().Perm()) != list.Mode() {
			rt.Fatalf("%v: mode %v, we say %o, %v", words, st.Mode(), list.Mode(), err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	list, _ := New([]Entry{{User, 33, 4}, {Group, 4, 6}, {Mask, 0, 4}}, 0o640)
	f.Add(list.Encode())
	f.Add([]byte{2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := Decode(b)
		if err == nil && !bytes.Equal(list.Encode(), b) {
			t.Errorf("%x was read as %v, which is %x", b, list, list.Encode())
		}
	})
}
