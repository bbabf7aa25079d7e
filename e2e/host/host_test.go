package host

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// waitTimeout bounds waits for what takes milliseconds.
const waitTimeout = time.Minute

// TestHosts looks at two hosts of one lab; each part leaves them as it found them: on, linked, without packages.
func TestHosts(t *testing.T) {
	lab := NewLab(t)
	a, b := lab.Boot(t, "a"), lab.Boot(t, "b")
	for _, test := range []struct {
		name string
		run  func(t *testing.T, lab *Lab, a, b *Host)
	}{
		{"network", testNetwork},
		{"link", testLink},
		{"control groups", testControlGroups},
		{"commands", testCommands},
		{"processes", testProcesses},
		{"files", testFiles},
		{"reboot", testReboot},
		{"power cut", testPowerCut},
		{"packages", testPackages},
		{"own package", testOwnPackage},
		{"signature", testSignature},
		{"living lab", testLivingLab},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, lab, a, b) })
	}
}

func testNetwork(t *testing.T, _ *Lab, a, b *Host) {
	for _, address := range []string{b.Address(), bridgeAddress} {
		a.MustRun(t, "ping", "-c", "1", "-w", "60", address)
	}
	a.MustRun(t, "ping", "-c", "1", "-w", "60", a.Name())
	outside := []string{"198.51.100.1"} // an address of nobody, RFC 5737
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if ip := address.(*net.IPNet).IP; !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			outside = append(outside, ip.String())
		}
	}
	for _, address := range outside {
		if result, err := a.Run(t.Context(), "ping", "-c", "1", "-W", "1", address); err != nil || result.Code == 0 {
			t.Errorf("ping %s, which is outside the lab: exit status %d, %v; want no answer", address, result.Code, err)
		}
	}
}

func testLink(t *testing.T, _ *Lab, a, b *Host) {
	a.CutLink(t)
	if result, err := b.Run(t.Context(), "ping", "-c", "1", "-W", "1", a.Address()); err != nil || result.Code == 0 {
		t.Errorf("ping over a cut link: exit status %d, %v; want no answer", result.Code, err)
	}
	a.RestoreLink(t)
	Eventually(t, waitTimeout, "an answer over the restored link", func() (string, bool) {
		result, err := b.Run(t.Context(), "ping", "-c", "1", "-W", "1", a.Address())
		return result.Stdout, err == nil && result.Code == 0
	})
}

// testControlGroups fails when two hosts share control groups: each then finds the other's process in its own unit.
func testControlGroups(t *testing.T, _ *Lab, a, b *Host) {
	for _, h := range []*Host{a, b} {
		h.MustRun(t, "systemd-run", "--quiet", "--unit=same-name", "sleep", "1000")
	}
	for _, h := range []*Host{a, b} {
		main := h.MustRun(t, "systemctl", "show", "--property=MainPID", "--value", "same-name")
		inUnit := h.MustRun(t, "sh", "-c", "find /sys/fs/cgroup -path '*/same-name.service/cgroup.procs' -exec cat {} + | sort -u")
		if inUnit != main {
			t.Errorf("host %s: processes %q in a unit whose only process is %q", h.Name(), inUnit, main)
		}
	}
	a.MustRun(t, "systemctl", "stop", "same-name")
	if state := b.MustRun(t, "systemctl", "show", "--property=ActiveState", "--value", "same-name"); state != "active\n" {
		t.Errorf("unit of host b after its namesake of host a was stopped: %q, want active", state)
	}
	b.MustRun(t, "systemctl", "stop", "same-name")
}

func testCommands(t *testing.T, _ *Lab, a, _ *Host) {
	t.Setenv("OF_THE_TEST", "secret")
	for _, test := range []struct {
		script string
		want   Result
	}{
		{"echo out; echo err >&2; exit 3", Result{Stdout: "out\n", Stderr: "err\n", Code: 3}},
		{"kill -TERM $$", Result{Code: 128 + int(syscall.SIGTERM)}},
		{"hostname; id -u; pwd", Result{Stdout: "a\n0\n/\n"}},
		{"cat /proc/1/comm", Result{Stdout: "systemd\n"}},
		{"echo \"$OF_THE_TEST\"", Result{Stdout: "\n"}},
	} {
		got, err := a.Run(t.Context(), "sh", "-c", test.script)
		if err != nil || got != test.want {
			t.Errorf("%s: %+v, %v; want %+v", test.script, got, err, test.want)
		}
	}
	if got, err := a.Run(t.Context(), "no-such-program"); err != nil || got.Code != 127 {
		t.Errorf("a program that does not exist: %+v, %v; want exit status 127 as from a shell", got, err)
	}
}

func testProcesses(t *testing.T, _ *Lab, a, _ *Host) {
	p := a.Start(t, "sh", "-c", "trap 'echo trapped; exit 7' USR1; echo ready; while :; do sleep 0.05; done")
	Eventually(t, waitTimeout, "the process is ready", func() (string, bool) {
		return p.Stdout(), p.Stdout() == "ready\n"
	})
	p.Signal(t, syscall.SIGUSR1)
	if got, want := p.Wait(t, waitTimeout), (Result{Stdout: "ready\ntrapped\n", Code: 7}); got != want {
		t.Errorf("process after SIGUSR1: %+v, want %+v", got, want)
	}

	p = a.Start(t, "sh", "-c", "sleep 1001; true")
	awaitProcess(t, a, "sleep 1001", true)
	p.Kill(t)
	if got, want := p.Wait(t, waitTimeout).Code, 128+int(syscall.SIGKILL); got != want {
		t.Errorf("exit code of a killed process: %d, want %d", got, want)
	}
	awaitProcess(t, a, "sleep 1001", false)

	t.Run("ends with its test", func(t *testing.T) { a.Start(t, "sleep", "1002") })
	awaitProcess(t, a, "sleep 1002", false)
}

// awaitProcess waits until the host has, or has not, a process with that command line.
func awaitProcess(t *testing.T, h *Host, command string, want bool) {
	t.Helper()
	Eventually(t, waitTimeout, command, func() (string, bool) {
		all := h.MustRun(t, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
		return all, strings.Contains(all, command) == want
	})
}

func testFiles(t *testing.T, _ *Lab, a, _ *Host) {
	const path = "/srv/new folder/file"
	content := strings.Repeat("0123456789abcdef", 1<<16) // more than a pipe holds
	a.Put(t, path, content, 0o640)
	if a.Get(t, path) != content {
		t.Error("content read back differs from content written")
	}
	if got := a.MustRun(t, "stat", "--format=%a %u %g", path); got != "640 0 0\n" {
		t.Errorf("mode and owner %q, want 640 0 0", got)
	}
	a.CopyIn(t, Program(t, "program", "tako.dev/tako/e2e/host/testdata/program"), "/usr/local/bin/program")
	if got := a.MustRun(t, "program"); got != "built and run\n" {
		t.Errorf("a program of this machine printed %q in the host", got)
	}
}

func testReboot(t *testing.T, _ *Lab, a, b *Host) {
	a.Put(t, "/root/kept", "over a reboot", 0o600)
	a.MustRun(t, "touch", "/run/gone")
	before := a.Get(t, "/proc/sys/kernel/random/boot_id")
	a.Reboot(t)
	if got := a.Get(t, "/root/kept"); got != "over a reboot" {
		t.Errorf("file on disk after a reboot: %q", got)
	}
	if result, err := a.Run(t.Context(), "test", "-e", "/run/gone"); err != nil || result.Code == 0 {
		t.Errorf("file in /run after a reboot: exit status %d, %v; want it gone", result.Code, err)
	}
	if a.Get(t, "/proc/sys/kernel/random/boot_id") == before {
		t.Error("the boot id is the same after a reboot")
	}
	b.MustRun(t, "ping", "-c", "1", "-w", "60", a.Address())
}

func testPowerCut(t *testing.T, _ *Lab, a, _ *Host) {
	a.MustRun(t, "sh", "-c", "echo synced >/root/synced && sync /root/synced")
	a.Put(t, "/etc/systemd/system/orderly.service",
		"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=true\nExecStop=touch /root/orderly\n", 0o644)
	a.MustRun(t, "systemctl", "start", "orderly")
	p := a.Start(t, "sleep", "1003")
	awaitProcess(t, a, "sleep 1003", true)
	a.PowerCut(t)
	if got, want := p.Wait(t, waitTimeout).Code, 128+int(syscall.SIGKILL); got != want {
		t.Errorf("exit code of a process in a host without power: %d, want %d", got, want)
	}
	if _, err := a.Run(t.Context(), "true"); err == nil {
		t.Error("a command ran in a host that is off")
	}
	if text, err := os.ReadFile(filepath.Join(a.Disk(), "root/synced")); err != nil || string(text) != "synced\n" {
		t.Errorf("synced file on the disk of a host that is off: %q, %v", text, err)
	}
	a.Boot(t)
	if got := a.Get(t, "/root/synced"); got != "synced\n" {
		t.Errorf("synced file after a power cut: %q", got)
	}
	if result, err := a.Run(t.Context(), "test", "-e", "/root/orderly"); err != nil || result.Code == 0 {
		t.Error("a power cut shut the host down in an orderly way")
	}
}

func testPackages(t *testing.T, lab *Lab, a, _ *Host) {
	a.MustRun(t, "apt-get", "update")
	for _, name := range repositoryPackages {
		// Simulated, to see that nothing that it depends on is missing.
		a.MustRun(t, "apt-get", "install", "--yes", "--simulate", name)
	}
	a.MustRun(t, "apt-get", "install", "--yes", "hello", "nginx")
	defer a.MustRun(t, "apt-get", "purge", "--yes", "--autoremove", "hello", "nginx")
	if got := a.MustRun(t, "hello"); got != "Hello, world!\n" {
		t.Errorf("hello printed %q", got)
	}
	client := http.Client{Transport: &http.Transport{DialContext: lab.Dial, DisableKeepAlives: true}, Timeout: waitTimeout}
	response, err := client.Get("http://" + a.Address() + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if page, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(page), "Welcome to nginx!") {
		t.Errorf("nginx answered %q, %v", page, err)
	}
}

func testOwnPackage(t *testing.T, lab *Lab, a, _ *Host) {
	deb := Deb{
		Name: "odd", Version: "1.0",
		Fields:    map[string]string{"Depends": "tree"},
		Files:     map[string]string{"/usr/bin/odd": "#!/bin/sh\necho odd\n", "/etc/odd.conf": "a=1\n"},
		Conffiles: []string{"/etc/odd.conf"},
		Scripts:   map[string]string{"postinst": "#!/bin/sh\necho configured with \"$1\" >/root/postinst\n"},
	}
	lab.Repository().Add(t, deb)
	a.MustRun(t, "apt-get", "update")
	a.MustRun(t, "apt-get", "install", "--yes", "odd")
	defer a.MustRun(t, "apt-get", "purge", "--yes", "--autoremove", "odd")
	if got := a.MustRun(t, "odd"); got != "odd\n" {
		t.Errorf("the package's program printed %q", got)
	}
	a.MustRun(t, "tree", "--version")
	if got := a.Get(t, "/root/postinst"); got != "configured with configure\n" {
		t.Errorf("postinst wrote %q", got)
	}

	deb.Version = "2.0"
	deb.Scripts = map[string]string{"preinst": "#!/bin/sh\necho refused by preinst >&2\nexit 1\n"}
	lab.Repository().Add(t, deb)
	a.MustRun(t, "apt-get", "update")
	if result, err := a.Run(t.Context(), "apt-get", "install", "--yes", "odd"); err != nil || result.Code == 0 ||
		!strings.Contains(result.Stdout+result.Stderr, "refused by preinst") {
		t.Errorf("upgrade with a preinst that refuses: %+v, %v", result, err)
	}
	a.MustRun(t, "apt-get", "install", "--yes", "--allow-downgrades", "odd=1.0")
}

// testSignature shows that hosts look at the signature, by an index that nobody has signed.
func testSignature(t *testing.T, lab *Lab, a, _ *Host) {
	index := filepath.Join(lab.Repository().dir, "InRelease")
	signed, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(index, signed, 0o644)
	tampered := strings.Replace(string(signed), "Origin: lab", "Origin: bad", 1)
	if err := os.WriteFile(index, []byte(tampered), 0o644); err != nil {
		t.Fatal(err)
	}
	result, err := a.Run(t.Context(), "apt-get", "update", "--error-on=any")
	if err != nil || result.Code == 0 || !strings.Contains(result.Stderr, "BADSIG") {
		t.Errorf("update with a tampered index: %+v, %v; want a bad signature", result, err)
	}
}

// testLivingLab shows that the hunt for dead labs spares those that live.
func testLivingLab(t *testing.T, lab *Lab, a, _ *Host) {
	if err := removeDeadLabs(t.Context(), filepath.Dir(lab.dir)); err != nil {
		t.Error(err)
	}
	a.MustRun(t, "test", "-e", "/etc/hostname")
}
