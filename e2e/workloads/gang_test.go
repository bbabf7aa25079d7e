//go:build e2e

package workloads

import (
	"fmt"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// crunch is a job whose instances are placed together, each of which takes as much of a processor, in thousandths.
func crunch(name string, instances, milli int) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: Workload
metadata: {name: %s, namespace: %s}
spec:
  mode: Job
  priority: 100
  job: {completions: %d, parallelism: %d, gang: true}
  template:
    runtime: Process
    restart: {policy: Never}
    tasks:
    - name: crunch
      command: [/bin/sleep, "3"]
      resources: {requests: {cpu: %dm, memory: 8Mi}}
`, name, environment, instances, instances, milli)
}

// TestGang: a job whose instances are placed together or not at all takes the room of others of lower priority, all that it needs at once, and they come
// back when it is done. One for which there is not enough room on all hosts together displaces nobody and has no instance at all.
func TestGang(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	// Two fit on a host, whatever this machine has.
	var node v1alpha1.Node
	f.Get(&node, "node/host-0")
	offered := node.Status.Capacity[v1alpha1.CapacityCPU]
	each := int(offered.MilliValue() * 4 / 10)
	f.Apply(strings.Replace(f.web("v1", "  replicas: 4\n  disruptionBudget: {minAvailable: '0'}"), "cpu: 10m", fmt.Sprintf("cpu: %dm", each), 1))
	f.until("complete", complete(4))
	before := f.answers("web")

	f.Apply(crunch("large", 5, each))
	host.Eventually(t, rig.InTime, "it says why it is not placed", func() (string, bool) {
		w := f.workload("large")
		return shown(w.Status), w.Status.PendingReplicas == 5 && w.Status.Pending != nil && strings.Contains(w.Status.Pending.Message, "cpu")
	})
	if got := f.instances("large"); len(got) > 0 {
		t.Errorf("a part of it is placed: %s", shown(got))
	}
	for name, was := range before {
		if !runs(was.pid, "greeter") {
			t.Errorf("%s was ended for it", name)
		}
	}
	f.end("large")

	f.Apply(crunch("small", 3, each))
	host.Eventually(t, rig.InTime, "the job is complete", func() (string, bool) {
		w, web := f.workload("small"), f.workload("web")
		return shown(w.Status) + "\n" + shown(web.Status), w.Status.Job != nil && w.Status.Job.Result == "Complete" && w.Status.Job.Succeeded == 3
	})
	f.until("complete again", complete(4))
	ended := 0
	for _, was := range before {
		if !runs(was.pid, "greeter") {
			ended++
		}
	}
	if ended != 3 {
		t.Errorf("%d made room for 3", ended)
	}
	host.Eventually(t, rig.InTime, "people are told of three that made room", func() (string, bool) {
		var events core.EventList
		f.Get(&events, "events", "-n", environment)
		told := 0
		for i := range events.Items {
			if e := &events.Items[i]; e.Reason == "InstancePreempted" && strings.HasSuffix(e.Message, " for "+environment+"/small") {
				told += max(1, int(e.Count))
			}
		}
		return shown(events.Items), told == 3
	})
	f.end("small", "web")
}
