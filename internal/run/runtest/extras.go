package runtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tako.dev/tako/internal/run"
)

// What only some runtimes can do is tried with each that can.

func cpu(b *bench) {
	if why, lacks := b.rt.Capabilities().Lacks[run.LimitCPU]; lacks {
		b.Skip(why)
	}
	task := b.program("spin")
	task.Limits.CPU = 200
	b.start(task)
	var first run.Usage
	var since time.Time
	look := func() run.Usage {
		u, err := b.rt.Usage(b.Context(), task.ID)
		if err != nil {
			b.Fatalf("usage: %v", err)
		}
		return u
	}
	b.eventually("it has used processor time", func() bool {
		since = time.Now()
		first = look()
		return first.CPU > 20*time.Millisecond
	})
	b.eventually("it has used some more", func() bool { return look().CPU > first.CPU+300*time.Millisecond })
	// The kernel gives a fifth of each period of 100 ms, and what is left of one may come on top.
	if took, used := time.Since(since), look().CPU-first.CPU; used > took/5+200*time.Millisecond {
		b.Errorf("with a fifth of a processor it has used %v in %v", used, took)
	}
	b.over(task.ID)
}

func mounts(b *bench) {
	if why, lacks := b.rt.Capabilities().Lacks[run.Mounts]; lacks {
		b.Skip(why)
	}
	open, closed := filepath.Dir(b.note()), filepath.Dir(b.note())
	task := b.secluded("cat /tmp/closed/note && echo written >/tmp/open/note && ! echo written 2>/dev/null >/tmp/closed/note && touch /tmp/open/new && echo done")
	task.Mounts = append(task.Mounts, run.Mount{Source: open, Path: "/tmp/open"}, run.Mount{Source: closed, Path: "/tmp/closed", ReadOnly: true})
	if err := os.WriteFile(filepath.Join(closed, "note"), []byte("from the host\n"), 0); err != nil {
		b.Fatal(err)
	}
	b.start(task)
	e := b.ended(task.ID)
	if got := b.printed(task.ID); !e.Well() || got != "from the host\ndone\n" {
		b.Errorf("it ended as %+v and says %q", e, got)
	}
	if text, err := os.ReadFile(filepath.Join(open, "note")); err != nil || string(text) != "written\n" {
		b.Errorf("in its volume is %q (%v)", text, err)
	}
	for _, dir := range []string{"/tmp/open", "/tmp/closed"} {
		if _, err := os.Lstat(dir); err == nil {
			b.Errorf("%s is on the host now", dir)
		}
	}
	b.over(task.ID)
	gone := b.secluded("true")
	gone.Mounts = append(gone.Mounts, run.Mount{Source: "/no/such/volume", Path: "/tmp/open"})
	if s, err := b.rt.Start(b.Context(), gone); err == nil && (s.Phase != run.Ended || s.Ending.Cause != run.NotExecuted || s.Ending.Words == "") {
		b.Errorf("with a volume that is not there it is %+v", s)
	}
}

// devices shows a task one device, and no other one of the host.
func devices(b *bench) {
	if why, lacks := b.rt.Capabilities().Lacks[run.Devices]; lacks {
		b.Skip(why)
	}
	all := []string{"/dev/fuse", "/dev/loop-control", "/dev/kvm", "/dev/net/tun", "/dev/loop0"}
	all = slices.DeleteFunc(all, func(name string) bool {
		_, err := os.Stat(name)
		return err != nil
	})
	if len(all) < 2 {
		b.Skip("the host has no two devices that not every program has")
	}
	for _, name := range all[:2] {
		task := b.shell("for d in " + strings.Join(all, " ") + "; do (: <>$d) 2>/dev/null && echo $d; done; true")
		task.Devices = []string{name}
		b.start(task)
		e := b.ended(task.ID)
		if got := b.printed(task.ID); !e.Well() || got != name+"\n" {
			b.Errorf("with %s it can open %q (%+v)", name, got, e)
		}
		b.over(task.ID)
	}
}

func configFiles(b *bench) {
	if why, lacks := b.rt.Capabilities().Lacks[run.ConfigFiles]; lacks {
		b.Skip(why)
	}
	secret := "c0nf1g-" + b.serial.next() + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	task := b.secluded("cat /tmp/its/secret /tmp/its/open && stat -c %a /tmp/its/secret /tmp/its/open && wc -c </tmp/its/bytes && ! rm -f /tmp/its/secret 2>/dev/null && echo ready; sleep 600")
	task.User = ""
	task.Files = []run.File{
		{Path: "/tmp/its/secret", Content: []byte(secret + "\n"), Mode: 0o400}, {Path: "/tmp/its/open", Content: []byte("open\n"), Mode: 0o444},
		{Path: "/tmp/its/bytes", Content: all, Mode: 0o444},
	}
	b.start(task)
	b.says(task.ID, "ready")
	if got := b.printed(task.ID); got != secret+"\nopen\n400\n444\n256\nready\n" {
		b.Errorf("it says %q", got)
	}
	if n := arguments(b, secret); n > 0 {
		b.Error("the content of a file was in the arguments of a process")
	}
	if b.Subject.User != "" {
		grep := exec.CommandContext(b.Context(), "grep", "-rqs", secret, b.dir)
		grep.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(b.UID), Gid: uint32(b.UID)}}
		if err := grep.Run(); err == nil {
			b.Error("another user can read the content of a file")
		}
	}
	other := b.secluded("test ! -e /tmp/its")
	b.start(other)
	if e := b.ended(other.ID); !e.Well() {
		b.Errorf("another task sees the files: %+v", e)
	}
	b.over(other.ID)
	b.over(task.ID)
	b.searched(secret)
}

// searched looks for a secret in what the runtime keeps.
func (b *bench) searched(secret string) {
	b.Helper()
	for _, name := range b.files() {
		p := filepath.Join(b.dir, name)
		if st, err := os.Lstat(p); err != nil || !st.Mode().IsRegular() {
			continue // a pipe would be waited for
		}
		if text, err := os.ReadFile(p); err == nil && strings.Contains(string(text), secret) {
			b.Errorf("the secret is in the file %s", name)
		}
	}
}

// ownUsers starts tasks that name no user: those of one instance have the same, those of others another.
func ownUsers(b *bench) {
	if why, lacks := b.rt.Capabilities().Lacks[run.OtherUsers]; lacks {
		b.Skip(why)
	}
	task := func(instance, name string) run.Task {
		t := b.shell("id -u; sleep 600")
		t.User, t.ID.Instance, t.ID.Task = "", instance, name
		return t
	}
	one, two := "one-"+b.born, "two-"+b.born
	tasks := []run.Task{task(one, "a"), task(one, "b"), task(two, "a")}
	var users []string
	for _, t := range tasks {
		b.start(t)
		b.says(t.ID, "\n")
		users = append(users, b.printed(t.ID))
	}
	if users[0] != users[1] || users[0] == users[2] || users[0] == "0\n" {
		b.Errorf("they run as %q", users)
	}
	for _, t := range tasks {
		b.over(t.ID)
	}
}
