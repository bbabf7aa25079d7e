package systemd_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// controllers are of cgroups v1, and read-only in a host of the lab.
var controllers = []string{"memory", "pids", "cpu", "cpuacct"}

// TestWorkloadCase62_UnitsOnHost boots a host, and runs in it the tests that have Inside in their names, with the host as it is and with the
// controllers of cgroups; and itself, which kills agents while they start a task.
func TestWorkloadCase62_UnitsOnHost(t *testing.T) {
	c := casetest.Start(t)
	if os.Getenv(insideVariable) != "" {
		runtest.KilledWhileItStarts(t, c, subject())
		return
	}
	t.Cleanup(groupsSince(t)) // the lab, which is taken down before, has groups in the hierarchies of systemd only
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
	for _, controller := range controllers {
		h.MustRun(t, "mount", "-o", "remount,bind,rw", "/sys/fs/cgroup/"+controller)
	}
	h.MustRun(t, "systemctl", "daemon-reexec") // it looks for controllers when it begins
	said := inside("^Test(Inside.*|WorkloadCase62_UnitsOnHost)$")
	c.Check(!strings.Contains(said, "--- SKIP"), "something was left out:\n%s", said)
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

// groupsSince removes the cgroups that a host has made in the controllers of this machine since it was called. The kernel refuses to remove one
// that is in use.
func groupsSince(t *testing.T) func() {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]bool{}
	var parents []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 && slices.Contains(controllers, fields[1]) {
			parents = append(parents, filepath.Join("/sys/fs/cgroup", fields[1], fields[2]))
		}
	}
	each := func(do func(dir string)) {
		for _, parent := range parents {
			entries, err := os.ReadDir(parent)
			if err != nil {
				t.Error(err)
			}
			for _, e := range entries {
				if e.IsDir() {
					do(filepath.Join(parent, e.Name()))
				}
			}
		}
	}
	each(func(dir string) { before[dir] = true })
	return func() {
		each(func(dir string) {
			if !before[dir] {
				removeGroups(dir)
			}
		})
	}
}

// removeGroups removes a cgroup and what is below it, as far as nothing is in them.
func removeGroups(dir string) {
	entries, _ := os.ReadDir(dir) // of one that is gone there is nothing to do
	for _, e := range entries {
		if e.IsDir() {
			removeGroups(filepath.Join(dir, e.Name()))
		}
	}
	_ = syscall.Rmdir(dir) // one that somebody else uses stays
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
