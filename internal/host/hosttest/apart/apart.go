// Package apart gives a test a host of its own: it runs the test once more, in namespaces where a script has put copies and stand-ins in the
// place of what the types under test change. Nothing of it is seen outside, and all of it is gone when the test is over.
//
// The package starts no goroutine.
package apart

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// insideVariable tells the test binary that it runs inside, and holds the directory of the namespaces.
const insideVariable = "TAKO_TEST_APART"

// Host is what is apart.
type Host struct {
	// Namespaces are options of unshare beside --mount, such as --net.
	Namespaces []string
	// Script makes the host, as root inside the namespaces, in sh -e. "$1" is an empty directory that is its own.
	Script string
	// Env is added to the environment of the test.
	Env []string
}

// Run runs the test that calls it once more, apart, and reports whether this is that run. Outside the test is over with it. It skips a test
// without root, and where namespaces are not to be had.
func Run(t *testing.T, h Host) bool {
	t.Helper()
	if Dir() != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	args := append(append([]string{"--mount"}, h.Namespaces...), "--propagation", "private",
		"sh", "-c", "set -e\n"+h.Script+"\nshift\nexec \"$@\"", "sh", dir, exe, "-test.run="+name, "-test.v")
	cmd := exec.CommandContext(t.Context(), "unshare", args...)
	cmd.Env = append(append(os.Environ(), insideVariable+"="+dir, "TAKO_CASES="), h.Env...) // the case is recorded once, outside
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "unshare failed") {
		t.Skipf("needs permission to create namespaces: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("in a namespace: %v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("in a namespace:\n%s", out)
	}
	return false
}

// Dir is the directory of the namespaces, which the script had as "$1"; empty outside of them.
func Dir() string { return os.Getenv(insideVariable) }

// Settle waits until the test is the only program inside: until those have ended that outlive the agent that has started them.
func Settle(t testing.TB) {
	t.Helper()
	space := func(process string) string {
		to, _ := os.Readlink(process + "/ns/mnt") // it may be gone by now, and is nowhere then
		return to
	}
	own := space("/proc/self")
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); runtime.Gosched() {
		list, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(list, func(p string) bool { return space(p) == own && filepath.Base(p) != strconv.Itoa(os.Getpid()) }) {
			return
		}
	}
	t.Error("a program goes on for ever")
}
