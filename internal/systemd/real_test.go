package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/systemd/systemdtest"
)

// insideVariable tells the test binary that it runs in a host whose units it may do anything with.
const insideVariable = "TAKO_SYSTEMD_TEST_INSIDE"

// TestInside runs in the host that TestAgentCase19_RealSystemd boots, and nowhere else.
func TestInside(t *testing.T) {
	if os.Getenv(insideVariable) == "" {
		t.Skip("needs to be inside a host: TestAgentCase19_RealSystemd runs it there")
	}
	systemctl := func(args ...string) func(*testing.T) {
		return func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), "systemctl", args...).CombinedOutput()
			if err != nil {
				t.Fatalf("systemctl %v: %v: %s", args, err, out)
			}
		}
	}
	systemdtest.Conformance(t, systemdtest.Host{
		UnitDir: "/etc/systemd/system",
		Reexec:  systemctl("daemon-reexec"),
		Rebus:   systemctl("restart", "dbus.service"),
	})
}

// TestAgentCase19_RealSystemd runs the conformance suite, in which systemd executes itself anew and the bus restarts,
// against the systemd of a host.
func TestAgentCase19_RealSystemd(t *testing.T) {
	c := casetest.Start(t)
	h := host.NewLab(t).Boot(t, "systemd")
	binary := filepath.Join(t.TempDir(), "systemd.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	h.CopyIn(t, binary, "/root/systemd.test")
	inside := h.Start(t, "env", insideVariable+"=1", "/root/systemd.test", "-test.run=^TestInside$", "-test.v", "-test.timeout=4m")
	result := inside.Wait(t, 5*time.Minute)
	t.Log(result.Stdout)
	c.Check(result.Code == 0, "the suite passes in the host; it said: %s", result.Stderr)
}
