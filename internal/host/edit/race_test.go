package edit

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// raceTime bounds the race on a machine that is busy; enough is how often it is won at least before it ends.
	raceTime = 20 * time.Second
	enough   = 50
)

// TestRace: a user whose directory the file is in swaps it for links, FIFOs and hard links of his, as fast as he can. What the links lead to
// stays as it is, nothing hangs, and every error has a code.
func TestRace(t *testing.T) {
	needsRoot(t)
	g := newGround(t)
	// His directory is one that he can get to.
	dir, err := os.MkdirTemp("", "race")
	g.must(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	g.must(os.Chmod(dir, 0o755))
	his := filepath.Join(dir, "his")
	g.must(os.Mkdir(his, 0o755))
	const nobody = 65534
	g.must(os.Chown(his, nobody, nobody))
	root := filepath.Join(dir, "root")
	const secret = "a root's own\n"
	g.must(os.WriteFile(root, []byte(secret), 0o644))
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `cd "$0" || exit 1
while :; do
  echo x > file; ln -s ../root l; mv -T l file; mkfifo f; mv -T f file; rm file; ln -s ../root file; rm file; mkdir file; rmdir file; echo y > g; mv -T g file
done 2>/dev/null`, his)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Setpgid: true}
	g.must(cmd.Start())
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	r := g.bind("a", declare.Edit{Path: filepath.Join(his, "file"), Create: true, Line: &declare.LineEdit{Text: "declared"}})
	done, refused := 0, map[reason.Code]int{}
	for until := time.Now().Add(raceTime); time.Now().Before(until) && (done < enough || len(refused) < 2); {
		res := g.converge(r)[0]
		if res.Err == nil {
			done++
		} else {
			refused[code(res.Err)]++
		}
	}
	t.Logf("made %d times, refused %v", done, refused)
	if got := look(t, root); got.text != secret || !strings.HasPrefix(got.owner, "0:") || got.mode != "644" {
		t.Errorf("what a link leads to: %+v", got)
	}
	if refused[reason.InternalFault] > 0 || done == 0 {
		t.Errorf("made %d times, refused %v", done, refused)
	}
}

// TestSweepLeavesOthersAlone: another type that writes the same file at this moment has a temporary beside it, which is not taken for one
// that a killed run has left.
func TestSweepLeavesOthersAlone(t *testing.T) {
	g := newGround(t)
	left, theirs := g.path(disk.TempPrefix+"file.abcdefghijkl"), g.path(disk.TempPrefix+"file.mnopqrstuvmn")
	g.write(filepath.Base(left), "left", 0o600)
	for now := time.Now().UnixNano(); disk.Tick() <= now; { // the next agent starts after the tick in which that was written
		runtime.Gosched()
	}
	g.Type = New(Options{Root: g.root, Content: g.store})
	g.write(filepath.Base(theirs), "theirs", 0o600)
	g.made(g.bind("e", *threeEdits(g.path("file"))[0].Edit))
	if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was left is still there: %v", err)
	}
	if _, err := os.Lstat(theirs); err != nil {
		t.Errorf("what somebody else is writing: %v", err)
	}
}
