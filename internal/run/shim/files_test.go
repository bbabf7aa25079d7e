package shim

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

// What a task prints comes back as it was, whole lines and parts, and only so much of it is kept.
func TestLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	w, err := openLog(name, run.Log{Bytes: 64 << 10, Files: 3})
	if err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("0123456789"), 3000)
	w.write(0, []byte("one\ntw"))
	w.write(1, []byte("other\n"))
	w.write(0, []byte("o\n\n"))
	w.write(0, long)
	w.write(0, []byte("\nno end"))
	w.close()
	lines, err := tail(name, run.TailMax)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(run.Text(lines, false)), "one\ntwo\n\n"+string(long)+"\nno end"; got != want {
		t.Errorf("%d bytes come back, %d were printed", len(got), len(want))
	}
	if got := string(run.Text(lines, true)); got != "other\n" {
		t.Errorf("of the other stream %q", got)
	}
	if w, err = openLog(name, run.Log{Bytes: 64 << 10, Files: 3}); err != nil {
		t.Fatal(err)
	}
	for i := range 20_000 {
		w.write(0, []byte("line "+strconv.Itoa(i)+"\n"))
	}
	w.close()
	var size int64
	files, err := filepath.Glob(name + "*")
	if err != nil || len(files) != 3 {
		t.Errorf("%q (%v)", files, err)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil || st.Size() > 64<<10 {
			t.Errorf("%s: %d bytes (%v)", f, st.Size(), err)
		}
		size += st.Size()
	}
	some, err := tail(name, 1000)
	if text := string(run.Text(some, false)); err != nil || len(text) > 1000 || len(text) < 900 || !strings.HasSuffix(text, "line 19998\nline 19999\n") {
		t.Errorf("the newest 1000 bytes are %d of %d: %.60q (%v)", len(text), size, text, err)
	}
	for i := 1; i < len(some); i++ {
		if some[i].At.Before(some[i-1].At) || time.Since(some[i].At) > time.Hour {
			t.Fatalf("line %d is of %v", i, some[i].At)
		}
	}
}

func FuzzLog(f *testing.F) {
	f.Add([]byte("a\nb"), []byte("\n\n"))
	f.Add([]byte("2030-01-01T00:00:00.000000000Z stdout F x\n"), []byte{0, 0xff})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		name := filepath.Join(t.TempDir(), "log")
		w, err := openLog(name, run.Log{Bytes: 1 << 20, Files: 2})
		if err != nil {
			t.Fatal(err)
		}
		w.write(0, a)
		w.write(1, b)
		w.write(0, b)
		w.close()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := parseLog(text)
		if got, want := run.Text(lines, false), slices.Concat(a, b); !bytes.Equal(got, want) {
			t.Errorf("%q comes back as %q", want, got)
		}
		if got := run.Text(lines, true); !bytes.Equal(got, b) {
			t.Errorf("%q comes back as %q", b, got)
		}
		parseLog(a) // whatever a crash leaves in a file
		parseNames(a)
		parseStat(a)
	})
}

func FuzzStatus(f *testing.F) {
	for _, text := range []string{
		`{"Boot":"b","PID":7,"Since":9,"Group":{"Dirs":{"memory":"/sys/fs/cgroup/memory/tako-i.t.1"}}}`, `{"PID":7,"Started":1}`,
		`{"Boot":"b","Started":1,"Ending":{"Cause":1,"Code":3,"At":9}}`, `{"Boot":"b","Ending":{"Cause":9}}`, `null`, `{`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var b begun
		if decode(text, &b) == nil && (b.PID <= 0 || b.Boot == "") {
			t.Errorf("%q is taken for a beginning", text)
		}
		var r running
		if decode(text, &r) == nil && r.PID <= 0 {
			t.Errorf("%q is taken for a process", text)
		}
		var e ended
		if decode(text, &e) == nil && e.Ending.Cause.String() == "unknown" {
			t.Errorf("%q is taken for an end", text)
		}
		if id, ok := nameOf(string(text)); ok && id.Valid() != nil {
			t.Errorf("%q is taken for %v", text, id)
		}
	})
}

// Damage in the files of an attempt has a name, and ends nothing else.
func TestDamage(t *testing.T) {
	r, err := New(Options{Dir: filepath.Join(t.TempDir(), "run"), Program: []string{"/bin/false"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	id := run.ID{Instance: "i", Task: "damaged", Attempt: 1}
	for _, kind := range []string{begunFile, endedFile} {
		if err := os.MkdirAll(r.tree.attempt(id), dirMode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.tree.status(id, kind), []byte("x"), fileMode); err != nil {
			t.Fatal(err)
		}
		list, err := r.List(t.Context())
		if err != nil || len(list) != 1 || list[0].Phase != run.Ended || list[0].Ending.Cause != run.Lost {
			t.Errorf("with a damaged %s: %+v (%v)", kind, list, err)
		}
		if err := r.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.Start(t.Context(), id, func() (*Order, error) { return &Order{Command: Bytes([]string{"/bin/true"}), WorkDir: "/"}, nil }); !reason.Is(err, reason.TaskNotStarted) {
		t.Errorf("with a shim that ends at once: %v", err)
	}
	if list, err := r.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("what was not started is there: %+v (%v)", list, err)
	}
	if err := r.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// While somebody else starts the same attempt, and hangs, who tries it too does not hang with him.
func TestStartHangs(t *testing.T) {
	r, err := New(Options{Dir: filepath.Join(t.TempDir(), "run"), Program: []string{"/proc/self/exe", shimArgument}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	id := run.ID{Instance: "i", Task: "hangs", Attempt: 1}
	if err := os.MkdirAll(r.tree.attempt(id), dirMode); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{startFile, lockFile} {
		other, err := hold(r.tree.in(id, name), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
	}
	if err := r.tree.put(id, begunFile, begun{Boot: r.boot, PID: os.Getpid()}, false); err != nil {
		t.Fatal(err)
	}
	s, err := r.Start(t.Context(), id, func() (*Order, error) { return &Order{Command: Bytes([]string{"/bin/true"}), WorkDir: "/"}, nil })
	if err != nil || s.Phase != run.Starting {
		t.Errorf("%+v (%v)", s, err)
	}
}

// After a restart of the host nothing runs, whoever has the numbers now.
func TestOtherBoot(t *testing.T) {
	r, err := New(Options{Dir: filepath.Join(t.TempDir(), "run"), Program: []string{"/bin/false"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	id := run.ID{Instance: "i", Task: "old", Attempt: 3}
	if err := os.MkdirAll(r.tree.attempt(id), dirMode); err != nil {
		t.Fatal(err)
	}
	lock, err := hold(r.tree.in(id, lockFile), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := r.tree.put(id, begunFile, begun{Boot: "another", PID: os.Getpid(), Since: 1}, false); err != nil {
		t.Fatal(err)
	}
	if err := r.tree.put(id, runningFile, running{PID: os.Getpid(), Started: 1}, false); err != nil {
		t.Fatal(err)
	}
	list, err := r.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Phase != run.Ended || list[0].Boot != "another" || list[0].Ending.Words != "the host was restarted" {
		t.Errorf("%+v (%v)", list, err)
	}
}

// unified makes files as the kernel has them with cgroups v2.
func unified(t *testing.T, controllers string) (root, own string) {
	t.Helper()
	root = t.TempDir()
	own = filepath.Join(root, "sys/fs/cgroup/system.slice/tako-agent.service")
	for name, text := range map[string]string{
		"proc/self/cgroup":    "0::/system.slice/tako-agent.service\n",
		"proc/self/mountinfo": "24 23 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
		"sys/fs/cgroup/system.slice/tako-agent.service/cgroup.controllers": controllers,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root, own
}

func TestUnifiedCgroups(t *testing.T) {
	root, own := unified(t, "cpu memory pids\n")
	g, lacks := ownGroup(root)
	if !g.V2 || len(lacks) != 0 || g.Dirs[memoryController] != own {
		t.Fatalf("%+v lacks %q", g, lacks)
	}
	its := g.of(run.ID{Instance: "i", Task: "t", Attempt: 1})
	if err := its.build(run.Limits{CPU: 1500, Memory: 64 << 20, Processes: 9}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(own, "tako-i.t.1")
	for file, want := range map[string]string{"cpu.max": "150000 100000", "memory.max": "67108864", "pids.max": "9"} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(text) != want {
			t.Errorf("%s holds %q (%v), want %q", file, text, err, want)
		}
	}
	for file, text := range map[string]string{
		"memory.events": "low 0\nhigh 0\nmax 4\noom 1\noom_kill 2\n", "memory.current": "4096\n", "pids.current": "3\n",
		"cpu.stat": "usage_usec 1500\nuser_usec 1000\n", "cgroup.procs": "17\n4\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if n := its.outOfMemory(); n != 2 {
		t.Errorf("%d were ended", n)
	}
	if u, ok := its.usage(); !ok || u != (run.Usage{CPU: 1500 * time.Microsecond, Memory: 4096, Processes: 3}) {
		t.Errorf("%+v", u)
	}
	if got := its.members(); !slices.Equal(got, []int{17, 4}) {
		t.Errorf("%v are in it", got)
	}
	root, _ = unified(t, "cpu\n")
	if g, lacks := ownGroup(root); lacks[run.LimitMemory] == "" || lacks[run.LimitTasks] == "" || lacks[run.LimitCPU] != "" {
		t.Errorf("%+v lacks %q", g, lacks)
	}
	root, own = unified(t, "cpu memory pids\n")
	if err := os.WriteFile(filepath.Join(root, "proc/self/cgroup"), []byte("0::/system.slice/tako-agent.service/agent\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if g, lacks := ownGroup(root); len(lacks) != 0 || g.Dirs[memoryController] != own {
		t.Errorf("from the subgroup of a unit: %+v lacks %q", g, lacks)
	}
	if _, lacks := ownGroup(t.TempDir()); len(lacks) != 3 {
		t.Errorf("without files of the kernel it lacks %q", lacks)
	}
}

// TestHybridCgroups: with controllers in v1, and v2 beside them.
func TestHybridCgroups(t *testing.T) {
	root, _ := unified(t, "")
	for name, text := range map[string]string{
		"proc/self/cgroup": "2:memory:/system.slice/tako-agent.service\n1:freezer:/x\n0::/system.slice/tako-agent.service\n",
		"proc/self/mountinfo": "24 23 0:22 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n25 23 0:23 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
			"26 23 0:24 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"memory/system.slice/tako-agent.service", "freezer/x", "unified/system.slice/tako-agent.service"} {
		if err := os.MkdirAll(filepath.Join(root, "sys/fs/cgroup", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	g, lacks := ownGroup(root)
	in := func(dir string) string { return filepath.Join(root, "sys/fs/cgroup", dir) }
	if want := []string{in("unified"), in("freezer/x")}; g.V2 || g.Dirs[memoryController] != in("memory/system.slice/tako-agent.service") || !slices.Equal(g.More, want) || lacks[run.LimitMemory] != "" {
		t.Errorf("%+v lacks %q, want more %q", g, lacks, want)
	}
}

// In a container the agent may see a part of each hierarchy only.
func TestCgroupMounts(t *testing.T) {
	for _, row := range []struct {
		mount cgroupMount
		path  string
		want  string
		ok    bool
	}{
		{cgroupMount{"/sys/fs/cgroup/memory", "/"}, "/a/b", "/sys/fs/cgroup/memory/a/b", true},
		{cgroupMount{"/sys/fs/cgroup/memory", "/"}, "/", "/sys/fs/cgroup/memory", true},
		{cgroupMount{"/sys/fs/cgroup/memory", "/docker/1"}, "/docker/1", "/sys/fs/cgroup/memory", true},
		{cgroupMount{"/sys/fs/cgroup/memory", "/docker/1"}, "/docker/1/x", "/sys/fs/cgroup/memory/x", true},
		{cgroupMount{"/sys/fs/cgroup/memory", "/docker/1"}, "/docker/2", "", false},
		{cgroupMount{}, "/a", "", false},
	} {
		if got, ok := row.mount.of(row.path); ok != row.ok || ok && got != row.want {
			t.Errorf("%s in %+v is %q, %v", row.path, row.mount, got, ok)
		}
	}
}
