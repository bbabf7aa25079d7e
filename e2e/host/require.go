package host

import (
	"os"
	"os/exec"
	"testing"
)

// tools are the programs that a lab starts, with the Debian package that holds each.
var tools = []struct{ program, debianPackage string }{
	{"systemd-nspawn", "systemd-container"},
	{"mmdebstrap", "mmdebstrap"},
	{"apt-ftparchive", "apt-utils"},
	{"gpg", "gpg"},
	{"gpg-agent", "gpg-agent"},
	{"dpkg-deb", "dpkg"},
	{"ip", "iproute2"},
	{"unshare", "util-linux"},
}

// Require skips the test, with the reason, where hosts cannot boot: with -short, without root, without one of the tools,
// or where the kernel refuses namespaces even to root (an unprivileged container).
func Require(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs hosts, which -short leaves out")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: hosts are systemd-nspawn containers")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool.program); err != nil {
			t.Skipf("needs %s: apt-get install %s", tool.program, tool.debianPackage)
		}
	}
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--pid", "--fork", "true").CombinedOutput()
	if err != nil {
		t.Skipf("needs permission to create namespaces: %v: %s", err, out)
	}
}
