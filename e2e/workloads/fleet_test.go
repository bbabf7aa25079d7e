//go:build e2e

package workloads

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// atOnce is how many tests run at the same time, unless -parallel says it: they wait for most of their time.
const atOnce, parallelFlag = "3", "test.parallel"

// TestMain: what tests write into hosts has the modes that they say, whoever runs them.
func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == parallelFlag })
	if !said {
		if err := flag.Set(parallelFlag, atOnce); err != nil {
			panic(err) // the library has renamed it
		}
	}
	m.Run()
}

const environment = "prod"

// fleet is a server, hosts in zones, and the program that workloads run.
type fleet struct {
	*rig.Rig
	hosts   map[string]*rig.Host
	greeter string
}

// newFleet starts a server and so many hosts: host-0 in zone a, host-1 in b, host-2 in c, host-3 in a. Further arguments are those of `tako server`.
func newFleet(t *testing.T, hosts int, args ...string) *fleet {
	t.Helper()
	f := &fleet{Rig: rig.New(t, args...), hosts: map[string]*rig.Host{}, greeter: host.Program(t, "greeter", "tako.dev/tako/e2e/workloads/greeter")}
	f.Apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + environment + "}\n")
	for i := range hosts {
		name := "host-" + strconv.Itoa(i)
		h := f.Join(name, "--environment", environment, "--label", "topology.kubernetes.io/zone="+string(rune('a'+i%3)))
		h.Start()
		f.hosts[name] = h
	}
	f.heard(slices.Sorted(maps.Keys(f.hosts))...)
	return f
}

// heard waits until nodes have told what they have.
func (f *fleet) heard(names ...string) {
	f.Helper()
	host.Eventually(f.T, rig.InTime, "all hosts are heard", func() (string, bool) {
		var nodes v1alpha1.NodeList
		f.Get(&nodes, "nodes")
		heard := 0
		for i := range nodes.Items {
			if n := &nodes.Items[i]; slices.Contains(names, n.Name) && n.Status.LastHeard != nil && len(n.Status.Capacity) > 0 {
				heard++
			}
		}
		return fmt.Sprintf("%d of %d", heard, len(names)), heard == len(names)
	})
}

// web declares the web server, with what else is in its spec.
func (f *fleet) web(version string, spec string, env ...string) string {
	text := fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: Workload
metadata: {name: web, namespace: %s}
spec:
%s
  template:
    labels: {app: web}
    runtime: Process
    terminationGrace: 20s
    tasks:
    - name: greeter
      command: [%s]
      ports: [{name: http}]
      resources: {requests: {cpu: 10m, memory: 16Mi}}
      readiness: {http: {port: http, path: /ready}, period: 100ms}
      env:
      - {name: VERSION, value: %s}
      - {name: INSTANCE, valueFrom: {field: instance.name}}
      - {name: DRAIN, value: 1s}
`, environment, spec, f.greeter, version)
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		text += fmt.Sprintf("      - {name: %s, value: %q}\n", name, value)
	}
	return text
}

func (f *fleet) workload(name string) (w v1alpha1.Workload) {
	f.Get(&w, "workload/"+name, "-n", environment)
	return w
}

func (f *fleet) instances(workload string) []v1alpha1.Instance {
	var list v1alpha1.InstanceList
	f.Get(&list, "instances", "-n", environment, "-l", v1alpha1.LabelWorkload+"="+workload)
	return list.Items
}

// until waits for a workload that is as it should be, about what is declared now.
func (f *fleet) until(what string, is func(*v1alpha1.Workload) bool) v1alpha1.Workload {
	f.Helper()
	var w v1alpha1.Workload
	host.Eventually(f.T, rig.InTime, "web is "+what, func() (string, bool) {
		w = f.workload("web")
		return shown(w.Status) + "\n" + shown(f.instances("web")), w.Generation > 0 && w.Status.ObservedGeneration == w.Generation && is(&w)
	})
	return w
}

// end deletes workloads, and waits until nothing of them is left: what runs outlives the agents of its hosts.
func (f *fleet) end(workloads ...string) {
	f.Helper()
	for _, name := range workloads {
		f.Tako("delete", "workload/"+name, "-n", environment)
		host.Eventually(f.T, rig.InTime, "no instance of "+name+" is left", func() (string, bool) {
			left := f.instances(name)
			return shown(left), len(left) == 0
		})
	}
}

// complete is a workload of which everything has the newest revision and is available.
func complete(replicas int32) func(*v1alpha1.Workload) bool {
	return func(w *v1alpha1.Workload) bool {
		s := &w.Status
		return s.Phase == "Complete" && s.Replicas == replicas && s.AvailableReplicas == replicas && s.UpdatedReplicas == replicas && s.TerminatingReplicas == 0
	}
}

func shown(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// answer is what an instance of the web server says of itself.
type answer struct {
	version, instance string
	pid               int
}

var client = http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

func ask(ctx context.Context, port int32) (a answer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))+"/", nil)
	if err != nil {
		return a, err
	}
	reply, err := client.Do(request)
	if err != nil {
		return a, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(io.LimitReader(reply.Body, 1<<10))
	if err != nil {
		return a, err
	}
	_, err = fmt.Sscan(string(text), &a.version, &a.instance, &a.pid)
	return a, err
}

// answers asks every instance that is ready, by name.
func (f *fleet) answers(workload string) map[string]answer {
	f.Helper()
	all := map[string]answer{}
	for _, in := range f.instances(workload) {
		if !in.Status.Ready {
			continue
		}
		a, err := ask(f.Context(), in.Status.Ports["http"])
		if err != nil || a.instance != in.Name {
			f.Fatalf("instance %s of node %s answers %+v, %v", in.Name, in.Spec.Node, a, err)
		}
		all[in.Name] = a
	}
	return all
}

// runs says whether a process is there that runs a program: its number alone may be another's by now.
func runs(pid int, program string) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.TrimSpace(string(name)) == program
}

// nodesOf are the nodes of instances, sorted.
func nodesOf(instances []v1alpha1.Instance) []string {
	var nodes []string
	for i := range instances {
		nodes = append(nodes, instances[i].Spec.Node)
	}
	slices.Sort(nodes)
	return nodes
}
