package mount

import (
	"strings"
	"testing"
	"time"

	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/casetest"
)

// mounts are those that a container can have. Of swap, which is the kernel's as a whole, nothing is tried here.
const mounts = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: mounts}
spec:
  resources:
    - name: inner
      file: {path: /srv/cache/inner/file, content: kept}
    - name: inner-directory
      directory: {path: /srv/cache/inner}
    - name: cache
      mount: {path: /srv/cache, source: tmpfs, type: tmpfs, options: [size=8m, nosuid, mode=0755]}
    - name: cache-directory
      directory: {path: /srv/cache}
    - name: data-directory
      directory: {path: /srv/data}
    - name: www-directory
      directory: {path: "/srv/www files"}
    - name: www
      mount: {path: "/srv/www files", source: /srv/data, options: [bind, ro]}
    - name: off-directory
      directory: {path: /srv/off}
    - name: off
      mount: {path: /srv/off, source: tmpfs, type: tmpfs, state: unmounted}
    - name: old
      mount: {path: /mnt, state: absent}
`

// TestAgentCase33_MountsOnHost converges mounts on a host with systemd, drifts and heals them, and boots it.
func TestAgentCase33_MountsOnHost(t *testing.T) {
	c := casetest.Start(t)
	h := boots.NewLab(t).Boot(t, "mounts")
	h.CopyIn(t, boots.AgentBinary(t), "/usr/bin/tako-agent")
	h.Put(t, "/root/mounts.yaml", mounts, 0o600)
	h.MustRun(t, "sh", "-ec", `printf '# mine\t\n' >>/etc/fstab; echo 'x /mnt tmpfs noauto' >>/etc/fstab; mount -t tmpfs x /mnt`)
	const look = `for p in /srv/cache "/srv/www files" /srv/off /mnt; do echo "$p: $(findmnt -rn -o FSTYPE,VFS-OPTIONS -M "$p")"; done
		findmnt -rn -o FS-OPTIONS -M /srv/cache; cat /srv/cache/inner/file; cat /etc/fstab`
	now := func() string {
		r, err := h.Run(t.Context(), "sh", "-c", look)
		c.NoError(err, "look")
		return r.Stdout
	}
	said := h.MustRun(t, "tako-agent", "converge", "-f", "/root/mounts.yaml")
	want := now()
	for _, words := range []string{"/srv/cache: tmpfs rw,nosuid", "/srv/www files: ", "size=8192k", "kept", "/srv/off: \n", "/mnt: \n", "# mine\t\n", "/srv/data /srv/www\\040files none bind,ro 0 0\n", "tmpfs /srv/off tmpfs noauto 0 0\n"} {
		c.Check(strings.Contains(want, words), "after one run there is no %q in\n%s\n%s", words, want, said)
	}
	c.Check(strings.Contains(want[strings.Index(want, "www files: "):], " ro,"), "the bind can be written to: %s", want)
	c.Check(!strings.Contains(want, " /mnt "), "fstab still has what is absent:\n%s", want)

	// systemd has read fstab: the units are those that it makes of the lines, and are up to date.
	const unit = `systemctl show -P FragmentPath -P NeedDaemonReload -P ActiveState srv-cache.mount 'srv-www\x20files.mount' | paste -sd ' '`
	units := h.MustRun(t, "sh", "-c", unit)
	c.Check(strings.Count(units, "/run/systemd/generator/") == 2 && strings.Count(units, " no ")+strings.Count(units, "no ") >= 2 && strings.Count(units, "active") == 2 && !strings.Contains(units, "yes"), "units: %s", units)
	h.MustRun(t, "sh", "-ec", "echo '# theirs' >>/etc/fstab")
	c.Check(strings.Contains(h.MustRun(t, "sh", "-c", unit), "yes"), "an edit of fstab is nothing to systemd")
	said = h.MustRun(t, "tako-agent", "converge", "-f", "/root/mounts.yaml")
	c.Check(!strings.Contains(h.MustRun(t, "sh", "-c", unit), "yes"), "systemd has not read fstab:\n%s", said)
	want = now()

	agent := h.Start(t, "tako-agent", "converge", "-f", "/root/mounts.yaml", "--watch")
	for _, drift := range []string{
		"umount /srv/cache", "mount -o remount,suid,size=4m /srv/cache", "umount '/srv/www files'", "mount -o remount,bind,rw '/srv/www files'", "mount -t tmpfs x /mnt",
		"mount -t tmpfs tmpfs /srv/off", "sed -i /cache/d /etc/fstab", "sed -i 's/,ro / /; s/noauto/auto/' /etc/fstab", "systemctl stop srv-cache.mount",
	} {
		began := time.Now()
		h.MustRun(t, "sh", "-ec", drift)
		boots.Eventually(t, time.Minute, drift+" is undone", func() (string, bool) {
			seen := now()
			return seen + "\n" + agent.Stderr(), sameLines(seen, want)
		})
		t.Logf("%s: healed after %v", drift, time.Since(began))
		c.Check(true, "healed")
	}
	agent.Kill(t)
	agent.Wait(t, time.Minute)

	// What is in use stays, and its users are named.
	h.Put(t, "/root/gone.yaml", strings.Replace(strings.Split(mounts, "    - name: inner\n")[0], "{name: mounts}", "{name: gone}", 1)+"    - name: cache\n      mount: {path: /srv/cache, state: absent}\n", 0o600)
	user := h.Start(t, "sh", "-c", "cd /srv/cache/inner; exec sleep 1000")
	boots.Eventually(t, time.Minute, "somebody uses it", func() (string, bool) {
		r, err := h.Run(t.Context(), "sh", "-c", "readlink /proc/[0-9]*/cwd | grep -c /srv/cache/inner")
		return r.Stdout, err == nil && r.Code == 0
	})
	r, err := h.Run(t.Context(), "tako-agent", "converge", "-f", "/root/gone.yaml", "--state", "/root/state")
	c.NoError(err, "converge")
	c.Check(r.Code != 0 && strings.Contains(r.Stdout+r.Stderr, "(sleep) works in /srv/cache/inner"), "in use: %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	user.Kill(t)
	h.MustRun(t, "tako-agent", "converge", "-f", "/root/mounts.yaml")

	// The next boot does all that by itself.
	h.Reboot(t)
	boots.Eventually(t, time.Minute, "the host is as declared after a boot", func() (string, bool) {
		seen := now()
		return seen + h.Journal(t.Context(), "srv-cache.mount"), strings.Contains(seen, "/srv/cache: tmpfs rw,nosuid") && strings.Contains(seen, "/srv/off: \n") && strings.Contains(seen, "/mnt: \n") && strings.Contains(seen, " ro,")
	})
}

// sameLines compares without order: a line of fstab that was removed comes back at its end.
func sameLines(a, b string) bool {
	count := map[string]int{}
	for line := range strings.Lines(a) {
		count[line]++
	}
	for line := range strings.Lines(b) {
		count[line]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}
