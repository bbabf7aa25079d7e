package apt

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/packages"
)

// conformanceVariable tells the test binary that it runs in a host whose packages it may do anything with.
const conformanceVariable = "TAKO_PACKAGES_TEST_CONFORMANCE"

// TestConformanceOnHost runs the suite of the contract in a host, with its apt-get and dpkg.
func TestConformanceOnHost(t *testing.T) {
	h := aHost(t, simple("one", "1.0"), simple("one", "2.0"), simple("two", "1.0"))
	h.MustRun(t, "apt-get", "update")
	r, err := h.Run(t.Context(), "env", conformanceVariable+"=1", binaryFile, "-test.run=^TestConformanceInside$", "-test.v")
	if err != nil || r.Code != 0 {
		t.Errorf("in the host: %v\n%s%s", err, r.Stdout, r.Stderr)
	}
}

// TestConformanceInside is the part of TestConformanceOnHost that runs in the host.
func TestConformanceInside(t *testing.T) {
	if os.Getenv(conformanceVariable) == "" {
		t.Skip("needs to be inside a host: TestConformanceOnHost runs it there")
	}
	run := func(t testing.TB, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		if err != nil && args[0] != "dpkg-query" {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	arrange := func(args ...string) func(testing.TB) {
		return func(t testing.TB) {
			run(t, append([]string{"apt-get", "-y", "-q", "--allow-downgrades", "install"}, args...)...)
		}
	}
	declared := func(p declare.Package) host.Declared {
		return host.Declared{Title: "package/" + p.Package, Resource: declare.Resource{Package: &p}}
	}
	// seen is what dpkg-query says.
	seen := func(t testing.TB, name string) sight {
		words := strings.Fields(run(t, "dpkg-query", "--show", "--showformat=${Status} ${Version}", name))
		if len(words) < 4 || words[2] != "installed" {
			return sight{}
		}
		return sight{version: words[3], held: words[0] == "hold"}
	}
	names := []string{"one", "two"}
	subject := hosttest.Subject{
		Type:    packages.New(packages.Options{Backends: []packages.Backend{New()}}),
		Observe: func(t testing.TB, i int) any { return seen(t, names[i]) },
		Snapshot: func(t testing.TB) string {
			return hosttest.Tree(t, "/var/lib/dpkg", "/var/lib/apt", "/var/cache", "/etc", "/usr/sbin")
		},
		Gone:     []any{sight{}, sight{}},
		Declared: []host.Declared{declared(pinned("one", "1.0")), declared(present("two"))},
		Difference: func(i int, before, after any) []host.Change {
			return difference(names[i] == "one", before.(sight), after.(sight))
		},
	}
	subject.Situations = []hosttest.Situation{{Name: "nothing there", Arrange: arrange("one-", "two-")}}
	t.Run("present", func(t *testing.T) { hosttest.Run(t, subject) })

	older := pinned("one", "1.0")
	older.Options = &declare.PackageOptions{AllowDowngrade: true}
	subject.Declared = []host.Declared{declared(older)}
	subject.Gone = subject.Gone[:1]
	subject.Situations = []hosttest.Situation{{Name: "nothing there", Arrange: arrange("one-")}}
	subject.Disturb = arrange("one=2.0")
	t.Run("disturbed", func(t *testing.T) { hosttest.Run(t, subject) })
	subject.Situations = []hosttest.Situation{{Name: "another version there", Arrange: arrange("one=2.0")}}
	subject.Disturb = arrange("one-")
	t.Run("version", func(t *testing.T) { hosttest.Run(t, subject) })

	subject.Declared = []host.Declared{declared(absent("one"))}
	subject.Situations = []hosttest.Situation{{Name: "there", Arrange: arrange("one=2.0")}}
	subject.Disturb = arrange("one=1.0")
	t.Run("absent", func(t *testing.T) { hosttest.Run(t, subject) })

	subject.Declared = []host.Declared{declared(declare.Package{Package: "one", State: declare.PackagePurged})}
	subject.Difference = func(_ int, before, after any) []host.Change {
		changes := difference(false, before.(sight), after.(sight))
		for i := range changes {
			changes[i].From, changes[i].To = strings.ReplaceAll(changes[i].From, "absent", "purged"), strings.ReplaceAll(changes[i].To, "absent", "purged")
		}
		return changes
	}
	t.Run("purged", func(t *testing.T) { hosttest.Run(t, subject) })

	marked := func(verb string, args ...string) func(testing.TB) {
		return func(t testing.TB) {
			run(t, "apt-mark", "unhold", "one")
			arrange(args...)(t)
			run(t, "apt-mark", verb, "one")
		}
	}
	hold := true
	ranged := declare.Package{Package: "one", State: declare.PackageLatest, Version: "<2", Hold: &hold, Options: older.Options}
	subject.Declared = []host.Declared{declared(ranged)}
	subject.Difference = func(_ int, before, after any) []host.Change { return difference(true, before.(sight), after.(sight)) }
	subject.Situations = []hosttest.Situation{
		{Name: "newer and held", Arrange: marked("hold", "one=2.0")}, {Name: "newer", Arrange: marked("unhold", "one=2.0")},
		{Name: "not held", Arrange: marked("unhold", "one=1.0")},
	}
	subject.Disturb = marked("unhold", "one-")
	t.Run("held in a range", func(t *testing.T) { hosttest.Run(t, subject) })
}

// sight is what there is of a package; no version is none.
type sight struct {
	version string
	held    bool
}

// difference is what a plan that leads from one sight to another says.
func difference(pinned bool, before, after sight) []host.Change {
	word := map[bool]string{true: "present", false: "absent"}
	var changes []host.Change
	if (before.version == "") != (after.version == "") {
		changes = append(changes, host.Change{Field: "state", From: word[before.version != ""], To: word[after.version != ""]})
	}
	if pinned && after.version != "" && before.version != after.version {
		changes = append(changes, host.Change{Field: "version", From: before.version, To: after.version})
	}
	if before.held != after.held {
		changes = append(changes, host.Change{Field: "hold", From: strconv.FormatBool(before.held), To: strconv.FormatBool(after.held)})
	}
	return changes
}
