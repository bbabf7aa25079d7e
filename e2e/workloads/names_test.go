//go:build e2e

package workloads

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// named is a fleet whose hosts and server answer for names.
type named struct {
	*fleet
	ports map[string]int // of the DNS, by host, and of theServer
}

// theServer is what the server is called among those who answer.
const theServer = "server"

// freePort is one of this machine that nobody listens on, until the test ends.
func freePort(t *testing.T) int {
	t.Helper()
	return int(netip.MustParseAddrPort(host.FreeAddress(t)).Port())
}

func newNamed(t *testing.T, hosts int) *named {
	t.Helper()
	if _, err := exec.LookPath("dig"); err != nil {
		t.Skip("needs dig (bind9-dnsutils): whether hosts answer for names is not known without it")
	}
	port := freePort(t)
	n := &named{newFleet(t, hosts, "--names", fmt.Sprintf("127.0.0.1:%d", port)), map[string]int{theServer: port}}
	for name, h := range n.hosts {
		n.ports[name] = freePort(t)
		h.Stop()
		h.Flags = []string{"--names", fmt.Sprintf("127.0.0.1:%d", n.ports[name]), "--endpoints", "/names"}
		h.Start()
	}
	return n
}

// dig asks a host, or the server, with the real one, and returns the lines of its answer, sorted.
func (n *named) dig(on string, query ...string) []string {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), rig.InTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "dig", append([]string{"@127.0.0.1", "-p", strconv.Itoa(n.ports[on]), "+tries=2", "+time=5"}, query...)...).CombinedOutput()
	if err != nil {
		return []string{err.Error(), string(out)}
	}
	return slices.Sorted(strings.Lines(strings.TrimSpace(string(out)) + "\n"))
}

// answersAre waits until a host answers so.
func (n *named) answersAre(what, on string, want []string, query ...string) {
	n.Helper()
	for i := range want {
		want[i] += "\n"
	}
	slices.Sort(want)
	var is []string
	host.Eventually(n.T, rig.InTime, on+": "+what, func() (string, bool) {
		is = n.dig(on, append([]string{"+short"}, query...)...)
		return fmt.Sprintf("%q, want %q", is, want), slices.Equal(is, want)
	})
}

// get asks an instance for something.
func (n *named) get(port int32, path string) string {
	n.Helper()
	request, err := http.NewRequestWithContext(n.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		n.Fatal(err)
	}
	reply, err := client.Do(request)
	if err != nil {
		n.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(io.LimitReader(reply.Body, 1<<20))
	if err != nil {
		n.Fatal(err)
	}
	return string(text)
}

const (
	zone    = environment + ".tako.internal"
	service = "_http._tcp.web." + zone
)

// TestNames: whoever asks a host by the DNS finds what is ready anywhere, from its own copy, whether a server is there or not.
func TestNames(t *testing.T) {
	t.Parallel()
	n := newNamed(t, 2)
	n.Apply(n.web("v1", "  replicas: 2\n  placement: {antiAffinity: [{selector: {matchLabels: {app: web}}}]}"))
	n.until("complete", complete(2))
	ports, on := map[string]int32{}, map[string]string{}
	for _, in := range n.instances("web") {
		ports[in.Name], on[in.Name] = in.Status.Ports["http"], in.Spec.Node
	}
	srv := func(names ...string) (lines []string) {
		for _, name := range names {
			lines = append(lines, fmt.Sprintf("0 1 %d %s.web.%s.", ports[name], name, zone))
		}
		return lines
	}
	both := []string{"web-0", "web-1"}
	for name := range n.ports {
		n.answersAre("both are ready", name, srv(both...), service, "SRV")
	}
	t.Run("records", func(t *testing.T) {
		revision := n.instances("web")[0].Spec.Revision
		n.answersAre("types to browse for", "host-0", []string{"_http._tcp." + zone + "."}, "_services._dns-sd._udp."+zone, "PTR")
		n.answersAre("browsing", "host-0", []string{"web-0._http._tcp." + zone + ".", "web-1._http._tcp." + zone + "."}, "_http._tcp."+zone, "PTR")
		n.answersAre("texts of a service", "host-0", []string{`"txtvers=1"`}, "web-0._http._tcp."+zone, "TXT")
		n.answersAre("facts of an instance", "host-0", []string{fmt.Sprintf(`"txtvers=1" "index=1" "node=%s" "revision=%s"`, on["web-1"], revision)}, "1.web."+zone, "TXT")
		addresses := n.dig("host-0", "+short", "web."+zone, "A")
		if len(addresses) == 0 || net.ParseIP(strings.TrimSpace(addresses[0])) == nil {
			t.Errorf("the addresses are %q", addresses)
		}
		if node := n.dig("host-0", "+short", "+tcp", "host-1.node.tako.internal", "A"); !slices.Equal(node, addresses) {
			t.Errorf("all hosts are on this machine, at %q, and host-1 at %q", addresses, node)
		}
		n.answersAre("the server browses as well", theServer, []string{"web-0._http._tcp." + zone + ".", "web-1._http._tcp." + zone + "."}, "+tcp", "_http._tcp."+zone, "PTR")
		for query, status := range map[string]string{"web." + zone + " AXFR": "failed", "nobody." + zone: "NXDOMAIN", "example.org": "REFUSED", "-c CH version.bind TXT": "REFUSED"} {
			for _, on := range []string{"host-0", theServer} {
				if text := strings.Join(n.dig(on, strings.Fields(query)...), ""); !strings.Contains(text, status) {
					t.Errorf("%s: dig %s: want %s:\n%s", on, query, status, text)
				}
			}
		}
	})
	change := func(path string, left ...string) {
		n.get(ports["web-0"], path)
		began := time.Now()
		for name := range n.ports {
			n.answersAre("after "+path, name, srv(left...), service, "SRV")
		}
		t.Logf("after %s both hosts and the server have answered so within %s, probes of 100 ms and dig included", path, time.Since(began))
	}
	t.Run("readiness lost and back", func(*testing.T) {
		change("/lose", "web-1")
		change("/gain", both...)
	})
	t.Run("files and environment", func(t *testing.T) {
		h := n.hosts["host-1"]
		h.Until("the table of endpoints", func() (string, bool) {
			table := h.Read("names/endpoints")
			return table, strings.Contains(table, fmt.Sprintf(" %d web-0 0 %s\n", ports["web-0"], on["web-0"])) && strings.Contains(table, " web-1 1 ")
		})
		n.Apply(strings.NewReplacer("name: web,", "name: asks,", "app: web", "app: asks").Replace(n.web("v1", "  replicas: 1")))
		var asks []v1alpha1.Instance
		host.Eventually(t, rig.InTime, "the workload that asks is ready", func() (string, bool) {
			asks = n.instances("asks")
			return shown(asks), len(asks) == 1 && asks[0].Status.Ready
		})
		env := n.get(asks[0].Status.Ports["http"], "/env")
		for _, line := range []string{"TAKO_DOMAIN=" + zone, "TAKO_ENDPOINTS=" + n.hosts[asks[0].Spec.Node].Path("names/endpoints.json"), fmt.Sprintf("WEB_SERVICE_PORT_HTTP=%d", ports["web-0"])} {
			if !strings.Contains(env, line+"\n") {
				t.Errorf("the environment has no %s:\n%s", line, env)
			}
		}
		n.Tako("delete", "workload/asks", "-n", environment)
		n.answersAre("it is gone", "host-0", []string{""}, "asks."+zone, "A")
	})
	t.Run("server killed", func(t *testing.T) {
		// What it has written down when it is killed is older than what it has told the hosts.
		began := time.Now()
		change("/lose", "web-1")
		host.Eventually(t, rig.InTime, "that is written down", func() (string, bool) {
			st, err := os.Stat(filepath.Join(n.Dir, "server", "names"))
			return fmt.Sprint(err), err == nil && st.ModTime().After(began)
		})
		change("/gain", both...)
		n.Server.Kill()
		for name := range n.hosts {
			n.answersAre("without a server", name, srv(both...), service, "SRV")
		}
		n.get(ports["web-0"], "/lose")
		n.answersAre("its own is not ready", on["web-0"], srv("web-1"), service, "SRV")
		n.answersAre("which the other one cannot know", on["web-1"], srv(both...), service, "SRV")
		n.hosts[on["web-1"]].Stop()
		n.hosts[on["web-1"]].Start()
		n.answersAre("started again", on["web-1"], srv(both...), service, "SRV")
		n.Server.Start(t)
		n.answersAre("the server is back", on["web-1"], srv("web-1"), service, "SRV")
		n.answersAre("and the server answers again", theServer, srv("web-1"), service, "SRV")
		n.get(ports["web-0"], "/gain")
		for name := range n.ports {
			n.answersAre("ready again", name, srv(both...), service, "SRV")
		}
	})
	n.end("web")
}
