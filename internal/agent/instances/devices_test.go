package instances

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run/cdi"
	"tako.dev/tako/internal/transfer/wire"
)

// special are devices that hosts have, and containers have not.
func special(t *testing.T) (found []string) {
	t.Helper()
	for _, name := range []string{"/dev/fuse", "/dev/loop-control", "/dev/kvm", "/dev/net/tun"} {
		if st, err := os.Stat(name); err == nil && st.Mode()&os.ModeDevice != 0 {
			found = append(found, name)
		}
	}
	if len(found) < 2 {
		t.Skip("needs two devices that not every program has")
	}
	return found[:2]
}

// The hardware of a host is offered; an instance has of it what it asks for, and nobody else has that meanwhile.
func TestDevicesOfTheHost(t *testing.T) {
	r := newContainerRig(t)
	nodes, dir := special(t), t.TempDir()
	text := fmt.Sprintf(`{"cdiVersion":"0.6.0","kind":"example.com/card","devices":[
		{"name":"0","containerEdits":{"deviceNodes":[{"path":%q}],"env":["CARD=zero","LEVEL=host"]}},
		{"name":"1","containerEdits":{"deviceNodes":[{"path":%q}],"env":["CARD=one"]}}]}`, nodes[0], nodes[1])
	if err := os.WriteFile(filepath.Join(dir, "card.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r.cards = []string{dir}
	r.wanted.Offers.Directories = []string{"/usr"}
	r.start()
	nobody := func(string) (declare.Value, bool) { return declare.Value{}, false }
	if o := r.keeper.Offers(nobody, nil); !slices.Equal(o.Devices["example.com/card"], []string{"0", "1"}) {
		t.Fatalf("it offers %v", o.Devices)
	}
	r.wanted.Offers.Devices = map[string][]string{"example.com/card": {"0", "1"}}
	change, main := contained(workload.Image{Path: layout(t)}, "echo $CARD $LEVEL; for d in "+strings.Join(nodes, " ")+"; do (: <>$d) 2>/dev/null && echo $d; done; exec sleep 1000")
	main.Env = []workload.EnvVar{{Name: "LEVEL", Value: "task"}}
	main.Resources.Devices = []workload.Device{{Name: "example.com/card"}}
	for i, want := range []string{"zero task\n" + nodes[0] + "\n", "one task\n" + nodes[1] + "\n"} {
		uid := r.add(change, main)
		r.is(uid, wire.InstanceRunning, true)
		r.until("it says what it has", func([]wire.Instance) bool { return r.printed(uid) == want })
		if i == 1 {
			third := r.add(change, main)
			r.until("a third one is refused", func([]wire.Instance) bool { return r.one(third).Code == reason.InstanceRefused })
		}
	}
	r.gone()
}

// printed is what the first attempt of the task main has printed.
func (r *rig) printed(uid string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "runtimes/oci/attempts", uid+".main.1", "log"))
	if err != nil {
		return ""
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) { // TIME STREAM F|P TEXT
		if f := strings.SplitN(line, " ", 4); len(f) == 4 {
			out.WriteString(f[3])
		}
	}
	return out.String()
}

// Tasks of an instance share what that holds, in order, and what is gone is told.
func TestPiecesOfTasks(t *testing.T) {
	two := int32(2)
	template := &workload.Template{Tasks: []workload.Task{
		{Name: "a", Resources: workload.Resources{Devices: []workload.Device{{Name: "v.example/x", Count: &two}}}},
		{Name: "b", Resources: workload.Resources{Devices: []workload.Device{{Name: "v.example/x"}}}}, {Name: "c"},
	}}
	there := cdi.Pieces{"v.example/x": {{Name: "0", Devices: []string{"/dev/a", "/dev/all"}}, {Name: "1", Devices: []string{"/dev/b", "/dev/all"}}, {Name: "2", Devices: []string{"/dev/c"}}}}
	b := builder{template: template, devices: func() cdi.Pieces { return there }}
	b.start.Record = &core.Record{Instance: catalog.Instance{Name: "web-1"}, Held: &core.Holding{Devices: map[string][]string{"v.example/x": {"0", "1", "2"}}}}
	for i, want := range []string{"/dev/a /dev/all /dev/b", "/dev/c", ""} {
		b.task = &template.Tasks[i]
		devices, _, _, err := b.hardware()
		if got := strings.Join(devices, " "); got != want || err != nil {
			t.Errorf("task %s has %q, want %q (%v)", b.task.Name, got, want, err)
		}
	}
	b.task = &template.Tasks[1]
	delete(there, "v.example/x")
	if _, _, _, err := b.hardware(); !reason.Is(err, reason.RuntimeUnfit) || !strings.Contains(err.Error(), "no more") {
		t.Errorf("what is gone: %v", err)
	}
	b.start.Record.Held = nil
	if _, _, _, err := b.hardware(); !reason.Is(err, reason.TaskRefused) {
		t.Errorf("what it does not hold: %v", err)
	}
}
