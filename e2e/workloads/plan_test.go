//go:build e2e

package workloads

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
	"tako.dev/tako/internal/reason"
)

// plans asks what applying documents would do: the answer for programs, and that for people.
func (f *fleet) plans(documents string) (v1alpha1.PlanStatus, string) {
	f.Helper()
	path := filepath.Join(f.Dir, "planned.yaml")
	if err := os.WriteFile(path, []byte(documents), 0o600); err != nil {
		f.Fatal(err)
	}
	var out [2]string
	for i, args := range [][]string{{"plan", "-f", path, "-o", "json"}, {"plan", "-f", path}} {
		text, err := f.Try(args...)
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != int(reason.ExitFailed) {
			f.Fatalf("%v, where something would change: %s", err, text)
		}
		out[i] = text
	}
	var answer struct {
		Plans []v1alpha1.Plan `json:"plans"`
	}
	if err := json.NewDecoder(strings.NewReader(out[0])).Decode(&answer); err != nil || len(answer.Plans) != 1 {
		f.Fatalf("%v: %s", err, out[0])
	}
	return answer.Plans[0].Status, out[1]
}

// versions are the resource versions of all that has to do with workloads.
func (f *fleet) versions() map[string]string {
	f.Helper()
	all := map[string]string{}
	for _, kind := range []string{"workloads", "revisions", "instances"} {
		var list struct {
			Items []metav1.PartialObjectMetadata `json:"items"`
		}
		f.Get(&list, kind, "-n", environment)
		for i := range list.Items {
			all[kind+"/"+list.Items[i].Name] = list.Items[i].ResourceVersion
		}
	}
	return all
}

// onNodes counts instances by node.
func onNodes(instances []v1alpha1.Instance) map[string]int32 {
	all := map[string]int32{}
	for i := range instances {
		all[instances[i].Spec.Node]++
	}
	return all
}

// planned counts the same of an answer.
func planned(p *v1alpha1.WorkloadPlan) map[string]int32 {
	all := map[string]int32{}
	for _, n := range p.Nodes {
		if n.Instances > 0 {
			all[n.Name] = n.Instances
		}
	}
	return all
}

// TestPlanned: what a plan says is what becomes of it, on real hosts; what fits nowhere is explained; and nothing is written by asking.
func TestPlanned(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	const spread = "  replicas: %d\n  placement: {topologySpread: [{topologyKey: topology.kubernetes.io/zone}]}"
	first := f.web("v1", fmt.Sprintf(spread, 3))

	before := f.versions()
	answer, text := f.plans(first)
	if now := f.versions(); len(before) != 0 || len(now) != 0 {
		t.Errorf("there was %v, and is %v", before, now)
	}
	p := answer.Workloads[0]
	if p.Placed != 3 || p.Added != 3 || p.Pending != nil || p.Phase != "Complete" || len(p.Domains) != 3 || !strings.Contains(text, "3 of 3 would have a node, 3 added") {
		t.Errorf("%+v\n%s", p, text)
	}
	f.Apply(first)
	f.until("complete", complete(3))
	if is, said := onNodes(f.instances("web")), planned(&p); !reflect.DeepEqual(is, said) {
		t.Errorf("it is on %v, and %v was said", is, said)
	}

	second := f.web("v2", fmt.Sprintf(spread, 5))
	host.Eventually(t, rig.InTime, "nothing is written any more", func() (string, bool) {
		before = f.versions()
		<-time.After(time.Second)
		now := f.versions()
		return shown(now), reflect.DeepEqual(before, now)
	})
	answer, text = f.plans(second)
	if now := f.versions(); !reflect.DeepEqual(before, now) {
		t.Errorf("there was %v, and is %v", before, now)
	}
	p = answer.Workloads[0]
	if p.Placed != 5 || p.Replaced != 3 || p.Added != 2 || p.Kept != 0 || !strings.Contains(text, "2 added, 3 replaced") {
		t.Errorf("%+v\n%s", p, text)
	}
	f.Apply(second)
	f.until("complete with the second", complete(5))
	is := map[string]int32{}
	for _, in := range f.instances("web") {
		var n v1alpha1.Node
		f.Get(&n, "node/"+in.Spec.Node)
		is[n.Labels["topology.kubernetes.io/zone"]]++
	}
	// Which zone has the odd one depends on which of two replacements is ready first.
	var said []int32
	for _, d := range p.Domains {
		said = append(said, d.Instances)
	}
	if there := slices.Sorted(maps.Values(is)); !slices.Equal(there, slices.Sorted(slices.Values(said))) {
		t.Errorf("in zones there are %v, and %+v was said", is, p.Domains)
	}

	huge := strings.Replace(f.web("v3", "  replicas: 1"), "cpu: 10m", "cpu: '4000'", 1)
	huge = strings.Replace(huge, "name: web,", "name: huge,", 1)
	answer, text = f.plans(huge)
	p = answer.Workloads[0]
	if p.Placed != 0 || p.Pending == nil || p.Pending.Nodes != 4 || !strings.HasPrefix(p.Pending.Message, reason.NoNodeFits.String()) || !strings.Contains(text, "1 would have no node: TK0712") {
		t.Fatalf("%+v\n%s", p, text)
	}
	f.Apply(huge)
	host.Eventually(t, rig.InTime, "it is said again why there is no node", func() (string, bool) {
		w := f.workload("huge")
		return shown(w.Status), w.Status.Pending != nil && w.Status.Pending.Message == p.Pending.Message
	})
	f.Tako("delete", "workload/huge", "workload/web", "-n", environment) // what runs outlives the hosts' agents
	host.Eventually(t, rig.InTime, "no instance is left", func() (string, bool) {
		left := f.instances("web")
		return shown(left), len(left) == 0
	})
}
