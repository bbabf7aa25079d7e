package apt

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/host/packages"
	"tako.dev/tako/internal/reason"
)

const policySample = `hello:
  Installed: 1:2.9~rc1
  Candidate: 2.10-3
  Version table:
     2.10-3 500
        500 http://10.77.0.1 ./ Packages
       -10 http://10.77.0.2 ./ Packages
     2.10-2 500
        500 http://10.77.0.1 ./ Packages
 *** 1:2.9~rc1 100
        100 /var/lib/dpkg/status
mail-transport-agent:
  Installed: (none)
  Candidate: (none)
  Version table:
own:
  Installed: 3
  Candidate: 3
  Version table:
 *** 3 100
        100 /var/lib/dpkg/status
N: Unable to locate package nowhere
`

func TestParsePolicy(t *testing.T) {
	want := map[string]packages.Offer{
		"hello":                {Candidate: "2.10-3", Versions: []string{"2.10-3", "2.10-2"}},
		"mail-transport-agent": {},
		"own":                  {Candidate: "3"},
	}
	if got := parsePolicy([]byte(policySample)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(policySample))
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, o := range parsePolicy(b) {
			if strings.ContainsAny(name, " \n") || slices.ContainsFunc(o.Versions, func(v string) bool { return v == "" || strings.ContainsAny(v, " \n") }) {
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
Inst four [2.0] (1.0 lab [amd64]) []
Conf three (1.0 lab [amd64])
Inst
`

func TestParseSimulation(t *testing.T) {
	want := packages.Outlook{
		Removes: []string{"one", "two:i386"},
		Changes: []packages.Move{{Name: "three", To: "1.0"}, {Name: "four", From: "2.0", To: "1.0"}},
	}
	if got := parseSimulation([]byte(simulationSample)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func FuzzParseSimulation(f *testing.F) {
	f.Add([]byte(simulationSample))
	f.Fuzz(func(t *testing.T, b []byte) {
		o := parseSimulation(b)
		for _, name := range o.Removes {
			if name == "" || strings.ContainsAny(name, " \n") {
				t.Errorf("%q", name)
			}
		}
		for _, m := range o.Changes {
			if m.Name == "" || strings.ContainsAny(m.Name+m.From+m.To, " \n") {
				t.Errorf("%+v", m)
			}
		}
	})
}

func TestArguments(t *testing.T) {
	one, two, gone := packages.Step{Name: "one"}, packages.Step{Name: "two", Version: "1"}, packages.Step{Name: "g++", Remove: true}
	for _, row := range []struct {
		x        packages.Transaction
		has, not string
	}{
		{packages.Transaction{Steps: []packages.Step{one}}, "--force-confdef --no-remove install one", "allow"},
		{packages.Transaction{Steps: []packages.Step{one, two}, Downgrade: true}, "--no-remove --allow-downgrades install one two=1", "two=1-"},
		{packages.Transaction{Steps: []packages.Step{one, gone}}, "install one g++-", "--no-remove"},
		{packages.Transaction{Steps: []packages.Step{one}, Held: true}, "--allow-change-held-packages install one", "downgrades"},
		{packages.Transaction{Steps: []packages.Step{one}, Ways: packages.Choices{Recommends: packages.RecommendsLeft}}, "--no-install-recommends install one", "--install-recommends"},
		{packages.Transaction{Steps: []packages.Step{one}, Ways: packages.Choices{Recommends: packages.RecommendsWanted}}, " --install-recommends install one", "--no-install"},
		{packages.Transaction{Steps: []packages.Step{one}, Ways: packages.Choices{Replace: true}}, "--force-confnew -o Dpkg::Options::=--force-confmiss --no-remove install one", "--force-confold"},
	} {
		got := strings.Join(arguments(row.x), " ")
		if !strings.HasSuffix(got, row.has) || strings.Contains(got, row.not) || strings.Contains(got, "unauthenticated") {
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

func TestRun(t *testing.T) {
	out, err := run(t.Context(), time.Minute, "/bin/sh", "-c", "echo $DEBIAN_FRONTEND $HOME; echo E: words; exit 3")
	if string(out) != "noninteractive /root\nE: words\n" {
		t.Errorf("%q, %v", out, err)
	}
	if e := toolError(out, err); !reason.Is(e, reason.PackageToolFailed) || !strings.HasSuffix(e.Error(), ": words") {
		t.Errorf("%v", e)
	}
	out, err = run(t.Context(), time.Nanosecond, "/bin/sh", "-c", "sleep 600")
	if e := toolError(out, err); !reason.Is(e, reason.OperationTimeout) {
		t.Errorf("out of time: %v", e)
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

func TestFeed(t *testing.T) {
	if out, err := feed(t.Context(), "words\n", "/bin/cat"); string(out) != "words\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

func TestHere(t *testing.T) {
	if _, err := os.Stat(getPath); err != nil {
		t.Skip("needs apt-get: this is no Debian")
	}
	if err := New().Here(); err != nil {
		t.Error(err)
	}
}
