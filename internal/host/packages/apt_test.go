package packages

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const policySample = `hello:
  Installed: (none)
  Candidate: 2.10-3
  Version table:
     2.10-3 500
        500 http://10.77.0.1 ./ Packages
 *** 1:2.9~rc1 100
        100 /var/lib/dpkg/status
mail-transport-agent:
  Installed: (none)
  Candidate: (none)
  Version table:
N: Unable to locate package nowhere
`

func TestParsePolicy(t *testing.T) {
	want := map[string]offer{
		"hello":                {candidate: "2.10-3", versions: []string{"2.10-3", "1:2.9~rc1"}},
		"mail-transport-agent": {},
	}
	if got := parsePolicy([]byte(policySample)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	hello := want["hello"]
	for version, has := range map[string]bool{"": true, "2.10-3": true, "1:2.9~rc1": true, "2.10": false} {
		if hello.has(&resource{name: "hello", version: version}) != has {
			t.Errorf("has %q: %t", version, !has)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(policySample))
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, o := range parsePolicy(b) {
			if strings.ContainsAny(name, " \n") || slices.ContainsFunc(o.versions, func(v string) bool { return v == "" || strings.ContainsAny(v, " \n") }) {
				t.Errorf("%q: %+v", name, o)
			}
		}
	})
}

const simulationSample = `NOTE: This is only a simulation!
Reading package lists...
The following packages will be REMOVED:
  one two
Remv one [1.0] [two:i386 ]
Purg two:i386 [1.0]
Inst three (1.0 lab [amd64])
Conf three (1.0 lab [amd64])
`

func TestParseRemovals(t *testing.T) {
	if got := parseRemovals([]byte(simulationSample)); !slices.Equal(got, []string{"one", "two:i386"}) {
		t.Errorf("got %v", got)
	}
}

func FuzzParseRemovals(f *testing.F) {
	f.Add([]byte(simulationSample))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range parseRemovals(b) {
			if name == "" || strings.ContainsAny(name, " \n") {
				t.Errorf("%q", name)
			}
		}
	})
}

func TestInstallArguments(t *testing.T) {
	one, two, gone := &resource{name: "one", present: true}, &resource{name: "two", present: true, version: "1"}, &resource{name: "g++"}
	for _, row := range []struct {
		rs       []*resource
		has, not string
	}{
		{[]*resource{one}, "--no-remove install one", "--allow-downgrades"},
		{[]*resource{one, two}, "--no-remove --allow-downgrades install one two=1", "two=1-"},
		{[]*resource{one, gone}, "install one g++-", "--no-remove"},
	} {
		got := strings.Join(installArguments(row.rs), " ")
		if !strings.HasSuffix(got, row.has) || strings.Contains(got, row.not) || !strings.Contains(got, "--force-confold") {
			t.Errorf("%s", got)
		}
	}
}

func TestLockRefusal(t *testing.T) {
	for output, want := range map[string]string{
		"E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 999999999 (apt)\n":                                "pid 999999999",
		"E: Could not get lock /var/lib/dpkg/lock-frontend - open (11: Resource temporarily unavailable)\n":                         "somebody else",
		"dpkg: error: dpkg frontend lock was locked by another process with pid 999999999\nNote: removing the lock file is wrong\n": "pid 999999999",
		"E: Unable to locate package lock\n": "",
	} {
		if got, refused := lockRefusal([]byte(output)); got != want || refused != (want != "") {
			t.Errorf("%q: %q, %t", output, got, refused)
		}
	}
}

func TestBind(t *testing.T) {
	d := host.Declared{Title: "package/one", Resource: declare.Resource{Name: "one", Package: &declare.Package{}}}
	if _, err := New(Options{Sandbox: true}).Bind(t.Context(), d); !reason.Is(err, reason.UnsupportedInRoot) {
		t.Errorf("in a sandbox: %v", err)
	}
	if _, err := os.Stat(aptPath); err != nil {
		t.Skip("needs apt-get: this is no Debian")
	}
	r, err := New(Options{}).Bind(t.Context(), d)
	if err != nil || !reflect.DeepEqual(r, &resource{name: "one", present: true}) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRun(t *testing.T) {
	shell := func(script string) command {
		return command{args: []string{"/bin/sh", "-c", script}, max: time.Minute}
	}
	out, err := run(t.Context(), shell("echo out; echo err >&2; read x || echo no input; echo $DEBIAN_FRONTEND"))
	if err != nil || string(out) != "out\nerr\nno input\nnoninteractive\n" {
		t.Errorf("%q, %v", out, err)
	}
	var exit *exitError
	if out, err = run(t.Context(), shell("echo E: words; exit 3")); !errors.As(err, &exit) || string(out) != "E: words\n" {
		t.Errorf("%q, %v", out, err)
	}
	if e := toolError("do it", out, err); !reason.Is(e, reason.PackageToolFailed) || !strings.HasSuffix(e.Error(), ": words") {
		t.Errorf("%v", e)
	}
	if _, err := run(t.Context(), command{args: []string{"/nowhere"}, max: time.Minute}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such program: %v", err)
	}
	slow := shell("sleep 600")
	slow.max = time.Nanosecond
	if _, err := run(t.Context(), slow); !errors.Is(err, errStopped) {
		t.Errorf("out of time: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := run(ctx, shell("sleep 600")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("out of context: %v", err)
	}
}

func TestSourcesState(t *testing.T) {
	dir := t.TempDir()
	state := func() string {
		s, err := sourcesState(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	seen := []string{state()}
	for _, step := range []func() error{
		func() error { return os.WriteFile(filepath.Join(dir, "sources.list"), []byte("a"), 0o644) },
		func() error { return os.WriteFile(filepath.Join(dir, "sources.list"), []byte("bc"), 0o644) },
		func() error { return os.Mkdir(filepath.Join(dir, "sources.list.d"), 0o755) },
		func() error { return os.WriteFile(filepath.Join(dir, "sources.list.d", "x.sources"), nil, 0o644) },
		func() error { return os.Remove(filepath.Join(dir, "sources.list")) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, state())
	}
	if seen[2] != seen[3] {
		t.Error("an empty directory is a change")
	}
	slices.Sort(seen)
	if n := len(slices.Compact(seen)); n != 5 {
		t.Errorf("%d different states", n)
	}
	if again := state(); again != state() {
		t.Error("differs without a change")
	}
}
