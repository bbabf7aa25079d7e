package file_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/file"
	"tako.dev/tako/internal/reason"
)

// The test binary runs itself as a helper, which does one thing in a process of its own: where that is stopped or watched at
// each system call.
const helperVariable = "TAKO_FILE_HELPER"

// beginMarker is a path that the helper looks for just before it begins, so that this is seen among the system calls.
const beginMarker = "/tako-test-begin"

// order is what a helper does.
type order struct {
	Resource declare.Resource
	Store    string
	Apply    bool // otherwise only check, at every depth
}

func TestMain(m *testing.M) {
	if text := os.Getenv(helperVariable); text != "" {
		os.Exit(help(text))
	}
	os.Exit(m.Run())
}

// help carries out an order on one thread, and prints the code of an error.
func help(text string) int {
	runtime.LockOSThread()
	unix.Umask(0)
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Println(err)
		return 2
	}
	root, err := disk.OpenRoot("/")
	if err != nil {
		fmt.Println(err)
		return 2
	}
	store, err := content.Open(o.Store, content.Options{})
	if err != nil {
		fmt.Println(err)
		return 2
	}
	t := file.NewTrees(file.New(file.Options{Root: root, Content: store}))
	ctx := context.Background()
	r, err := t.Bind(ctx, declared(o.Resource))
	if err != nil {
		fmt.Println(err)
		return 2
	}
	_, _ = os.Lstat(beginMarker)
	if !o.Apply {
		for _, depth := range []host.Depth{host.Shallow, host.Deep, host.Explain} {
			err = t.Check(ctx, []host.Resource{r}, depth)[0].Err
		}
	} else if plan := t.Check(ctx, []host.Resource{r}, host.Shallow)[0]; plan.Err != nil || plan.Empty() {
		err = plan.Err
	} else {
		err = t.Apply(ctx, []host.Plan{plan})[0].Err
	}
	if err != nil {
		fmt.Println(reason.Of(err).Code)
		return 1
	}
	return 0
}

// helper is the helper under strace.
type helper struct {
	testing.TB
	order order
}

func needsStrace(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
}

// run runs the helper under strace with more options, and returns what it printed. The error is that of its end.
func (h *helper) run(options ...string) (string, error) {
	h.Helper()
	text, err := json.Marshal(h.order)
	if err != nil {
		h.Fatal(err)
	}
	args := append([]string{"-f", "--seccomp-bpf", "-qq"}, options...)
	cmd := exec.CommandContext(h.Context(), "strace", append(args, "/proc/self/exe")...)
	exe, err := os.Executable()
	if err != nil {
		h.Fatal(err)
	}
	cmd.Args[len(cmd.Args)-1] = exe
	cmd.Env = append(os.Environ(), helperVariable+"="+string(text), "GOMAXPROCS=1", "GOGC=off")
	var out bytes.Buffer
	cmd.Stdout = &out
	err = cmd.Run()
	return strings.TrimSpace(out.String()), err
}

// calls returns the system calls of the thread that does the work: all of a class, and how many of them come before the
// beginning.
func (h *helper) calls(class string) (calls []string, before int) {
	h.Helper()
	log := filepath.Join(h.TempDir(), "log")
	if out, err := h.run("-o", log, "-e", "trace="+class); err != nil {
		h.Fatalf("helper: %v: %s", err, out)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		h.Fatal(err)
	}
	byThread := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		thread, call, _ := strings.Cut(strings.TrimSpace(line), " ")
		if call = strings.TrimSpace(call); !strings.HasPrefix(call, "<...") && !strings.HasPrefix(call, "+++") && !strings.HasPrefix(call, "---") {
			byThread[thread] = append(byThread[thread], call)
		}
	}
	for _, calls := range byThread {
		for i, call := range calls {
			if strings.Contains(call, beginMarker) {
				return calls, i + 1
			}
		}
	}
	h.Fatalf("the helper did not begin:\n%s", b)
	return nil, 0
}

// killEverywhere kills the helper at its first system call after the beginning, then in another run at the second, and so on
// to the last. Before each run situation is made anew, after each look judges it. It returns how many kills there were.
func (h *helper) killEverywhere(situation func(), look func(at string)) (kills int) {
	h.Helper()
	arrange := func() {
		if err := os.RemoveAll(h.order.Store); err != nil {
			h.Fatal(err)
		}
		situation()
	}
	arrange()
	calls, before := h.calls("%file,%desc")
	// strace counts each kind of call for itself.
	count := map[string]int{}
	for i, call := range calls {
		kind := callName(call)
		count[kind]++
		if i < before || kind == "mmap" { // that is of the Go runtime, as it pleases
			continue
		}
		kills++
		arrange()
		out, err := h.run("-o", os.DevNull, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", kind, count[kind]))
		if err == nil || out != "" {
			h.Errorf("not killed at %s: %v: %s", call, err, out)
			continue
		}
		look(call)
	}
	arrange()
	if out, err := h.run("-o", os.DevNull, "-e", "trace=none"); err != nil {
		h.Errorf("the helper did not go on after all the kills: %v: %s", err, out)
	}
	return kills
}

// callName is the name of a system call in a line of strace.
func callName(call string) string {
	name, _, _ := strings.Cut(call, "(")
	return name
}
