package instances

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/transfer/wire"
)

// deadline is for what takes milliseconds on an idle machine.
const deadline = time.Minute

// rigs tells the hosts of one process apart: the kernel's cgroups are not theirs alone.
var rigs atomic.Int64

// rig is a host with a Keeper, and the real runtime Process.
type rig struct {
	t       testing.TB
	dir     string
	keeper  *Keeper
	stop    func()
	wanted  Wanted
	made    int
	number  int64
	objects *content.Objects
	cards   []string // directories about devices

	mu       sync.Mutex
	notes    []store.Happening
	troubles []string
	changed  int
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, dir: t.TempDir(), number: rigs.Add(1)}
	if err := os.Chmod(r.dir, 0o755); err != nil { // tasks have users of their own
		t.Fatal(err)
	}
	r.wanted = Wanted{Node: "node-1", Labels: map[string]string{"zone": "a"}, Offers: wire.Offers{CPU: 4000, Memory: 4 << 30, Disk: 40 << 30, Runtimes: []string{string(workload.Process), string(workload.OCI)}, Address: "127.0.0.1"}}
	t.Cleanup(func() {
		r.start()
		r.wanted.Instances = nil
		r.keeper.Want(r.wanted)
		r.until("nothing is left", func(told []wire.Instance) bool {
			left, err := os.ReadDir(filepath.Join(r.dir, "runtimes/process/attempts"))
			return len(told) == 0 && len(left) == 0 && (err == nil || errors.Is(err, os.ErrNotExist))
		})
		r.stop()
		if t.Failed() {
			t.Logf("troubles: %q", r.troubles)
		}
	})
	return r
}

func bootID(t testing.TB) string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (r *rig) options() Options {
	return Options{
		StateDir: r.dir, Boot: bootID(r.t), Runtimes: kinds(), Objects: r.objects, Devices: r.cards,
		Open:  func(s catalog.Sealed) ([]byte, error) { return []byte(strings.TrimPrefix(s.Key, "of ")), nil },
		Clean: func(s string) string { return strings.ReplaceAll(s, "s3cret-value", "[secret]") },
		Changed: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changed++
		},
		Note: func(n store.Happening) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notes = append(r.notes, n)
		},
		Trouble: func(doing string, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.troubles = append(r.troubles, doing+": "+err.Error())
		},
	}
}

// start starts a Keeper that takes over what is there; one that runs is stopped first.
func (r *rig) start() {
	r.t.Helper()
	if r.stop != nil {
		r.stop()
	}
	k, err := New(r.options())
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	r.keeper = k
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("the Keeper ended with %v", err)
		}
		r.stop = nil
	}
	k.Want(r.wanted)
}

// add wants another instance.
func (r *rig) add(change func(*catalog.Instance, *catalog.Template), tasks ...workload.Task) string {
	r.made++
	in := catalog.Instance{UID: fmt.Sprintf("uid-%d-%d-%d", os.Getpid(), r.number, r.made), Namespace: "shop", Name: fmt.Sprintf("web-%d", r.made), Workload: "web", Revision: fmt.Sprintf("web-r%d", r.made), Slot: 3}
	t := catalog.Template{Namespace: "shop", Revision: in.Revision, Spec: workload.Template{Runtime: workload.Process, Tasks: tasks, TerminationGrace: "1s", Restart: workload.Restart{Backoff: "100ms"}}}
	if change != nil {
		change(&in, &t)
	}
	r.wanted.Instances = append(slices.Clone(r.wanted.Instances), in)
	r.wanted.Templates = append(slices.Clone(r.wanted.Templates), t)
	if r.keeper != nil {
		r.keeper.Want(r.wanted)
	}
	return in.UID
}

func (r *rig) end(uid string) {
	r.wanted.Instances = slices.Clone(r.wanted.Instances)
	for i := range r.wanted.Instances {
		if r.wanted.Instances[i].UID == uid {
			r.wanted.Instances[i].Stop = true
		}
	}
	r.keeper.Want(r.wanted)
}

func (r *rig) until(what string, is func([]wire.Instance) bool) {
	r.t.Helper()
	r.within(deadline, what, is)
}

func (r *rig) within(limit time.Duration, what string, is func([]wire.Instance) bool) {
	r.t.Helper()
	timeout := time.After(limit)
	for {
		told := r.keeper.Told()
		if is(told) {
			return
		}
		select {
		case <-timeout:
			r.t.Fatalf("%s: not within %v; told is %+v; troubles %q", what, limit, told, r.troubles)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (r *rig) one(uid string) (found wire.Instance) {
	for _, n := range r.keeper.Told() {
		if n.UID == uid {
			found = n
		}
	}
	return found
}

func (r *rig) is(uid string, phase wire.InstancePhase, ready bool) wire.Instance {
	r.t.Helper()
	r.until(fmt.Sprintf("%s is %d, ready %v", uid, phase, ready), func([]wire.Instance) bool {
		n := r.one(uid)
		return n.UID == uid && n.Phase == phase && n.Ready == ready
	})
	return r.one(uid)
}

func (r *rig) account(uid string) core.Account {
	r.t.Helper()
	list, err := r.keeper.Accounts(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	at := slices.IndexFunc(list, func(a core.Account) bool { return a.UID == uid })
	if at < 0 {
		r.t.Fatalf("there is no %s in %+v", uid, list)
	}
	return list[at]
}

// pids are the processes of an instance.
func (r *rig) pids(uid string) (pids []int) {
	r.t.Helper()
	return r.pidsBy(workload.Process, uid)
}

// pidsBy are those that a runtime runs.
func (r *rig) pidsBy(name workload.Runtime, uid string) (pids []int) {
	r.t.Helper()
	list, err := ask(r.t.Context(), r.keeper, func() *runtime { return r.keeper.runtimes[name] })
	if err != nil {
		r.t.Fatal(err)
	}
	if list == nil {
		return nil // what runs is told of before its runtime is open
	}
	all, err := list.List(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range all {
		if s.ID.Instance == uid && s.Phase == run.Running {
			pids = append(pids, s.PID)
		}
	}
	return pids
}

func task(args ...string) workload.Task {
	return workload.Task{Name: "main", Command: append([]string{"/proc/self/exe", programArgument}, args...), User: userOfTests()}
}

// userOfTests is who tasks of tests run as: the test binary may be where no other user comes.
func userOfTests() string { return strconv.Itoa(os.Geteuid()) }

// self is the path of the test binary: /proc/self/exe is the shim's by then, which is the same program.
func get(t testing.TB, port uint16, path string) (int, string) {
	t.Helper()
	reply, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(body)
}

// TestLeaseEndsWithoutTheAgent: what has a lease runs on as long as reports are heard, however the end of it was told to its runtime; when the agent does
// nothing any more the runtime ends it when the lease is over, and the next agent does not begin it again.
func TestLeaseEndsWithoutTheAgent(t *testing.T) {
	r := newRig(t)
	r.start()
	r.keeper.Heard(r.keeper.Echo())
	const lease = 6
	uid := r.add(func(in *catalog.Instance, _ *catalog.Template) { in.Lease = lease }, task("wait"))
	began := now()
	r.until("it has run for longer than its lease, and a reply that is unknown says nothing", func([]wire.Instance) bool {
		r.keeper.Heard(r.keeper.Echo())
		r.keeper.Heard(1)
		n := r.one(uid)
		if n.Phase == wire.InstanceFailed {
			t.Fatalf("it is told as %+v", n)
		}
		return n.Phase == wire.InstanceRunning && now().Sub(began) > 2*lease*time.Second
	})
	pids := r.pids(uid)
	if len(pids) != 1 {
		t.Fatalf("its processes are %d", pids)
	}
	r.stop()
	r.until("its runtime ends it", func([]wire.Instance) bool { return errors.Is(unix.Kill(pids[0], 0), unix.ESRCH) })
	r.start()
	if n := r.is(uid, wire.InstanceFailed, false); n.Code != reason.LeaseOver {
		t.Errorf("it is told as %+v", n)
	}
}

func TestLifeOfAnInstance(t *testing.T) {
	r := newRig(t)
	flag := filepath.Join(r.dir, "ready")
	web := task("serve", flag)
	web.Ports = []workload.Port{{Name: "http"}}
	web.Env = []workload.EnvVar{
		{Name: "URL", Value: "http://$(PORT_HTTP)/$$(X)"}, {Name: "WHO", ValueFrom: &workload.EnvSource{Field: "instance.name"}},
		{Name: "INDEX", ValueFrom: &workload.EnvSource{Field: "instance.index"}}, {Name: "ZONE", ValueFrom: &workload.EnvSource{Field: "node.labels['zone']"}},
		{Name: "NUMBER", ValueFrom: &workload.EnvSource{Field: "ports['http']"}}, {Name: "TOKEN", ValueFrom: &workload.EnvSource{Secret: &declare.KeySelector{Name: "s", Key: "k"}}},
	}
	web.Readiness = &workload.Probe{HTTP: &workload.HTTPProbe{Port: "http", Path: "/ready"}, Period: "100ms"}
	r.start()
	uid := r.add(func(_ *catalog.Instance, tpl *catalog.Template) {
		tpl.Secrets = []catalog.TemplateSecret{{Task: "main", Env: "TOKEN", Sealed: catalog.Sealed{Key: "of s3cret-value"}}}
	}, web)
	n := r.is(uid, wire.InstanceRunning, false)
	r.until("the probe's answer is told", func([]wire.Instance) bool { return strings.Contains(r.one(uid).Message, "503") })
	if n = r.one(uid); n.Code != reason.ProbeFailed || !strings.Contains(n.Message, "warming the cache") || strings.Contains(n.Message, "s3cret") {
		t.Errorf("what is told of the probe: %q", n.Message)
	}
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n = r.is(uid, wire.InstanceRunning, true)
	if n.Code != 0 || len(n.Ports) != 1 || n.Ports[0].Number < portFirst || n.Attempt != 1 {
		t.Errorf("a ready instance is told as %+v", n)
	}
	_, text := get(t, n.Ports[0].Number, "/env")
	var env []string
	if err := json.Unmarshal([]byte(text), &env); err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(int(n.Ports[0].Number))
	for _, want := range []string{"PORT_HTTP=" + port, "URL=http://" + port + "/$(X)", "WHO=web-1", "INDEX=3", "ZONE=a", "NUMBER=" + port, "TOKEN=s3cret-value"} {
		if !slices.Contains(env, want) {
			t.Errorf("the environment has no %q: %q", want, env)
		}
	}
	full, sampled, ago := r.keeper.Report(t.Context())
	if len(full) != 1 || full[0].Memory == 0 || sampled == 0 || sampled.Add(ago) > now() {
		t.Errorf("the report is %+v, of %d, %s ago", full, sampled, ago)
	}
	if _, again, later := r.keeper.Report(t.Context()); again != sampled || later < ago {
		t.Errorf("at once after %d, %s ago, it is of %d, %s ago", sampled, ago, again, later)
	}
	r.end(uid)
	r.is(uid, wire.InstanceDone, false)
	r.wanted.Instances = nil
	r.keeper.Want(r.wanted)
	r.until("it is forgotten", func(told []wire.Instance) bool { return len(told) == 0 })
	r.stop()
	for _, dir := range []string{"instances", "runtimes/process/attempts", "runtimes/process/status"} {
		if left, err := os.ReadDir(filepath.Join(r.dir, dir)); err != nil || len(left) > 0 {
			t.Errorf("%s holds %v, %v", dir, left, err)
		}
	}
}

func TestNothingToDoCostsNothing(t *testing.T) {
	r := newRig(t)
	r.start()
	if _, err := ask(t.Context(), r.keeper, func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if left, err := os.ReadDir(r.dir); err != nil || len(left) > 0 {
		t.Errorf("a Keeper without instances has made %v, %v", left, err)
	}
}

func TestWorkloadCase60_AgentsTakeOverFromEachOther(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t)
	flag := filepath.Join(r.dir, "ready")
	c.NoError(os.WriteFile(flag, nil, 0o644), "write")
	web := task("serve", flag)
	web.Ports = []workload.Port{{Name: "http"}}
	web.Readiness = &workload.Probe{HTTP: &workload.HTTPProbe{Port: "http", Path: "/ready"}, Period: "100ms"}
	r.start()
	uid := r.add(nil, web)
	before := r.is(uid, wire.InstanceRunning, true)
	pids := r.pids(uid)
	for range 3 {
		r.stop()
		r.start()
		r.until("something is told", func(told []wire.Instance) bool { return len(told) == 1 })
		first := r.one(uid)
		c.Check(first.Ready && first.Phase == wire.InstanceRunning, "the first word of the agent that was restarted is %+v", first)
	}
	r.until("it is asked", func([]wire.Instance) bool { return len(r.account(uid).Tasks[0].Probes) > 0 })
	after := r.one(uid)
	c.Equal(after.Attempt, before.Attempt, "attempts")
	c.Equal(after.Restarts, uint32(0), "restarts")
	c.Equal(after.Ports, before.Ports, "ports")
	c.Equal(r.pids(uid), pids, "processes")
}

func TestDeafTaskIsKilled(t *testing.T) {
	r := newRig(t)
	r.start()
	uid := r.add(nil, task("deaf"))
	r.is(uid, wire.InstanceRunning, true)
	r.until("it is deaf", func([]wire.Instance) bool {
		var b strings.Builder
		return r.keeper.Logs(t.Context(), &b, "shop/web-1", false, 10, time.Time{}) == nil && strings.Contains(b.String(), `"text":"deaf"`)
	})
	began := time.Now()
	r.end(uid)
	r.is(uid, wire.InstanceDone, false)
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("it was killed after %v, and its grace is a second", took)
	}
	a := r.account(uid)
	if past := a.Tasks[0].Past; len(past) != 1 || !strings.Contains(past[0].Ended, "was ended") {
		t.Errorf("its attempts were %+v", past)
	}
}

func TestCrashLoop(t *testing.T) {
	r := newRig(t)
	r.start()
	uid := r.add(nil, task("exit", "7"))
	r.until("it is started again and again", func([]wire.Instance) bool { return r.one(uid).Restarts >= 3 })
	n := r.one(uid)
	if n.Code != reason.TaskEnded || !strings.Contains(n.Message, "exit code 7") {
		t.Errorf("told is %+v", n)
	}
	var b strings.Builder
	if err := r.keeper.Logs(t.Context(), &b, "shop/web-1/main", true, 10, time.Time{}); err != nil || !strings.Contains(b.String(), "about to end") {
		t.Errorf("the attempt before has printed %q, %v", b.String(), err)
	}
	entries, err := os.ReadDir(filepath.Join(r.dir, "runtimes/process/attempts"))
	if err != nil || len(entries) > 3 {
		t.Errorf("there are %d attempts, %v", len(entries), err)
	}
}

func TestJob(t *testing.T) {
	r := newRig(t)
	r.start()
	job := func(in *catalog.Instance, _ *catalog.Template) { in.Job = true }
	good, bad := r.add(job, task("exit", "0")), r.add(job, task("exit", "1"))
	r.is(good, wire.InstanceDone, false)
	if n := r.is(bad, wire.InstanceFailed, false); n.Code != reason.TaskEnded || n.OfNode || n.Restarts != 0 {
		t.Errorf("a job that has failed is told as %+v", n)
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	r.start()
	port := task("wait")
	port.Ports = []workload.Port{{Name: "http", Port: int32(taken.Addr().(*net.TCPAddr).Port)}}
	large := task("wait")
	large.Resources.Requests.Memory = "64Gi"
	mounts := task("wait")
	mounts.Mounts = []workload.Mount{{Volume: "v", Path: "/v"}}
	for name, one := range map[string]struct {
		uid    string
		code   reason.Code
		words  string
		ofNode bool
	}{
		"port":    {r.add(nil, port), reason.PortOccupied, "listens on it", true},
		"memory":  {r.add(nil, large), reason.InstanceRefused, "needs 64Gi memory, 4Gi is free", true},
		"runtime": {r.add(func(_ *catalog.Instance, t *catalog.Template) { t.Spec.Runtime = workload.Systemd }, task("wait")), reason.RuntimeUnfit, "this host has Process", true},
		"mounts": {r.add(func(_ *catalog.Instance, t *catalog.Template) {
			t.Spec.Volumes = []workload.Volume{{Name: "v", Temporary: &workload.TemporaryVolume{}}}
		}, mounts), reason.RuntimeUnfit, "shows tasks the host as it is", true},
		"user": {r.add(nil, func() workload.Task { one := task("wait"); one.User = "nobody-has-this-name"; return one }()), reason.TaskRefused, "no such user", false},
	} {
		n := r.is(one.uid, wire.InstanceFailed, false)
		if n.Code != one.code || !strings.Contains(n.Message, one.words) || n.OfNode != one.ofNode {
			t.Errorf("%s: told is %+v", name, n)
		}
	}
	r.stop()
	r.start()
	r.until("all are told again", func(told []wire.Instance) bool { return len(told) == 5 })
	for _, n := range r.keeper.Told() {
		if n.Phase != wire.InstanceFailed || n.Code == 0 {
			t.Errorf("after a restart %+v", n)
		}
	}
}

func TestLogFloodHarmsNobody(t *testing.T) {
	r := newRig(t)
	r.start()
	flood := r.add(nil, task("flood"))
	flag := filepath.Join(r.dir, "ready")
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	web := task("serve", flag)
	web.Ports = []workload.Port{{Name: "http"}}
	web.Readiness = &workload.Probe{HTTP: &workload.HTTPProbe{Port: "http", Path: "/ready"}, Period: "100ms", Timeout: "5s"}
	uid := r.add(nil, web)
	r.is(flood, wire.InstanceRunning, true)
	r.is(uid, wire.InstanceRunning, true)
	r.until("its last lines can be read", func([]wire.Instance) bool {
		var b strings.Builder
		return r.keeper.Logs(t.Context(), &b, "shop/web-1", false, 5, time.Time{}) == nil && strings.Count(b.String(), "\n") == 5
	})
	r.end(flood)
	r.is(flood, wire.InstanceDone, false)
}

func TestForkBombInsideItsLimit(t *testing.T) {
	r := newRig(t)
	bomb := task("bomb")
	most := int32(40)
	bomb.Resources.Limits.Processes = &most
	r.start()
	calm := r.add(nil, task("wait"))
	r.is(calm, wire.InstanceRunning, true)
	pids := r.pids(calm)
	uid := r.add(nil, bomb)
	r.until("it runs or is refused", func([]wire.Instance) bool { return r.one(uid).Phase >= wire.InstanceRunning })
	if n := r.one(uid); n.Phase == wire.InstanceFailed {
		if n.Code != reason.RuntimeUnfit {
			t.Errorf("told is %+v", n)
		}
		t.Skip("no cgroups here: " + n.Message)
	}
	r.until("it is at its limit", func([]wire.Instance) bool {
		k := r.keeper
		rt, err := ask(t.Context(), k, func() *runtime { return k.runtimes[workload.Process] })
		if err != nil {
			return false
		}
		u, err := rt.Usage(t.Context(), run.ID{Instance: uid, Task: "main", Attempt: 1})
		return err == nil && u.Processes >= int(most)-2
	})
	another := r.add(nil, task("wait"))
	r.is(another, wire.InstanceRunning, true)
	if is := r.pids(calm); len(is) != 1 || !slices.Equal(is, pids) {
		t.Errorf("beside it one ran as %v, and runs as %v", pids, is)
	}
	r.end(uid)
	r.is(uid, wire.InstanceDone, false)
}

func TestWorkloadCase62_DamagedRecord(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t)
	r.start()
	still := r.add(nil, task("wait"))
	web := task("wait")
	web.Ports = []workload.Port{{Name: "http"}}
	ported := r.add(nil, web)
	r.is(still, wire.InstanceRunning, true)
	r.is(ported, wire.InstanceRunning, true)
	pids, other := r.pids(still), r.pids(ported)
	for _, damage := range []func(string) error{
		func(name string) error { return os.Truncate(name, 40) },
		os.Remove,
		func(name string) error { return os.WriteFile(name, []byte("tako instance 1\nxxxxxxxx"), 0o600) },
	} {
		r.stop()
		for _, uid := range []string{still, ported} {
			c.NoError(damage(filepath.Join(r.dir, "instances", uid, recordName)), "damage")
		}
		r.start()
		r.is(still, wire.InstanceRunning, true)
		c.Equal(r.pids(still), pids, "processes: what runs is adopted")
		// What has the number of a port in its environment that nobody knows any more is started anew, and never runs twice.
		r.until("the other one has another process", func([]wire.Instance) bool { p := r.pids(ported); return len(p) == 1 && p[0] != other[0] })
		r.is(ported, wire.InstanceRunning, true)
		other = r.pids(ported)
		c.Equal(len(other), 1, "processes with a port")
	}
}

func TestWorkloadCase66_DiskOfTheAgent(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t)
	r.start()
	var size int64
	measure := func() (sum int64) {
		c.NoError(filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) { // what is forgotten goes just now
				return nil
			}
			if err != nil {
				return err
			}
			if st, err := os.Lstat(path); err == nil && !st.IsDir() {
				sum += st.Size() + 1
			}
			return nil
		}), "measure")
		return sum
	}
	for round := range 6 {
		uid := r.add(nil, task("exit", "1"))
		r.until("it has crashed twice", func([]wire.Instance) bool { return r.one(uid).Restarts >= 2 })
		r.wanted.Instances, r.wanted.Templates = nil, nil
		r.keeper.Want(r.wanted)
		r.until("it is forgotten", func(told []wire.Instance) bool { return len(told) == 0 })
		var now int64
		r.until("its files are gone", func([]wire.Instance) bool { now = measure(); return round == 0 || now <= size })
		size = max(size, now)
	}
	c.Check(size < 4<<10, "%d bytes are left of what is gone", size)
}

func TestPortsAreKeptAndGivenBack(t *testing.T) {
	b := core.Bind{UID: "a", Ports: []core.Need{{Name: "x", Protocol: workload.TCP}, {Name: "y", Protocol: workload.TCP}, {Name: "z", Protocol: workload.UDP, Number: 53}}}
	got := bind(core.Bind{UID: "a", Ports: b.Ports[:2]})
	if got.Err != nil || got.Ports["x"] == got.Ports["y"] || got.Ports["x"] < portFirst || got.Ports["x"] >= portFirst+portCount {
		t.Fatalf("ports are %+v", got)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", got.Ports["x"]))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if again := bind(core.Bind{UID: "a", Ports: b.Ports[:1]}); again.Err != nil || again.Ports["x"] == got.Ports["x"] {
		t.Errorf("a port that is listened on is given: %+v", again)
	}
}
