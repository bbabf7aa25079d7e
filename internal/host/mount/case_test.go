package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const others = "# UNTOUCHED\tline\n\n  LABEL=\"root disk\"   /  ext4 defaults,errors=remount-ro 0 1\nproc /proc\\040x proc noauto\n"

func tmpfsAt(p string, options ...string) declare.Resource {
	return mountOf(declare.Mount{Path: p, Source: "tmpfs", Type: "tmpfs", Options: options})
}

func absentAt(p string) declare.Resource {
	return mountOf(declare.Mount{Path: p, State: declare.MountAbsent})
}

// stand runs a program for the time of a test, which says a word when it has begun.
func stand(t *testing.T, dir, script string) (pid int, stop func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 8))
	}
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	t.Cleanup(stop)
	return cmd.Process.Pid, stop
}

// free waits until nothing holds a mount: the kernel lets go of what a process or a loop device had open a moment after that is gone.
func free(c *casetest.Case, dir string) {
	c.Eventually(time.Minute, "nothing holds "+dir, func() (string, bool) {
		err := unix.Unmount(dir, unix.MNT_EXPIRE) // a first call marks what nobody uses, and leaves it
		return fmt.Sprint(err), errors.Is(err, unix.EAGAIN)
	})
}

// TestAgentCase33_MountBusy unmounts what is used in each of the ways that there are: it stays, and who uses it is named.
func TestAgentCase33_MountBusy(t *testing.T) {
	c := casetest.Start(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	needsLoop(t)
	if !inside(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	g := newGround(t, "/")
	sh(t, "mkdir /srv/m /srv/other")
	busy := func(what string, words ...string) {
		t.Helper()
		g.Refused(absentAt("/srv/m"), reason.MountBusy, words...)
		c.Check(shown(t, "/srv/m", "FSTYPE") == "tmpfs", "%s: it was unmounted", what)
		c.Check(bootLine(t, "/srv/m") == wordAbsent, "%s: fstab still has it: %s", what, bootLine(t, "/srv/m"))
	}
	again := func() {
		t.Helper()
		sh(t, "mount -t tmpfs tmpfs /srv/m; mkdir /srv/m/d; echo 'tmpfs /srv/m tmpfs defaults 0 0' >>/etc/fstab")
	}
	for _, how := range []struct{ what, dir, script, words string }{
		{"a directory that a process is in", "/srv/m/d", "echo ready; exec sleep 100", "works in /srv/m/d"},
		{"an open file", "/", "exec 7>/srv/m/log; echo ready; exec sleep 100", "has open /srv/m/log"},
		{"a program", "/", "cp /bin/sleep /srv/m/prog; echo ready; exec /srv/m/prog 100", "was started from /srv/m/prog"},
	} {
		again()
		pid, stop := stand(t, how.dir, how.script)
		if how.what == "a program" {
			for !strings.HasPrefix(readlink(fmt.Sprintf("/proc/%d/exe", pid)), "/srv/m/") {
				sh(t, "true")
			}
		}
		busy(how.what, fmt.Sprintf("pid %d (", pid), how.words, "nothing is stopped")
		stop()
		free(c, "/srv/m")
		g.Made(absentAt("/srv/m"))
		c.Check(shown(t, "/srv/m", "FSTYPE") == "", "%s: it ended, and it is still mounted", how.what)
	}

	again()
	sh(t, "mount -t tmpfs tmpfs /srv/m/d")
	busy("a mount on it", "/srv/m/d is mounted on it")
	sh(t, "umount /srv/m/d; truncate -s 8M /srv/m/image; mkfs.ext4 -q /srv/m/image; mount -o loop /srv/m/image /srv/other")
	busy("an image on it", "has its image /srv/m/image on it")
	sh(t, "umount /srv/other")
	// Many that use it are counted. The process that is asked about most is not the test's own.
	pid, stop := stand(t, "/srv/m/d", "for i in 1 2 3 4 5 6 7; do sleep 100 & done; echo ready; trap 'kill 0' TERM; wait")
	busy("many", "and 3 more")
	sh(t, fmt.Sprintf("pkill -P %d", pid))
	stop()
	free(c, "/srv/m")
	g.Made(absentAt("/srv/m"))

	// Options that can be changed in place are, also while it is in use.
	g.Made(tmpfsAt("/srv/m", "size=4m"))
	_, stop = stand(t, "/srv/m", "echo ready; exec sleep 100")
	g.Made(tmpfsAt("/srv/m", "size=8m", "noexec"))
	c.Check(strings.Contains(shown(t, "/srv/m", "OPTIONS"), "noexec") && strings.Contains(shown(t, "/srv/m", "OPTIONS"), "size=8192k"), "remounted: %s", shown(t, "/srv/m", "OPTIONS"))
	stop()
}

func readlink(p string) string {
	s, _ := os.Readlink(p) // "" is what the caller waits to change
	return s
}

// TestAgentCase33_FstabEditedByHand: whatever becomes of our lines, they are put right and no other changes.
func TestAgentCase33_FstabEditedByHand(t *testing.T) {
	c := casetest.Start(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if !inside(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	g := newGround(t, "/")
	sh(t, "mkdir -p '/srv/a b' /srv/x")
	r := tmpfsAt("/srv/a b", "size=4m", "nodev")
	g.Made(r)
	const ours = "tmpfs /srv/a\\040b tmpfs size=4m,nodev 0 0\n"
	c.Equal(see(t, fstabFile), others+ours, "fstab")
	for what, now := range map[string]string{
		"removed":               others,
		"no end of the line":    strings.TrimSuffix(others, "\n"),
		"another option":        strings.Replace(others, "\n\n", "\ntmpfs /srv/a\\040b tmpfs size=4m,nodev,nofail 0 0\n\n", 1),
		"another source":        others + "/dev/nowhere /srv/a\\040b ext4 defaults 0 2\n",
		"twice":                 others + ours + "x /srv/x tmpfs noauto 0 0\n" + ours,
		"with a slash":          others + "tmpfs\t/srv/a\\040b/\ttmpfs  ro 1 0\n",
		"too short":             others + "tmpfs /srv/a\\040b tmpfs\n",
		"garbage in the others": "\xff\xfe\x00\n/ / /\n" + others,
		"none at all":           "",
	} {
		if err := os.WriteFile(fstabFile, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
		res := g.Made(r)
		body := see(t, fstabFile)
		c.Check(res.Changed && strings.Count(body, "/srv/a\\040b") == 1 && strings.Contains(body, "size=4m,nodev "), "%s: %s", what, body)
		left, kept := "", ""
		for line := range strings.Lines(now) {
			if !strings.Contains(line, `/srv/a\040b`) {
				left += line
			}
		}
		for line := range strings.Lines(body) {
			if !strings.Contains(line, `/srv/a\040b`) {
				kept += line
			}
		}
		c.Equal(strings.TrimSuffix(kept, "\n"), strings.TrimSuffix(left, "\n"), "the lines of others: "+what)
		c.Check(strings.Contains(shown(t, "/srv/a b", "OPTIONS"), "nodev") && shown(t, "/srv/a b", "FSTYPE") == "tmpfs", "%s: %s", what, shown(t, "/srv/a b", "OPTIONS"))
	}
	// What says the same in other blanks stays as it is.
	same := others + "  tmpfs\t\t/srv/a\\040b  tmpfs \t size=4m,nodev\n"
	if err := os.WriteFile(fstabFile, []byte(same), 0o644); err != nil {
		t.Fatal(err)
	}
	res := g.Converge(r)
	c.Check(res.Err == nil && !res.Changed && see(t, fstabFile) == same, "the same in other blanks: %+v\n%s", res, see(t, fstabFile))
	// findmnt agrees that the file can be read.
	out, err := exec.CommandContext(t.Context(), "findmnt", "--fstab", "-rn", "-o", "SOURCE,OPTIONS", "-T", "/srv/a b").CombinedOutput()
	c.Check(err == nil && strings.Contains(string(out), "size=4m,nodev"), "findmnt: %v %s", err, out)
	// A mount for what is above comes first in the file.
	sh(t, "mkdir -p /srv/y/z")
	g.Made(tmpfsAt("/srv/y/z"))
	sh(t, "umount /srv/y/z")
	g.Made(tmpfsAt("/srv/y"))
	body := see(t, fstabFile)
	c.Check(strings.Index(body, " /srv/y ") < strings.Index(body, " /srv/y/z "), "the order of\n%s", body)
	g.Refused(tmpfsAt("/srv/y/z"), reason.MountPointMissing)
	c.Check(see(t, fstabFile) == body, "fstab was changed although nothing could be mounted")
	sh(t, "mkdir /srv/y/z")
	g.Made(tmpfsAt("/srv/y/z"))
}

// TestMount is what cannot be, and what is told.
func TestMount(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	sh(t, "mkdir /srv/m /srv/full /srv/u /srv/real; touch /srv/full/a /srv/full/b /srv/full/c /srv/full/d; truncate -s 1M /srv/file; ln -s real /srv/link; chown 65534 /srv/u; mkdir /srv/u/m; mkdir -m 777 /srv/open; mkdir /srv/open/m")
	before := see(t, fstabFile)
	g.Refused(tmpfsAt("/srv/none"), reason.MountPointMissing, "there is no directory /srv/none", "directory: {path: /srv/none}")
	g.Refused(tmpfsAt("/srv/none/deep"), reason.MountPointMissing)
	g.Refused(tmpfsAt("/srv/file"), reason.MountPointMissing, "/srv/file is a file")
	g.Refused(tmpfsAt("/srv/link"), reason.MountPointUnsafe, "/srv/link is a link to real")
	g.Refused(tmpfsAt("/srv/u/m"), reason.MountPointUnsafe, "/srv/u belongs to another user")
	g.Refused(tmpfsAt("/srv/open/m"), reason.MountPointUnsafe, "/srv/open may be written to by others")
	g.Refused(mountOf(declare.Mount{Path: "/srv/m", Source: "UUID=0-0-0"}), reason.MountSourceMissing, "no device has UUID=0-0-0")
	g.Refused(mountOf(declare.Mount{Path: "/srv/m", Source: "/dev/nowhere", Type: "ext4"}), reason.MountSourceMissing, "/dev/nowhere is not there")
	g.Refused(mountOf(declare.Mount{Path: "/srv/m", Source: "/srv/real", Type: "ext4"}), reason.MountSourceMissing, "options: [bind]")
	g.Refused(mountOf(declare.Mount{Path: "/srv/m", Source: "/srv/nowhere", Options: []string{"bind"}}), reason.MountSourceMissing, "/srv/nowhere is not there")
	g.Refused(mountOf(declare.Mount{Path: "/srv/m", Source: "no-such-device", Type: "ext4"}), reason.MountSourceMissing, "no-such-device does not exist")
	g.Refused(mountOf(declare.Mount{Path: "/srv/m", Source: "/srv/file", Type: "nosuchfs", Options: []string{"loop"}}), reason.MountRefused, "wrong fs type")
	g.Refused(tmpfsAt("/srv/m", "nosuchoption"), reason.MountRefused, "bad option")
	if _, err := exec.LookPath("mount.nfs"); err != nil {
		g.Refused(mountOf(declare.Mount{Path: "/srv/m", Source: "192.0.2.1:/x", Type: "nfs"}), reason.MountRefused, "nfs-common or nfs-utils")
	}
	if body := see(t, fstabFile); body != before {
		t.Errorf("what could not be mounted is in fstab:\n%s", body)
	}

	// A directory with something in it is mounted over, and that is told.
	if res := g.Made(tmpfsAt("/srv/full")); !strings.Contains(res.Note, "it hides what is in the directory below it: ") || !strings.HasSuffix(res.Note, " and more") {
		t.Errorf("note: %q", res.Note)
	}
	// A single file is bound.
	sh(t, "echo bound >/srv/real/file")
	file := mountOf(declare.Mount{Path: "/srv/file", Source: "/srv/real/file", Options: []string{"bind"}})
	g.Made(file)
	if got := see(t, "/srv/file"); got != "bound\n" {
		t.Errorf("bound: %q", got)
	}
	g.Refused(mountOf(declare.Mount{Path: "/srv/m", Source: "/srv/real/file", Options: []string{"bind"}}), reason.MountPointMissing, "not a file")

	// Something else: over it, in its place, or the wrong part of it.
	g.Made(tmpfsAt("/srv/m", "size=1m"))
	sh(t, "mount --bind /srv/real /srv/m")
	g.Refused(tmpfsAt("/srv/m", "size=1m"), reason.MountPointTaken, "umount /srv/m")
	g.Refused(mountOf(declare.Mount{Path: "/srv/m", Source: "tmpfs", Type: "tmpfs", State: declare.MountUnmounted}), reason.MountPointTaken)
	if shown(t, "/srv/m", "SOURCE") == "" {
		t.Error("what another has mounted was unmounted")
	}
	sh(t, "umount /srv/m")
	g.Made(tmpfsAt("/srv/m", "size=1m"))
	// In memory is what would be lost.
	g.Refused(mountOf(declare.Mount{Path: "/srv/m", Source: "/srv/real", Options: []string{"bind"}}), reason.MountPointTaken, "its content would be lost")
	// What is declared absent goes with all that lies there.
	sh(t, "mount --bind /srv/real /srv/m")
	g.Made(absentAt("/srv/m"))
	// A bind is replaced by another, because fstab says that the first is ours.
	sh(t, "mkdir /srv/real/a /srv/real/b")
	bind := func(source string, options ...string) declare.Resource {
		return mountOf(declare.Mount{Path: "/srv/m", Source: source, Options: append([]string{"bind"}, options...)})
	}
	g.Made(bind("/srv/real/a"))
	g.Made(bind("/srv/real/b", "ro", "nosuid"))
	if got := shown(t, "/srv/m", "SOURCE,VFS-OPTIONS"); !strings.Contains(got, "/real/b]") || !strings.Contains(got, "ro") {
		t.Errorf("bound anew: %s", got)
	}
	// A remount by hand is undone.
	sh(t, "mount -o remount,bind,rw,nosuid /srv/m")
	if res := g.Made(bind("/srv/real/b", "ro", "nosuid")); !res.Changed {
		t.Error("a remount by hand is not noticed")
	}
	// What lies over the way there hides it.
	sh(t, "mkdir -p /srv/p/q")
	g.Made(tmpfsAt("/srv/p/q"))
	sh(t, "mount -t tmpfs tmpfs /srv/p")
	g.Refused(tmpfsAt("/srv/p/q"), reason.MountPointMissing)

	if res := newGround(t, t.TempDir()).Converge(tmpfsAt("/srv/m")); !reason.Is(res.Err, reason.UnsupportedInRoot) {
		t.Errorf("in a sandbox: %v", res.Err)
	}
}

// TestAutomount: what systemd mounts when somebody goes there counts as mounted while nobody has.
func TestAutomount(t *testing.T) {
	g := newGround(t, "/")
	typ := g.types[declare.TypeMount].(*Type)
	m := bindMount(&declare.Mount{Path: "/srv", Source: "nas:/x", Type: "nfs4", Options: []string{"x-systemd.automount", "ro"}})
	const root, auto, nas = "1 0 8:1 / / rw - ext4 /dev/x rw\n", "2 1 0:2 / /srv rw - autofs systemd-1 rw\n", "3 2 0:3 / /srv ro,relatime - nfs4 nas:/x ro\n"
	for text, want := range map[string]string{root: fieldState, root + auto: "", root + auto + nas: "", root + strings.Replace(nas, "3 2", "3 1", 1): ""} {
		c := &call{Type: typ, read: true, table: parseTable(text), lines: parseFstab("nas:/x /srv nfs4 x-systemd.automount,ro 0 0\n")}
		sight, err := m.look(c)
		if err != nil {
			t.Fatal(err)
		}
		changes, obstacle := m.compare(sight)
		if got := fields(changes); got != want || obstacle != nil {
			t.Errorf("with\n%s: %q %v, want %q", text, got, obstacle, want)
		}
	}
}

// TestSecretsOfOthers: a password that somebody has written into fstab is not shown.
func TestSecretsOfOthers(t *testing.T) {
	g := newGround(t, "/")
	typ := g.types[declare.TypeMount].(*Type)
	m := bindMount(&declare.Mount{Path: "/srv", Source: "//nas/x", Type: "cifs", Options: []string{"credentials=/root/nas"}})
	for _, list := range []string{"", "2 1 0:2 / /srv rw - cifs //nas/x rw,username=u\n"} {
		c := &call{Type: typ, read: true, table: parseTable("1 0 8:1 / / rw - ext4 /dev/x rw\n" + list),
			lines: parseFstab("//nas/x /srv cifs user=u,password=hunter2 0 0\n//nas/x /srv cifs PASS=hunter2\n")}
		sight, err := m.look(c)
		if err != nil {
			t.Fatal(err)
		}
		changes, obstacle := m.compare(sight)
		if text := fmt.Sprint(changes, obstacle); len(changes) < 2 || strings.Contains(text, "hunter2") || !strings.Contains(text, "password=(hidden)") {
			t.Error(text)
		}
	}
}

func fields(changes []host.Change) string {
	var names []string
	for _, c := range changes {
		names = append(names, c.Field)
	}
	return strings.Join(names, " ")
}

// TestMountedImage has a file system in a file: mounted anew where an option wants that, put back where that does not go, and never made
// writable against the kernel.
func TestMountedImage(t *testing.T) {
	needsLoop(t)
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	sh(t, "mkdir /srv/d; for i in a b; do truncate -s 8M /srv/$i; mkfs.ext4 -q -L $i /srv/$i; done")
	image := func(file string, options ...string) declare.Resource {
		return mountOf(declare.Mount{Path: "/srv/d", Source: file, Type: "ext4", Options: append([]string{"loop"}, options...)})
	}
	g.Made(image("/srv/a"))
	sh(t, "echo kept >/srv/d/file")
	// ext4 does not take another data mode while it is mounted.
	g.Made(image("/srv/a", "data=journal"))
	if got := shown(t, "/srv/d", "FS-OPTIONS"); !strings.Contains(got, "data=journal") {
		t.Errorf("mounted anew: %s", got)
	}
	boot := bootLine(t, "/srv/d")
	g.Refused(image("/srv/a", "nosuchoption"), reason.MountRefused, "what was there before is mounted again")
	if got := see(t, "/srv/d/file"); got != "kept\n" || bootLine(t, "/srv/d") != boot {
		t.Errorf("after a mistake: %q, %s", got, bootLine(t, "/srv/d"))
	}
	// Another source: the first is what fstab says, so it goes; one in use stays.
	_, stop := stand(t, "/srv/d", "echo ready; exec sleep 100")
	g.Refused(image("/srv/b"), reason.MountBusy, "works in /srv/d")
	stop()
	g.Made(image("/srv/b"))
	if see(t, "/srv/d/file") != "" {
		t.Error("the other image is not mounted")
	}
	sh(t, "umount /srv/d; printf 'no file system' >/srv/b")
	g.Refused(image("/srv/nothing"), reason.MountSourceMissing)
	g.Refused(mountOf(declare.Mount{Path: "/srv/d", Source: "/srv/b", Type: "xfs", Options: []string{"loop"}}), reason.MountRefused)
	// An error of the disk makes it read-only.
	g.Made(image("/srv/a", "errors=remount-ro"))
	trigger := "/sys/fs/ext4/" + strings.TrimPrefix(shown(t, "/srv/d", "SOURCE"), "/dev/") + "/trigger_fs_error"
	if err := os.WriteFile(trigger, []byte("test"), 0); err != nil {
		t.Logf("no way to an error of the disk: %v", err)
	} else {
		g.Refused(image("/srv/a", "errors=remount-ro"), reason.MountReadOnly, "the kernel takes no writes")
	}
}

// TestSwap is what cannot be.
func TestSwap(t *testing.T) {
	dir := onDisk(t)
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	before := see(t, fstabFile)
	g.Refused(swapOf(declare.Swap{Path: dir + "/none"}), reason.MountSourceMissing, "size: 2Gi")
	g.Refused(swapOf(declare.Swap{Path: dir}), reason.SwapUnprepared, "is a directory")
	g.Refused(swapOf(declare.Swap{Path: dir + "/huge", Size: "15Ti"}), reason.DiskFull, "15728640 MiB is declared", "are free")
	g.Refused(swapOf(declare.Swap{Path: "/srv/file", Size: "1Mi"}), reason.SwapUnprepared, "none that swaps to files")
	g.Refused(swapOf(declare.Swap{Path: dir + "/forbidden", Size: "1Mi"}), reason.MountRefused, "in a container")
	sh(t, "ln -s "+dir+"/x "+dir+"/link; mkdir -m 777 "+dir+"/open; cd "+dir+"; echo precious >text; truncate -s 2M holes; head -c 2M /dev/zero >zeros; truncate -s 8M image; mkfs.ext4 -q image")
	g.Refused(swapOf(declare.Swap{Path: dir + "/link", Size: "1Mi"}), reason.MountPointUnsafe, "is a link to")
	g.Refused(swapOf(declare.Swap{Path: dir + "/open/x", Size: "1Mi"}), reason.MountPointUnsafe)
	for _, name := range []string{"text", "image"} {
		sum := sh(t, "sha256sum "+dir+"/"+name)
		g.Refused(swapOf(declare.Swap{Path: dir + "/" + name, Size: "1Mi"}), reason.SwapUnprepared, "may hold something")
		if sh(t, "sha256sum "+dir+"/"+name) != sum {
			t.Errorf("%s was changed", name)
		}
	}
	g.Refused(swapOf(declare.Swap{Path: dir + "/holes"}), reason.SwapUnprepared, "declare its size")
	if see(t, fstabFile) != before {
		t.Error("what is not swapped to is in fstab")
	}
	for _, name := range []string{"holes", "zeros", "new"} {
		g.Made(swapOf(declare.Swap{Path: dir + "/" + name, Size: "3Mi"}))
	}
	// What is made is an area as mkswap makes it, with no holes.
	for _, name := range []string{"holes", "zeros", "new"} {
		p := dir + "/" + name
		if got := sh(t, "blkid -p -o value -s TYPE "+p); got != "swap" {
			t.Errorf("%s is %q", name, got)
		}
		sh(t, "truncate -s 3M /srv/by-mkswap; mkswap -q -U $(blkid -p -o value -s UUID "+p+") /srv/by-mkswap 2>/dev/null; cmp /srv/by-mkswap "+p)
		if got := sh(t, "stat -c '%a %b' "+p); got != "600 6144" {
			t.Errorf("%s: mode and blocks %s", name, got)
		}
	}
	g.Refused(swapOf(declare.Swap{Path: dir + "/nowhere/x", Size: "1Mi"}), reason.ParentMissing)
	// What is swapped out must fit somewhere.
	gone := swapOf(declare.Swap{Path: dir + "/new", State: declare.SwapAbsent})
	sh(t, `sed -i 's/^MemAvailable:.*/MemAvailable: 1024 kB/' /proc/meminfo 2>/dev/null || { sed 's/^MemAvailable:.*/MemAvailable: 1024 kB/' /proc/meminfo >/srv/meminfo; cat /srv/meminfo >/proc/meminfo; }
		sed 's,^\([^ ]*/new file [0-9]*\) 0,\1 9000000,' /proc/swaps >/srv/swaps; cat /srv/swaps >/proc/swaps`)
	res := g.Refused(gone, reason.SwapNoRoom, "8789 MiB are swapped out", "room for 6 MiB")
	if res.Changed || bootLine(t, dir+"/new") == wordAbsent {
		t.Error("fstab was changed although it stays on")
	}
	sh(t, `sed 's, 9000000 , 2000 ,' /proc/swaps >/srv/swaps; cat /srv/swaps >/proc/swaps`)
	g.Made(gone)
	if _, err := os.Stat(dir + "/new"); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
	if res := newGround(t, t.TempDir()).Converge(gone); !reason.Is(res.Err, reason.UnsupportedInRoot) {
		t.Errorf("in a sandbox: %v", res.Err)
	}
}

// TestSwapInterrupted ends while a file is written: nothing is there, and nothing is left.
func TestSwapInterrupted(t *testing.T) {
	i := newImage(t.Context(), 1<<20)
	head := make([]byte, 10)
	if _, err := i.ReadAt(head, int64(os.Getpagesize()-10)); err != nil || string(head) != swapSign {
		t.Errorf("%q %v", head, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	i = newImage(ctx, 1<<20)
	if _, err := i.ReadAt(head, 0); err == nil {
		t.Error("it goes on writing")
	}
}
