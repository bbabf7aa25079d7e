package runtest

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// apartVariable says that a test is in a network of its own already.
const apartVariable = "TAKO_TEST_APART"

// Apart runs a test once more, in a network of its own, where bridges and rules of the firewall are in nobody's way. It reports
// whether this is that run. It needs root.
func Apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(apartVariable) != "" {
		if out, err := exec.CommandContext(t.Context(), "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("ip: %v: %s", err, out)
		}
		return true
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), apartVariable+"=yes", "TAKO_CASES=") // a case is noted by the first run
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("in a network of its own: %v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP: "+t.Name())):
		t.Skipf("in a network of its own:\n%s", out)
	case !bytes.Contains(out, []byte("--- PASS: "+t.Name())):
		t.Errorf("in a network of its own it did not run:\n%s", out)
	}
	return false
}
