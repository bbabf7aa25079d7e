package program

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// ofFiles is how much memory of this process is of files, KiB.
func ofFiles(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatalf("RssFile in\n%s", status)
	}
	return kib
}

// touch has all of the program in memory.
func touch(t *testing.T) {
	t.Helper()
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	for _, m := range own() {
		if _, err := mem.ReadAt(make([]byte, m.to-m.from), int64(m.from)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGiveBack: a good part of the program leaves the memory, though of a small one as this the test itself uses most; and what runs goes on.
func TestGiveBack(t *testing.T) {
	if len(own()) == 0 {
		t.Fatal("the program is nowhere")
	}
	touch(t)
	before := ofFiles(t)
	GiveBack()
	if after := ofFiles(t); after > before*3/4 {
		t.Errorf("%d KiB of files are in memory, before %d", after, before)
	}
}

func TestParse(t *testing.T) {
	for line, want := range map[string]struct {
		m     mapping
		inode uint64
		ok    bool
	}{
		"00400000-0048a000 r-xp 00000000 fd:03 960637     /usr/bin/tako-agent":                {mapping{0x400000, 0x48a000}, 960637, true},
		"0048a000-0049a000 r--p 0008a000 fd:03 960637     /usr/bin/tako-agent (deleted)":      {mapping{0x48a000, 0x49a000}, 960637, true},
		"0049a000-0049b000 rw-p 0009a000 fd:03 960637     /usr/bin/tako-agent":                {mapping{0x49a000, 0x49b000}, 960637, false},
		"7f1200000000-7f1200021000 rw-p 00000000 00:00 0 ":                                    {mapping{0x7f1200000000, 0x7f1200021000}, 0, false},
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]": {mapping{0xffffffffff600000, 0xffffffffff601000}, 0, false},
		"nonsense": {},
		"":         {},
	} {
		if m, inode, ok := parse(line); m != want.m || inode != want.inode || ok != want.ok {
			t.Errorf("%q: %x, %d, %v", line, m, inode, ok)
		}
	}
}
