package oci

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/account"
	"tako.dev/tako/internal/run/oci/image"
	"tako.dev/tako/internal/run/shim"
)

const (
	passwdText = "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:1:1::/:\nweb:x:33:34::/:/bin/sh\nnumber:x:no:34::/:\nbig:x:4294967295:1::/:\n77:x:5:6::/:\n"
	groupText  = "root:x:0:\nweb:x:34:web\nmore:x:50:other,web\nagain:x:50:web\nbroken:x\nlast:x:51:web"
)

func TestLookup(t *testing.T) {
	for name, want := range map[string]*account.Account{
		"root": {}, "web": {UID: 33, GID: 34, Groups: []uint32{50, 51}}, "33": {UID: 33, GID: 34, Groups: []uint32{50, 51}}, "web:more": {UID: 33, GID: 50},
		"web:9": {UID: 33, GID: 9}, "1000": {UID: 1000, GID: 1000}, "1000:0": {UID: 1000}, "77": {UID: 5, GID: 6},
		"number": nil, "big": nil, "nobody": nil, "web:": nil, "": nil, ":": nil, "4294967295": nil, "-1": nil, "1000:broken": nil, "broken": nil,
	} {
		got, err := lookup(name, passwdText, groupText)
		if (err != nil) != (want == nil) || want != nil && (got.UID != want.UID || got.GID != want.GID || !slices.Equal(got.Groups, want.Groups)) {
			t.Errorf("%q is %+v (%v), want %+v", name, got, err, want)
		}
	}
}

// Whatever an image has for its users, nobody becomes root by it whom it does not call that.
func FuzzLookup(f *testing.F) {
	f.Add("web", passwdText, groupText)
	f.Add("web:more", passwdText, groupText)
	f.Add("0:0", "", "")
	f.Fuzz(func(t *testing.T, name, passwd, group string) {
		as, err := lookup(name, passwd, group)
		if err != nil {
			return
		}
		if user, _, _ := strings.Cut(name, ":"); as.UID == 0 && user == "" {
			t.Errorf("nobody is root")
		}
		if as.UID == 1<<32-1 || as.GID == 1<<32-1 || len(as.Groups) > groupsMax {
			t.Errorf("%q is %+v", name, as)
		}
	})
}

func FuzzLastError(f *testing.F) {
	f.Add([]byte(`{"level":"error","msg":"first"}` + "\n" + `{"level":"info","msg":"x"}` + "\n" + `{"level":"error","msg":"second"}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if words := lastError(text); words == "" || len(words) > wordsMax {
			t.Errorf("%q", words)
		}
	})
}

func TestLastError(t *testing.T) {
	if got := lastError([]byte("x\n" + `{"level":"error","msg":"first"}` + "\n" + `{"level":"warning","msg":"x"}` + "\n" + `{"level":"error","msg":"second"}` + "\n")); got != "second" {
		t.Error(got)
	}
}

func TestMerging(t *testing.T) {
	img := image.Config{Entrypoint: []string{"/entry"}, Cmd: []string{"default"}}
	for _, row := range []struct {
		command, args []string
		want          string
	}{
		{nil, nil, "/entry default"}, {nil, []string{"a"}, "/entry a"}, {[]string{"/own"}, nil, "/own"}, {[]string{"/own", "b"}, []string{"a"}, "/own b a"},
	} {
		if got := command(&run.Task{Command: row.command, Args: row.args}, img); strings.Join(got, " ") != row.want {
			t.Errorf("%q and %q are %q", row.command, row.args, got)
		}
	}
	if got := environment([]string{"A=task", "A=twice", "X="}, []string{"A=image", "B=image", "B=again", "X=image"}); !slices.Equal(got, []string{"B=image", pathDefault, "A=task", "A=twice", "X="}) {
		t.Errorf("the environment is %q", got)
	}
	for _, row := range [][3]string{{"", "", "/"}, {"", "relative", "/"}, {"", "/image/", "/image"}, {"/task/..", "/image", "/"}} {
		if got := directory(row[0], row[1]); got != row[2] {
			t.Errorf("%q starts in %q", row, got)
		}
	}
}

// With cgroups v2 runc is told the whole path, which it would look for beside the agent's otherwise.
func TestCgroupsPath(t *testing.T) {
	unified := shim.Group{V2: true, Dirs: map[string]string{"cpu": "/sys/fs/cgroup/system.slice/tako-agent.service/tako-i.t.1"}}
	legacy := shim.Group{Dirs: map[string]string{"cpu": "/sys/fs/cgroup/cpu/x/tako-i.t.1", "memory": "/sys/fs/cgroup/memory/tako-i.t.1"}}
	if got := cgroupsPath(unified); got != "/system.slice/tako-agent.service/tako-i.t.1" {
		t.Error(got)
	}
	if got := cgroupsPath(legacy); got != "" {
		t.Error(got)
	}
}

// Nothing of what a container always has stands in the way of what the task has, and what stands below another thing comes after it.
func TestSpec(t *testing.T) {
	o := &shim.Order{ID: run.ID{Instance: strings.Repeat("i", 64), Task: "t", Attempt: 1}, As: &account.Account{UID: 5, GID: 6, Groups: []uint32{7}}, WorkDir: "/"}
	c := &container{
		Mounts:  []run.Mount{{Source: "/srv/a", Path: "/etc", ReadOnly: true}, {Source: "/srv/b", Path: "/tmp/x"}},
		Files:   []run.File{{Path: "/etc/hosts"}},
		Devices: []device{{Path: "/dev/x", Block: true, Major: 1, Minor: 2}},
	}
	s := specOf(o, c, place{root: "/r", config: "/c", holder: 9, files: 100})
	at := map[string]int{}
	for i, m := range s.Mounts {
		if _, twice := at[m.Destination]; twice {
			t.Errorf("%s is there twice", m.Destination)
		}
		at[m.Destination] = i
	}
	if m := s.Mounts[at["/etc/hosts"]]; m.Source != filepath.Join("/c", "0") || at["/etc/hosts"] < at["/etc"] || at["/tmp/x"] < at["/tmp"] {
		t.Errorf("the mounts are %+v", s.Mounts)
	}
	if _, there := at["/etc/resolv.conf"]; there {
		t.Error("the host's file stands over what the task has")
	}
	if len(s.Process.Capabilities.Bounding) != 0 || !s.Process.NoNewPrivileges || !s.Root.Readonly || s.Process.Rlimits[0] != (rlimit{"RLIMIT_NOFILE", 100, 100}) {
		t.Errorf("the process is %+v, the root %+v", s.Process, s.Root)
	}
	if d := s.Linux.Devices[0]; d.Type != "b" || d.UID != 5 || len(s.Linux.Resources.Devices) != 2 || s.Linux.Resources.Devices[0].Allow {
		t.Errorf("devices are %+v, and allowed %+v", s.Linux.Devices, s.Linux.Resources.Devices)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

// In a network of its own a container asks name servers that others than its host reach.
func TestResolv(t *testing.T) {
	const upstream = "# of systemd-resolved\nnameserver 192.0.2.53\nsearch example.com\n"
	for _, row := range []struct{ text, upstream, want string }{
		{"nameserver 192.0.2.1\noptions edns0\n", upstream, "nameserver 192.0.2.1\noptions edns0\n"},
		{"nameserver 127.0.0.88\nnameserver 192.0.2.1\nsearch a\n", "", "nameserver 192.0.2.1\nsearch a\n"},
		{"nameserver 127.0.0.53\nsearch a\n", upstream, upstream},
		{"nameserver ::1\nsearch a\n", "", "search a\n"},
		{"nameserver fe80::1%eth0\nnameserver here\nnameserver 2001:db8::1", "", "nameserver 2001:db8::1"},
		{"", "", ""},
	} {
		if got := resolv(row.text, row.upstream); got != row.want {
			t.Errorf("of %q and %q comes %q, want %q", row.text, row.upstream, got, row.want)
		}
	}
}

// FuzzResolv: what is left are lines that were there, without servers of the host alone.
func FuzzResolv(f *testing.F) {
	f.Add("nameserver 127.0.0.53\nsearch a\n", "nameserver 192.0.2.53\n")
	f.Fuzz(func(t *testing.T, text, upstream string) {
		for line := range strings.Lines(resolv(text, upstream)) {
			if !strings.Contains(text, line) && !strings.Contains(upstream, line) || strings.HasPrefix(line, "nameserver 127.") || strings.HasPrefix(line, "nameserver ::1\n") {
				t.Errorf("of %q and %q comes %q", text, upstream, line)
			}
		}
	})
}
