package systemd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/run"
	bus "tako.dev/tako/internal/systemd"
)

func unit(active string) *bus.LoadedUnit { return &bus.LoadedUnit{Name: "u", ActiveState: active} }

// What there is of an attempt follows from its unit and two files, whatever was killed in between.
func TestJudge(t *testing.T) {
	id := run.ID{Instance: "i", Task: "t", Attempt: 1}
	b := &begun{Boot: "now", PID: 7, Started: 3}
	old := &begun{Boot: "before", PID: 7, Started: 3}
	e := &ended{Boot: "now", Started: 3, Ending: run.Ending{Cause: run.Exited, Code: 2, At: 9}}
	queued := unit("inactive")
	queued.Job = true
	for _, row := range []struct {
		name  string
		e     evidence
		want  verdict
		phase run.Phase
	}{
		{"nothing", evidence{}, absent, 0},
		{"a unit that is about to start", evidence{unit: queued}, stands, run.Starting},
		{"a unit that starts", evidence{unit: unit("activating")}, stands, run.Starting},
		{"a program that is about to be executed", evidence{unit: unit("activating"), begun: b}, stands, run.Running},
		{"a program that runs", evidence{unit: unit("active"), begun: b}, stands, run.Running},
		{"a unit that is reloaded", evidence{unit: unit("reloading"), begun: b}, stands, run.Running},
		{"what is left is being ended", evidence{unit: unit("deactivating"), begun: b}, stands, run.Running},
		{"it has ended, and systemd is not done", evidence{unit: unit("deactivating"), begun: b, ended: e}, stands, run.Running},
		{"it could not be prepared, and systemd is not done", evidence{unit: unit("deactivating"), ended: e}, stands, run.Starting},
		{"it has ended", evidence{begun: b, ended: e}, stands, run.Ended},
		{"it has ended, and is kept", evidence{unit: unit("failed"), begun: b, ended: e}, stands, run.Ended},
		{"it has ended before the host was restarted", evidence{begun: old, ended: e}, stands, run.Ended},
		{"a dead unit", evidence{unit: unit("inactive"), begun: b, ended: e}, stands, run.Ended},
		{"a dead unit that never ran", evidence{unit: unit("inactive")}, absent, 0},
		{"nobody has noted the end", evidence{unit: unit("failed"), begun: b}, unsaid, run.Running},
		{"nobody has noted that it could not be prepared", evidence{unit: unit("failed")}, unsaid, run.Starting},
		{"the unit is gone", evidence{begun: b}, vanished, run.Running},
		{"the host was restarted", evidence{begun: old}, restarts, run.Running},
	} {
		row.e.boot = "now"
		s, v := judge(id, &row.e)
		if v != row.want || s.Phase != row.phase || s.Phase == run.Running && (s.PID != 7 || s.Started != 3) || s.Phase == run.Ended && s.Ending != e.Ending {
			t.Errorf("%s: %d, %+v", row.name, v, s)
		}
		if v != absent && (s.ID != id || s.Boot == "") {
			t.Errorf("%s: %+v", row.name, s)
		}
	}
}

// What systemd says about the end of a process is said in the words of the contract.
func TestEnd(t *testing.T) {
	const kill, segv = 9, 11
	for _, row := range []struct {
		name string
		e    ending
		want run.Ending
	}{
		{"well", ending{result: "success", code: "exited", status: "0", began: true}, run.Ending{Cause: run.Exited}},
		{"a code", ending{result: "exit-code", code: "exited", status: "203", began: true}, run.Ending{Cause: run.Exited, Code: 203}},
		{"a signal", ending{result: "core-dump", code: "dumped", status: "SEGV", began: true}, run.Ending{Cause: run.Signaled, Signal: segv}},
		{"a real-time signal", ending{result: "signal", code: "killed", status: "RTMIN+3", began: true}, run.Ending{Cause: run.Signaled, Signal: 37}},
		{"the last signal", ending{result: "signal", code: "killed", status: "RTMAX", began: true}, run.Ending{Cause: run.Signaled, Signal: 64}},
		{"one counted down", ending{result: "signal", code: "killed", status: "RTMAX-2", began: true}, run.Ending{Cause: run.Signaled, Signal: 62}},
		{"short of memory", ending{result: "oom-kill", code: "killed", status: "KILL", began: true, short: 1, limit: "64"}, run.Ending{Cause: run.OutOfMemory, Words: "its limit of 64 bytes of memory was reached"}},
		{"killed, and short before", ending{result: "signal", code: "killed", status: "KILL", began: true, short: 2, killed: true},
			run.Ending{Cause: run.Signaled, Signal: kill, Words: "its limit of memory was reached: the kernel has ended 2 of its processes"}},
		{"ended by itself, a child short", ending{result: "success", code: "exited", status: "0", began: true, short: 1},
			run.Ending{Cause: run.Exited, Words: "its limit of memory was reached: the kernel has ended 1 of its processes"}},
		{"no program", ending{result: "exit-code", code: "exited", status: "1", began: true, why: "execute /x: no such file"}, run.Ending{Cause: run.NotExecuted, Words: "execute /x: no such file"}},
		{"no mount", ending{result: "exit-code", code: "exited", status: "226"}, run.Ending{Cause: run.NotExecuted, Words: "systemd could not prepare it: exit-code, exit status 226/NAMESPACE"}},
		{"nothing said", ending{result: "resources", began: true}, run.Ending{Cause: run.Lost, Words: "systemd does not say how it ended: resources"}},
	} {
		if got := end(&row.e); got != row.want {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
	for _, row := range []struct {
		x             bus.Exit
		began, killed bool
		want          run.Cause
	}{
		{bus.Exit{Code: 1, Status: 3, Result: "exit-code"}, true, false, run.Exited},
		{bus.Exit{Code: 2, Status: kill, Result: "signal"}, true, false, run.Signaled},
		{bus.Exit{Code: 3, Status: segv, Result: "core-dump"}, true, false, run.Signaled},
		{bus.Exit{Code: 2, Status: kill, Result: "oom-kill"}, true, false, run.OutOfMemory},
		{bus.Exit{Code: 2, Status: kill, Result: "oom-kill"}, true, true, run.Signaled},
		{bus.Exit{Code: 1, Status: 203, Result: "exit-code"}, false, false, run.NotExecuted},
		{bus.Exit{Result: "resources"}, true, false, run.Lost},
	} {
		if got := endingOf(&row.x, row.began, row.killed, 5); got.Cause != row.want || got.At != 5 || got.Words == "" {
			t.Errorf("%+v: %+v", row.x, got)
		}
	}
}

// Nothing that may be secret is in the properties of a unit, which everybody can read.
func TestSettings(t *testing.T) {
	r := &Runtime{tree: tree{"/var/lib/tako/units", "/run/tako/units"}, program: []string{"/usr/bin/tako-agent", "unit"}, boot: "b"}
	task := run.Task{
		ID: run.ID{Instance: "i", Task: "t", Attempt: 1}, Command: []string{"/bin/x", "s3cr3t"}, Env: []string{"A=s3cr3t"}, Dir: "/s3cr3t",
		Files:  []run.File{{Path: "/etc/x", Content: []byte("s3cr3t")}},
		Mounts: []run.Mount{{Source: "/a", Path: "/b"}, {Source: "/c", Path: "/d", ReadOnly: true}}, Limits: run.Limits{CPU: 1500, Memory: 1 << 20, Processes: 40},
	}
	if why := r.unfit(&task); why != "" {
		t.Fatal(why)
	}
	text := fmt.Sprintf("%+v", r.settings(&task))
	if strings.Contains(text, "s3cr3t") {
		t.Errorf("everybody can read %s", text)
	}
	for _, want := range []string{
		"{Name:CPUQuotaPerSecUSec Value:1500000}", "{Name:MemoryMax Value:1048576}", "{Name:TasksMax Value:40}", "{Source:/a Path:/b ", "{Source:/c Path:/d ",
		"Source:/run/tako/units/i.t.1/file-0 Path:/etc/x", "{Name:NoNewPrivileges Value:true}", "{Name:KillMode Value:mixed}",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	for _, p := range []string{"/", "/usr", "/usr/bin", "/usr/bin/tako-agent", "/var/lib", "/run", "/run/tako/units/x", "/proc"} {
		if r.hides(p) == "" {
			t.Errorf("%s hides nothing", p)
		}
	}
	for _, p := range []string{"/data", "/usr/bin/tako", "/usr/share/x", "/var/lib/postgresql", "/run/app", "/etc"} {
		if why := r.hides(p); why != "" {
			t.Error(why)
		}
	}
}

// files makes files below a directory.
func files(t *testing.T, root string, all map[string]string) {
	t.Helper()
	for name, text := range all {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Wherever a host has its cgroups, what a unit takes is found, and which limits there are.
func TestGroups(t *testing.T) {
	const own, name = "0::/tako.slice/tako-i.t.1.service\n", "/tako.slice/tako-i.t.1.service"
	for _, row := range []struct {
		kind  string
		self  string
		files map[string]string
		lacks int
	}{
		{"v2", own, map[string]string{
			"cgroup.controllers": "cpu memory pids\n", name + "/cgroup.procs": "", name + "/memory.current": "4096\n", name + "/pids.current": "3\n",
			name + "/cpu.stat": "usage_usec 1500\n", name + "/memory.events": "max 2\noom 1\noom_kill 2\n",
		}, 0},
		{"v1 and v2", "4:memory:" + name + "\n1:name=systemd:" + name + "\n" + own, map[string]string{
			"unified" + name + "/cgroup.procs": "", "unified" + name + "/cpu.stat": "usage_usec 1500\n", "memory" + name + "/cgroup.procs": "",
			"memory" + name + "/memory.usage_in_bytes": "4096\n", "memory" + name + "/memory.oom_control": "under_oom 0\noom_kill 2\n", "pids" + name + "/cgroup.procs": "",
			"pids" + name + "/pids.current": "3\n", "cpu/cgroup.procs": "",
		}, 0},
		{"v1", "4:memory:" + name + "\n1:name=systemd:" + name + "\n", map[string]string{
			"systemd" + name + "/cgroup.procs": "", "cpuacct" + name + "/cgroup.procs": "", "cpuacct" + name + "/cpuacct.usage": "1500000\n",
			"memory" + name + "/cgroup.procs": "", "memory" + name + "/memory.usage_in_bytes": "4096\n", "memory" + name + "/memory.oom_control": "oom_kill 2\n",
			"pids" + name + "/cgroup.procs": "", "pids" + name + "/pids.current": "3\n",
		}, 1},
	} {
		root := t.TempDir()
		files(t, filepath.Join(root, cgroups), row.files)
		g := groupAt(root, nameOfGroup([]byte(row.self)))
		if u := g.usage(); u != (run.Usage{CPU: 1500 * time.Microsecond, Memory: 4096, Processes: 3}) || g.outOfMemory() != 2 || g.members == "" {
			t.Errorf("%s: %+v, %d, %+v", row.kind, u, g.outOfMemory(), g)
		}
		if got := lacks(root); len(got) != row.lacks {
			t.Errorf("%s lacks %q", row.kind, got)
		}
	}
	root := t.TempDir()
	files(t, filepath.Join(root, cgroups), map[string]string{"cgroup.controllers": "cpu\n", name + "/cgroup.procs": fmt.Sprintln(os.Getpid())})
	if got := lacks(root); got[run.LimitMemory] == "" || got[run.LimitTasks] == "" || got[run.LimitCPU] != "" {
		t.Errorf("it lacks %q", got)
	}
	if u := groupAt(root, name).usage(); u.Memory < 100<<10 || u.Processes != 1 {
		t.Errorf("without controllers: %+v", u)
	}
	if g := groupAt(root, "/gone"); g.members != "" || g.outOfMemory() != 0 || len(g.list()) != 0 {
		t.Errorf("%+v", g)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"__REALTIME_TIMESTAMP":"1700000000000000","__MONOTONIC_TIMESTAMP":"5","MESSAGE":"a","PRIORITY":"5","_LINE_BREAK":"eof"}` + "\n"))
	f.Add([]byte(`{"__REALTIME_TIMESTAMP":"1","__MONOTONIC_TIMESTAMP":"5","MESSAGE":[97,255,0]}` + "\n" + `{"MESSAGE":null}` + "\n" + `{"MESSAGE":[256]}`))
	f.Add([]byte("\"}\n{\"__REALTIME_TIMESTAMP\":\"x\"}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, l := range parseJournal(text, 0) {
			if len(l.Text) > len(text) || l.At.IsZero() && len(text) == 0 {
				t.Errorf("%q", l.Text)
			}
		}
		// What was printed comes back, whether the journal takes it for text or not.
		numbers := make([]int, len(text))
		for i, c := range text {
			numbers[i] = int(c)
		}
		message, err := json.Marshal(map[string]any{"__REALTIME_TIMESTAMP": "1", "__MONOTONIC_TIMESTAMP": "5", "MESSAGE": numbers, "PRIORITY": "5"})
		if err != nil {
			t.Fatal(err)
		}
		if lines := parseJournal(message, 5); len(lines) != 1 || !bytes.Equal(lines[0].Text, text) || !lines[0].Stderr || lines[0].Part {
			t.Errorf("%q comes back as %+v", text, lines)
		}
		if lines := parseJournal(message, 6); len(lines) != 0 {
			t.Errorf("what was printed before is there: %+v", lines)
		}
	})
}

func FuzzStatus(f *testing.F) {
	for _, text := range []string{
		`{"Boot":"b","PID":7,"Started":9}`, `{"Boot":"b","Started":1,"Ending":{"Cause":1,"Code":3,"At":9}}`, `{"Boot":"b","Ending":{"Cause":9}}`,
		`{"Command":["L2Jpbi94"],"Dir":"/"}`, `null`, `{`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var b begun
		if decode(text, &b) == nil && (b.PID <= 0 || b.Boot == "") {
			t.Errorf("%q is taken for a beginning", text)
		}
		var e ended
		if decode(text, &e) == nil && e.Ending.Cause.String() == "unknown" {
			t.Errorf("%q is taken for an end", text)
		}
		var o order
		if err := decodeOrder(text, &o); err == nil && len(o.Command) == 0 {
			t.Errorf("%q is taken for an order", text)
		} else if err != nil && len(text) > 12 && strings.Contains(err.Error(), string(text)) {
			t.Errorf("the error shows the order: %v", err)
		}
		for _, name := range []string{string(text), unitPrefix + string(text) + unitSuffix} {
			if id, ok := attemptOf(name); ok && (id.Valid() != nil || unitOf(id) != name) {
				t.Errorf("%q is taken for %v", name, id)
			}
		}
		nameOfGroup(text)
	})
}

// What is said first of an attempt stands, and everything of it goes, and nothing of another one.
func TestTree(t *testing.T) {
	dir := t.TempDir()
	tr := tree{dir, filepath.Join(dir, "memory")}
	one, ten := run.ID{Instance: "i", Task: "t", Attempt: 1}, run.ID{Instance: "i", Task: "t", Attempt: 10}
	for _, d := range []string{tr.statuses(), tr.attempt(one)} {
		if err := os.MkdirAll(d, dirMode); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range []bool{true, false} {
		if first, err := tr.put(one, endedFile, ended{Boot: "b", Ending: run.Ending{Cause: run.Exited, Code: n}}, true); err != nil || first != want {
			t.Errorf("said for the %dth time: %v (%v)", n, first, err)
		}
	}
	var e ended
	if ok, err := tr.get(one, endedFile, &e); err != nil || !ok || e.Ending.Code != 0 {
		t.Errorf("%+v (%v)", e, err)
	}
	if _, err := tr.put(ten, begunFile, begun{Boot: "b", PID: 1}, false); err != nil {
		t.Error(err)
	}
	files(t, dir, map[string]string{"status/i.t.1.begun.77": "cut sh"})
	if err := tr.forget(one); err != nil || !tr.hasAttempts("i") {
		t.Errorf("%v", err)
	}
	left, err := os.ReadDir(tr.statuses())
	if err != nil || len(left) != 1 || left[0].Name() != "i.t.10.begun" {
		t.Errorf("there is %v (%v)", left, err)
	}
	if err := os.Mkdir(tr.memory, dirMode); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	if err := tr.forget(ten); err != nil || tr.hasAttempts("i") {
		t.Errorf("%v", err)
	}
}
