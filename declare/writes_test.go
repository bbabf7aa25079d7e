package declare

import "testing"

// TestWrites: who restores a file holds all that would write it again.
func TestWrites(t *testing.T) {
	home := func(user string) string {
		if user == "alice" {
			return "/srv/alice"
		}
		return ""
	}
	for _, c := range []struct {
		claim, path string
		want        bool
	}{
		{"edit:/etc/hosts#line", "/etc/hosts", true},
		{"edit:/etc/hosts.allow#line", "/etc/hosts", false},
		{"fragment:/etc/motd#10", "/etc/motd", true},
		{"timer:backup", "/etc/systemd/system/backup.timer", true},
		{"timer:backup", "/etc/systemd/system/backup.service", true},
		{"timer:backup", "/etc/systemd/system/other.timer", false},
		{"hostEntry:db#ip6", "/etc/hosts", true},
		{"mount:/srv", "/etc/fstab", true},
		{"swap:/swapfile", "/etc/fstab", true},
		{"hostname:hostname", "/etc/hostname", true},
		{"timezone:timezone", "/etc/timezone", true},
		{"locale:locale", "/etc/default/locale", true},
		{"sysctl:net.ipv4.conf.eth0/100.forwarding", "/etc/sysctl.d/99-tako-net.ipv4.conf.eth0:100.forwarding.conf", true},
		{"sysctl:vm.swappiness", "/etc/sysctl.d/99-tako-vm.overcommit_memory.conf", false},
		{"kernelModule:loop", "/etc/modules-load.d/tako-loop.conf", true},
		{"repository:apt/lab", "/etc/apt/sources.list.d/lab.sources", true},
		{"repository:apt/lab", "/etc/apt/keyrings/lab.gpg", true},
		{"repository:dnf/lab", "/etc/yum.repos.d/lab.repo", true},
		{"repository:apt/lab", "/etc/yum.repos.d/lab.repo", false},
		{"authorizedKeys:alice", "/srv/alice/.ssh/authorized_keys", true},
		{"authorizedKeys:bob", "/.ssh/authorized_keys", false},
		{"package:nginx", "/etc/nginx/nginx.conf", false},
	} {
		claim, ok := ParseClaim(c.claim)
		if !ok || claim.Writes(c.path, home) != c.want {
			t.Errorf("%s writes %s: %v", c.claim, c.path, !c.want)
		}
	}
}
