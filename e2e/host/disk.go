package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// networkUnit gives the host its address. A unit of a few commands instead of a network daemon: the address stays when the
// link is cut, and nothing wakes up in between.
const networkUnit = `[Unit]
Description=Address on the bridge of the lab
Before=network.target
Wants=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=ip address replace %s%s dev host0
ExecStart=ip link set host0 up

[Install]
WantedBy=multi-user.target
`

// maskedUnits would run by the clock or wait for a terminal that is not there.
var maskedUnits = []string{
	"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "console-getty.service",
}

// createDisk makes the layers of /usr, copies the rest of the root and writes what makes this host this host.
func (h *Host) createDisk(ctx context.Context) error {
	for _, layer := range []string{"usr", "usr.work"} {
		if err := os.MkdirAll(filepath.Join(h.dir, layer), 0o755); err != nil {
			return err
		}
	}
	if _, err := output(exec.CommandContext(ctx, "cp", "--archive", h.lab.root.tree(), h.Disk())); err != nil {
		return err
	}
	key, err := h.lab.repository.publicKey(ctx)
	if err != nil {
		return err
	}
	for path, content := range map[string]string{
		"/etc/hostname":         h.name + "\n",
		"/etc/hosts":            "127.0.0.1 localhost\n" + h.address + " " + h.name + "\n",
		"/etc/machine-id":       randomID(16) + "\n",
		"/etc/apt/sources.list": h.lab.repository.sourceLine(),
		keyPath:                 string(key),
		"/etc/systemd/system/lab-network.service": fmt.Sprintf(networkUnit, h.address, prefixLength),
	} {
		if err := writeFile(filepath.Join(h.Disk(), path), content); err != nil {
			return err
		}
	}
	links := map[string]string{"multi-user.target.wants/lab-network.service": "../lab-network.service"}
	for _, unit := range maskedUnits {
		links[unit] = "/dev/null"
	}
	for path, target := range links {
		if err := os.Symlink(target, filepath.Join(h.Disk(), "etc/systemd/system", path)); err != nil {
			return err
		}
	}
	// With this directory the journal is kept on the disk, so that what happened before a power cut can be read after it.
	return os.MkdirAll(filepath.Join(h.Disk(), "var/log/journal"), 0o755)
}
