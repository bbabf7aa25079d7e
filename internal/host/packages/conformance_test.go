package packages

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
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
	// seen is the version that dpkg-query says is installed.
	seen := func(t testing.TB, name string) string {
		out := run(t, "dpkg-query", "--show", "--showformat=${Status} ${Version}", name)
		if version, ok := strings.CutPrefix(out, "install ok installed "); ok {
			return version
		}
		return ""
	}
	names := []string{"one", "two"}
	subject := hosttest.Subject{
		Type:    New(Options{}),
		Observe: func(t testing.TB, i int) any { return seen(t, names[i]) },
		Snapshot: func(t testing.TB) string {
			return hosttest.Tree(t, "/var/lib/dpkg", "/var/lib/apt", "/etc", "/usr/sbin")
		},
		Gone:     []any{"", ""},
		Declared: []host.Declared{declared(pinned("one", "1.0")), declared(present("two"))},
		Difference: func(i int, before, after any) []host.Change {
			return difference(names[i] == "one", before.(string), after.(string))
		},
	}
	subject.Situations = []hosttest.Situation{{Name: "nothing there", Arrange: arrange("one-", "two-")}}
	t.Run("present", func(t *testing.T) { hosttest.Run(t, subject) })

	subject.Declared = []host.Declared{declared(pinned("one", "1.0"))}
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
}

// difference is what a plan that leads from one version to another says; empty is absent.
func difference(pinned bool, before, after string) []host.Change {
	word := map[bool]string{true: "present", false: "absent"}
	var changes []host.Change
	if (before == "") != (after == "") {
		changes = append(changes, host.Change{Field: "state", From: word[before != ""], To: word[after != ""]})
	}
	if pinned && after != "" && before != after {
		changes = append(changes, host.Change{Field: "version", From: before, To: after})
	}
	return changes
}
