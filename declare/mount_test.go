package declare

import (
	"slices"
	"strings"
	"testing"
)

func TestValidateMount(t *testing.T) {
	const at = " spec.resources[0].mount."
	for _, c := range []struct {
		m    Mount
		want string
	}{
		{Mount{Path: "/data", Source: "/dev/vdb1"}, ""},
		{Mount{Path: "/data", Source: "UUID=0a1b", Type: "xfs", Options: []string{"noatime", "nofail"}, Pass: 2}, ""},
		{Mount{Path: "/data", Source: "LABEL=a:b"}, ""},
		{Mount{Path: "/data", Source: "/dev/disk/by-path/pci-0000:00:07.0"}, ""},
		{Mount{Path: "/data", Source: "nas:/export/a b", Type: "nfs4", State: MountUnmounted}, ""},
		{Mount{Path: "/data", Source: "//nas/share", Type: "cifs", Options: []string{"credentials=/root/nas"}}, ""},
		{Mount{Path: "/data", Source: "tmpfs", Type: "tmpfs", Options: []string{"size=10M", `context="system_u:object_r:tmp_t:s0:c1,c2"`}}, ""},
		{Mount{Path: "/data", Source: "/srv/data", Options: []string{"bind", "ro"}}, ""},
		{Mount{Path: "/data", Source: "/srv/image.img", Type: "ext4", Options: []string{"loop"}}, ""},
		{Mount{Path: "/data", State: MountAbsent}, ""},
		{Mount{Source: "tmpfs", Type: "tmpfs"}, "TK0413" + at + "path"},
		{Mount{Path: "/", Source: "/dev/vda1"}, "TK0414" + at + "path"},
		{Mount{Path: "data", Source: "/dev/vda1"}, "TK0414" + at + "path"},
		{Mount{Path: "/data/", Source: "/dev/vda1"}, "TK0414" + at + "path"},
		{Mount{Path: "/data"}, "TK0413" + at + "source"},
		{Mount{Path: "/data", Source: "-x"}, "TK0414" + at + "source"},
		{Mount{Path: "/data", Source: "/a\n/b"}, "TK0414" + at + "source"},
		{Mount{Path: "/data", Source: "/srv//data"}, "TK0414" + at + "source"},
		{Mount{Path: "/data", Source: "srv", Options: []string{"bind"}}, "TK0414" + at + "source"},
		{Mount{Path: "/data", Source: "/data", Options: []string{"bind"}}, "TK0414" + at + "source"},
		{Mount{Path: "/data", Source: "/" + strings.Repeat("a", 4095)}, "TK0414" + at + "source"},
		{Mount{Path: "/data", Source: "tmpfs"}, "TK0413" + at + "type"},
		{Mount{Path: "/data", Source: "nas:/x"}, "TK0413" + at + "type"},
		{Mount{Path: "/data", Source: "/dev/vdb1", Type: "swap"}, "TK0414" + at + "type"},
		{Mount{Path: "/data", Source: "/dev/vdb1", Type: "ext4,xfs"}, "TK0414" + at + "type"},
		{Mount{Path: "/data", Source: "/dev/vdb1", Type: "none"}, "TK0414" + at + "type"},
		{Mount{Path: "/data", Source: "/srv", Type: "ext4", Options: []string{"bind"}}, "TK0414" + at + "type"},
		{Mount{Path: "/data", Source: "/dev/vdb1", Options: []string{"ro,noatime"}}, "TK0414" + at + "options[0]"},
		{Mount{Path: "/data", Source: "/dev/vdb1", Options: []string{"ro", ""}}, "TK0414" + at + "options[1]"},
		{Mount{Path: "/data", Source: "/dev/vdb1", Options: []string{`a="b`}}, "TK0414" + at + "options[0]"},
		{Mount{Path: "/data", Source: "/dev/vdb1", Options: []string{"remount"}}, "TK0414" + at + "options[0]"},
		{Mount{Path: "/data", Source: "//nas/x", Type: "cifs", Options: []string{"password=hunter2"}}, "TK0415" + at + "options[0]"},
		{Mount{Path: "/data", Source: "/srv", Options: []string{"bind", "rbind"}}, "TK0414" + at + "options"},
		{Mount{Path: "/data", Source: "/dev/vdb1", Options: slices.Repeat([]string{"ro"}, 65)}, "TK0414" + at + "options"},
		{Mount{Path: "/data", Source: "/dev/vdb1", Options: []string{strings.Repeat("x", 4095)}}, "TK0414" + at + "options"},
		{Mount{Path: "/data", Source: "/dev/vdb1", Pass: 3}, "TK0414" + at + "pass"},
		{Mount{Path: "/data", Source: "tmpfs", Type: "tmpfs", Pass: 1}, "TK0415" + at + "pass"},
		{Mount{Path: "/data", Source: "/dev/vdb1", State: "present"}, "TK0414" + at + "state"},
		{Mount{Path: "/data", State: MountAbsent, Source: "/dev/vdb1"}, "TK0415" + at + "source"},
	} {
		if got := mistakes(Resource{Name: "x", Mount: &c.m}); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.m, got, c.want)
		}
	}
	for _, f := range Validate(config(Resource{Name: "x", Mount: &Mount{Path: "/d", Source: "//n/x", Type: "cifs", Options: []string{"password=hunter2"}}})) {
		if strings.Contains(f.Message+f.Hint, "hunter2") {
			t.Errorf("a password is shown: %v", f)
		}
	}
}

func TestMountOrder(t *testing.T) {
	hasEdge := func(r Resource, c Claim) bool {
		return slices.ContainsFunc(r.AutoEdges(), func(e AutoEdge) bool { return e.Other == c && !e.Before })
	}
	nfs := Resource{Name: "x", Mount: &Mount{Path: "/data/nas", Source: "nas:/x", Type: "nfs4"}}
	for _, c := range []Claim{{ClaimPath, "/data/nas"}, {ClaimPath, "/data"}, {ClaimMount, "/data"}, {ClaimPackage, "nfs-common"}} {
		if !hasEdge(nfs, c) {
			t.Errorf("a mount does not come after %v", c)
		}
	}
	bind := Resource{Name: "x", Mount: &Mount{Path: "/b", Source: "/srv/a", Options: []string{"bind"}}}
	for _, c := range []Claim{{ClaimPath, "/srv/a"}, {ClaimMount, "/srv"}, {ClaimMount, "/srv/a"}} {
		if !hasEdge(bind, c) {
			t.Errorf("a bind does not come after %v", c)
		}
	}
	if !hasEdge(Resource{Name: "x", File: &File{Path: "/data/nas/x"}}, Claim{ClaimMount, "/data/nas"}) {
		t.Error("a file does not come after the mount that it is on")
	}
	if hasEdge(Resource{Name: "x", Directory: &Directory{Path: "/data"}}, Claim{ClaimMount, "/data"}) {
		t.Error("a mount point comes after its mount")
	}
	if !hasEdge(Resource{Name: "x", Swap: &Swap{Path: "/data/swap"}}, Claim{ClaimMount, "/data"}) {
		t.Error("a swap file does not come after the mount that it is on")
	}
}

func TestValidateSwap(t *testing.T) {
	const at = " spec.resources[0].swap."
	n := func(i int) *int { return &i }
	for _, c := range []struct {
		s    Swap
		want string
	}{
		{Swap{Path: "/dev/vdb2"}, ""},
		{Swap{Path: "/swap", Size: "2Gi", Priority: n(0)}, ""},
		{Swap{Path: "/swap", State: SwapAbsent}, ""},
		{Swap{}, "TK0413" + at + "path"},
		{Swap{Path: "swap"}, "TK0414" + at + "path"},
		{Swap{Path: "/swap", Size: "2GB"}, "TK0414" + at + "size"},
		{Swap{Path: "/swap", Size: "-2Gi"}, "TK0414" + at + "size"},
		{Swap{Path: "/swap", Size: "1k"}, "TK0414" + at + "size"},
		{Swap{Path: "/swap", Size: "99999999999999999999Ti"}, "TK0414" + at + "size"},
		{Swap{Path: "/swap", Size: "4000000Ti"}, "TK0414" + at + "size"},
		{Swap{Path: "/swap", Size: "17Ti"}, "TK0414" + at + "size"},
		{Swap{Path: "/dev/vdb2", Size: "1Gi"}, "TK0415" + at + "size"},
		{Swap{Path: "/swap", Priority: n(-1)}, "TK0414" + at + "priority"},
		{Swap{Path: "/swap", Priority: n(32768)}, "TK0414" + at + "priority"},
		{Swap{Path: "/swap", State: "off"}, "TK0414" + at + "state"},
		{Swap{Path: "/swap", State: SwapAbsent, Size: "1Gi"}, "TK0415" + at + "size"},
	} {
		if got := mistakes(Resource{Name: "x", Swap: &c.s}); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.s, got, c.want)
		}
	}
	for text, want := range map[string]int64{"1Mi": 1 << 20, "2Gi": 2 << 30, "1500M": 1.5e9, "1048576": 1 << 20, "": 0} {
		if got := (&Swap{Size: text}).Bytes(); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}

func FuzzBytes(f *testing.F) {
	for _, s := range []string{"1", "2Gi", "16Ti", "9223372036854775807T", "-1", "1e3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, ok := parseBytes(text); ok && n < 0 {
			t.Fatalf("%q is %d", text, n)
		}
	})
}
