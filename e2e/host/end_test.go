package host

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// childVariable tells a test that it runs as the child of itself, in a process that is killed or has to fail.
const childVariable = "TAKO_TEST_CHILD"

// child returns the command that runs the calling test, and only that, as a child.
func child(t *testing.T) *exec.Cmd {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	return cmd
}

// TestLabLeavesNothing looks for what is left of a lab after its test.
func TestLabLeavesNothing(t *testing.T) {
	var dir string
	t.Run("lab", func(t *testing.T) {
		lab := NewLab(t)
		dir = lab.dir
		lab.Boot(t, "short-lived").Start(t, "sleep", "1000")
		for kind, found := range remains(t, dir) {
			if len(found) == 0 {
				t.Errorf("%s of a living lab: none found, so none will be missed", kind)
			}
		}
	})
	if dir == "" {
		t.SkipNow() // the lab has said why
	}
	awaitNothingLeft(t, dir)
}

// TestKilledRunLeavesNothing kills a test process that has a lab, and wants the host to end with it and the next lab to
// remove the rest.
func TestKilledRunLeavesNothing(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		lab := NewLab(t)
		lab.Boot(t, "doomed").Start(t, "sleep", "1000")
		fmt.Println("LAB", lab.dir)
		<-t.Context().Done() // never: the parent kills this process
	}
	Require(t)
	run := child(t)
	stdout, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	dir := awaitLab(t, stdout)
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = run.Wait() // says that it was killed
	Eventually(t, waitTimeout, "the killed run's host ends", func() (string, bool) {
		processes := remains(t, dir)["processes"]
		return fmt.Sprint(processes), len(processes) == 0
	})
	t.Run("next lab", func(t *testing.T) { NewLab(t) })
	awaitNothingLeft(t, dir)
}

// awaitLab reads what the child prints up to the directory of its lab.
func awaitLab(t *testing.T, stdout io.Reader) string {
	t.Helper()
	var printed strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if dir, ok := strings.CutPrefix(lines.Text(), "LAB "); ok {
			return dir
		}
		fmt.Fprintln(&printed, lines.Text())
	}
	t.Fatalf("the child ended early:\n%s", printed.String())
	return ""
}

// TestFailureShowsJournal wants console and journal of the hosts in the log of a test that fails.
func TestFailureShowsJournal(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		h := NewLab(t).Boot(t, "failing")
		h.MustRun(t, "sh", "-c", "echo words of the journal | systemd-cat; journalctl --sync; exit 9")
	}
	Require(t)
	out, err := child(t).CombinedOutput()
	if err == nil {
		t.Error("the child passed; want a failure")
	}
	for _, want := range []string{"exit status 9", "words of the journal"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("no %q in the log of a failed test:\n%s", want, out)
		}
	}
}

// TestFailureShowsConsole: where there is no journal, it is what the host has printed that tells.
func TestFailureShowsConsole(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		h := NewLab(t).Boot(t, "failing")
		h.PowerCut(t)
		t.Fatal("exit status 9")
	}
	Require(t)
	out, err := child(t).CombinedOutput()
	if err == nil {
		t.Error("the child passed; want a failure")
	}
	for _, want := range []string{"exit status 9", "no journal", "Welcome to Debian"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("no %q in the log of a failed test:\n%s", want, out)
		}
	}
}

func awaitNothingLeft(t *testing.T, dir string) {
	t.Helper()
	Eventually(t, waitTimeout, "nothing of the lab is left", func() (string, bool) {
		left := remains(t, dir)
		for _, found := range left {
			if len(found) > 0 {
				return fmt.Sprint(left), false
			}
		}
		return "", true
	})
}

// remains lists, by kind, what there is of one lab: other labs on this machine are not its business.
func remains(t *testing.T, dir string) map[string][]string {
	t.Helper()
	left := map[string][]string{
		"directories": glob(t, dir+"*"),
		"processes":   labProcesses(t, dir),
		"threads":     strayThreads(t),
	}
	parents, err := cgroupParents()
	if err != nil {
		t.Fatal(err)
	}
	for _, parent := range parents {
		left["control groups"] = append(left["control groups"], glob(t, filepath.Join(parent, cgroupPrefix+filepath.Base(dir)+"*"))...)
	}
	return left
}

// labProcesses lists the processes, on the whole machine, that see a mount from the lab's directory or name it on their
// command line. A mount that no process sees is no more.
func labProcesses(t *testing.T, dir string) []string {
	t.Helper()
	mark := []byte(filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir)))
	var found []string
	for _, process := range glob(t, "/proc/[0-9]*") {
		mounts, _ := os.ReadFile(process + "/mountinfo") // a process that has just ended has none
		command, _ := os.ReadFile(process + "/cmdline")
		if bytes.Contains(mounts, mark) || bytes.Contains(command, mark) {
			found = append(found, fmt.Sprintf("%s %q", process, command))
		}
	}
	return found
}

// strayThreads lists the threads of this process that are in another network than the process: they hold a lab's network,
// with its bridge.
func strayThreads(t *testing.T) []string {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, thread := range glob(t, "/proc/self/task/*/ns/net") {
		if network, err := os.Readlink(thread); err == nil && network != own {
			found = append(found, thread)
		}
	}
	return found
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
