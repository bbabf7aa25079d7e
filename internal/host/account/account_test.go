package account

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

// runsAs starts a process of a user, which ends with the test.
func (g *ground) runsAs(uid uint32) *exec.Cmd {
	g.Helper()
	cmd := exec.CommandContext(g.Context(), "sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		g.Fatal(err)
	}
	return cmd
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func TestAgentCase32_UserInUse(t *testing.T) {
	c := casetest.Start(t)
	if !inside(t) {
		c.Check(!t.Failed(), "it failed where it may change accounts")
		return
	}
	g := newGround(t)
	alice := declare.User{User: "t-alice", UID: ptr(int64(61001)), Shell: "/bin/sh"}
	g.user(alice)
	c.NoError(os.WriteFile("/home/t-alice/file", nil, 0o600), "write")
	c.NoError(os.Chown("/home/t-alice/file", 61001, 61001), "chown")
	busy := g.runsAs(61001)

	other := alice
	other.UID, other.Comment, other.Home = ptr(int64(61002)), ptr("Alice"), "/srv/t-alice"
	res := g.Converge(declare.Resource{User: &other})
	e := reason.Of(res.Err)
	c.Equal(code(res.Err), reason.AccountBusy, "code of another number while it is in use")
	c.Check(e != nil && strings.Contains(e.Error(), fmt.Sprintf("pid %d (sleep)", busy.Process.Pid)), "which process: %v", e)
	c.Check(res.Changed, "what could be changed was not")
	now := g.seeUser(t, "t-alice")
	c.Equal([]string{now["uid"], now["comment"], now["home"]}, []string{"61001", "Alice", "/home/t-alice"}, "uid, comment and home")
	row, _ := reason.Lookup(code(res.Err))
	c.Check(row.Outcome == reason.Failed && row.Detail == reason.Denied, "%+v", row)

	gone := declare.Resource{User: &declare.User{User: "t-alice", State: declare.AccountAbsent, RemoveHome: true}}
	res = g.Converge(gone)
	c.Equal(code(res.Err), reason.AccountBusy, "code of a removal while it is in use")
	c.Check(!res.Changed && exists("/home/t-alice/file"), "%+v", res)
	c.Equal(g.seeUser(t, "t-alice")["state"], "present", "the account")
	c.NoError(busy.Process.Signal(syscall.Signal(0)), "the process is alive")

	end(busy)
	res = g.user(other)
	c.Check(strings.Contains(res.Note, "find / -xdev -uid 61001") && strings.Contains(res.Note, "old home /home/t-alice stays"), "note: %q", res.Note)
	st, err := os.Stat("/home/t-alice/file")
	c.NoError(err, "the old home")
	c.Equal(st.Sys().(*syscall.Stat_t).Uid, uint32(61002), "owner of a file in the home")
	c.Equal(g.seeUser(t, "t-alice")["home directory"], "present", "the new home")
	res = g.Converge(gone)
	c.NoError(res.Err, "removal")
	c.Check(!exists("/srv/t-alice") && g.seeGroup(t, "t-alice")["state"] == "absent", "home and group have gone too")
}

func TestAgentCase32_Membership(t *testing.T) {
	c := casetest.Start(t)
	if !inside(t) {
		c.Check(!t.Failed(), "it failed where it may change accounts")
		return
	}
	g := newGround(t)
	for _, name := range []string{"t-a", "t-b", "t-c"} {
		g.group(declare.Group{Group: "g" + name})
		g.user(declare.User{User: name})
	}
	c.Equal(g.seeUser(t, "t-a")["groups"], "", "groups of a new user")
	both := []string{"gt-b", "gt-a"}
	g.user(declare.User{User: "t-a", Groups: both})
	g.run(t, "gpasswd", "-a", "t-a", "gt-c")
	c.Check(!g.user(declare.User{User: "t-a", Groups: both}).Changed, "minimal undoes what somebody else has added")
	c.Equal(g.seeUser(t, "t-a")["groups"], "gt-a,gt-b,gt-c", "minimal")
	g.run(t, "gpasswd", "-d", "t-a", "gt-a")
	g.user(declare.User{User: "t-a", Groups: both})
	c.Equal(g.seeUser(t, "t-a")["groups"], "gt-a,gt-b,gt-c", "minimal, healed")
	g.user(declare.User{User: "t-a", Groups: both, Membership: declare.MembershipExact})
	c.Equal(g.seeUser(t, "t-a")["groups"], "gt-a,gt-b", "exact")
	g.user(declare.User{User: "t-a", Membership: declare.MembershipExact})
	c.Equal(g.seeUser(t, "t-a")["groups"], "", "exact, and none")
	c.Equal(code(g.Converge(declare.Resource{User: &declare.User{User: "t-a", Groups: []string{"t-nowhere"}}}).Err), reason.UnknownOwner, "code of an unknown group")
	c.Equal(code(g.Converge(declare.Resource{User: &declare.User{User: "t-a", Group: "4242424"}}).Err), reason.UnknownOwner, "code of an unknown number")

	g.group(declare.Group{Group: "gt-a", Members: []string{"t-b", "t-a"}})
	g.run(t, "gpasswd", "-a", "t-c", "gt-a")
	c.Check(!g.group(declare.Group{Group: "gt-a", Members: []string{"t-a", "t-b"}}).Changed, "minimal undoes what somebody else has added")
	g.group(declare.Group{Group: "gt-a", Members: []string{"t-c"}, Membership: declare.MembershipExact})
	c.Equal(g.seeGroup(t, "gt-a")["members"], "t-c", "exact")
	g.group(declare.Group{Group: "gt-a", Membership: declare.MembershipExact})
	c.Equal(g.seeGroup(t, "gt-a")["members"], "", "exact, and none")
	shadow := g.run(t, "sh", "-c", "grep ^gt-a: /etc/gshadow")
	c.Check(strings.HasSuffix(shadow, "::"), "gshadow has members: %s", shadow)
	for _, m := range []declare.Membership{declare.MembershipExact, declare.MembershipMinimal} {
		res := g.Converge(declare.Resource{Group: &declare.Group{Group: "gt-a", Members: []string{"t-nowhere"}, Membership: m}})
		c.Equal(code(res.Err), reason.UnknownOwner, "code of an unknown member, "+string(m))
	}
}

func TestRefused(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t)
	g.user(declare.User{User: "t-a", UID: ptr(int64(51001))})
	g.user(declare.User{User: "t-b"})
	for _, row := range []struct {
		resource declare.Resource
		code     reason.Code
		words    string
	}{
		{declare.Resource{User: &declare.User{User: "t-b", UID: ptr(int64(51001))}}, reason.AccountTaken, "t-a's"},
		{declare.Resource{User: &declare.User{User: "t-c", UID: ptr(int64(51001))}}, reason.AccountTaken, "t-a's"},
		{declare.Resource{User: &declare.User{User: "t-c", Group: "t-nowhere"}}, reason.UnknownOwner, "no group t-nowhere"},
		{declare.Resource{Group: &declare.Group{Group: "t-b", GID: ptr(int64(51001))}}, reason.AccountTaken, "t-a"},
		{declare.Resource{Group: &declare.Group{Group: "t-c", GID: ptr(int64(51001))}}, reason.AccountTaken, "t-a"},
		{declare.Resource{Group: &declare.Group{Group: "t-a", State: declare.AccountAbsent}}, reason.AccountBusy, "primary group of t-a"},
		{declare.Resource{User: &declare.User{User: "t-b", Locked: ptr(false)}}, reason.AccountTaken, "no password"},
		{declare.Resource{AuthorizedKeys: &declare.AuthorizedKeys{User: "t-nowhere", Keys: []string{keyA}}}, reason.UnknownOwner, "no user t-nowhere"},
	} {
		res := g.Converge(row.resource)
		if code(res.Err) != row.code || !strings.Contains(res.Err.Error(), row.words) || res.Changed || reason.Of(res.Err).Hint == "" {
			t.Errorf("%s: %+v, want %v with %q", row.resource.Title(), res, row.code, row.words)
		}
	}
}

func TestHomes(t *testing.T) {
	if !inside(t) {
		return
	}
	c := checks{t}
	g := newGround(t)
	for _, row := range []struct {
		user declare.User
		home string // that is there then; empty for none
	}{
		{declare.User{User: "t-a"}, "/home/t-a"},
		{declare.User{User: "t-b", CreateHome: ptr(false)}, ""},
		{declare.User{User: "t-c", System: true, Home: "/srv/t-c"}, ""},
		{declare.User{User: "t-d", System: true, Home: "/srv/t-d", CreateHome: ptr(true)}, "/srv/t-d"},
		{declare.User{User: "t-e", UID: ptr(int64(789))}, ""},
		{declare.User{User: "t-f", Home: "/nonexistent"}, ""},
	} {
		for _, when := range []string{"made", "removed by hand"} {
			g.user(row.user)
			home := g.seeUser(t, row.user.User)["home"]
			c.Equal(exists(home), row.home != "", row.user.User+": its home is there, "+when)
			if row.home == "" {
				continue
			}
			c.Equal(home, row.home, "home of "+row.user.User)
			st, err := os.Stat(home)
			c.NoError(err, "look at the home")
			c.Equal(st.Mode(), os.ModeDir|0o700, "mode of the home")
			c.Equal(strconv.Itoa(int(st.Sys().(*syscall.Stat_t).Uid)), g.seeUser(t, row.user.User)["uid"], "its owner")
			c.Check(exists(home+"/.bashrc"), "nothing of /etc/skel is in %s", home)
			c.NoError(os.RemoveAll(home), "remove")
		}
	}

	// A home that passwd has in another form is there all the same.
	g.run(t, "sh", "-ec", "useradd -m t-h; sed -i s,/home/t-h,//home/t-h/, /etc/passwd")
	c.Check(!g.user(declare.User{User: "t-h"}).Changed && !g.user(declare.User{User: "t-h", CreateHome: ptr(true)}).Changed, "//home/t-h/ is taken for missing")

	// A home is not made where others could turn it elsewhere.
	c.NoError(os.Mkdir("/srv/open", 0o777), "mkdir")
	c.NoError(os.Chmod("/srv/open", 0o777|os.ModeSticky), "chmod")
	res := g.Converge(declare.Resource{User: &declare.User{User: "t-g", Home: "/srv/open/t-g"}})
	c.Check(code(res.Err) == reason.PermissionDenied && !res.Changed, "in a directory that is open to all: %+v", res)
	res = g.Converge(declare.Resource{User: &declare.User{User: "t-g", Home: "/srv/missing/t-g"}})
	c.Check(code(res.Err) == reason.ParentMissing && !res.Changed, "in a directory that is missing: %+v", res)
	c.Check(g.Converge(declare.Resource{User: &declare.User{User: "t-g", Home: "/srv/open/t-g", CreateHome: ptr(false)}}).Err == nil, "without a home")
}

func TestRemoveHome(t *testing.T) {
	if !inside(t) {
		return
	}
	c := checks{t}
	g := newGround(t)
	remove := func(name string, home bool) host.Result {
		return g.Made(declare.Resource{User: &declare.User{User: name, State: declare.AccountAbsent, RemoveHome: home}})
	}
	g.user(declare.User{User: "t-a"})
	c.Check(strings.Contains(remove("t-a", false).Note, "stays") && exists("/home/t-a"), "a home that is not to go")
	c.NoError(os.RemoveAll("/home/t-a"), "remove")
	g.user(declare.User{User: "t-a"})
	c.Check(remove("t-a", true).Note == "" && !exists("/home/t-a"), "a home of its own")

	g.user(declare.User{User: "t-a"})
	g.user(declare.User{User: "t-b", Home: "/home/t-a/below", CreateHome: ptr(false)})
	c.Check(strings.Contains(remove("t-a", true).Note, "t-b's too") && exists("/home/t-a"), "a home that holds another one's")
	for _, home := range []string{"/", "/srv"} {
		g.user(declare.User{User: "t-c", Home: home, CreateHome: ptr(false)})
		c.NoError(os.Chown("/srv", 0, 0), "chown")
		c.Check(strings.Contains(remove("t-c", true).Note, "stays") == (home != "/") && exists(home+"/."), "a home that is %s", home)
	}
	c.NoError(os.Mkdir("/srv/roots", 0o755), "mkdir")
	g.user(declare.User{User: "t-d", Home: "/srv/roots"})
	c.Check(strings.Contains(remove("t-d", true).Note, "not the account's own") && exists("/srv/roots"), "a home of root's")
	c.NoError(os.Mkdir("/srv/elsewhere", 0o755), "mkdir")
	g.user(declare.User{User: "t-e", Home: "/srv/link", CreateHome: ptr(false)})
	c.NoError(os.Symlink("elsewhere", "/srv/link"), "symlink")
	c.Check(strings.Contains(remove("t-e", true).Note, "no directory") && exists("/srv/elsewhere"), "a home that is a link")
	g.user(declare.User{User: "t-f", CreateHome: ptr(false)})
	c.Equal(remove("t-f", true).Note, "", "note of a home that is missing")
}

func TestLocked(t *testing.T) {
	if !inside(t) {
		return
	}
	c := checks{t}
	g := newGround(t)
	c.NoError(os.WriteFile("/etc/passwd.lock", []byte(strconv.Itoa(os.Getppid())+"\x00"), 0o600), "lock")
	alice := declare.Resource{User: &declare.User{User: "t-alice"}}
	res := g.Converge(alice)
	e := reason.Of(res.Err)
	c.Equal(code(res.Err), reason.AccountLock, "code while a lock file is there")
	c.Check(e != nil && strings.Contains(e.Holder, fmt.Sprintf("pid %d (", os.Getppid())) && e.After > 0 && !res.Changed, "%+v", e)
	c.NoError(os.Remove("/etc/passwd.lock"), "unlock")

	const program = `use Fcntl; open(F, ">>", "/etc/.pwd.lock") or die; my $l = pack("s s l! l! i", F_WRLCK, 0, 0, 0, 0); fcntl(F, F_SETLK, $l) or die; print "locked\n"; close(STDOUT); sleep 600;`
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("needs perl")
	}
	holder := exec.CommandContext(t.Context(), "perl", "-e", program)
	out, err := holder.StdoutPipe()
	c.NoError(err, "pipe")
	c.NoError(holder.Start(), "start perl")
	_, err = out.Read(make([]byte, 10))
	c.NoError(err, "it has the lock")
	began := time.Now()
	res = g.Converge(alice)
	c.Equal(code(res.Err), reason.AccountLock, "code while the lock is held")
	c.Check(strings.Contains(reason.Of(res.Err).Holder, "(perl)"), "holder: %+v", res.Err)
	c.Check(time.Since(began) < 10*time.Second, "it has waited for the lock")
	end(holder)
	// A lock file whose process is gone is nobody's.
	c.NoError(os.WriteFile("/etc/passwd.lock", []byte("999999999"), 0o600), "stale lock")
	g.Made(alice)
}

// TestOddLines changes accounts between lines that are no accounts, and keeps them as they are.
func TestOddLines(t *testing.T) {
	if !inside(t) {
		return
	}
	c := checks{t}
	g := newGround(t)
	odd := map[string]string{
		"passwd": "# a comment\n+@team::::::\n-nobody2\nt-torn:x:61050\nt-windows:x:61051:61051::/home/t-windows:/bin/sh\r\nt-number:x:many:1::/:/bin/sh\n\n" +
			"t-blank:x:61052:61052:: /home/x :/bin/sh\n+::::::\nt-last:x:61053:61053::/home/t-last:/bin/sh",
		"group":  "+@team\nt-torn:x\nt-number:x:many:\nt-last:x:61053:,root,,t-last,",
		"shadow": "+\nt-torn:!\nt-windows:*:19000:0:99999:7:::\nt-last:*:19000:0:99999:7:::",
	}
	for name, lines := range odd {
		b, err := os.ReadFile("/etc/" + name)
		c.NoError(err, "read")
		c.NoError(os.WriteFile("/etc/"+name, append(b, lines...), 0o600), "write")
		c.NoError(os.Chmod("/etc/"+name, 0o644), "chmod")
	}
	g.group(declare.Group{Group: "t-staff", Members: []string{"root"}})
	g.user(declare.User{User: "t-alice", UID: ptr(int64(61001)), Groups: []string{"t-staff"}, PasswordHash: hash, Expires: "2027-01-31"})
	g.user(declare.User{User: "t-last", Shell: "/bin/bash", CreateHome: ptr(false), Groups: []string{"t-staff"}})
	g.user(declare.User{User: "t-windows", Shell: "/bin/sh", CreateHome: ptr(false)})
	g.Made(declare.Resource{User: &declare.User{User: "t-alice", State: declare.AccountAbsent, RemoveHome: true}})
	for name, lines := range odd {
		now, err := os.ReadFile("/etc/" + name)
		c.NoError(err, "read")
		for line := range strings.Lines(lines) {
			if strings.HasPrefix(line, "t-last") || strings.HasPrefix(line, "t-windows") || line == "\n" {
				continue
			}
			c.Check(strings.Contains(string(now), line), "/etc/%s has lost %q", name, line)
		}
	}
	c.Equal(g.seeUser(t, "t-windows")["shell"], "/bin/sh", "the shell of a line with CRLF")
}

// TestShallow: what is as declared costs no more than looks, and is recognised.
func TestShallow(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t)
	r := declare.Resource{User: &declare.User{User: "t-alice", PasswordHash: hash}}
	g.Made(r)
	bound, err := g.Bind(t.Context(), hosttest.Declared(r))
	if err != nil {
		t.Fatal(err)
	}
	look := func() host.Plan { return g.Check(t.Context(), []host.Resource{bound}, host.Shallow)[0] }
	if p := look(); !p.Empty() || p.Recognised {
		t.Errorf("first: %+v", p)
	}
	if p := look(); !p.Empty() || !p.Recognised {
		t.Errorf("second: %+v", p)
	}
	g.run(t, "usermod", "-c", "other", "t-alice") // of no interest, but the files have changed
	if p := look(); !p.Empty() || p.Recognised {
		t.Errorf("after a change: %+v", p)
	}
	if err := os.RemoveAll("/home/t-alice"); err != nil {
		t.Fatal(err)
	}
	if p := look(); len(p.Changes) != 1 || p.Changes[0].Field != "home directory" {
		t.Errorf("without its home: %+v", p)
	}
	var names []string
	for _, w := range bound.Watches() {
		names = append(names, w.Name)
	}
	if want := []string{"/etc/passwd", "/etc/group", "/etc/shadow", "/home/t-alice"}; !slices.Equal(names, want) {
		t.Errorf("watches %v, want %v", names, want)
	}
	g.run(t, "usermod", "-d", "/home/t-other", "t-alice") // which is nobody's business, but it must be there
	look()
	drop, add := bound.(host.Following).Follow()
	if !slices.Equal(drop, watchOf("/home/t-alice")) || !slices.Equal(add, watchOf("/home/t-other")) || !slices.Contains(bound.Watches(), add[0]) {
		t.Errorf("with another home, it drops %v, adds %v and watches %v", drop, add, bound.Watches())
	}
	if drop, add := bound.(host.Following).Follow(); drop != nil || add != nil {
		t.Errorf("once more, it drops %v and adds %v", drop, add)
	}
}

func TestSandbox(t *testing.T) {
	g := &ground{Ground: &hosttest.Ground{TB: t}}
	dir := t.TempDir()
	g.open(dir)
	_, err := g.Bind(t.Context(), hosttest.Declared(declare.Resource{User: &declare.User{User: "t-alice"}}))
	if code(err) != reason.UnsupportedInRoot {
		t.Errorf("a user: %v", err)
	}
	_, err = g.Bind(t.Context(), hosttest.Declared(declare.Resource{Group: &declare.Group{Group: "t-alice"}}))
	if code(err) != reason.UnsupportedInRoot {
		t.Errorf("a group: %v", err)
	}
	// Keys are files, and whose they are says the sandbox.
	uid := strconv.Itoa(os.Geteuid())
	for p, text := range map[string]string{"etc/passwd": "t-alice:x:" + uid + ":" + uid + "::/home/t-alice:/bin/sh\n", "home/t-alice/file": ""} {
		p = filepath.Join(dir, p)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	g.Made(declare.Resource{AuthorizedKeys: &declare.AuthorizedKeys{User: "t-alice", Keys: []string{keyA}}})
	b, err := os.ReadFile(filepath.Join(dir, "home/t-alice/.ssh/authorized_keys"))
	if err != nil || string(b) != keyA+"\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestProgramOutlives: when the context ends, a program goes on.
func TestProgramOutlives(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := tool("/bin/sh", "-c", `echo begun >"$1"; read x <"$1"; echo "$x" >"$2"; echo end >"$1"`, "sh", fifo, filepath.Join(dir, "out"))
	returned := make(chan error)
	go func() {
		_, err := run(ctx, c)
		returned <- err
	}()
	read := func() string {
		b, err := os.ReadFile(fifo)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	if got := read(); got != "begun" {
		t.Fatal(got)
	}
	cancel()
	if err := <-returned; err == nil || code(toolError("x", c, nil, err)) != reason.Interrupted {
		t.Errorf("ended with %v", err)
	}
	if err := os.WriteFile(fifo, []byte("went on\n"), 0); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != "end" {
		t.Error(got)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(b) != "went on\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestSecretInOutput: should a program repeat what it was given, that is not passed on.
func TestSecretInOutput(t *testing.T) {
	c := tool("/bin/sh", "-c", "cat; exit 3")
	c.secret = []byte("t-alice:" + hash + "\n")
	out, err := run(t.Context(), c)
	if err == nil || strings.Contains(string(out), "saltsalt") || !strings.Contains(string(out), "t-alice:(not shown)") {
		t.Errorf("%q, %v", out, err)
	}
}
