package instances

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/runtest"
	"tako.dev/tako/internal/transfer/wire"
)

// Two instances of one workload listen on the same port, each in a network of its own: probes reach them there, and others by ports of the host.
func TestNetworksOfTheirOwn(t *testing.T) {
	r := newContainerRig(t)
	if !runtest.Apart(t) {
		return
	}
	dir := t.TempDir()
	exe, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "program"), exe, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.wanted.Offers.Directories = []string{"/usr", dir}
	r.wanted.Offers.Runtimes = append(r.wanted.Offers.Runtimes, "OCI/Own")
	r.start()
	if o := r.keeper.Offers(func(string) (declare.Value, bool) { return declare.Value{}, false }, nil); !slices.Contains(o.Runtimes, "OCI/Own") {
		t.Skipf("needs CNI plugins: it offers %v", o.Runtimes)
	}
	usr, web := contained(workload.Image{Path: layout(t)}, "")
	web.Command = []string{"/program/program", programArgument, "word", "80"}
	web.Mounts = append(web.Mounts, workload.Mount{Volume: "program", Path: "/program"})
	web.Ports = []workload.Port{{Name: "http", Port: 80}, {Name: "other"}}
	web.Readiness = &workload.Probe{HTTP: &workload.HTTPProbe{Port: "http"}, Period: "100ms", Timeout: "20s"}
	web.Env = []workload.EnvVar{{Name: "WORD", ValueFrom: &workload.EnvSource{Field: "ports['http']"}}}
	change := func(in *catalog.Instance, tpl *catalog.Template) {
		usr(in, tpl)
		tpl.Spec.Network = workload.OwnNetwork
		tpl.Spec.Volumes = append(tpl.Spec.Volumes, workload.Volume{Name: "program", Host: &workload.HostVolume{Path: dir}})
	}
	uids := []string{r.add(change, web), r.add(change, web)}
	var taken []uint16
	for _, uid := range uids {
		told := r.is(uid, wire.InstanceRunning, true)
		if len(told.Ports) != 2 {
			t.Fatalf("its ports are %v", told.Ports)
		}
		for _, p := range told.Ports {
			if slices.Contains(taken, p.Number) || p.Number < portFirst {
				t.Errorf("port %s is %d, and others are %v", p.Name, p.Number, taken)
			}
			taken = append(taken, p.Number)
		}
		r.answers(told, fmt.Sprintf("80 %d", told.Ports[1].Number))
	}
	was := r.pidsBy(workload.OCI, uids[0])
	if len(was) != 1 {
		t.Errorf("it runs as %v", was)
	}
	r.start() // another agent
	told := r.is(uids[0], wire.InstanceRunning, true)
	r.answers(told, fmt.Sprintf("80 %d", told.Ports[1].Number))
	r.until("the next agent has the same process", func([]wire.Instance) bool { return slices.Equal(r.pidsBy(workload.OCI, uids[0]), was) })
	for _, uid := range uids {
		r.end(uid)
		r.is(uid, wire.InstanceDone, false)
	}
	r.until("no network is left", func([]wire.Instance) bool {
		left, err := filepath.Glob(filepath.Join(r.dir, "runtimes/networks/*.json"))
		return err == nil && len(left) == 0
	})
	r.gone()
}

// answers asks an instance where others find it.
func (r *rig) answers(told wire.Instance, want string) {
	r.t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		r.t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Is4() && !p.Addr().IsLoopback()
	})
	if at < 0 {
		r.t.Fatalf("the host has %v", all)
	}
	host := netip.MustParsePrefix(all[at].String()).Addr()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get("http://" + netip.AddrPortFrom(host, told.Ports[0].Number).String())
	if err != nil {
		r.t.Error(err)
		return
	}
	defer reply.Body.Close()
	if text, err := io.ReadAll(reply.Body); err != nil || strings.TrimSpace(string(text)) != want {
		r.t.Errorf("it says %q, want %q (%v)", text, want, err)
	}
}

// A task learns the number that it listens on, and the runtime which one of the host leads to it.
func TestPortsOfAnOwnNetwork(t *testing.T) {
	template := &workload.Template{Network: workload.OwnNetwork, Tasks: []workload.Task{
		{Name: "a", Ports: []workload.Port{{Name: "web", Port: 80}, {Name: "any"}}}, {Name: "b", Ports: []workload.Port{{Name: "dns", Port: 53, Protocol: workload.UDP}}},
	}}
	b := builder{template: template, task: &template.Tasks[0]}
	b.start.Record = &core.Record{Ports: map[string]int32{"web": 20001, "any": 20002, "dns": 20003}}
	want := []run.PortMap{{Protocol: workload.TCP, Host: 20001, Own: 80}, {Protocol: workload.TCP, Host: 20002, Own: 20002}, {Protocol: workload.UDP, Host: 20003, Own: 53}}
	if got := b.ports(); !slices.Equal(got, want) {
		t.Errorf("ports are %v, want %v", got, want)
	}
	env, err := b.environment()
	if err != nil || !slices.Equal(env, []string{"PORT_WEB=80", "PORT_ANY=20002"}) {
		t.Errorf("the environment is %v (%v)", env, err)
	}
	for name, want := range map[string]string{"ports['web']": "80", "ports['dns']": "53", "ports['none']": ""} {
		if got, ok := b.field(name); got != want || ok != (want != "") {
			t.Errorf("%s is %q, %v", name, got, ok)
		}
	}
}
