//go:build e2e

package alone_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/reason"
)

const (
	// hostileRounds is how often the user goes around at least, and otherDrifts how often something else drifts meanwhile.
	hostileRounds, otherDrifts = 1000, 20
	// besideMax is how much memory the agent may have while somebody races with it, bytes.
	besideMax = 128 << 20
	// toldMax is how many lines its history may have of that: some for each resource and hour.
	toldMax       = 500
	hostileSecret = "hunter2-beside"
	hostilePath   = "/usr/local/bin/hostile"
	hostileLog    = "/run/hostile.log"
)

// beside declares what belongs to a user, and lies where he may do as he likes, and what is none of his business.
const beside = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: beside}
spec:
  resources:
    - {name: mallory, user: {uid: 3000}}
    - {name: app, directory: {path: /home/mallory/app, owner: mallory, recurse: {owner: mallory}}, require: [mallory]}
    - {name: conf, file: {path: /home/mallory/app/conf, owner: mallory, mode: "0666", content: "declared\n"}}
    - {name: private, file: {path: /home/mallory/app/private, mode: "0600", content: "` + hostileSecret + `\n"}}
    - {name: link, symlink: {path: /home/mallory/app/link, target: conf}}
    - {name: line, edit: {path: /home/mallory/app/edited, create: true, line: {match: "^level ", text: "level high"}}}
    - {name: tree, directory: {path: /home/mallory/app/tree, mode: "0777", purge: true}}
    - {name: tool, archive: {path: /home/mallory/app/tool, from: {path: /srv/tool.tar.gz}}}
    - {name: keys, authorizedKeys: {user: mallory, keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g mallory@laptop"]}}
OTHERS    - {name: sleeper-unit, unit: {unit: sleeper.service, content: "[Service]\nExecStart=/bin/sleep infinity\n"}, notify: [sleeper]}
    - {name: sleeper, service: {}}
`

// other is one of the files that are none of his business: each drifts once, for what drifts again and again is left alone for a while.
func other(n int) string { return fmt.Sprintf("/etc/other-%d.conf", n) }

// outside prints owners, modes and contents of what the user may not touch.
const outside = `find /etc /root /usr/local /srv -xdev ! -type l -printf '%p %y %u %g %m %n\n' | sort
find /etc /root /usr/local /srv -xdev -type f -print0 | sort -z | xargs -0 sha256sum`

// TestBesideHostileUser: a user races with the whole agent for what is declared in his home, with links of both kinds to what is root's, pipes, directories,
// files without end and renames. He changes nothing elsewhere and reads no secret; the agent lives, stays small, and goes on to repair what is not his.
func TestBesideHostileUser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.CopyIn(t, host.Program(t, "hostile", "tako.dev/tako/e2e/alone/testdata/hostile"), hostilePath)
	s.MustRun(t, "sh", "-ec", "mkdir -p /root/tool/bin; echo tool >/root/tool/bin/tool; tar -czf /srv/tool.tar.gz -C /root/tool bin; echo root >/etc/victim; chmod 640 /etc/victim")
	others := ""
	for n := range otherDrifts {
		others += fmt.Sprintf("    - {name: other-%d, file: {path: %s, content: \"other\\n\"}}\n", n, other(n))
	}
	s.start(t, strings.Replace(beside, "OTHERS", others, 1))
	s.awaitConverged(t)
	before, run, sleeper := s.MustRun(t, "sh", "-c", outside), s.invocation(t, "tako-agent.service"), s.mainPID(t, "sleeper.service")

	s.MustRun(t, "systemd-run", "--quiet", "--unit=hostile", "--uid=mallory", "--property=StandardOutput=file:"+hostileLog, hostilePath,
		"/home/mallory/app", hostileSecret, "/etc/victim", "/etc/shadow", other(0), "/root/tool/bin/tool", "/usr/local/bin/hostile")
	most := int64(0)
	for n := range otherDrifts {
		s.MustRun(t, "sh", "-c", "echo drift >>$1", "drift", other(n))
		host.Eventually(t, repairTime, fmt.Sprintf("drift %d beside the user is repaired", n), func() (string, bool) {
			got := s.Get(t, other(n))
			return got, got == "other\n"
		})
		most = max(most, s.resident(t, "tako-agent.service"))
	}
	host.Eventually(t, convergeTime, "the user has gone around often", func() (string, bool) {
		log := s.MustRun(t, "cat", hostileLog)
		most = max(most, s.resident(t, "tako-agent.service"))
		return log, strings.Contains(log, "rounds "+strconv.Itoa(hostileRounds)+"\n")
	})
	s.MustRun(t, "systemctl", "stop", "hostile")
	if log := s.MustRun(t, "cat", hostileLog); strings.Contains(log, "leak") {
		t.Errorf("the user has read a secret:\n%s", log)
	}
	if most > besideMax {
		t.Errorf("the agent had %d bytes beside the user, more than %d", most, besideMax)
	}

	if s.invocation(t, "tako-agent.service") != run || s.mainPID(t, "sleeper.service") != sleeper {
		t.Error("the agent, or what it keeps, was started again")
	}
	t.Logf("the agent had at most %d KiB", most>>10)
	if lines := len(s.history(t, "")); lines > toldMax {
		t.Errorf("the history has %d lines", lines)
	}
	for _, want := range []string{"file/conf", "file/private", "symlink/link", "edit/line"} {
		if s.repairs(t, want) == 0 {
			t.Errorf("nothing was repaired of %s: they did not meet", want)
		}
	}

	// What he has left there is his to put right, and a fight is let alone for minutes: so this is another run.
	s.MustRun(t, "systemctl", "stop", "tako-agent")
	s.MustRun(t, "rm", "-rf", "/home/mallory/app", "/home/mallory/app.other")
	s.MustRun(t, agentPath, "converge", "-f", confDir)
	if after := s.MustRun(t, "sh", "-c", outside); after != before {
		t.Errorf("the user has changed what is not his; before\n%s\nafter\n%s", before, after)
	}
}

// resident is how much memory the main process of a unit has, bytes.
func (s *site) resident(t *testing.T, unit string) int64 {
	t.Helper()
	text := strings.TrimSpace(s.MustRun(t, "sh", "-c", "awk '/^VmRSS/ {print $2}' /proc/$1/status", "resident", s.mainPID(t, unit)))
	kib, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("resident memory of %s: %q", unit, text)
	}
	return kib << 10
}

// repairs counts how often drift of a resource was repaired.
func (s *site) repairs(t *testing.T, title string) (n int) {
	t.Helper()
	for _, h := range s.history(t, title) {
		if h.Outcome == reason.Repaired.String() {
			n++
		}
	}
	return n
}
