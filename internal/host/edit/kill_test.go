package edit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	// helperVariable makes the test binary carry out an order, in a process of its own, where it is stopped at each system call.
	helperVariable = "TAKO_EDIT_TEST_HELPER"
	// beginMarker is a path that the helper looks for just before it begins, so that this is seen among the system calls.
	beginMarker = "/tako-test-begin"
)

// order is what a helper does.
type order struct {
	Edits []declare.Edit
	Store string
	Apply bool // otherwise only check, at every depth
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
	err := carryOut(text)
	if err != nil {
		fmt.Println(reason.Of(err).Code)
		return 1
	}
	return 0
}

func carryOut(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	root, err := disk.OpenRoot("/")
	if err != nil {
		return err
	}
	store, err := content.Open(o.Store, content.Options{})
	if err != nil {
		return err
	}
	t := New(Options{Root: root, Content: store})
	ctx := context.Background()
	var rs []host.Resource
	for i, e := range o.Edits {
		r, err := t.Bind(ctx, declared(fmt.Sprint("e", i), e))
		if err != nil {
			return err
		}
		rs = append(rs, r)
	}
	_, _ = os.Lstat(beginMarker)
	if !o.Apply {
		for _, depth := range []host.Depth{host.Shallow, host.Deep, host.Explain} {
			for _, p := range t.Check(ctx, rs, depth) {
				err = p.Err
			}
		}
		return err
	}
	var plans []host.Plan
	for _, p := range t.Check(ctx, rs, host.Shallow) {
		if p.Err != nil {
			return p.Err
		}
		if !p.Empty() {
			plans = append(plans, p)
		}
	}
	for _, res := range t.Apply(ctx, plans) {
		if res.Err != nil {
			return res.Err
		}
	}
	return nil
}

// straced runs the helper under strace, and returns what it printed.
func straced(t testing.TB, o order, options ...string) (string, error) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "strace", append(append([]string{"-f", "--seccomp-bpf", "-qq"}, options...), exe)...)
	cmd.Env = append(os.Environ(), helperVariable+"="+string(text), "GOMAXPROCS=1", "GOGC=off")
	var out bytes.Buffer
	cmd.Stdout = &out
	err = cmd.Run()
	return strings.TrimSpace(out.String()), err
}

// calls lists the system calls of the helper, and how many of them come before the beginning.
func calls(t testing.TB, o order, class string) (list []string, before int) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	if out, err := straced(t, o, "-o", log, "-e", "trace="+class); err != nil {
		t.Fatalf("helper: %v: %s", err, out)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	byThread := map[string][]string{}
	for l := range strings.Lines(string(b)) {
		thread, call, _ := strings.Cut(strings.TrimSpace(l), " ")
		if call = strings.TrimSpace(call); !strings.HasPrefix(call, "<...") && !strings.HasPrefix(call, "+++") && !strings.HasPrefix(call, "---") {
			byThread[thread] = append(byThread[thread], call)
		}
	}
	for _, list := range byThread {
		for i, call := range list {
			if strings.Contains(call, beginMarker) {
				return list, i + 1
			}
		}
	}
	t.Fatalf("the helper did not begin:\n%s", b)
	return nil, 0
}

func needsStrace(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
}

// threeEdits are edits of one file.
func threeEdits(p string) []declare.Edit {
	return []declare.Edit{
		{Path: p, Create: true, Line: &declare.LineEdit{Text: "a=1", Match: "^a="}},
		{Path: p, Create: true, Block: &declare.BlockEdit{Content: "x\n"}},
		{Path: p, Create: true, Ini: &declare.IniEdit{Section: "s", Key: "k", Value: ptr("v")}},
	}
}

// TestKilled kills the agent at every system call of an apply: the file is the old or the new one, the old content is kept before it goes,
// and the next apply leaves nothing behind.
func TestKilled(t *testing.T) {
	needsStrace(t)
	for name, old := range map[string]string{"change": "# c\na=0\n", "create": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			p := g.path("file")
			o := order{Edits: threeEdits(p), Store: filepath.Join(t.TempDir(), "content"), Apply: true}
			arrange := func() {
				g.must(os.RemoveAll(o.Store))
				if g.must(os.RemoveAll(g.dir)); old == "" {
					g.must(os.Mkdir(g.dir, 0o755))
					return
				}
				g.must(os.Mkdir(g.dir, 0o755))
				g.write("file", old, 0o640)
			}
			arrange()
			before := look(t, p)
			all, first := calls(t, o, "%file,%desc")
			after := look(t, p)
			if before == after {
				t.Fatal("nothing changes")
			}
			count, kills := map[string]int{}, 0
			for i, call := range all {
				kind, _, _ := strings.Cut(call, "(")
				if count[kind]++; i < first || kind == "mmap" { // that is of the Go runtime, as it pleases
					continue
				}
				kills++
				arrange()
				out, err := straced(t, o, "-o", os.DevNull, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", kind, count[kind]))
				if err == nil || out != "" {
					t.Errorf("not killed at %s: %v: %s", call, err, out)
					continue
				}
				now := look(t, p)
				if now != before && now != after {
					t.Errorf("killed at %s: %+v", call, now)
				}
				store, err := content.Open(o.Store, content.Options{})
				g.must(err)
				if now == after && old != "" && !store.Has(content.DigestOf([]byte(old))) {
					t.Errorf("killed at %s: the old content is lost", call)
				}
				for died := time.Now().UnixNano(); disk.Tick() <= died; { // no agent starts within the tick in which the last one died
					runtime.Gosched()
				}
				g.made(func() (rs []host.Resource) {
					g.Type = New(Options{Root: g.root, Content: store})
					for i, e := range o.Edits {
						rs = append(rs, g.bind(fmt.Sprint("e", i), e))
					}
					return rs
				}()...)
				if got := look(t, p); got != after {
					t.Errorf("killed at %s: in the end %+v", call, got)
				}
				list, err := os.ReadDir(g.dir)
				g.must(err)
				if len(list) != 1 {
					t.Errorf("killed at %s: left behind: %v", call, list)
				}
			}
			t.Logf("killed at %d system calls", kills)
			if kills < 10 {
				t.Error("killed at too few places")
			}
		})
	}
}

// writing matches a system call that changes something, or runs something, and an open that might.
var writing = regexp.MustCompile(`^(rename|(un)?link|symlink|mk|rm|f?chmod|[lf]?chown|f?truncate|.*utime|[lf]?(set|remove)xattr|p?write|fallocate|f?sync|fdatasync|` +
	`copy_file|sendfile|splice|u?mount|exec|v?fork)\w*\(|^open.*O_(WRONLY|RDWR|CREAT|TRUNC|TMPFILE)|^ioctl.*FS_IOC_SET`)

// TestCheckOnlyLooks: at no depth does a check write or run anything.
func TestCheckOnlyLooks(t *testing.T) {
	needsStrace(t)
	g := newGround(t)
	g.write("file", "a=0\n", 0o640)
	o := order{Edits: threeEdits(g.path("file")), Store: filepath.Join(t.TempDir(), "content")}
	o.Edits[0].Check = []string{"true", "{}"}
	list, first := calls(t, o, "all")
	for _, call := range list[first:] {
		if writing.MatchString(call) {
			t.Errorf("a check makes the system call %s", call)
		}
	}
	o.Apply = true
	list, first = calls(t, o, "all")
	if !slices.ContainsFunc(list[first:], writing.MatchString) {
		t.Error("not even an apply is seen to write")
	}
}
