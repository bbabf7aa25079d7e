//go:build e2e

package workloads

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// answerer answers every request with the name of its instance, by what a Debian root has.
const answerer = `$| = 1; $s = IO::Socket::INET->new(LocalPort => $ENV{PORT_HTTP}, Listen => 5, ReuseAddr => 1) or die "listen: $!";
while ($c = $s->accept) { sysread $c, $b, 4096; print $c "HTTP/1.0 200 OK\r\n\r\n$ENV{INSTANCE} at $ENV{PORT_HTTP}"; close $c }`

// ownNetwork declares two instances that listen on the same port, each in a network of its own.
func ownNetwork() string {
	command, err := json.Marshal([]string{"perl", "-MIO::Socket::INET", "-e", answerer})
	if err != nil {
		panic(err) // texts have an encoding
	}
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: Workload
metadata: {name: web, namespace: %s}
spec:
  replicas: 2
  template:
    network: Own
    restart: {backoff: 1s, backoffMax: 4s}
    tasks:
    - name: main
      image: {path: %s}
      command: %s
      env: [{name: INSTANCE, valueFrom: {field: instance.name}}]
      ports: [{name: http, port: 80}]
      readiness: {http: {port: http}, period: 1s}
`, environment, imagePath, command)
}

// TestOwnNetwork: instances with networks of their own are found and reached by their names, from other hosts too, whatever becomes of the agent.
func TestOwnNetwork(t *testing.T) {
	host.ForgetGroups(t)
	lab := host.NewLab(t)
	archive := debianImage(t, lab)
	b := newBooted(t, lab)
	b.box.CopyIn(t, archive, archivePath)
	b.box.MustRun(t, "sh", "-c", "mkdir "+imagePath+" && tar -xf "+archivePath+" -C "+imagePath+" --no-same-owner")
	b.box.MustRun(t, "apt-get", "update")
	b.box.MustRun(t, "apt-get", "install", "--yes", "--no-install-recommends", "runc")
	b.apply(ownNetwork())
	b.until("no host has plugins", "web", func(w *v1alpha1.Workload, why string) bool {
		return w.Status.PendingReplicas == 2 && strings.Contains(why, "runtime OCI/Own") && strings.Contains(why, "containernetworking-plugins")
	})
	b.box.MustRun(t, "apt-get", "install", "--yes", "--no-install-recommends", "containernetworking-plugins")
	both := func(w *v1alpha1.Workload, _ string) bool {
		return w.Status.ReadyReplicas == 2 && w.Status.AvailableReplicas == 2
	}
	b.until("both are ready", "web", both)

	found := b.reached()
	agent := func() string {
		return strings.TrimSpace(b.box.MustRun(t, "systemctl", "show", "--property=MainPID", "--value", "tako-agent.service"))
	}
	was, pids := agent(), b.servers()
	b.box.MustRun(t, "systemctl", "kill", "--signal=KILL", "--kill-whom=main", "tako-agent.service")
	host.Eventually(t, rig.InTime, "another agent runs", func() (string, bool) {
		is := agent()
		return is, is != was && is != "0"
	})
	b.until("both are ready still", "web", both)
	if again := b.reached(); !slices.Equal(again, found) {
		t.Errorf("they are at %v, and were at %v before the agent was killed", again, found)
	}
	if now := b.servers(); !slices.Equal(now, pids) {
		t.Errorf("they run as %v, and ran as %v before the agent was killed", now, pids)
	}

	b.tako("delete", "workload/web", "-n", environment)
	host.Eventually(t, rig.InTime, "nothing is left of networks", func() (string, bool) {
		r, err := b.box.Run(t.Context(), "sh", "-c", `find /var/lib/tako/runtimes/networks -name '*.json' -o -name '*.net' -o -name '10.*'; ip -o link | grep veth; iptables -t nat -S | grep -F 10.213.; grep runtimes/networks /proc/self/mountinfo; true`)
		return r.Stdout + r.Stderr, err == nil && strings.TrimSpace(r.Stdout) == ""
	})
}

// reached asks each instance from another host, by what the names of the box say, and returns where they are.
func (b *booted) reached() (found []string) {
	b.t.Helper()
	host.Eventually(b.t, rig.InTime, "two instances have names, and answer by them", func() (string, bool) {
		text, err := b.box.Run(b.t.Context(), "cat", "/run/tako-names/endpoints.json")
		if err != nil || text.Code != 0 {
			return text.Stderr, false
		}
		var names struct {
			Services []struct {
				Workload  string
				Endpoints []struct {
					Instance  string
					Addresses []string
					Number    int
				}
			}
		}
		if err := json.Unmarshal([]byte(text.Stdout), &names); err != nil {
			b.t.Fatal(err, text.Stdout)
		}
		found = nil
		for _, s := range names.Services {
			for _, e := range s.Endpoints {
				if len(e.Addresses) == 0 {
					return text.Stdout, false
				}
				r, err := b.ctl.Run(b.t.Context(), "bash", "-c", fmt.Sprintf(`exec 3<>/dev/tcp/%s/%d && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && tail -n 1 <&3`, e.Addresses[0], e.Number))
				if err != nil || r.Stdout != e.Instance+" at 80" {
					return fmt.Sprintf("%s at %v, %d says %q %s", e.Instance, e.Addresses, e.Number, r.Stdout, r.Stderr), false
				}
				found = append(found, fmt.Sprintf("%s %s:%d", e.Instance, e.Addresses[0], e.Number))
			}
		}
		slices.Sort(found)
		return text.Stdout, len(found) == 2
	})
	return found
}

// servers are the processes of the box that answer.
func (b *booted) servers() []string {
	b.t.Helper()
	r, err := b.box.Run(b.t.Context(), "sh", "-c", `for p in /proc/[0-9]*; do tr '\0' ' ' <"$p/cmdline" 2>/dev/null | grep -q '^perl -MIO' && echo "${p#/proc/}"; done; true`)
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Fields(r.Stdout)
}
