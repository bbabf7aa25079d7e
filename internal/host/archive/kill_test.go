package archive

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/kill"
	"tako.dev/tako/internal/reason"
)

func TestMain(m *testing.M) { kill.Main(m, openType) }

func openType(state string) (hosttest.TypeOf, io.Closer, error) {
	root, err := disk.OpenRoot("/")
	if err != nil {
		return nil, nil, err
	}
	typ := New(Options{Root: root, StateDir: state})
	return func(declare.Resource) host.Type { return typ }, root, nil
}

// TestAgentCase13_KillWhileUnpacking kills the making, the exchange and the removal of a tree; the tree that was there before was made
// by an agent whose records the killed one has.
func TestAgentCase13_KillWhileUnpacking(t *testing.T) {
	c := casetest.Start(t)
	small := func(version string) []byte {
		return tarOf(t, entry{name: "bin/run", mode: 0o755, body: version}, entry{name: "share/now", kind: '2', link: "../bin/run"})
	}
	for _, work := range []string{"make", "replace", "remove"} {
		t.Run(work, func(t *testing.T) {
			t.Parallel()
			c := c.Sub(t)
			dir := t.TempDir()
			row := kill.Row{Open: openType, State: dir + "/state", Remove: work == "remove", Resources: []declare.Resource{
				{Archive: &declare.Archive{Path: dir + "/there/app", From: declare.ArchiveSource{Path: dir + "/sources/app.tar"}}},
			}}
			next := func() (*hosttest.Ground, *Type) {
				of, root, err := openType(row.State)
				c.NoError(err, "open")
				t.Cleanup(func() { root.Close() })
				return &hosttest.Ground{TB: t, Of: of}, of(row.Resources[0]).(*Type)
			}
			row.Arrange = func(testing.TB) {
				for _, d := range []string{"there", "sources"} {
					c.NoError(os.RemoveAll(dir+"/"+d), "clear")
					c.NoError(os.Mkdir(dir+"/"+d, 0o755), "make")
				}
				c.NoError(os.WriteFile(dir+"/sources/app.tar", small("old"), 0o644), "old archive")
				if work != "make" {
					g, _ := next()
					g.Made(row.Resources[0])
				}
				if work != "remove" {
					c.NoError(os.WriteFile(dir+"/sources/app.tar", small("new"), 0o644), "new archive")
				}
			}
			row.See = func(t testing.TB) []string { return []string{look(t, dir+"/there/app")} }
			row.At = func(calls []string, i, _ int) bool { // these change nothing
				return !strings.HasPrefix(calls[i], "fcntl(") && !strings.HasPrefix(calls[i], "epoll_ctl(")
			}
			row.Killed = func(_ testing.TB, at string) {
				_, typ := next()
				c.NoError(typ.Sweep(t.Context(), nil), "sweep")
				records, err := os.ReadDir(typ.records)
				c.Check(err == nil || os.IsNotExist(err), "list the records: %v", err)
				for _, e := range records {
					c.Check(!disk.IsTemporary(e.Name()), "killed at %s: of the records %s is left", at, e.Name())
				}
				c.NoError(typ.Forget(t.Context(), nil), "forget")
				left, err := os.ReadDir(dir + "/there")
				c.NoError(err, "list")
				for _, e := range left {
					c.Check(e.Name() == "app" || emptyTemporary(dir+"/there/"+e.Name()), "killed at %s: %s is left", at, e.Name())
				}
			}
			kills := kill.Everywhere(t, row)
			c.Check(kills > 20, "killed at %d places only", kills)
			t.Logf("killed at %d system calls", kills)
		})
	}
}

// emptyTemporary reports whether something is a directory that the sweep of files takes.
func emptyTemporary(p string) bool {
	list, err := os.ReadDir(p)
	return disk.IsTemporary(filepath.Base(p)) && err == nil && len(list) == 0
}

// TestRace: a user whose directory it is unpacked in swaps what is there for links of his, as fast as he can. What they lead to stays as it
// is, and every error has a code.
func TestRace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	g := newGround(t)
	dir, err := os.MkdirTemp("", "race")
	g.must(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	g.must(os.Chmod(dir, 0o755))
	his, roots := dir+"/his", dir+"/root"
	g.must(os.Mkdir(his, 0o755))
	const nobody = 65534
	g.must(os.Chown(his, nobody, nobody))
	g.must(os.MkdirAll(roots+"/bin", 0o755))
	g.must(os.WriteFile(roots+"/bin/run", []byte("a root's own\n"), 0o644))
	want := look(t, roots)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `cd "$0" || exit 1
while :; do
  for t in .tako.app.*; do mv -T "$t" moved; ln -s ../root "$t"; done
  mv -T app gone; ln -s ../root app; rm app; mkdir app; rmdir app; mv -T gone app
done 2>/dev/null`, his)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Setpgid: true}
	g.must(cmd.Start())
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	data := func(version string) []byte { return tarOf(t, entry{name: "bin/run", mode: 0o755, body: version}) }
	done, refused := 0, map[reason.Code]int{}
	r := g.bind(declare.Archive{Path: his + "/app", From: declare.ArchiveSource{Path: g.source("app.tar", data("0"))}, Force: true})
	for i, until := 0, time.Now().Add(8*time.Second); time.Now().Before(until) && (done < 30 || len(refused) < 2); i++ {
		g.source("app.tar", data(fmt.Sprint(i)))
		if res := g.converge(r); res.Err == nil {
			done++
		} else {
			refused[reason.Of(res.Err).Code]++
		}
	}
	t.Logf("made %d times, refused %v", done, refused)
	if got := look(t, roots); got != want {
		t.Errorf("what a link leads to:\n%s\nwant\n%s", got, want)
	}
	if refused[reason.InternalFault] > 0 {
		t.Errorf("refused %v", refused)
	}
}
