package account

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/apart"
	"tako.dev/tako/internal/host/hosttest/kill"
	"tako.dev/tako/internal/reason"
)

const (
	// hostileVariable makes the test binary be a user who does what he can with his home, which it holds.
	hostileVariable = "TAKO_ACCOUNT_TEST_HOSTILE"
	// keysUID is the number of t-a.
	keysUID = 51001
)

func TestMain(m *testing.M) {
	if home := os.Getenv(hostileVariable); home != "" {
		beHostile(home)
	}
	kill.Main(m, openTypes)
}

func openTypes(string) (hosttest.TypeOf, io.Closer, error) {
	root, err := disk.OpenRoot("/")
	if err != nil {
		return nil, nil, err
	}
	return typesOn(New(Options{Root: root}), NewKeys(Options{Root: root})), root, nil
}

// keysOfA are the keys of the user t-a.
func keysOfA(m declare.Membership, keys ...string) declare.Resource {
	return declare.Resource{AuthorizedKeys: &declare.AuthorizedKeys{User: "t-a", Keys: keys, Membership: m}}
}

// home makes the user t-a, with what a shell script does in his home as he.
func (g *ground) home(t testing.TB, script string) {
	t.Helper()
	g.reset(t)
	g.run(t, "useradd", "-u", fmt.Sprint(keysUID), "-m", "t-a")
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
	cmd.Dir = "/home/t-a"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: keysUID, Gid: keysUID}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// TestPlanted: what a user plants in his home is neither followed nor read, and never changes its owner.
func TestPlanted(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t)
	const roots = "/srv/roots"
	for _, row := range []struct {
		name, script string // what he does; root's files are in /srv/roots and in ~/mine
		minimal      reason.Code
		exact        reason.Code
		words        string
	}{
		{".ssh is a link", "ln -s /srv/roots .ssh", reason.UntrustedSymlink, reason.UntrustedSymlink, "turn elsewhere"},
		{".ssh is a link to nothing", "ln -s /srv/roots/new .ssh", reason.UntrustedSymlink, reason.UntrustedSymlink, "turn elsewhere"},
		{"the file is a link", "mkdir .ssh; ln -s /srv/roots/secret .ssh/authorized_keys", reason.TypeInTheWay, reason.TypeInTheWay, "symlink"},
		{"the file is a fifo", "mkdir .ssh; mkfifo .ssh/authorized_keys", reason.TypeInTheWay, reason.TypeInTheWay, "fifo"},
		{"the file is a directory", "mkdir -p .ssh/authorized_keys", reason.TypeInTheWay, reason.TypeInTheWay, "directory"},
		{".ssh is a file", "touch .ssh", reason.TypeInTheWay, reason.TypeInTheWay, "not a directory"},
		{"the file is root's, and was elsewhere", "mkdir .ssh; mv mine .ssh/authorized_keys", reason.PermissionDenied, 0, "not to the user"},
		{".ssh is root's, and was elsewhere", "mv dir .ssh", 0, 0, ""},
		{"the file is another user's", "mkdir .ssh; mv theirs .ssh/authorized_keys", reason.PermissionDenied, 0, "not to the user"},
	} {
		for _, m := range []declare.Membership{declare.MembershipMinimal, declare.MembershipExact} {
			t.Run(row.name+"/"+string(m), func(t *testing.T) {
				g.home(t, "true")
				g.run(t, "sh", "-ec", "umask 077; mkdir "+roots+"; echo secret >"+roots+"/secret; cd /home/t-a; echo secret >mine; echo secret >theirs; chown 12 theirs; mkdir dir; echo secret >dir/secret")
				kept := g.run(t, "sh", "-ec", "stat -c '%n %u %a %i' /home/t-a/mine /home/t-a/dir /home/t-a/dir/secret | sed s,/home/t-a/,,")
				cmd := exec.CommandContext(t.Context(), "sh", "-ec", row.script)
				cmd.Dir, cmd.SysProcAttr = "/home/t-a", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: keysUID, Gid: keysUID}}
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				before := hosttest.Tree(t, roots)
				want := row.exact
				if m == declare.MembershipMinimal {
					want = row.minimal
				}
				res := g.Converge(keysOfA(m, keyA))
				if code(res.Err) != want || res.Changed != (want == 0) {
					t.Errorf("%+v, want %v", res, want)
				}
				if e := reason.Of(res.Err); e != nil && !strings.Contains(e.Error()+e.Hint, row.words) {
					t.Errorf("%v; %s: no word of %q", e, e.Hint, row.words)
				}
				if after := hosttest.Tree(t, roots); after != before {
					t.Errorf("root's files changed:\n%s\n%s", before, after)
				}
				// What is root's in the home is root's still, wherever it is now.
				for line := range strings.Lines(kept) {
					inode := line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:]
					now := g.run(t, "sh", "-ec", "find /home/t-a -inum "+strings.TrimSpace(inode)+" -exec stat -c '%u %a' {} +")
					if now != "" && !strings.Contains(line, " "+now+" ") {
						t.Errorf("%s is now %s", strings.TrimSpace(line), now)
					}
				}
				if leak := g.run(t, "sh", "-ec", "find /home/t-a -type f -user t-a -exec grep -l secret {} + || true"); leak != "" {
					t.Errorf("the user can read root's text in %s", leak)
				}
			})
		}
	}
}

// beHostile turns .ssh and the file in it into other things as fast as it goes, for ever.
func beHostile(home string) {
	must := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(2)
		}
	}
	must(os.Chdir(home))
	fmt.Println("begun")
	swap := func(a, b string) { _ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) }
	go func() {
		for { // a directory that is being made
			list, err := os.Open(".")
			must(err)
			names, _ := list.Readdirnames(-1)
			list.Close()
			for _, name := range names {
				if strings.HasPrefix(name, disk.TempPrefix) {
					swap("dir2", name)
				}
			}
		}
	}()
	for {
		_ = os.Mkdir(".ssh", 0o700)
		_ = os.Symlink("/srv/roots", "link")
		_ = os.Symlink("/srv/roots/secret", "filelink")
		swap("link", ".ssh")
		swap("link", ".ssh")
		swap("filelink", ".ssh/authorized_keys")
		swap("filelink", ".ssh/authorized_keys")
		swap("dir", ".ssh") // root's own, and full of secrets
		swap("dir", ".ssh")
		swap("mine", ".ssh/authorized_keys")
		swap("mine", ".ssh/authorized_keys")
		names, _ := os.ReadDir(".ssh")
		for _, e := range names { // what is being written
			if strings.HasPrefix(e.Name(), disk.TempPrefix) {
				swap("mine", ".ssh/"+e.Name())
				swap("mine", ".ssh/"+e.Name())
				swap("filelink", ".ssh/"+e.Name())
				swap("filelink", ".ssh/"+e.Name())
			}
		}
		_ = os.Remove(".ssh/authorized_keys")
		_ = os.Rename(".ssh", "old")
		_ = os.RemoveAll("old")
	}
}

// TestRace writes keys while the user does what he can.
func TestRace(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t)
	g.home(t, "true")
	g.run(t, "sh", "-ec", "umask 077; mkdir /srv/roots; echo secret >/srv/roots/secret; cd /home/t-a; echo secret >mine; mkdir dir dir2; echo secret >dir/secret; echo secret >dir2/secret")
	before := hosttest.Tree(t, "/srv/roots")
	hostile := exec.CommandContext(t.Context(), "/proc/self/exe")
	hostile.Env = append(os.Environ(), hostileVariable+"=/home/t-a")
	hostile.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: keysUID, Gid: keysUID}, Pdeathsig: syscall.SIGKILL}
	out, err := hostile.StdoutPipe()
	if err == nil {
		err = hostile.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer end(hostile)
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	const rounds = 3000
	results := map[reason.Code]int{}
	for i := range rounds {
		m := declare.MembershipExact
		if i%2 == 0 {
			m = declare.MembershipMinimal
		}
		results[code(g.Converge(keysOfA(m, keyA)).Err)]++
	}
	end(hostile)
	t.Logf("%d rounds: %v", rounds, results)
	if after := hosttest.Tree(t, "/srv/roots"); after != before {
		t.Errorf("root's files changed:\n%s\n%s", before, after)
	}
	if leak := g.run(t, "sh", "-ec", "find /home/t-a -user t-a -type f -exec grep -l secret {} + || true"); leak != "" {
		t.Errorf("the user can read root's text in %s", leak)
	}
	// They may be anywhere by now, but belong to root.
	if got := g.run(t, "sh", "-ec", "find /home/t-a -type f -name secret -size 7c -exec dirname {} + | xargs -r stat -c %U | sort | uniq -c"); strings.Join(strings.Fields(got), " ") != "2 root" {
		t.Errorf("the directories of root belong to %s:\n%s", got, g.run(t, "ls", "-laR", "/home/t-a"))
	}
	delete(results, 0)
	if len(results) == 0 {
		t.Error("nobody was in the way: it was no race")
	}
	g.run(t, "rm", "-rf", "/home/t-a/.ssh")
	g.Made(keysOfA("", keyA))
}

// TestKilledAnywhere kills the writing of keys at each of its system calls.
func TestKilledAnywhere(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t)
	const file = "/home/t-a/.ssh/authorized_keys"
	for name, script := range map[string]string{
		"no directory": "true",
		"an old file":  "mkdir -m 700 .ssh; echo '" + keyB + "' >.ssh/authorized_keys",
	} {
		t.Run(name, func(t *testing.T) {
			kills := kill.Everywhere(t, kill.Row{
				Open: openTypes, Resources: []declare.Resource{keysOfA(declare.MembershipMinimal, keyA)},
				Arrange: func(t testing.TB) { g.home(t, script) },
				See: func(testing.TB) []string {
					b, _ := os.ReadFile(file) // nothing is a content too
					return []string{string(b)}
				},
				At:    func(calls []string, i, _ int) bool { return !strings.HasPrefix(calls[i], "ppoll(") }, // it waits as it happens
				Alone: true, Settle: apart.Settle, Dirs: []string{"/home/t-a"},
			})
			if got := g.run(t, "stat", "-c", "%U %a", filepath.Dir(file), file); got != "t-a 700\nt-a 600" {
				t.Error(got)
			}
			t.Logf("killed at %d system calls", kills)
			if kills < 10 {
				t.Error("killed at too few places")
			}
		})
	}
}

// TestKeysOfManyForms writes keys to a path of its own, tells of weak ones, and says what is in the way.
func TestKeysOfManyForms(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t)
	g.home(t, "true")
	g.run(t, "ssh-keygen", "-q", "-t", "rsa", "-b", "1024", "-N", "", "-C", "old", "-f", "/srv/weak")
	weak := g.run(t, "cat", "/srv/weak.pub")
	res := g.Made(keysOfA("", keyA, weak))
	if !strings.Contains(res.Note, "1024 bits") || !strings.Contains(res.Note, "old") {
		t.Errorf("note %q", res.Note)
	}
	if res := g.Made(keysOfA("")); !res.Changed || g.run(t, "stat", "-c", "%s", "/home/t-a/.ssh/authorized_keys") != "0" {
		t.Errorf("no keys at all: %+v", res)
	}
	// A file that is too large to be read does not escape.
	g.run(t, "truncate", "-s", "8M", "/home/t-a/.ssh/authorized_keys")
	if res := g.Converge(keysOfA(declare.MembershipMinimal, keyA)); code(res.Err) != reason.BodyTooLarge {
		t.Errorf("a huge file, minimal: %+v", res)
	}
	g.Made(keysOfA("", keyA))
	r := keysOfA("", keyB)
	r.AuthorizedKeys.Path = "/srv/keys/t-a"
	if res := g.Converge(r); code(res.Err) != reason.ParentMissing {
		t.Errorf("a directory of its own that is missing: %+v", res)
	}
	g.run(t, "mkdir", "-m", "755", "/srv/keys")
	g.Made(r)
	if got := g.run(t, "stat", "-c", "%U %a", "/srv/keys/t-a"); got != "t-a 600" {
		t.Error(got)
	}
	g.run(t, "rm", "-rf", "/home/t-a")
	if res := g.Converge(keysOfA("", keyA)); code(res.Err) != reason.ParentMissing || !strings.Contains(reason.Of(res.Err).Hint, "createHome") {
		t.Errorf("without a home: %+v", res)
	}
	// The user goes away, and so do his keys.
	g.home(t, "true")
	g.Made(keysOfA("", keyA))
	bound, err := g.keys.Bind(t.Context(), hosttest.Declared(keysOfA("", keyA)))
	if err != nil {
		t.Fatal(err)
	}
	g.run(t, "userdel", "-r", "t-a")
	if p := g.keys.Check(t.Context(), []host.Resource{bound}, host.Shallow)[0]; code(p.Err) != reason.UnknownOwner {
		t.Errorf("without the user: %+v", p)
	}
	if err := g.keys.Remove(t.Context(), bound, declare.OnRemoveDelete, nil); err != nil {
		t.Errorf("remove: %v", err)
	}
	leaving := hosttest.Declared(keysOfA("", keyA))
	leaving.Leaving = true
	last, err := g.keys.Bind(t.Context(), leaving)
	if err != nil {
		t.Fatalf("bind what is to be removed: %v", err)
	}
	if err := g.keys.Remove(t.Context(), last, declare.OnRemoveDelete, nil); err != nil {
		t.Errorf("remove what was bound without the user: %v", err)
	}
	// He comes back with another number and another home.
	g.run(t, "useradd", "-u", "51002", "-m", "-d", "/srv/t-a", "t-a")
	p := g.keys.Check(t.Context(), []host.Resource{bound}, host.Shallow)[0]
	if res := g.keys.Apply(t.Context(), []host.Plan{p})[0]; res.Err != nil || g.run(t, "stat", "-c", "%u", "/srv/t-a/.ssh/authorized_keys") != "51002" {
		t.Errorf("with another home: %+v, %+v", p, res)
	}
}
