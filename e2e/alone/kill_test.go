//go:build e2e

package alone_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/reason"
)

const (
	killatPath = "/usr/bin/killat"
	// changing are the steps of an apply that change something, on the disk or in systemd, or make it durable.
	changing = "open,write,pwrite,truncate,allocate,fsync,fdatasync,rename,link,unlink,symlink,mkdir,chmod,chown,setxattr,sendmsg,start"
	// running are the steps of the agent while package tools run: their starts, and each look whether they have ended.
	running = "start,poll"
	// stepsMax is far more steps than an apply has: the enumeration has lost its end.
	stepsMax = 1000
)

// generation is a declaration with everything that an apply can do to files, and a service that notes which configuration it
// was started with. Another number for the files changes all of them but that of the unit.
func generation(files, unit int) string {
	return strings.NewReplacer("FILES", strconv.Itoa(files), "UNIT", strconv.Itoa(unit), "MODE", []string{"0755", "0750"}[files%2]).Replace(`apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata:
  name: app
spec:
  resources:
    - name: app-dir
      directory: {path: /srv/app, mode: "MODE"}
    - name: conf
      file: {path: /srv/app/conf, content: "conf FILES\n", mode: "MODE"}
      notify: [app]
    - name: more
      file: {path: /etc/more.conf, content: "more FILES\n", check: [grep, -q, more, "{}"]}
      notify: [app]
    - name: fresh-FILES
      file: {path: /srv/app/fresh-FILES, content: "fresh FILES\n"}
      onRemove: delete
    - name: current
      symlink: {path: /srv/app/current, target: fresh-FILES}
    - name: unit
      file:
        path: /etc/systemd/system/app.service
        content: |
          [Unit]
          StartLimitIntervalSec=0
          [Service]
          Type=oneshot
          RemainAfterExit=yes
          ExecStart=/bin/sh -c 'cat /srv/app/conf /etc/more.conf >/run/loaded; echo unit UNIT >>/run/loaded'
      notify: [app]
    - name: app
      service: {}
`)
}

// whole prints what of a generation a host has, as files that must each be of one generation, and be complete.
const whole = `grep -Hxv -e "conf $1" -e "conf $2" /srv/app/conf; grep -Hxv -e "more $1" -e "more $2" /etc/more.conf
for f in /srv/app/conf /etc/more.conf; do [ $(wc -l <$f) = 1 ] || echo "$f is not whole"; done
[ $(wc -l </etc/systemd/system/app.service) = 6 ] || echo 'the unit file is not whole'
case $(readlink /srv/app/current) in fresh-$1|fresh-$2) ;; *) echo 'the symlink is neither old nor new' ;; esac
for f in $(ls -d /srv/app/fresh-*); do
	if have=$(cat $f 2>/dev/null); then
		[ "$have" = "fresh ${f##*-}" ] || echo "$f is not whole"
	elif [ -e $f ]; then # else it was removed meanwhile
		echo "$f cannot be read"
	fi
done
exit 0`

// complete prints what of a generation is missing, or left of another.
const complete = `printf 'conf %s\nmore %s\nunit %s\n' $1 $1 $2 | diff - /run/loaded || echo 'the restart was lost'
[ "$(ls -A /srv/app)" = "$(printf 'conf\ncurrent\nfresh-%s' $1)" ] || ls -A /srv/app
[ "$(cat /srv/app/current)" = "fresh $1" ] || echo 'the symlink is old'
find /srv /etc /var/lib/tako -name '.tako.*'
exit 0`

// newKillSite is a site with the program that kills at a step.
func newKillSite(t *testing.T, debs ...host.Deb) *site {
	t.Helper()
	s := newSite(t, debs...)
	s.CopyIn(t, host.Program(t, "killat", "tako.dev/tako/e2e/alone/testdata/killat"), killatPath)
	return s
}

// killAt converges and kills the agent at the n-th of steps; it returns which that was, and false when there are not so many.
func (s *site) killAt(t *testing.T, steps string, n int) (at string, killed bool) {
	t.Helper()
	r, err := s.Run(t.Context(), killatPath, steps, strconv.Itoa(n), agentPath, "converge", "-f", confDir)
	if err != nil || r.Code != 0 && r.Code != 3 {
		t.Fatalf("at step %d: %v: %+v", n, err, r)
	}
	return fmt.Sprintf("step %d, %s", n, strings.TrimSpace(r.Stdout)), r.Code == 0
}

// TestScenario5_KilledAtAnyStep kills the agent at its first step that changes something, then at its second, to the last. Each time
// nothing may be half done, and one more run must do all of the rest, the restart included.
func TestScenario5_KilledAtAnyStep(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		files, unit int // what of the declaration changes from one run to the next, in steps of it
	}{
		{name: "files", files: 1},
		{name: "unit file", unit: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newKillSite(t)
			s.put(t, generation(0, 0))
			s.MustRun(t, agentPath, "converge", "-f", confDir)
			last := killEverywhere(t, func(n int) bool { return s.killOnce(t, n, n*test.files, n*test.unit, (n-1)*test.files) })
			if last < 50 {
				t.Errorf("killed at %d steps only", last)
			}
		})
	}
}

// killEverywhere calls kill with 1, 2 and so on until nothing was killed any more, and returns how often that was so.
func killEverywhere(t *testing.T, kill func(n int) bool) int {
	t.Helper()
	for n := 1; n <= stepsMax; n++ {
		if !kill(n) {
			t.Logf("killed at %d steps", n-1)
			return n - 1
		}
	}
	t.Fatalf("still killed at step %d", stepsMax)
	return 0
}

// killOnce kills the agent at the n-th step on the way to a generation, and has it run once more.
func (s *site) killOnce(t *testing.T, n, files, unit, filesBefore int) bool {
	t.Helper()
	s.put(t, generation(files, unit))
	at, killed := s.killAt(t, changing, n)
	if !killed {
		return false
	}
	if faults := s.MustRun(t, "sh", "-c", whole, "whole", strconv.Itoa(filesBefore), strconv.Itoa(files)); faults != "" {
		t.Errorf("killed at %s: %s", at, faults)
	}
	s.convergeAgain(t)
	if faults := s.MustRun(t, "sh", "-c", complete, "complete", strconv.Itoa(files), strconv.Itoa(unit)); faults != "" {
		t.Errorf("killed at %s, and run again: %s", at, faults)
	}
	return true
}

// convergeAgain runs the agent after one that was killed. A program that the dead one was just about to start holds the lock until it is
// started, or has gone too.
func (s *site) convergeAgain(t *testing.T) {
	t.Helper()
	host.Eventually(t, repairTime, "the state is free, and converged", func() (string, bool) {
		r, err := s.Run(t.Context(), agentPath, "converge", "-f", confDir)
		if err != nil || r.Code != 0 && r.Code != int(reason.ExitConflict) {
			t.Fatalf("converge: %v: %+v", err, r)
		}
		return r.Stderr, r.Code == 0
	})
}

// TestScenario5_KilledWhilePackagesChange kills the agent while apt-get runs for it, at every look whether that has ended. What
// apt-get has begun it ends, and the next run finds it.
func TestScenario5_KilledWhilePackagesChange(t *testing.T) {
	t.Parallel()
	s := newKillSite(t, host.Deb{Name: "slow", Version: "1.0", Scripts: map[string]string{"postinst": "#!/bin/sh\nsleep 1\n"}})
	s.MustRun(t, "apt-get", "update")
	last := killEverywhere(t, func(n int) bool {
		s.put(t, packageDeclaration(n))
		at, killed := s.killAt(t, running, n)
		if !killed {
			return false
		}
		host.Eventually(t, convergeTime, "another run converges, killed at "+at, func() (string, bool) {
			r, err := s.Run(t.Context(), agentPath, "converge", "-f", confDir)
			return fmt.Sprintf("%+v, %v", r, err), err == nil && r.Code == 0
		})
		if got := s.MustRun(t, "dpkg", "--audit"); got != "" {
			t.Errorf("killed at %s: dpkg tells of %s", at, got)
		}
		if got := s.MustRun(t, "dpkg-query", "--show", "--showformat=${db:Status-Status}", "slow"); got != "installed" {
			t.Errorf("killed at %s: the package is %q", at, got)
		}
		s.wantTemporaries(t)
		// The apt-get of the killed agent may still be about its last words.
		s.MustRun(t, "apt-get", "--option=DPkg::Lock::Timeout=60", "purge", "--yes", "slow")
		return true
	})
	if last < 8 { // four tools are started, and each is looked at
		t.Errorf("killed at %d steps only", last)
	}
}

func packageDeclaration(n int) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata:
  name: app
spec:
  resources:
    - name: slow
      package: {}
    - name: conf
      file: {path: /etc/slow.conf, content: "conf %d\n"}
      require: [slow]
`, n)
}

// TestScenario5_AgentKilled kills the agent of the unit, as a machine short of memory would, while the restart that a change has
// caused is under way and hangs. The agent comes back by itself, and the restart is done.
func TestScenario5_AgentKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	slow := strings.Replace(generation(0, 0), "ExecStart=", "ExecStartPre=/bin/sh -c 'while [ -e /run/hang ]; do sleep 0.1; done'\n          ExecStart=", 1)
	s.start(t, slow)
	s.awaitConverged(t)
	for n, kill := range []func(){
		func() { s.MustRun(t, "systemctl", "kill", "--kill-whom=main", "--signal=KILL", "tako-agent") },
		func() { s.PowerCut(t); s.Boot(t) },
	} {
		s.MustRun(t, "touch", "/run/hang")
		s.put(t, strings.Replace(slow, "conf 0", fmt.Sprintf("conf %d", n+1), 1))
		host.Eventually(t, repairTime, "the unit starts, and hangs", func() (string, bool) {
			state := s.MustRun(t, "systemctl", "show", "--property=ActiveState", "--value", "app")
			return state, state == "activating\n"
		})
		kill()
		s.MustRun(t, "rm", "-f", "/run/hang")
		s.awaitLoaded(t, fmt.Sprintf("conf %d\n", n+1))
		s.awaitConverged(t)
	}
}

// awaitLoaded waits until the service has been started with a configuration.
func (s *site) awaitLoaded(t *testing.T, conf string) {
	t.Helper()
	host.Eventually(t, time.Minute, "the service was started with "+conf, func() (string, bool) {
		r, err := s.Run(t.Context(), "cat", "/run/loaded")
		return fmt.Sprintf("%q, %v", r.Stdout, err), strings.HasPrefix(r.Stdout, conf)
	})
}
