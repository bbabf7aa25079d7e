package registry

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
)

// TestTables shows an empty object of each kind: a name, an age, and a cell for each column, also where there is nothing to show.
func TestTables(t *testing.T) {
	for _, k := range Kinds() {
		o := k.New()
		metadata(o).SetName("a")
		got, err := tableOf(k).ConvertToTable(t.Context(), o, nil)
		if err != nil || len(got.Rows) != 1 {
			t.Errorf("%s: %v, %+v", k.Names.Plural, err, got)
			continue
		}
		var names []string
		for i, c := range got.ColumnDefinitions {
			names = append(names, c.Name)
			if c.Description == "" || c.Type == "" {
				t.Errorf("%s: column %s says nothing about itself", k.Names.Plural, c.Name)
			}
			if wide := i > 0 && i <= len(k.Columns) && k.Columns[i-1].Wide; wide != (c.Priority > 0) {
				t.Errorf("%s: column %s has priority %d", k.Names.Plural, c.Name, c.Priority)
			}
			if _, text := got.Rows[0].Cells[i].(string); text != (c.Type == "string") {
				t.Errorf("%s: column %s is a %s and holds a %T", k.Names.Plural, c.Name, c.Type, got.Rows[0].Cells[i])
			}
		}
		if names[0] != "Name" || got.Rows[0].Cells[0] != "a" || names[len(names)-1] != "Age" || len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
			t.Errorf("%s: %v, %v", k.Names.Plural, names, got.Rows[0].Cells)
		}
	}
}

// TestCells shows what people look for.
func TestCells(t *testing.T) {
	for _, c := range []struct {
		kind, object string
		want         []any // without name and age
	}{
		{"nodeconfigs", `{"spec":{"resources":[{"name":"a"},{"name":"b"}]},"status":{"revision":"r","conditions":[{"type":"Ready","status":"False","message":"no"}]}}`, []any{2, "r", "", "False", "no"}},
		{"nodeconfigs", `{"spec":{"resources":[]},"status":{"rollout":{"phase":"Rolling","selected":12,"done":3}}}`, []any{0, "", "3/12 Rolling", "Unknown", ""}},
		{"nodeconfigs", `{"spec":{"resources":[]},"status":{"rollout":{"phase":"Empty","selected":0}}}`, []any{0, "", "Empty", "Unknown", ""}},
		{"clusternodeconfigs", `{"spec":{"resources":[]},"status":{"rollout":{"phase":"Halted","selected":3,"culprits":[{"node":"web-1"},{"node":"web-2"}]}}}`, []any{0, "", "0/3 Halted at web-1", "Unknown", ""}},
		{"clusternodeconfigs", `{"spec":{"resources":[]}}`, []any{0, "", "", "Unknown", ""}},
		{"revisions", `{"spec":{"source":{"name":"web"},"resources":[{"name":"a"}]}}`, []any{"web", 1, ""}},
		{"revisions", `{"metadata":{"annotations":{"tako.dev/revision":"12"}},"spec":{"source":{"name":"web"},"template":{"tasks":[{"name":"a"},{"name":"b"}]}}}`, []any{"web", 2, "12"}},
		{"workloads", `{"spec":{"template":{"tasks":[]}},"status":{"phase":"Rolling","wanted":4,"replicas":5,"readyReplicas":3,"updatedReplicas":2,"availableReplicas":1,"rollout":{"target":"web-b","goal":"web-b"},"message":"why"}}`, []any{"Replicated", "3/4", int32(2), int32(1), "Rolling", "web-b", "", "why"}},
		{"workloads", `{"spec":{"mode":"PerNode","template":{"tasks":[]}},"status":{"phase":"Waiting","wanted":2,"pending":{"message":"2 of 3 nodes have no room"}}}`, []any{"PerNode", "0/2", int32(0), int32(0), "Waiting", "", "", "2 of 3 nodes have no room"}},
		{"workloads", `{"spec":{"mode":"Job","job":{"completions":5},"template":{"tasks":[]}},"status":{"phase":"Rolling","job":{"succeeded":2},"conditions":[{"type":"Ready","status":"False","message":"not over"}]}}`, []any{"Job", "0/0", int32(0), int32(0), "Rolling", "", "2/5", "not over"}},
		{"workloads", `{"spec":{"mode":"Job","template":{"tasks":[]}},"status":{"job":{"succeeded":1,"result":"Complete"}}}`, []any{"Job", "0/0", int32(0), int32(0), "Complete", "", "1/1", ""}},
		{"workloads", `{"spec":{"mode":"Job","schedule":{"cron":"@daily"},"template":{"tasks":[]}},"status":{"schedule":{"active":["a-1"]}}}`, []any{"Job", "0/0", int32(0), int32(0), "Scheduled, 1 active", "", "", ""}},
		{"workloads", `{"spec":{"mode":"Job","schedule":{"cron":"@daily","suspend":true},"template":{"tasks":[]}}}`, []any{"Job", "0/0", int32(0), int32(0), "Suspended", "", "", ""}},
		{"instances", `{"spec":{"workload":"web","revision":"web-a","node":"n1"},"status":{"phase":"Running","ready":true,"restarts":2,"ports":{"http":8080,"admin":9}}}`, []any{"web", "web-a", "n1", "Running", true, int32(2), "admin=9,http=8080", ""}},
		{"instances", `{"spec":{"workload":"web","revision":"web-a","node":"n1","stop":{"code":"TK0902"}},"status":{"phase":"Running","failure":{"code":"TK0906","message":"no answer"}}}`, []any{"web", "web-a", "n1", "Terminating", false, int32(0), "", "TK0906 no answer"}},
		{"instances", `{"spec":{"stop":{"code":"TK0902"}},"status":{"phase":"Done"}}`, []any{"", "", "", "Done", false, int32(0), "", ""}},
		{"instances", `{"spec":{},"status":{"phase":"Running","abandoned":"2026-01-01T00:00:00Z"}}`, []any{"", "", "", "Abandoned", false, int32(0), "", ""}},
		{"instances", `{"spec":{}}`, []any{"", "", "", "Unknown", false, int32(0), "", ""}},
		{"clusterrevisions", `{"spec":{}}`, []any{"", 0}},
		{"nodes", `{"spec":{"environment":"qa"},"status":{"promises":{"kept":3,"repaired":2,"failed":1}}}`, []any{"qa", "Unknown", "", int32(3), int32(2), int32(1), "never", int32(0), "", "", "", "", "", "", "", "", "", ""}},
		{"nodes", `{"spec":{},"status":{"appliedHead":{"version":7},"assignedHead":{"version":7},"held":2,"verdict":{"type":"Partial"},"agent":{"version":"v1"}}}`, []any{"", "Unknown", "7", int32(0), int32(0), int32(0), "never", int32(2), "Partial", "v1", "", "", "", "", "", "", "", ""}},
		{"nodes", `{"spec":{},"status":{"agent":{"version":"v1","usage":{"cpu":"1.5s","memory":"16Mi","anonymousMemory":"6Mi","commandsCPU":"0s","commandsMemory":"0"}}}}`, []any{"", "Unknown", "", int32(0), int32(0), int32(0), "never", int32(0), "", "v1", "", "", "", "", "", "", "16 MiB, 1.5s", ""}},
		{"nodes", `{"spec":{},"status":{"agent":{"usage":{"cpu":"90m0s","memory":"16Mi","anonymousMemory":"6Mi","commandsCPU":"1234ms","commandsMemory":"9Mi"}}}}`, []any{"", "Unknown", "", int32(0), int32(0), int32(0), "never", int32(0), "", "", "", "", "", "", "", "", "16 MiB, 1h30m0s + 1.23s", ""}},
		{"nodes", `{"spec":{},"status":{"facts":{"os.id":"debian","os.version":"12","kernel.release":"6.1.0-18-amd64","virtualization":"kvm","network.primary.address":"192.0.2.7"},"capacity":{"cpu":"4","memory":"8216928256"}}}`, []any{"", "Unknown", "", int32(0), int32(0), int32(0), "never", int32(0), "", "", "debian 12", "6.1.0-18-amd64", "4", "7.7 GiB", "kvm", "192.0.2.7", "", ""}},
		{"nodes", `{"spec":{},"status":{"facts":{"os.id":"arch","kernel.release":"` + strings.Repeat("é", 50) + `"}}}`, []any{"", "Unknown", "", int32(0), int32(0), int32(0), "never", int32(0), "", "", "arch", strings.Repeat("é", 39) + "…", "", "", "", "", "", ""}},
		{"assignments", `{"metadata":{"resourceVersion":"9"},"spec":{"environment":"qa","layers":[{},{}],"try":{"config":"NodeConfig/qa/web"}}}`, []any{"qa", 2, "9", "NodeConfig/qa/web"}},
		{"tokens", `{"spec":{"type":"user","user":{"name":"ann"},"expires":"2026-05-01T12:00:00+02:00"}}`, []any{"user", "ann", int32(0), "2026-05-01T10:00:00Z"}},
		{"tokens", `{"spec":{"type":"join","join":{"pattern":"web-*"}},"status":{"uses":2}}`, []any{"join", "web-*", int32(2), "never"}},
		{"tokens", `{"spec":{"type":"join","join":{"name":"web-1"}}}`, []any{"join", "web-1", int32(0), "never"}},
		{"secrets", `{"type":"Opaque","data":{"a":"AA=="}}`, []any{"Opaque", 1, 0}},
		{"configmaps", `{"data":{"a":"1"},"binaryData":{"b":"AA=="}}`, []any{2}},
		{"events", `{"type":"Warning","reason":"Full","involvedObject":{"kind":"Node","name":"a"},"count":3,"message":"m"}`, []any{"<unknown>", "Warning", "Full", "Node/a", int32(3), "m"}},
		{"rolebindings", `{"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"a"},{"kind":"Group","name":"b"}]}`, []any{"Role/r", "User/a, Group/b"}},
		{"leases", `{"spec":{"holderIdentity":"me"}}`, []any{"me"}},
		{"namespaces", `{"status":{"phase":"Active"}}`, []any{"Active"}},
	} {
		k := kindOf(t, c.kind)
		got, err := tableOf(k).ConvertToTable(t.Context(), parse(t, k, c.object), nil)
		if err != nil {
			t.Errorf("%s: %v", c.kind, err)
			continue
		}
		if cells := got.Rows[0].Cells; !slices.Equal(cells[1:len(cells)-1], c.want) {
			t.Errorf("%s: %v, want %v", c.kind, cells, c.want)
		}
	}
}

// TestTableOfAList has a row for each object, and where the list goes on.
func TestTableOfAList(t *testing.T) {
	k := kindOf(t, "configmaps")
	list := k.NewList()
	if err := meta.SetList(list, []runtime.Object{k.New(), k.New()}); err != nil {
		t.Fatal(err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		t.Fatal(err)
	}
	more := int64(7)
	m.SetResourceVersion("5")
	m.SetContinue("there")
	m.SetRemainingItemCount(&more)
	got, err := tableOf(k).ConvertToTable(t.Context(), list, &metav1.TableOptions{NoHeaders: true})
	if err != nil || len(got.Rows) != 2 || got.ColumnDefinitions != nil || got.ResourceVersion != "5" || got.Continue != "there" || *got.RemainingItemCount != 7 {
		t.Errorf("%v, %+v", err, got)
	}
}

// TestHead shows how far a host is behind, and for how long.
func TestHead(t *testing.T) {
	head := func(version int64, since time.Duration) *v1alpha1.AppliedHead {
		h := &v1alpha1.AppliedHead{Epoch: 1, Version: version}
		if since > 0 {
			at := metav1.NewTime(time.Now().Add(-since - time.Second/2))
			h.Since = &at
		}
		return h
	}
	verdict := &v1alpha1.Verdict{Version: 9, Since: metav1.NewTime(time.Now().Add(-90*time.Minute - time.Second))}
	restored := head(7, 0)
	restored.Epoch++
	for _, c := range []struct {
		status v1alpha1.NodeStatus
		want   string
	}{
		{v1alpha1.NodeStatus{}, ""},
		{v1alpha1.NodeStatus{AppliedHead: head(7, 0)}, "7"},
		{v1alpha1.NodeStatus{AppliedHead: head(7, 0), AssignedHead: head(7, time.Hour)}, "7"},
		{v1alpha1.NodeStatus{AppliedHead: head(7, 0), AssignedHead: head(9, 14*time.Second)}, "7, behind 14s"},
		{v1alpha1.NodeStatus{AppliedHead: head(7, 0), AssignedHead: head(9, 0), Verdict: verdict}, "7, behind 90m"},
		{v1alpha1.NodeStatus{AppliedHead: head(7, 0), AssignedHead: head(8, 0), Verdict: verdict}, "7, behind"},
		{v1alpha1.NodeStatus{AppliedHead: head(7, 0), AssignedHead: restored}, "7, behind"},
		{v1alpha1.NodeStatus{AssignedHead: head(7, 20*time.Minute), Identity: &v1alpha1.NodeIdentity{}}, "none, behind 20m"},
		{v1alpha1.NodeStatus{AssignedHead: head(7, 20*time.Minute)}, ""},
	} {
		if got := headText(&c.status); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
