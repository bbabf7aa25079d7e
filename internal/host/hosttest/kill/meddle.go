package kill

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stopMax is how long a helper may take to get to the system call at which it is stopped.
const stopMax = time.Minute

// Meddled has somebody else change something while an agent applies a resource: it stops a helper at the first, the second and so on to the
// last system call of an apply, meddles, and has the helper go on and look again, shallowly. What is not as declared then must be seen by that
// look, or else nothing repairs it until the next audit. It returns how often what was done was undone or seen.
func Meddled(t testing.TB, row Row, meddle func(t testing.TB)) (times int) {
	t.Helper()
	NeedsStrace(t)
	r := &row
	r.arrange(t)
	calls, begin := trace(t, r.order(t, redo), false, r.classes())
	after := r.See(t)
	count := map[string]int{}
	for i, call := range calls {
		if i >= begin && strings.Contains(call, marker) {
			break // it looks again
		}
		name, _, _ := strings.Cut(call, "(")
		count[name]++
		if i < begin || name == "mmap" || r.At != nil && !r.At(calls, i, count[name]) {
			continue
		}
		r.arrange(t)
		e, stopped := r.stopAt(t, name, count[name], meddle)
		switch {
		case !stopped:
			t.Errorf("not stopped at %s: %v", call, e.err)
		case e.err == nil && !slices.Equal(r.See(t), after):
			t.Errorf("changed by somebody else at %s: there is %q, want %q, and a shallow look sees nothing of it", call, r.See(t), after)
		case e.err != nil && e.code == "":
			t.Errorf("changed by somebody else at %s: the helper dies: %v", call, e.err)
		default:
			times++
		}
	}
	return times
}

// stopAt runs a helper that is stopped at the nth call of a name, and goes on when somebody has meddled.
func (r *Row) stopAt(t testing.TB, name string, nth int, meddle func(t testing.TB)) (e ended, stopped bool) {
	t.Helper()
	text, err := json.Marshal(r.order(t, redo))
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(t.Context(), "strace", "-qq", "-f", "-o", "/dev/fd/3", "-e", fmt.Sprintf("inject=%s:signal=SIGSTOP:when=%d", name, nth), "-e", "signal=SIGSTOP", exe)
	cmd.Env = append(os.Environ(), orderVariable+"="+string(text), "GOMAXPROCS=1", "GOGC=off")
	cmd.ExtraFiles = []*os.File{write}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Start()
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := log.SetReadDeadline(time.Now().Add(stopMax)); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(log); lines.Scan(); {
		thread, what, _ := strings.Cut(lines.Text(), " ")
		if stopped || !strings.Contains(what, "--- stopped by SIGSTOP") {
			continue
		}
		stopped = true
		meddle(t)
		pid, err := strconv.Atoi(thread)
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGCONT)
		}
		if err != nil {
			t.Errorf("let %q go on: %v", lines.Text(), err)
		}
	}
	return end(cmd.Wait(), out.String(), said.String()), stopped
}
