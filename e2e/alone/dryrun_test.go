//go:build e2e

package alone_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/reason"
)

// before and after are two declarations. What leads from one to the other is of every resource type and every kind: made,
// changed, removed, notified, kept, not applicable, and not to be told because of what comes before it.
const before = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata:
  name: dry
spec:
  resources:
    - name: changes
      file: {path: /srv/changes, content: "old\n"}
    - name: narrows
      file: {path: /srv/narrows, content: "same\n"}
    - name: stays
      file: {path: /srv/stays, content: "same\n"}
    - name: goes
      file: {path: /srv/goes, content: "gone\n"}
      onRemove: delete
    - name: returns
      file: {path: /srv/returns, content: "ours\n"}
      onRemove: restore
    - name: widens
      directory: {path: /srv/widens, mode: "0700"}
    - name: current
      symlink: {path: /srv/current, target: old}
    - name: one
      package: {version: "1.0"}
    - name: two
      package: {}
    - name: up-unit
      file: {path: /etc/systemd/system/up.service, content: "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"}
    - name: down-unit
      file: {path: /etc/systemd/system/down.service, content: "[Service]\nExecStart=/bin/sleep infinity\n"}
    - name: up
      service: {state: stopped, enabled: false}
    - name: down
      service: {}
`

const after = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata:
  name: dry
spec:
  resources:
    - name: changes
      file: {path: /srv/changes, content: "new\n", check: [grep, -q, new, "{}"]}
      notify: [nginx]
    - name: narrows
      file: {path: /srv/narrows, content: "same\n", mode: "0600"}
    - name: stays
      file: {path: /srv/stays, content: "same\n"}
    - name: never
      file: {path: /srv/never, content: "never\n"}
      when: facts.cpu.count < 0
    - name: widens
      directory: {path: /srv/widens, mode: "0755"}
    - name: fresh
      directory: {path: /srv/fresh}
    - name: inside
      file: {path: /srv/fresh/inside, content: "new\n"}
    - name: current
      symlink: {path: /srv/current, target: new}
    - name: other
      symlink: {path: /srv/other, target: new}
    - name: one
      package: {version: "2.0"}
    - name: two
      package: {state: absent}
    - name: nginx
      package: {}
    - name: nginx-service
      service: {unit: nginx.service}
      require: [nginx]
    - name: up-unit
      file: {path: /etc/systemd/system/up.service, content: "[Service]\nExecStart=/bin/sleep infinity\nNice=1\n[Install]\nWantedBy=multi-user.target\n"}
      notify: [up]
    - name: up
      service: {enabled: true}
    - name: down
      service: {state: stopped}
`

// TestScenario8_DryRunWritesNothing looks at both ways on a host where nothing is left unwatched: each system call, each
// message to systemd, and every file with its times, before and after.
func TestScenario8_DryRunWritesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, host.Deb{Name: "one", Version: "1.0"}, host.Deb{Name: "one", Version: "2.0"}, host.Deb{Name: "two", Version: "1.0"},
		host.Deb{Name: "tool", Version: "1.0"}, host.Deb{Name: "tool", Version: "2.0"})
	s.prepare(t)
	s.MustRun(t, "apt-get", "install", "--yes", "--no-install-recommends", "strace")
	s.Put(t, "/srv/returns", "theirs\n", 0o644)
	for _, declaration := range append([]string{before, strings.ReplaceAll(after, "notify: [nginx]", "notify: [nginx-service]")}, s.everyType(t)...) {
		s.put(t, declaration)
		for _, flag := range []string{"--dry-run", "--diff"} {
			s.observe(t, flag)
		}
		planned := s.planned(t)
		if len(planned) == 0 {
			t.Error("nothing is planned")
		}
		told := len(s.history(t, ""))
		s.MustRun(t, agentPath, "converge", "-f", confDir)
		if done := s.changed(t, told); !slices.Equal(planned, done) {
			t.Errorf("planned %q,\nand changed %q", planned, done)
			for _, h := range s.history(t, "") {
				t.Logf("%+v", h)
			}
		}
		if left := s.planned(t); len(left) > 0 {
			t.Errorf("%q are still planned after it", left)
		}
	}
}

// observe runs a preview, and fails the test for everything that it writes.
func (s *site) observe(t *testing.T, flag string) {
	t.Helper()
	const log = "/run/strace.log"
	s.Put(t, log, "", 0o644) // so that it is there before and after
	was := s.everything(t)
	// 1 is what --diff exits with when there are differences.
	s.MustRun(t, "sh", "-c", "strace -f -y -s 4096 -o "+log+" "+agentPath+" converge -f "+confDir+" "+flag+" || test $? = 1")
	if is := s.everything(t); is != was {
		t.Errorf("%s has changed files: %s", flag, difference(was, is))
	}
	calls := strings.Split(s.Get(t, log), "\n")
	asked := 0
	for _, call := range calls {
		_, call, _ = strings.Cut(call, " ")
		call = strings.TrimSpace(call)
		if writes(call) {
			t.Errorf("%s made the system call %.500s", flag, call)
		}
		if asks.MatchString(call) {
			asked++
		}
	}
	if len(calls) < 100 || asked == 0 {
		t.Errorf("%d system calls were seen, and %d messages to systemd", len(calls), asked)
	}
}

var (
	// mayWrite matches a system call that changes something or runs something, or an open for that.
	mayWrite = regexp.MustCompile(`^(p?write(v|64)?|pwritev2|send(to|msg|mmsg|file)|splice|tee|copy_file_range|f?truncate|fallocate|f?chmod(at2?)?|[lf]?chown(at)?|` +
		`rename(at2?)?|(un|sym)?link(at)?|mkdir(at)?|rmdir|mknod(at)?|utime\w*|futimesat|[lf]?(set|remove)xattr|u?mount2?|move_mount|f?sync|fdatasync|syncfs|flock|ioctl|` +
		`execve(at)?|clone3?|v?fork)\(|^open(at2?)?\(.*O_(WRONLY|RDWR|CREAT|TRUNC|TMPFILE)|^creat\(`)
	// harmless are those of them that leave nothing: to pipes, standard output and the runtime's own event descriptor, a new
	// thread, the start of the program itself, questions to a terminal and to the kernel's tables of the network, and asking an endpoint for its page.
	harmless = regexp.MustCompile(`^(write\([12]<|write\(\d+<(anon_inode:|pipe:)|clone3?\(.*CLONE_THREAD|execve\("` + agentPath + `"|ioctl\(\d+<[^>]*>, TC|` +
		`openat\([^,]*, "/dev/null"|sendto\(.*nlmsg_type=RTM_GET|write\(\d+<socket:\[\d+\]>, "GET )`)
	// asks are greetings of the bus, and messages that ask systemd for something, or the bus for signals. A message tells its
	// method in a header field: 3, the type, the length, the name.
	asks = regexp.MustCompile(`^write\(\d+<socket:\[\d+\]>, "(\\0"|AUTH|DATA|BEGIN|l\\1.*\\3\\1s\\0\\\w+\\0\\0\\0(Hello|AddMatch|RemoveMatch|Subscribe|Get|GetAll|GetUnitFileState)\\0)`)
)

// writes reports whether a line of strace tells of a write.
func writes(call string) bool {
	return mayWrite.MatchString(call) && !harmless.MatchString(call) && !asks.MatchString(call)
}

// TestWrites tells lines of strace apart.
func TestWrites(t *testing.T) {
	for call, want := range map[string]bool{
		`openat(AT_FDCWD, "/etc/motd", O_RDONLY|O_CLOEXEC) = 3</etc/motd>`:                                     false,
		`openat(3</etc>, ".tako.motd.x", O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0600) = 4</etc/.tako.motd.x>`:        true,
		`write(1<pipe:[7]>, "1 to change\n", 12) = 12`:                                                         false,
		`write(5<anon_inode:[eventfd]>, "\1\0\0\0\0\0\0\0", 8) = 8`:                                            false,
		`write(4</etc/motd>, "x", 1) = 1`:                                                                      true,
		`pwrite64(4</etc/motd>, "x", 1, 0) = 1`:                                                                true,
		`renameat2(3</etc>, ".tako.motd.x", 3</etc>, "motd", 0) = 0`:                                           true,
		`unlinkat(3</etc>, "motd", 0) = 0`:                                                                     true,
		`fchmod(4</etc/motd>, 0644) = 0`:                                                                       true,
		`clone(child_stack=0x1, flags=CLONE_VM|CLONE_FS|CLONE_THREAD|CLONE_SYSVSEM, tls=0x2) = 9`:              false,
		`clone(child_stack=NULL, flags=CLONE_VM|CLONE_VFORK|SIGCHLD) = 9`:                                      true,
		`execve("/usr/bin/apt-get", ["/usr/bin/apt-get", "update"], 0x1 /* 4 vars */) = 0`:                     true,
		`sendto(6<socket:[1]>, [{nlmsg_len=17, nlmsg_type=RTM_GETLINK, nlmsg_flags=NLM_F_DUMP}, {}], 17) = 17`: false,
		`write(6<socket:[1]>, "GET /health HTTP/1.1\r\n", 22) = 22`:                                            false,
		`write(6<socket:[1]>, "PUT /health HTTP/1.1\r\n", 22) = 22`:                                            true,
		`sendto(6<socket:[1]>, [{nlmsg_len=17, nlmsg_type=RTM_NEWLINK}, {}], 17) = 17`:                         true,
		`write(6<socket:[1]>, "l\1\0\1\"\0\0\0\3\1s\0\6\0\0\0GetAll\0\0\2\1s\0\37\0", 210 <unfinished ...>`:    false,
		`write(6<socket:[1]>, "l\1\0\1\"\0\0\0\3\1s\0\t\0\0\0StartUnit\0\0\2\1s\0\37\0", 210) = 210`:           true,
		`write(6<socket:[1]>, "l\1\0\1\"\0\0\0\3\1s\0\6\0\0\0Reload\0\0\2\1s\0\37\0", 210) = 210`:              true,
	} {
		if writes(call) != want {
			t.Errorf("%s: writes %v, want %v", call, !want, want)
		}
	}
}

// everything is each file of the host with its state, but for the kernel's own file systems and what systemd notes of itself.
func (s *site) everything(t *testing.T) string {
	t.Helper()
	return s.MustRun(t, "sh", "-c", `find / /usr /run /tmp -xdev \( -path /var/log/journal -o -path /run/log -o -path '/run/strace*' \) -prune -o -printf '%p %y %i %m %U %G %s %T@ %C@ %l\n' | sort -u`)
}

// difference lists the lines that only one of two sorted texts has.
func difference(a, b string) string {
	in := func(text string) map[string]bool {
		lines := map[string]bool{}
		for line := range strings.Lines(text) {
			lines[line] = true
		}
		return lines
	}
	before, after := in(a), in(b)
	var out strings.Builder
	for line := range strings.Lines(a) {
		if !after[line] {
			out.WriteString("\n- " + strings.TrimSpace(line))
		}
	}
	for line := range strings.Lines(b) {
		if !before[line] {
			out.WriteString("\n+ " + strings.TrimSpace(line))
		}
	}
	return out.String()
}

// planned are the resources that a preview says would change.
func (s *site) planned(t *testing.T) []string {
	t.Helper()
	var titles []string
	for line := range strings.Lines(s.MustRun(t, agentPath, "converge", "-f", confDir, "--dry-run")) {
		if rest, ok := strings.CutPrefix(line, "~ Would change"); ok {
			title, _, _ := strings.Cut(strings.TrimSpace(rest), ":")
			titles = append(titles, title)
		}
	}
	slices.Sort(titles)
	return titles
}

// changed are the resources that the history tells of as changed since there were told lines in it.
func (s *site) changed(t *testing.T, told int) []string {
	t.Helper()
	list := s.history(t, "")
	var titles []string
	for _, h := range list[:len(list)-told] {
		if h.Outcome == reason.Repaired.String() {
			titles = append(titles, h.Title)
		}
	}
	slices.Sort(titles)
	return slices.Compact(titles)
}
