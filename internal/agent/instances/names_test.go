package instances

import (
	"net/netip"
	"slices"
	"testing"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/transfer/wire"
)

// TestEnvironmentOfOthers: a task learns of others before all else, and what its template says stays as it is.
func TestEnvironmentOfOthers(t *testing.T) {
	task := workload.Task{Name: "main", Ports: []workload.Port{{Name: "http"}}, Env: []workload.EnvVar{{Name: "DB_SERVICE_HOST", Value: "10.9.9.9"}}}
	b := &builder{
		start: core.Start{Record: &core.Record{Instance: catalog.Instance{Namespace: "prod", Name: "web-3", Slot: 3}, Ports: map[string]int32{"http": 20001}}}, task: &task,
		others: func(namespace string, rotate uint64) []string {
			if namespace != "prod" || rotate != 3 {
				t.Errorf("it is asked for %s, %d", namespace, rotate)
			}
			return []string{"TAKO_DOMAIN=prod.tako.internal", "DB_SERVICE_HOST=10.0.0.1", "PORT_HTTP=1"}
		},
	}
	env, err := b.environment()
	if want := []string{"TAKO_DOMAIN=prod.tako.internal", "PORT_HTTP=20001", "DB_SERVICE_HOST=10.9.9.9"}; err != nil || !slices.Equal(env, want) {
		t.Errorf("%v, %v, want %v", env, err, want)
	}
}

// TestReady: what is told of is what is ready and wanted, as servers say it; nothing before it is known what is wanted.
func TestReady(t *testing.T) {
	var told [][]*names.Instance
	k := &Keeper{opts: Options{Ready: func(all []*names.Instance) { told = append(told, all) }}, secrets: map[string]*catalog.Template{}}
	k.told = []wire.Instance{{UID: "a", Ready: true, Ports: []wire.InstancePort{{Name: "http", Number: 20001}}}, {UID: "b"}, {UID: "c", Ready: true}, {UID: "d", Ready: true}}
	if k.name(); told != nil {
		t.Fatalf("told is %v", told)
	}
	k.wanted = Wanted{Node: "n1", Offers: wire.Offers{Address: "10.0.0.1"}, Instances: []catalog.Instance{
		{UID: "a", Namespace: "prod", Name: "web-2", Workload: "web", Revision: "web-1", Slot: 2}, {UID: "b", Namespace: "prod", Name: "web-3"}, {UID: "c", Namespace: "prod", Name: "web-4", Stop: true}}}
	k.secrets[catalog.TemplateLayer("prod", "web-1")] = &catalog.Template{Spec: workload.Template{Tasks: []workload.Task{{Ports: []workload.Port{{Name: "http", Text: map[string]string{"path": "/"}}, {Name: "none"}}}}}}
	k.name()
	if len(told) != 1 || len(told[0]) != 1 {
		t.Fatalf("told is %v", told)
	}
	i := told[0][0]
	if i.Namespace != "prod" || i.Name != "web-2" || i.Workload != "web" || i.Index != 2 || i.Node != "n1" || !slices.Equal(i.Addresses, []netip.Addr{netip.MustParseAddr("10.0.0.1")}) ||
		len(i.Endpoints) != 1 || i.Endpoints[0].Number != 20001 || i.Endpoints[0].Text["path"] != "/" {
		t.Errorf("it is told of %+v", i)
	}
}
