package kill

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
)

// Row is one line of the table of a kill test. Open, Resources, Arrange and See are needed.
type Row struct {
	// Open starts an agent: the one that comes after a kill. It is the same that Main has.
	Open Open
	// Resources are what is declared. They are of one type, and are applied together.
	Resources []declare.Resource
	// Remove has the resources removed with delete, instead of applied.
	Remove bool
	// State is the directory of what an agent keeps. It is empty before each run. Default: one of the test's own.
	State string
	// Arrange makes what is there before, whatever was there.
	Arrange func(t testing.TB)
	// See looks at what is there, by other means than the type's. Each of its parts is, at any time, as it was before or as it is after.
	See func(t testing.TB) []string

	// Classes are the system calls that are counted, as strace names them. Default: %file,%desc, and so all that a file can notice.
	Classes string
	// At chooses the calls at which to kill; nth counts those of a name. Default: all.
	At func(calls []string, i, nth int) bool
	// Names are for a type that works on several threads, of which a list of calls shows one: it is killed at each call of these names instead.
	// Several that are separated by commas count as one.
	Names []string
	// Alone traces the helper's first thread only, which is the one that works. It is for types that run programs: one that is traced too makes
	// the nth call of a name before the agent does, and is killed in its place.
	Alone bool

	// Settle waits for programs that outlive their agent. Default: there are none.
	Settle func(t testing.TB)
	// Killed looks at what a kill has left, beyond See, and does what an agent of this type does when it starts. Default: nothing.
	Killed func(t testing.TB, at string)
	// Dirs have no temporary in them in the end.
	Dirs []string
}

func (r *Row) order(t testing.TB, d deed) order {
	t.Helper()
	if r.State == "" {
		r.State = filepath.Join(t.TempDir(), "state")
	}
	if d == apply && r.Remove {
		d = remove
	}
	return order{Resources: r.Resources, State: r.State, Deed: d}
}

// arrange makes what is there before, with an agent that keeps nothing yet.
func (r *Row) arrange(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll(r.State); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(r.State, 0o755); err != nil {
		t.Fatal(err)
	}
	r.Arrange(t)
}

// triesMax is how often a system call is tried that an apply did not come to: the Go runtime makes threads, and with them calls of some names, as it pleases.
const triesMax = 5

// sample is which of the calls that only look are killed at outside a long run.
const sample = 8

// telling says whether a kill at a call may leave something else than one at the calls around it: it changes something, or comes right after
// one that does, or is the last. Of those between them, a few stand for all: what others do on behalf of the agent shows between its calls.
func telling(calls []string, i int) bool {
	return Changes(calls[i]) || i == len(calls)-1 || i > 0 && Changes(calls[i-1]) || i%sample == 0
}

// Everywhere kills helpers at the first, the second and so on to the last system call of an apply, and returns how many it has killed. Outside a
// long run (TAKO_SOAK) it leaves out calls at which a kill tells nothing new.
func Everywhere(t testing.TB, row Row) (kills int) {
	t.Helper()
	NeedsStrace(t)
	r := &row
	o := r.order(t, apply)
	r.arrange(t)
	before := r.See(t)
	calls, begin := trace(t, o, r.Alone, r.classes())
	after := r.See(t)
	if slices.Equal(before, after) {
		t.Fatalf("nothing changes: %q", before)
	}
	if len(r.Names) > 0 {
		return r.byName(t, before, after)
	}
	long := os.Getenv("TAKO_SOAK") != ""
	count := map[string]int{} // strace counts each name for itself
	for i, call := range calls {
		name, _, _ := strings.Cut(call, "(")
		count[name]++
		if i < begin || name == "mmap" || r.At != nil && !r.At(calls, i, count[name]) { // mmap is the Go runtime's, as it pleases
			continue
		}
		if !long && !telling(calls, i) {
			continue
		}
		e := r.killAt(t, name, count[name])
		for tries := 1; !e.killed && e.err == nil && tries < triesMax; tries++ {
			e = r.killAt(t, name, count[name])
		}
		if !e.killed {
			t.Errorf("not killed at %s: %v", call, e.err)
			continue
		}
		kills++
		r.left(t, call, before, after)
		r.goOn(t, call, after)
	}
	return kills
}

func (r *Row) classes() string { return cmp.Or(r.Classes, "%file,%desc") }

// byName kills at the calls of some names, whatever thread makes them, each until there are no more of it.
func (r *Row) byName(t testing.TB, before, after []string) (kills int) {
	t.Helper()
	for _, name := range r.Names {
		for nth := 1; ; nth++ {
			call := fmt.Sprintf("%s %d", name, nth)
			e := r.killAt(t, name, nth)
			if !e.killed {
				if e.err != nil {
					t.Errorf("not killed at %s: %v", call, e.err)
				}
				break
			}
			kills++
			r.left(t, call, before, after)
			r.goOn(t, call, after)
		}
	}
	return kills
}

// killAt runs a helper that is killed as it enters the nth call of a name.
func (r *Row) killAt(t testing.TB, name string, nth int) ended {
	t.Helper()
	r.arrange(t)
	return run(t, r.order(t, apply), r.Alone, "-o", os.DevNull, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", name, nth))
}

// Failing has a helper apply while system calls fail: injections are those of strace, such as fsync:error=EIO:when=2. It returns the code of
// what went wrong, "" for nothing.
func Failing(t testing.TB, row Row, injections ...string) string {
	t.Helper()
	NeedsStrace(t)
	r := &row
	o := r.order(t, apply)
	r.arrange(t)
	options := []string{"-o", os.DevNull}
	for _, injection := range injections {
		options = append(options, "-e", "inject="+injection)
	}
	e := run(t, o, false, options...)
	if (e.err == nil) != (e.code == "") {
		t.Errorf("helper: %v, and it says %q", e.err, e.code)
	}
	return e.code
}

// left looks at what a kill has left.
func (r *Row) left(t testing.TB, call string, before, after []string) {
	t.Helper()
	if r.Settle != nil {
		r.Settle(t)
	}
	for k, part := range r.See(t) {
		if part != before[k] && part != after[k] {
			t.Errorf("killed at %s: there is %q, neither %q nor %q", call, part, before[k], after[k])
		}
	}
	// What is written in the tick in which an agent starts may be another one's: none starts in the tick in which the last one died.
	for died := time.Now().UnixNano(); disk.Tick() <= died; {
		runtime.Gosched()
	}
	if r.Killed != nil {
		r.Killed(t, call)
	}
}

// goOn has another agent bring the work to its end.
func (r *Row) goOn(t testing.TB, call string, after []string) {
	t.Helper()
	of, agent, err := r.Open(r.State)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	r.sweep(t, call, of)
	o := r.order(t, apply)
	if err := o.carryOut(t.Context(), of); err != nil {
		t.Fatalf("after it was killed at %s: %s", call, hosttest.Told(err))
	}
	if got := r.See(t); !slices.Equal(got, after) {
		t.Errorf("in the end, killed at %s: there is %q, want %q", call, got, after)
	}
	for i := 0; !r.Remove && i < len(r.Resources); i++ {
		g := hosttest.Ground{TB: t, Of: of}
		typ, bound := g.Bound(r.Resources[i])
		if p := typ.Check(t.Context(), []host.Resource{bound}, host.Deep)[0]; !p.Empty() || p.Err != nil {
			t.Errorf("in the end, killed at %s: there is still to do %v, %v", call, p.Changes, p.Err)
		}
	}
	for _, p := range temporaries(t, r.Dirs...) {
		t.Errorf("killed at %s: %s is left behind", call, p)
	}
}

// sweep does what an agent does first, which leaves no temporary either: what was left may be beside a path that nothing has to be written to any more.
func (r *Row) sweep(t testing.TB, call string, of func(declare.Resource) host.Type) {
	t.Helper()
	g := hosttest.Ground{TB: t, Of: of}
	for i := range r.Resources {
		typ, bound := g.Bound(r.Resources[i])
		s, is := typ.(host.Sweeper)
		if !is {
			continue
		}
		if err := s.Sweep(t.Context(), host.Around(bound)); err != nil {
			t.Errorf("sweep, killed at %s: %s", call, hosttest.Told(err))
		}
	}
	for _, p := range temporaries(t, r.Dirs...) {
		t.Errorf("killed at %s: %s is left by the sweep", call, p)
	}
}

func temporaries(t testing.TB, dirs ...string) (found []string) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && disk.IsTemporary(d.Name()) {
				found = append(found, p)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// changing matches a system call that changes something, or runs something, and an open that might.
var changing = regexp.MustCompile(`^(rename|(un)?link|symlink|mk|rm|f?chmod|[lf]?chown|f?truncate|.*utime|[lf]?(set|remove)xattr|p?write|fallocate|f?sync|fdatasync|` +
	`copy_file|sendfile|splice|u?mount|swapo|exec|v?fork|fsconfig|fsmount|move_mount|sethostname|delete_module|f?init_module)\w*\(|` +
	`^open.*O_(WRONLY|RDWR|CREAT|TRUNC|TMPFILE)|^ioctl.*FS_IOC_SET`)

// Changes reports whether a system call, as strace shows it, changes something or runs something.
func Changes(call string) bool { return changing.MatchString(call) }

// LooksOnly shows that checks make no system call that changes something; with an apply it shows that it would see one. It returns how
// many calls it has looked at.
func LooksOnly(t testing.TB, row Row) int {
	t.Helper()
	NeedsStrace(t)
	r := &row
	o := r.order(t, check)
	r.arrange(t)
	calls, begin := trace(t, o, false, "all")
	for _, call := range calls[begin:] {
		if Changes(call) {
			t.Errorf("a check makes the system call %s", call)
		}
	}
	seen := len(calls) - begin
	if r.See != nil {
		calls, begin = trace(t, r.order(t, apply), false, "all")
		if !slices.ContainsFunc(calls[begin:], Changes) {
			t.Error("not even an apply is seen to change something")
		}
	}
	return seen
}
