package file_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

func TestCheckCommand(t *testing.T) {
	g := newGround(t)
	g.write("script", "#!/bin/sh\n", 0o755)
	for _, c := range []struct {
		name     string
		command  []string
		code     reason.Code
		evidence string
	}{
		{"accepts", []string{"grep", "-q", "new", "{}"}, 0, ""},
		{"path within an argument", []string{"sh", "-c", `test "$(cat "$1")" = new`, "sh", "{}"}, 0, ""},
		{"rejects", []string{"sh", "-c", "echo line 1: bad; echo and worse >&2; exit 3", "{}"}, reason.CheckRejected, "line 1: bad\nand worse"},
		{"rejects at length", []string{"sh", "-c", "seq 100000; echo the end; exit 1", "{}"}, reason.CheckRejected, "the end"},
		{"is not there", []string{"tako-no-such-program", "{}"}, reason.CheckNotRun, ""},
		{"is a directory", []string{"/", "{}"}, reason.CheckNotRun, ""},
		{"is no program", []string{g.path("script") + "/x", "{}"}, reason.CheckNotRun, ""},
		{"dies", []string{"sh", "-c", "kill -SEGV $$", "{}"}, reason.CheckNotRun, ""},
		{"reads nothing", []string{"sh", "-c", "read x; test -z \"$x\"", "{}"}, 0, ""},
		{"knows nothing of us", []string{"sh", "-c", `test "$PWD" = / && env | grep -v '^\(PWD\|PATH\|LC_ALL\|SHLVL\|_\|OLDPWD\)=' && exit 1; exit 0`, "{}"}, 0, ""},
		{"leaves a child behind", []string{"sh", "-c", "sleep 600 & exit 0", "{}"}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.write("file", "old", 0o644)
			res := g.converge(g.bindFile(declare.File{Path: g.path("file"), Content: "new", Check: c.command}))
			want := "old"
			if c.code == 0 {
				want = "new"
			}
			if got := g.look("file"); code(res.Err) != c.code || got.content != want || res.Changed != (c.code == 0) {
				t.Fatalf("%+v and content %q, want %v and %q", res, got.content, c.code, want)
			}
			if names := g.entries(); len(names) != 1 {
				t.Errorf("left behind: %q", names)
			}
			if c.code != 0 && !strings.HasSuffix(reason.Of(res.Err).Evidence, c.evidence) {
				t.Errorf("evidence %q, want %q", reason.Of(res.Err).Evidence, c.evidence)
			}
		})
	}
}

// What is not there is told how to be had, by name or by path.
func TestCheckCommandMissing(t *testing.T) {
	g := newGround(t)
	for _, program := range []string{"tako-no-such-program", "/usr/sbin/tako-no-such-program"} {
		res := g.converge(g.bindFile(declare.File{Path: g.path("file"), Content: "new", Check: []string{program, "{}"}}))
		if e := reason.Of(res.Err); !reason.Is(res.Err, reason.CheckNotRun) || !strings.Contains(e.Hint, "install "+program) {
			t.Errorf("%s: %+v", program, e)
		}
	}
}

// What a check command started is gone with it when it takes too long.
func TestCheckCommandTimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the ten seconds that a check command has")
	}
	t.Parallel()
	g := newGround(t)
	pid := filepath.Join(t.TempDir(), "pid")
	res := g.converge(g.bindFile(declare.File{Path: g.path("file"), Content: "new",
		Check: []string{"sh", "-c", "echo waiting; sleep 600 & echo $! > " + pid + "; wait", "{}"}}))
	if code(res.Err) != reason.OperationTimeout || res.Changed || reason.Of(res.Err).Evidence != "waiting" {
		t.Errorf("a check that never ends: %+v", res)
	}
	if got := g.look("file"); got.kind != "absent" {
		t.Errorf("left: %+v", got)
	}
	b, err := os.ReadFile(pid)
	g.must(err)
	child, err := strconv.Atoi(strings.TrimSpace(string(b)))
	g.must(err)
	deadline := time.After(time.Minute)
	for !ended(child) {
		select {
		case <-deadline:
			t.Fatal("its child still runs")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ended reports whether a process is gone, or a zombie that its new parent has not asked for yet.
func ended(pid int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(status), ") Z ")
}

// Of a private content nothing is told, whoever would tell it.
func TestCheckCommandPrivate(t *testing.T) {
	g := newGround(t)
	const secret = "tr0ub4dor"
	res := g.converge(g.bindFile(declare.File{Path: g.path("file"), Content: secret, Mode: "0600", Check: []string{"sh", "-c", "cat \"$1\"; exit 1", "sh", "{}"}}))
	e := reason.Of(res.Err)
	if code(res.Err) != reason.CheckRejected || strings.Contains(e.Error()+e.Hint+e.Evidence+res.Note, secret) || e.Hint == "" {
		t.Errorf("rejected: %+v", e)
	}
	if g.kept(secret) {
		t.Error("a rejected secret was kept")
	}
}

// One file that is rejected does not hold up the others.
func TestCheckCommandOfOneOfMany(t *testing.T) {
	g := newGround(t)
	var rs []host.Resource
	for i := range 20 {
		f := declare.File{Path: g.path(strconv.Itoa(i)), Content: strconv.Itoa(i), Check: []string{"grep", "-qv", "7", "{}"}}
		rs = append(rs, g.bindFile(f))
	}
	for i, res := range g.Apply(t.Context(), g.Check(t.Context(), rs, host.Shallow)) {
		want := reason.Code(0)
		if i == 7 || i == 17 {
			want = reason.CheckRejected
		}
		if code(res.Err) != want {
			t.Errorf("file %d: %+v, want %v", i, res, want)
		}
	}
}
