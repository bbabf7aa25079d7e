package mount

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/apart"
	"tako.dev/tako/internal/host/hosttest/kill"
)

func TestMain(m *testing.M) { kill.Main(m, openTypes) }

func openTypes(string) (hosttest.TypeOf, io.Closer, error) {
	root, err := disk.OpenRoot("/")
	if err != nil {
		return nil, nil, err
	}
	return hosttest.Among(Types(Options{Root: root})), root, nil
}

// subject is a resource, what is there before it, and how to see both.
type subject struct {
	resource declare.Resource
	arrange  string
	path     string
}

func subjects(dir string) map[string]subject {
	const swapsClean = clean + "head -n 1 /proc/swaps >/srv/head; cat /srv/head >/proc/swaps\n"
	return map[string]subject{
		"mounted":   {tmpfsAt("/srv/m", "size=1024k"), clean + "mkdir -p /srv/m", "/srv/m"},
		"remounted": {tmpfsAt("/srv/m", "ro"), clean + "mkdir -p /srv/m; mount -t tmpfs tmpfs /srv/m; echo 'tmpfs /srv/m tmpfs defaults 0 0' >>/etc/fstab", "/srv/m"},
		"unmounted": {absentAt("/srv/m"), clean + "mkdir -p /srv/m; mount -t tmpfs tmpfs /srv/m; echo 'tmpfs /srv/m tmpfs defaults 0 0' >>/etc/fstab", "/srv/m"},
		"swap":      {swapOf(declare.Swap{Path: dir + "/swap", Size: "1Mi"}), swapsClean + "rm -f " + dir + "/swap", dir + "/swap"},
		"swap off": {swapOf(declare.Swap{Path: dir + "/swap", State: declare.SwapAbsent}),
			swapsClean + "cd " + dir + "; rm -f swap; truncate -s 1M swap; mkswap -q swap 2>/dev/null; swapon -- " + dir + "/swap; echo '" + dir + "/swap none swap sw 0 0' >>/etc/fstab", dir + "/swap"},
	}
}

// look is what is at a path: each of its parts is old or new.
func look(t testing.TB, p string) []string {
	swapped := ""
	for line := range strings.Lines(see(t, swapsFile)) {
		if f := strings.Fields(line); f[0] == p {
			swapped = strings.Join(f[1:], " ")
		}
	}
	file := ""
	if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
		file = fmt.Sprintf("%v %d", st.Mode(), st.Size())
	}
	return []string{see(t, fstabFile), shown(t, p, "OPTIONS"), swapped, file}
}

// onDisk is a directory on a file system that takes swap files, the same inside and outside of the namespace.
func onDisk(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("TAKO_MOUNT_TEST_DISK")
	if dir == "" {
		dir = t.TempDir()
		if err := os.Setenv("TAKO_MOUNT_TEST_DISK", dir); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Unsetenv("TAKO_MOUNT_TEST_DISK") })
	}
	swapsToFiles(t, dir)
	return dir
}

// row is the subject in the table of a kill test.
func (s subject) row(dir string) kill.Row {
	return kill.Row{
		Open: openTypes, Resources: []declare.Resource{s.resource},
		Arrange: func(t testing.TB) { sh(t, s.arrange) }, See: func(t testing.TB) []string { return look(t, s.path) },
		Classes: "%file,%desc,clone,clone3,waitid,pidfd_open,memfd_create", Alone: true, At: atChange, Settle: apart.Settle, Dirs: []string{"/etc", dir},
	}
}

// atChange chooses the system calls that change something or begin a program, and the one after each, which is all the states that there
// are: so also before each program, and while it runs. One piece of a file is as good as another.
func atChange(calls []string, i, nth int) bool {
	begins := func(call string) bool { return kill.Changes(call) || strings.HasPrefix(call, "clone") }
	return (begins(calls[i]) || i > 0 && begins(calls[i-1])) && (!strings.HasPrefix(calls[i], "pwrite64(") || nth%8 == 1)
}

// TestAgentCase13_KillMounts kills an apply wherever it changes something; another agent then goes on.
func TestAgentCase13_KillMounts(t *testing.T) {
	c := casetest.Start(t)
	kill.NeedsStrace(t)
	dir := onDisk(t)
	if !inside(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	for name, s := range subjects(dir) {
		t.Run(name, func(t *testing.T) {
			kills := kill.Everywhere(t, s.row(dir))
			c.Sub(t).Check(kills >= 8, "killed at %d places only", kills)
			t.Logf("killed at %d system calls", kills)
		})
	}
}

func TestAgentCase29_DryRunOfMounts(t *testing.T) {
	c := casetest.Start(t)
	kill.NeedsStrace(t)
	dir := onDisk(t)
	if !inside(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	for name, s := range subjects(dir) {
		t.Run(name, func(t *testing.T) {
			c.Sub(t).Check(kill.LooksOnly(t, s.row(dir)) > 0, "no system call at all")
		})
	}
}

// TestShallow counts what a check of something that is as it was costs: one question to the kernel's list, one look at fstab for all, and one
// at a swap file.
func TestShallow(t *testing.T) {
	kill.NeedsStrace(t)
	dir := onDisk(t)
	if !inside(t) {
		return
	}
	sh(t, "mkdir /srv/m")
	g := newGround(t, "/")
	for _, r := range []declare.Resource{tmpfsAt("/srv/m"), swapOf(declare.Swap{Path: dir + "/swap", Size: "1Mi"})} {
		g.Made(r)
		typ := g.types[r.Type()]
		bound, err := typ.Bind(t.Context(), hosttest.Declared(r))
		if err != nil {
			t.Fatal(err)
		}
		for range 50 { // until a tick of the kernel's clock has passed
			sh(t, "true")
			if typ.Check(t.Context(), []host.Resource{bound}, host.Shallow)[0].Recognised {
				break
			}
		}
		rs := slices.Repeat([]host.Resource{bound}, laneBatch)
		allocations := testing.AllocsPerRun(20, func() {
			for _, p := range typ.Check(t.Context(), rs, host.Shallow) {
				if !p.Recognised {
					t.Fatalf("%s is not recognised: %+v", r.Title(), p)
				}
			}
		})
		t.Logf("%s: %.1f allocations each", r.Title(), allocations/laneBatch)
	}
	// A mount somewhere is noticed, and looked at.
	bound, err := g.types[declare.TypeMount].Bind(t.Context(), hosttest.Declared(tmpfsAt("/srv/m")))
	if err != nil {
		t.Fatal(err)
	}
	g.types[declare.TypeMount].Check(t.Context(), []host.Resource{bound}, host.Shallow)
	sh(t, "umount /srv/m")
	if p := g.types[declare.TypeMount].Check(t.Context(), []host.Resource{bound}, host.Shallow)[0]; len(p.Changes) != 1 {
		t.Errorf("a shallow check does not see that it was unmounted: %+v", p)
	}
}
