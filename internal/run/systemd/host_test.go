package systemd_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/runtest"
	"tako.dev/tako/internal/run/systemd"
	bus "tako.dev/tako/internal/systemd"
)

const (
	// insideVariable tells the test binary that it runs in a host whose units it may do anything with.
	insideVariable = "TAKO_RUN_SYSTEMD_TEST_INSIDE"
	// serveArgument makes it what units start.
	serveArgument = "become-a-task"
	binaryFile    = "/root/systemd.test"
	insideTime    = 10 * time.Minute // a minute on an idle machine
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serveArgument {
		syscall.Exit(systemd.Serve(os.Args[2:])) // not os.Exit, before which the race detector sleeps for a second
	}
	runtest.Main(m, open)
}

// open begins an agent's part: a connection of its own, and the runtime over it.
func open(dir string) (run.Runtime, func() error, error) {
	rt, done, err := begin(dir)
	return rt, done, err
}

func begin(dir string) (*systemd.Runtime, func() error, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	b, err := bus.New(bus.Options{})
	if err != nil {
		return nil, nil, err
	}
	rt, err := systemd.New(systemd.Options{Bus: b, Dir: dir, Memory: filepath.Join(dir, "memory"), Program: []string{exe, serveArgument}})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx, func(bus.Event) {}) }()
	return rt, func() error { cancel(); return <-ended }, nil
}

func subject() runtest.Subject {
	return runtest.Subject{Open: open, Clean: []string{"memory", "status", "users"}, User: "nobody", UID: 65534, Lossy: true}
}

// TestWorkloadCase62_UnitsOnHost boots a host, and runs in it the tests that have Inside in their names, with the host as it is and with the
// controllers of cgroups; and itself, which kills agents while they start a task.
func TestWorkloadCase62_UnitsOnHost(t *testing.T) {
	c := casetest.Start(t)
	if os.Getenv(insideVariable) != "" {
		runtest.KilledWhileItStarts(t, c, subject())
		return
	}
	host.ForgetGroups(t)
	h := host.NewLab(t).Boot(t, "units")
	h.MustRun(t, "apt-get", "update")
	h.MustRun(t, "apt-get", "install", "--yes", "--no-install-recommends", "strace")
	binary := filepath.Join(t.TempDir(), "systemd.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	h.CopyIn(t, binary, binaryFile)
	h.MustRun(t, "mkdir", "-p", "/run/test")
	inside := func(what string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), insideTime)
		defer cancel()
		r, err := h.Run(ctx, "env", insideVariable+"=1", "TMPDIR=/run/test", binaryFile, "-test.run="+what, "-test.v")
		c.Check(err == nil && r.Code == 0, "in the host: %v\n%s%s", err, r.Stdout, r.Stderr)
		if testing.Verbose() {
			t.Log(r.Stdout)
		}
		return r.Stdout
	}
	inside("^TestInsideSuite$/^(refused|exit_codes)$")
	h.GiveControllers(t)
	said := inside("^Test(Inside.*|WorkloadCase62_UnitsOnHost)$")
	lacks := strings.ReplaceAll(said, "--- SKIP: TestInsideSuite/devices", "") // it gives tasks none, and refuses to
	c.Check(!strings.Contains(lacks, "--- SKIP"), "something was left out:\n%s", said)
	inside("^TestBeforeRestart$")
	h.Reboot(t)
	h.MustRun(t, "mkdir", "-p", "/run/test")
	inside("^TestAfterOrderlyRestart$")
	inside("^TestBeforeRestart$")
	h.PowerCut(t)
	h.Boot(t)
	h.MustRun(t, "mkdir", "-p", "/run/test")
	inside("^TestAfterPowerCut$")
}

func needsHost(t *testing.T) {
	t.Helper()
	if os.Getenv(insideVariable) == "" {
		t.Skip("needs to be inside a host: TestWorkloadCase62_UnitsOnHost runs it there")
	}
}

func TestInsideSuite(t *testing.T) {
	needsHost(t)
	runtest.Run(t, subject())
}
