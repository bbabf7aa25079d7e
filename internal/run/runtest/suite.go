package runtest

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

// Run tries a runtime.
func Run(t *testing.T, s Subject) {
	t.Helper()
	for _, one := range []struct {
		name string
		try  func(*bench)
	}{
		{"exit codes", exitCodes}, {"signals", signals}, {"not executed", notExecuted}, {"started once", startedOnce},
		{"stop", stops}, {"deaf to the signal", deaf}, {"no longer", noLonger}, {"daemons", daemons}, {"what it is given", given}, {"secrets", secrets},
		{"refused", refused}, {"log", logs}, {"log flood", flood}, {"taken over", takenOver}, {"usage", usage},
		{"limit of processes", forkBomb}, {"limit of memory", memory}, {"limit of processor time", cpu},
		{"devices", devices}, {"mounts", mounts}, {"config files", configFiles}, {"users of instances", ownUsers}, {"quick exits", quickExits}, {"unknown", unknown},
	} {
		t.Run(one.name, func(t *testing.T) { one.try(newBench(t, s)) })
	}
}

// What may run until a moment is not begun after it, and is ended then by nobody who is asked, with all that it has started, unless that is put off.
func noLonger(b *bench) {
	late := b.shell("sleep 600")
	late.Until = 1
	if s := b.start(late); s.Phase != run.Ended || s.Ending.Cause != run.NotExecuted {
		b.Errorf("what was to run until before now: %+v", s)
	}
	b.over(late.ID)

	task := b.shell("sleep 600 & trap '' TERM; echo ready; while :; do sleep 0.05; done")
	task.Until = bootClock().Add(6 * time.Second) // by then it is ready, also on a machine that is busy
	b.start(task)
	b.says(task.ID, "ready")
	e := b.ended(task.ID)
	want(b, e, run.Signaled, 0, unix.SIGKILL)
	if e.At < task.Until {
		b.Errorf("it has ended %s before", task.Until.Sub(e.At))
	}
	b.over(task.ID)

	task = b.shell("echo ready; sleep 600")
	task.Until = bootClock().Add(8 * time.Second)
	b.start(task)
	b.says(task.ID, "ready")
	extend := func(until run.Moment) {
		if err := b.rt.Extend(b.Context(), task.ID, until); err != nil {
			b.Errorf("extend: %v", err)
		}
	}
	extend(bootClock().Add(time.Hour))
	extend(0)
	b.eventually("that time is over", func() bool { return bootClock() > task.Until.Add(time.Second) })
	if all, err := b.rt.List(b.Context()); err != nil || !slices.ContainsFunc(all, func(s run.Status) bool { return s.ID == task.ID && s.Phase == run.Running }) {
		b.Errorf("it may run on, and there is %+v, %v", all, err)
	}
	extend(bootClock().Add(100 * time.Millisecond))
	want(b, b.ended(task.ID), run.Signaled, 0, unix.SIGKILL)
	extend(bootClock()) // of what has ended it says nothing
	b.over(task.ID)
	unknown := task.ID
	unknown.Attempt = 77
	if err := b.rt.Extend(b.Context(), unknown, 0); !reason.Is(err, reason.TaskUnknown) {
		b.Errorf("extend what is not there: %v", err)
	}
}

func exitCodes(b *bench) {
	for _, code := range []int{0, 1, 42, 255} {
		task := b.shell("exit " + strconv.Itoa(code))
		before := bootClock()
		b.start(task)
		e := b.ended(task.ID)
		want(b, e, run.Exited, code, 0)
		if e.At < before || e.At > bootClock() || e.Well() != (code == 0) {
			b.Errorf("it ended at %v, well: %v", e.At, e.Well())
		}
		b.over(task.ID)
	}
}

func signals(b *bench) {
	for _, signal := range []syscall.Signal{unix.SIGSEGV, unix.SIGTERM, unix.SIGKILL, unix.SIGPIPE} {
		task := b.shell(fmt.Sprintf("kill -%d $$; sleep 60", int(signal)))
		b.start(task)
		want(b, b.ended(task.ID), run.Signaled, 0, signal)
		b.over(task.ID)
	}
}

func notExecuted(b *bench) {
	plain := filepath.Join(b.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o644); err != nil {
		b.Fatal(err)
	}
	elsewhere := b.shell("true")
	elsewhere.Dir = "/no/such/directory"
	for _, task := range []run.Task{b.task("/no/such/program"), b.task(plain), elsewhere} {
		s := b.start(task)
		if s.Phase != run.Ended || s.Ending.Cause != run.NotExecuted || s.Ending.Words == "" {
			b.Errorf("%s: %+v", task.Command[0], s)
		}
		if e := b.ended(task.ID); e != s.Ending {
			b.Errorf("it is told to have ended as %+v", e)
		}
		b.over(task.ID)
	}
}

// However often, and at the same time, an attempt is started: one process is.
func startedOnce(b *bench) {
	note := b.note()
	task := b.shell("echo x >>" + note + "; sleep 60")
	var all sync.WaitGroup
	statuses := make([]run.Status, 6)
	for i := range statuses {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			s, err := b.rt.Start(ctx, task)
			if err != nil {
				b.Errorf("start: %v", err)
			}
			statuses[i] = s
		})
	}
	all.Wait()
	b.eventually("it has noted that it runs", func() bool { return lines(b, note) > 0 })
	for _, s := range statuses {
		if s.Phase != run.Running || s.PID != statuses[0].PID || s.PID == 0 || s.Boot == "" || s.Started == 0 {
			b.Errorf("one Start says %+v, another %+v", s, statuses[0])
		}
	}
	task.Command = []string{"/no/such/program"}
	if s := b.start(task); s != statuses[0] {
		b.Errorf("another start of the same attempt: %+v", s)
	}
	b.over(task.ID)
	if n := lines(b, note); n != 1 {
		b.Errorf("it was started %d times", n)
	}
}

func stops(b *bench) {
	task := b.shell("trap 'echo told' TERM; trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done")
	b.start(task)
	b.says(task.ID, "ready")
	for range 5 {
		if err := b.rt.Stop(b.Context(), task.ID, run.Signal(unix.SIGTERM)); err != nil {
			b.Fatalf("stop: %v", err)
		}
	}
	b.says(task.ID, "told")
	if n := strings.Count(b.printed(task.ID), "told"); n != 1 {
		b.Errorf("it got the signal %d times", n)
	}
	b.over(task.ID)
	other := b.shell("trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done")
	b.start(other)
	b.says(other.ID, "ready")
	if err := b.rt.Stop(b.Context(), other.ID, run.Signal(unix.SIGINT)); err != nil {
		b.Fatalf("stop: %v", err)
	}
	want(b, b.ended(other.ID), run.Exited, 7, 0)
	if err := b.rt.Stop(b.Context(), other.ID, run.Signal(unix.SIGINT)); err != nil {
		b.Errorf("stop what has ended: %v", err)
	}
	b.over(other.ID)
}

func deaf(b *bench) {
	task := b.shell("trap '' TERM INT HUP; (trap '' TERM; sleep 600) & echo ready; sleep 600")
	b.start(task)
	b.says(task.ID, "ready")
	if err := b.rt.Stop(b.Context(), task.ID, run.Signal(unix.SIGTERM)); err != nil {
		b.Fatalf("stop: %v", err)
	}
	if err := b.rt.Remove(b.Context(), task.ID); !reason.Is(err, reason.TaskBusy) {
		b.Errorf("remove what runs: %v", err)
	}
	list, err := b.rt.List(b.Context())
	if err != nil || len(list) != 1 || list[0].Phase != run.Running {
		b.Errorf("deaf to the signal, and: %+v (%v)", list, err)
	}
	for range 3 {
		if err := b.rt.Kill(b.Context(), task.ID); err != nil {
			b.Fatalf("kill: %v", err)
		}
	}
	want(b, b.ended(task.ID), run.Signaled, 0, unix.SIGKILL)
	b.over(task.ID)
}

// What has left the session, and the family, and its environment, is ended all the same: when its task ends, and when it is killed.
func daemons(b *bench) {
	const lasting = "setsid sleep 61%d & (setsid sh -c 'sleep 61%d & sleep 61%d' &) ; env -i setsid sh -c 'sleep 61%d & sleep 61%d' & "
	for i, rest := range []string{"sleep 0.3; exit 3", "echo ready; sleep 600"} {
		number := 1000*(os.Getpid()%1000) + i
		task := b.shell(strings.ReplaceAll(lasting, "%d", strconv.Itoa(number)) + rest)
		b.start(task)
		sleeps := func() int { return arguments(b, "61"+strconv.Itoa(number)) }
		if i == 1 {
			b.says(task.ID, "ready")
			b.eventually("its daemons are there", func() bool { return sleeps() >= 5 })
			if err := b.rt.Kill(b.Context(), task.ID); err != nil {
				b.Fatalf("kill: %v", err)
			}
			want(b, b.ended(task.ID), run.Signaled, 0, unix.SIGKILL)
		} else {
			want(b, b.ended(task.ID), run.Exited, 3, 0)
		}
		if n := sleeps(); n > 0 {
			b.Errorf("%d of its daemons are left when it has ended", n)
		}
		b.over(task.ID)
	}
}

// given compares what a program gets with what it was given.
func given(b *bench) {
	var every []byte
	last := 255
	if _, lacks := b.rt.Capabilities().Lacks[run.AnyBytes]; lacks {
		every, last = []byte("\u00e4\u20ac\U0001f600\u2028"), 127
	}
	for c := 1; c <= last; c++ {
		every = append(every, byte(c))
	}
	task := b.program("show", "", string(every), "a b", "'\"$(x)\\\n", "%s %%")
	task.Env = append(task.Env, "EVERY="+string(every), "EMPTY=", "LINES=a\nb\n", "TAKO=no name of the runtime's")
	leak, err := unix.Dup(0) // without close-on-exec, as a careless library would
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(leak)
	b.start(task)
	want(b, b.ended(task.ID), run.Exited, 0, 0)
	shown := strings.Split(b.printed(task.ID), "\n")
	if len(shown) < 2 {
		b.Fatalf("it says %q", shown)
	}
	if got := unhex(b, shown[0]); got != strings.Join(task.Command[3:], "\x00") {
		b.Errorf("arguments arrive as %q", got)
	}
	var env []string
	for _, v := range strings.Split(unhex(b, shown[1]), "\x00") {
		if !strings.HasPrefix(v, "TAKO_") && (task.Image == "" || !strings.HasPrefix(v, "HOME=")) {
			env = append(env, v)
		}
	}
	if got := strings.Join(env, "\x00"); got != strings.Join(task.Env, "\x00") {
		b.Errorf("the environment arrives as %q, want %q", got, task.Env)
	}
	b.over(task.ID)

	where := b.shell("pwd; umask; id -u; id -G; echo 0 1 2 $(ls /proc/self/fd | wc -l); grep -c . /proc/self/cgroup; readlink /proc/self/fd/0; cat /proc/self/oom_score_adj; cut -d ' ' -f 6 /proc/$$/stat; echo $$")
	where.Dir = "/usr/bin"
	b.start(where)
	want(b, b.ended(where.ID), run.Exited, 0, 0)
	got := strings.Split(b.printed(where.ID), "\n")
	if len(got) < 10 {
		b.Fatalf("it says %q", got)
	}
	if got[0] != "/usr/bin" || got[1] != "0022" && got[1] != "022" || got[4] != "0 1 2 4" || got[6] != os.DevNull || got[7] != "0" || got[8] != got[9] {
		b.Errorf("directory %q, umask %q, descriptors %q (ls has one), input %q, OOM score %q, session %q of %q", got[0], got[1], got[4], got[6], got[7], got[8], got[9])
	}
	if b.Subject.User != "" && got[2] != strconv.Itoa(b.UID) {
		b.Errorf("it runs as %s, want %d", got[2], b.UID)
	}
	b.over(where.ID)
}

// secrets looks for a value where everybody can read it.
func secrets(b *bench) {
	secret := "s3cr3t-" + b.serial.next() + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	task := b.shell("echo ready; sleep 600")
	task.Env = append(task.Env, "SECRET="+secret)
	stop, done := make(chan struct{}), make(chan int)
	go func() { // while it starts
		found := 0
		for {
			found += arguments(b, secret)
			select {
			case <-stop:
				done <- found
				return
			default:
			}
		}
	}()
	b.start(task)
	b.says(task.ID, "ready")
	close(stop)
	if n := <-done; n > 0 {
		b.Errorf("the secret was in the arguments of a process")
	}
	b.searched(secret)
	b.over(task.ID)
	bad := b.shell("true")
	bad.Env = append(bad.Env, secret+"\x00=x", "="+secret)
	if _, err := b.rt.Start(b.Context(), bad); !reason.Is(err, reason.TaskRefused) || strings.Contains(err.Error(), secret) {
		b.Errorf("a variable that cannot be: %v", err)
	}
}

func refused(b *bench) {
	nobody := b.shell("true")
	nobody.User = "nobody-has-this-name"
	relative := b.task("bin/sh")
	relative.Image = "" // an image may have it in its PATH
	long := b.task(append([]string{"/bin/true"}, strings.Repeat("x", run.StartBytes))...)
	nameless := b.shell("true")
	nameless.ID.Task = "../x"
	for _, task := range []run.Task{nobody, relative, long, nameless, {}} {
		if _, err := b.rt.Start(b.Context(), task); !reason.Is(err, reason.TaskRefused) {
			b.Errorf("%.40q as %q: %v", task.Command, task.User, err)
		}
	}
	can := b.rt.Capabilities()
	needs := map[run.Feature]func(*run.Task){
		run.LimitCPU:    func(t *run.Task) { t.Limits.CPU = 500 },
		run.LimitMemory: func(t *run.Task) { t.Limits.Memory = 64 << 20 },
		run.LimitTasks:  func(t *run.Task) { t.Limits.Processes = 10 },
		run.Mounts:      func(t *run.Task) { t.Mounts = []run.Mount{{Source: "/usr", Path: "/mnt"}} },
		run.ConfigFiles: func(t *run.Task) { t.Files = []run.File{{Path: "/etc/x", Mode: 0o444}} },
		run.Images:      func(t *run.Task) { t.Image = "/var/lib/image" },
		run.OwnNetwork:  func(t *run.Task) { t.OwnNetwork = true },
		run.Devices:     func(t *run.Task) { t.Devices = []string{"/dev/null"} },
		run.AnyBytes:    func(t *run.Task) { t.Env = append(t.Env, "X=\xff") },
	}
	for feature, need := range needs {
		task := b.shell("true")
		need(&task)
		why, lacks := can.Lacks[feature]
		if !lacks {
			continue
		}
		if _, err := b.rt.Start(b.Context(), task); !reason.Is(err, reason.RuntimeUnfit) || !strings.Contains(err.Error(), why) || why == "" {
			b.Errorf("%s is lacking (%s), and the error is %v", feature, why, err)
		}
	}
}

func logs(b *bench) {
	task := b.shell("echo one; sleep 0.05; echo two >&2; sleep 0.05; printf 'no end'; sleep 0.05; head -c 20000 /dev/zero | tr '\\0' x >&2")
	b.start(task)
	want(b, b.ended(task.ID), run.Exited, 0, 0)
	got, err := b.rt.Tail(b.Context(), task.ID, run.TailMax)
	if err != nil {
		b.Fatal(err)
	}
	out, printed := string(run.Text(got, false)), string(run.Text(got, true))
	if out != "one\nno end" && out != "one\nno end\n" || strings.TrimSuffix(printed, "\n") != "two\n"+strings.Repeat("x", 20000) {
		b.Errorf("it has printed %q and %d bytes %.40q", out, len(printed), printed)
	}
	for i, l := range got {
		if i > 0 && l.At.Before(got[i-1].At) || time.Since(l.At) > time.Hour {
			b.Errorf("line %d is of %v, after one of %v", i, l.At, got[max(i-1, 0)].At)
		}
	}
	some, err := b.rt.Tail(b.Context(), task.ID, 100)
	if err != nil || len(some) > 0 && len(run.Text(some, true)) > 100 {
		b.Errorf("the newest 100 bytes: %d lines (%v)", len(some), err)
	}
	b.over(task.ID)
}

// flood prints far more than is kept.
func flood(b *bench) {
	task := b.shell("i=0; while [ $i -lt 5 ]; do head -c 1000000 /dev/zero | tr '\\0' '\\n'; i=$((i+1)); done; seq 1 100000; echo last")
	task.Log = run.Log{Bytes: 256 << 10, Files: 2}
	b.start(task)
	want(b, b.ended(task.ID), run.Exited, 0, 0)
	if printed := b.printed(task.ID); !b.Lossy && !strings.HasSuffix(printed, "99999\n100000\nlast\n") || len(printed) > 2*256<<10 {
		b.Errorf("of a flood %d bytes are kept, ending %q", len(printed), printed[max(0, len(printed)-40):])
	}
	var size int64
	for _, name := range b.files() {
		if st, err := os.Stat(filepath.Join(b.dir, name)); err == nil && st.Mode().IsRegular() {
			size += st.Size()
		}
	}
	if size > 2*256<<10+16<<10 {
		b.Errorf("of a flood %d bytes are on disk", size)
	}
	b.over(task.ID)
}

// takenOver has an agent end, and another one begin.
func takenOver(b *bench) {
	lives, ends := b.shell("echo ready; sleep 600"), b.shell("echo ready; read x <"+b.fifo()+"; exit 9")
	running := b.start(lives)
	b.start(ends)
	b.says(lives.ID, "ready")
	b.leave()
	b.release()
	b.open()
	if s := b.until(lives.ID, run.Running); s != running {
		b.Errorf("what runs is now %+v, before it was %+v", s, running)
	}
	want(b, b.ended(ends.ID), run.Exited, 9, 0)
	list, err := b.rt.List(b.Context())
	if err != nil || len(list) != 2 {
		b.Errorf("there is %+v (%v)", list, err)
	}
	if s := b.start(lives); s != running {
		b.Errorf("started again it is %+v", s)
	}
	if s := b.start(ends); s.Phase != run.Ended || s.Ending.Code != 9 {
		b.Errorf("what has ended is started again as %+v", s)
	}
	if !strings.Contains(b.printed(ends.ID), "ready") {
		b.Error("what was printed before is not there")
	}
	if err := b.rt.Kill(b.Context(), lives.ID); err != nil {
		b.Fatal(err)
	}
	want(b, b.ended(lives.ID), run.Signaled, 0, unix.SIGKILL)
	b.over(lives.ID)
	b.over(ends.ID)
}

func usage(b *bench) {
	task := b.program("spin")
	b.start(task)
	b.eventually("it has used processor time", func() bool {
		u, err := b.rt.Usage(b.Context(), task.ID)
		if err != nil {
			b.Fatalf("usage: %v", err)
		}
		return u.CPU > 50*time.Millisecond && u.Memory > 100<<10 && u.Processes > 0
	})
	b.over(task.ID)
	if _, err := b.rt.Usage(b.Context(), task.ID); !reason.Is(err, reason.TaskUnknown) {
		b.Errorf("usage of what is gone: %v", err)
	}
}

func forkBomb(b *bench) {
	if why, lacks := b.rt.Capabilities().Lacks[run.LimitTasks]; lacks {
		b.Skip(why)
	}
	task := b.shell("echo ready; f() { f & f & sleep 600; }; while :; do f & sleep 0.05; done")
	task.Limits.Processes = 40
	b.start(task)
	b.eventually("the limit is reached", func() bool {
		u, err := b.rt.Usage(b.Context(), task.ID)
		if err != nil && !reason.Is(err, reason.TaskUnknown) {
			b.Fatalf("usage: %v", err)
		}
		if u.Processes > 40 {
			b.Fatalf("there are %d processes", u.Processes)
		}
		return u.Processes >= 25 || err != nil
	})
	if err := b.rt.Kill(b.Context(), task.ID); err != nil {
		b.Fatal(err)
	}
	if e := b.ended(task.ID); e.Survived != 0 {
		b.Errorf("%d processes survived", e.Survived)
	}
	b.over(task.ID)
}

func memory(b *bench) {
	if why, lacks := b.rt.Capabilities().Lacks[run.LimitMemory]; lacks {
		b.Skip(why)
	}
	task := b.program("eat")
	task.Limits.Memory = 64 << 20
	b.start(task)
	if e := b.ended(task.ID); e.Cause != run.OutOfMemory || e.Words == "" || e.Well() {
		b.Errorf("it ended as %+v", e)
	}
	b.over(task.ID)
}

// quickExits starts many that end at once, and counts what is left. TAKO_QUICK_EXITS says how many.
func quickExits(b *bench) {
	one := b.shell("exit 1")
	b.start(one)
	b.over(one.ID)
	fds, heap, goroutines, count := descriptors(b), heapBytes(), runtime.NumGoroutine(), number("TAKO_QUICK_EXITS", 60)
	for n := range count {
		task := b.task("/bin/false")
		b.start(task)
		want(b, b.ended(task.ID), run.Exited, 1, 0)
		b.over(task.ID)
		b.mu.Lock()
		delete(b.told, task.ID)
		b.mu.Unlock()
		if n == count/2 {
			fds = max(fds, descriptors(b))
		}
	}
	b.eventually(fmt.Sprintf("no more than the %d descriptors from before are open", fds), func() bool { return descriptors(b) <= fds+2 })
	if grown := heapBytes() - heap; grown > heapMax {
		b.Errorf("%d bytes of memory are kept after %d exits", grown, count)
	}
	b.eventually("no goroutine is left of them", func() bool { return runtime.NumGoroutine() <= goroutines })
	b.eventually("nothing is left of them", func() bool { return strings.Join(b.files(), " ") == strings.Join(b.Clean, " ") })
}

// heapMax is how much memory may be kept after any number of exits: what buffers and tables have grown by.
const heapMax = 512 << 10

// heapBytes is what is in use of the heap.
func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func unknown(b *bench) {
	id := run.ID{Instance: "nobody", Task: "nothing", Attempt: 1}
	_, usage := b.rt.Usage(b.Context(), id)
	_, tail := b.rt.Tail(b.Context(), id, 100)
	for what, err := range map[string]error{"usage": usage, "tail": tail, "stop": b.rt.Stop(b.Context(), id, 15), "kill": b.rt.Kill(b.Context(), id)} {
		if !reason.Is(err, reason.TaskUnknown) {
			b.Errorf("%s of what is not there: %v", what, err)
		}
	}
	if err := b.rt.Remove(b.Context(), id); err != nil {
		b.Errorf("remove what is not there: %v", err)
	}
}

func unhex(b *bench, text string) string {
	b.Helper()
	out, err := hex.DecodeString(text)
	if err != nil {
		b.Fatalf("%.80q: %v", text, err)
	}
	return string(out)
}

// bootClock is the time of the boot clock.
func bootClock() run.Moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it cannot fail with a valid clock
	return run.Moment(ts.Nano())
}

// note is a file that every user may write to.
func (b *bench) note() string {
	b.Helper()
	dir, err := os.MkdirTemp("", "runtest")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	name := filepath.Join(dir, "note")
	if err := os.WriteFile(name, nil, 0o666); err != nil {
		b.Fatal(err)
	}
	for p, mode := range map[string]os.FileMode{dir: 0o777, name: 0o666} {
		if err := os.Chmod(p, mode); err != nil {
			b.Fatal(err)
		}
	}
	return name
}

// fifo makes a pipe that a task waits at until release.
func (b *bench) fifo() string {
	b.Helper()
	b.gate = b.note() + "-gate"
	if err := unix.Mkfifo(b.gate, 0o666); err != nil {
		b.Fatal(err)
	}
	return b.gate
}

// release lets the task go on that waits.
func (b *bench) release() {
	b.Helper()
	if err := os.WriteFile(b.gate, []byte("go\n"), 0); err != nil {
		b.Fatal(err)
	}
}

func lines(t testing.TB, name string) int {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// arguments is how many processes have a text in their arguments.
func arguments(t testing.TB, text string) (n int) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range list {
		if line, err := os.ReadFile(name); err == nil && strings.Contains(string(line), text) {
			n++
		}
	}
	return n
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
