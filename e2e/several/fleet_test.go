//go:build e2e

package several

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
	"tako.dev/tako/e2e/server"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/catalog"
)

const (
	// takeoverMax is how long nobody may lead after the leader is gone.
	takeoverMax = 15 * time.Second
	// askMax bounds one look at a server, which may be stopped.
	askMax = 2 * time.Second
	// lookEvery is the pause between two looks at all hosts.
	lookEvery = 50 * time.Millisecond
)

// TestMain: what tests write into hosts has the modes that they say, whoever runs them.
func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	m.Run()
}

// fleet is servers that use one etcd, and hosts.
type fleet struct {
	*testing.T
	dir     string
	etcd    string // address
	servers []*control
	hosts   []*rig.Host
	watch   *watcher
	applied int
}

// control is a server with a way to etcd of its own.
type control struct {
	*rig.Rig
	way *rig.Way
	dns string // where it answers for names
}

func newFleet(t *testing.T, servers int) *fleet {
	t.Helper()
	f := &fleet{T: t, dir: t.TempDir()}
	f.startEtcd()
	for range servers {
		f.add()
	}
	return f
}

func (f *fleet) startEtcd() {
	f.Helper()
	f.etcd = host.FreeAddress(f.T)
	url, peer := "http://"+f.etcd, "http://"+host.FreeAddress(f.T)
	etcd := server.Launch(f.T, host.EtcdBinary(f.T), "--data-dir", filepath.Join(f.dir, "etcd"), "--log-level", "error",
		"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	f.Cleanup(func() { etcd.End(syscall.SIGKILL) })
	host.Eventually(f.T, rig.InTime, "etcd listens", func() (string, bool) {
		c, err := net.Dial("tcp", f.etcd)
		if err == nil {
			_ = c.Close()
		}
		return fmt.Sprint(err, etcd.Log.Tail()), err == nil
	})
}

// add starts one more server: it takes the machine secret, and the address of etcd.
func (f *fleet) add() *control {
	f.Helper()
	n := len(f.servers)
	dir := filepath.Join(f.dir, "server-"+strconv.Itoa(n))
	if n > 0 {
		secret, err := os.ReadFile(filepath.Join(f.servers[0].Server.Dir, "machine-secret"))
		if err == nil {
			err = errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "machine-secret"), secret, 0o600))
		}
		if err != nil {
			f.Fatal(err)
		}
	}
	c := &control{Rig: &rig.Rig{T: f.T, Dir: f.dir, Bin: rig.Programs(f.T)}, way: rig.NewWay(f.T, f.etcd), dns: host.FreeAddress(f.T)}
	c.Server = server.New(f.T, filepath.Join(c.Bin, "tako"), dir, "--etcd-servers", "http://"+c.way.Address(), "--names", c.dns)
	f.servers = append(f.servers, c)
	f.Cleanup(func() {
		if f.Failed() && c.Server.Run != nil {
			f.Logf("server %d said:\n%s", n, c.Server.Run.Log.Tail())
		}
	})
	return c
}

// leads asks a server whether it leads; false also when it does not answer.
func (c *control) leads() bool {
	if c.Server.Run == nil {
		return false
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Server.Kubeconfig())
	if err != nil {
		return false
	}
	config.Timeout = askMax
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return false
	}
	defer client.CloseIdleConnections()
	resp, err := client.Get(config.Host + "/metrics")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK && bytes.Contains(text, []byte("\ntako_server_leader 1\n"))
}

// leader waits for a server that leads, none of those that are left out.
func (f *fleet) leader(except ...*control) *control {
	f.Helper()
	var found *control
	host.Eventually(f.T, rig.InTime, "somebody leads", func() (string, bool) {
		for _, c := range f.servers {
			if !slices.Contains(except, c) && c.leads() {
				found = c
			}
		}
		return "nobody", found != nil
	})
	return found
}

// led is since when a server leads, as it says itself, in whole seconds: who looks gets to know it later.
func (c *control) led() time.Time {
	c.Helper()
	var s v1alpha1.ServerStatus
	host.Eventually(c.T, rig.InTime, "it says since when it leads", func() (string, bool) {
		s = c.servers()[c.Server.Listen]
		return fmt.Sprintf("%+v", s), s.Role == v1alpha1.ServerLeader && s.Since != nil
	})
	return s.Since.Time
}

// others are the servers that run, but one.
func (f *fleet) others(than *control) (all []*control) {
	for _, c := range f.servers {
		if c != than && c.Server.Run != nil {
			all = append(all, c)
		}
	}
	return all
}

// join has a host join at each server in turn, and waits until all know all servers.
func (f *fleet) join(hosts int) {
	f.Helper()
	for i := range hosts {
		h := f.servers[i%len(f.servers)].Join("host-" + strconv.Itoa(i))
		h.Start()
		f.hosts = append(f.hosts, h)
	}
	for _, h := range f.hosts {
		h.Until("it knows all servers", func() (string, bool) {
			text := h.Read("var/lib/tako/identity/node.json")
			return text, strings.Count(text, "127.0.0.1:") >= len(f.servers)
		})
	}
	f.watch = f.watchHosts()
}

// change declares something else at a server, and returns it.
func (f *fleet) change(at *control) string {
	f.Helper()
	f.applied++
	content := "version " + strconv.Itoa(f.applied) + "\n"
	at.Apply(fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: ClusterNodeConfig
metadata: {name: motd}
spec:
  rollout: {maxUnavailable: "100%%"}
  resources:
    - name: motd
      file: {path: /etc/motd, content: %q}
`, content))
	return content
}

// have waits until hosts have what is declared.
func (f *fleet) have(content string, hosts ...*rig.Host) {
	f.Helper()
	for _, h := range hosts {
		h.Has("/etc/motd", content)
	}
}

// agree waits until each server that runs tells the same of all nodes, and that is right.
func (f *fleet) agree() {
	f.Helper()
	for i, c := range f.servers {
		if c.Server.Run == nil {
			continue
		}
		host.Eventually(f.T, rig.InTime, "server "+strconv.Itoa(i)+" knows how hosts stand", func() (string, bool) {
			var all v1alpha1.NodeList
			c.Get(&all, "nodes")
			text, ok := "", len(all.Items) == len(f.hosts)
			for j := range all.Items {
				s := &all.Items[j].Status
				good := s.AssignedHead != nil && s.AppliedHead != nil && s.AppliedHead.Version == s.AssignedHead.Version && s.Promises.Kept+s.Promises.Repaired == 1 &&
					s.LastHeard != nil && time.Since(s.LastHeard.Time) < 2*time.Minute
				text += fmt.Sprintf("%s: applied %+v, assigned %+v, %+v, heard %v\n", all.Items[j].Name, s.AppliedHead, s.AssignedHead, s.Promises, s.LastHeard)
				ok = ok && good
			}
			return text, ok
		})
	}
}

// at says which host is connected to which server, by its report.
func (f *fleet) at(c *control) (here []*rig.Host) {
	f.Helper()
	_, port, err := net.SplitHostPort(c.Server.Listen)
	if err != nil {
		f.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		f.Fatal(err)
	}
	var all v1alpha1.NodeList
	f.leader().Get(&all, "nodes")
	for i := range all.Items {
		if all.Items[i].Status.Server == "127.0.0.1:"+strconv.Itoa(number+1) {
			here = append(here, f.hosts[slices.IndexFunc(f.hosts, func(h *rig.Host) bool { return h.Name == all.Items[i].Name })])
		}
	}
	return here
}

// watcher looks at what hosts have accepted, all the time, and at who says that it leads.
type watcher struct {
	stop  context.CancelFunc
	all   sync.WaitGroup
	looks atomic.Int64
}

// watchHosts fails the test when a host goes back, or two servers lead.
func (f *fleet) watchHosts() *watcher {
	ctx, cancel := context.WithCancel(f.Context())
	w := &watcher{stop: cancel}
	hosts := slices.Clone(f.hosts)
	copies := f.TempDir()
	w.all.Go(func() {
		highest := map[string]catalog.Mark{}
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			for _, h := range hosts {
				mark, ok := accepted(h, copies)
				if !ok {
					continue
				}
				w.looks.Add(1)
				if old := highest[h.Name]; mark.Epoch < old.Epoch || mark.Epoch == old.Epoch && mark.Version < old.Version {
					f.Errorf("%s went back from version %d to %d", h.Name, old.Version, mark.Version)
				}
				highest[h.Name] = mark
			}
		}
	})
	f.Cleanup(w.end)
	return w
}

func (w *watcher) end() {
	w.stop()
	w.all.Wait()
}

// accepted is what a host has accepted, durably: read from a copy, because its agent has the original. What is being written is looked at again.
func accepted(h *rig.Host, dir string) (catalog.Mark, bool) {
	text, err := os.ReadFile(filepath.Join(h.State(), "heads"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "heads"), text, 0o600)
	}
	if err != nil {
		return catalog.Mark{}, false
	}
	store, err := held.Open(dir, time.Now())
	if err != nil {
		return catalog.Mark{}, false
	}
	defer store.Close()
	kept, err := store.Kept()
	return kept.Mark, err == nil && kept.Mark.Version > 0
}

// twoLead says whether two servers lead at one moment: one that does before and after the other one is asked, and has begun to only once.
func twoLead(before, between, after map[*control]bool) bool {
	for a := range maps.Keys(before) {
		for b := range maps.Keys(between) {
			if a != b && before[a] && after[a] && between[b] {
				return true
			}
		}
	}
	return false
}

// leadsAlone waits for an answer of the one that leads: a server that is busy may owe one, and another never says that it leads.
func (f *fleet) leadsAlone(leader, other *control) {
	f.Helper()
	host.Eventually(f.T, rig.InTime, "the leader says that it leads", func() (string, bool) {
		if other.leads() {
			f.Fatal("the server that did not lead has taken the lead back")
		}
		return "it does not", leader.leads()
	})
}

// oneLeads looks for a while whether two lead.
func (f *fleet) oneLeads(rounds int) {
	f.Helper()
	look := func() map[*control]bool {
		m := map[*control]bool{}
		for _, c := range f.servers {
			m[c] = c.leads()
		}
		return m
	}
	before, between := look(), look()
	for range rounds {
		after := look()
		if twoLead(before, between, after) {
			f.Fatal("two servers lead")
		}
		before, between = between, after
	}
}
