package fit

import (
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

func spec(tasks ...workload.Task) *workload.Spec {
	return &workload.Spec{Template: workload.Template{Tasks: tasks}}
}

func task(cpu, memory declare.Quantity) workload.Task {
	return workload.Task{Name: "web", Resources: workload.Resources{Requests: workload.Amounts{CPU: cpu, Memory: memory}}}
}

func TestCompile(t *testing.T) {
	a, b := task("500m", "512Mi"), task("1.5", "1Gi")
	a.Ports = []workload.Port{{Name: "http", Port: 80}, {Name: "any"}}
	b.Ports = []workload.Port{{Name: "dns", Port: 53, Protocol: workload.UDP}}
	a.Resources.Devices = []workload.Device{{Name: "gpu"}}
	b.Resources.Devices = []workload.Device{{Name: "gpu", Count: new(int32(2))}}
	s := spec(a, b)
	s.Template.Volumes = []workload.Volume{{Name: "d", Data: &workload.DataVolume{Size: "10Gi"}}, {Name: "h", Host: &workload.HostVolume{Path: "/srv"}}}
	r, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Amounts{2000, 3 << 29, 10 << 30, 1}); r.Amounts != want {
		t.Errorf("amounts %+v, want %+v", r.Amounts, want)
	}
	if len(r.Ports) != 2 || r.Ports[0] != (Port{workload.UDP, 53}) || r.Ports[1].String() != "80/TCP" {
		t.Errorf("ports %v", r.Ports)
	}
	if len(r.Devices) != 1 || r.Devices[0].Count != 3 || len(r.Directories) != 1 {
		t.Errorf("devices %v, directories %v", r.Devices, r.Directories)
	}
	s.Template.Network = workload.OwnNetwork
	s.Template.Runtime = workload.OCI
	r, err = Compile(s)
	if err != nil || len(r.Ports) != 0 || r.Runtime != "OCI/Own" {
		t.Errorf("in a network of its own it needs ports %v and runtime %s (%v)", r.Ports, r.Runtime, err)
	}
	n := Node{Runtimes: []workload.Runtime{workload.OCI}}
	why := Check(&n, &Left{Amounts: Amounts{CPU: 1 << 40, Memory: 1 << 50, Disk: 1 << 50, Instances: 100}}, &Request{Runtime: r.Runtime})
	if len(why) != 1 || why[0].Reason != NoRuntime || !strings.Contains(why[0].Cure(), "containernetworking-plugins") {
		t.Errorf("a node without plugins: %v", why)
	}
}

func TestCompileRefuses(t *testing.T) {
	none := task("", "")
	none.Resources.Devices = []workload.Device{{Name: "gpu", Count: new(int32(0))}}
	for name, s := range map[string]*workload.Spec{
		"negative": spec(task("-1", "")), "malformed": spec(task("", "12 apples")), "beyond int64": spec(task("", "9E")), "too much": spec(task("", "2Pi")),
		"too much together": spec(task("", "600Ti"), task("", "600Ti")), "no device": spec(none),
		"volume": {Template: workload.Template{Volumes: []workload.Volume{{Name: "d", Data: &workload.DataVolume{Size: "-1"}}}}},
	} {
		if _, err := Compile(s); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzCompile: whatever amounts say, what is summed up is none below nothing and none that cannot be added up.
func FuzzCompile(f *testing.F) {
	f.Add("500m", "512Mi", "10Gi")
	f.Add("-0", "9223372036854775807", "1e18")
	f.Add("1n", "1Pi", "0.0000000001")
	f.Fuzz(func(t *testing.T, cpu, memory, disk string) {
		one := workload.Task{Resources: workload.Resources{Requests: workload.Amounts{CPU: declare.Quantity(cpu), Memory: declare.Quantity(memory), Disk: declare.Quantity(disk)}}}
		r, err := Compile(spec(one, one))
		if err != nil {
			return
		}
		if a := r.Amounts; min(a.CPU, a.Memory, a.Disk) < 0 || max(a.CPU, a.Memory, a.Disk) > amountMax {
			t.Errorf("%q, %q, %q come to %+v", cpu, memory, disk, a)
		}
	})
}

func TestCheckSaysAll(t *testing.T) {
	n := Node{Name: "node-7", Labels: map[string]string{"disk": "hdd"}, Architecture: "arm64", Unschedulable: true, Unhealthy: "its agent is silent",
		Taints: []Taint{{Taint: declare.Taint{Key: "dedicated", Value: "gpu", Effect: declare.TaintNoSchedule}}, {Taint: declare.Taint{Key: "slow", Effect: declare.TaintPreferNoSchedule}}}}
	left := Left{Amounts: Amounts{CPU: 250, Memory: 300 << 20, Disk: 1 << 40}, Devices: map[string]int64{"gpu": 1}, Ports: map[Port]string{{workload.TCP, 80}: "n/other"}}
	r := Request{Amounts: Amounts{CPU: 1000, Memory: 512 << 20, Disk: 1 << 30}, Devices: []DeviceCount{{"gpu", 2}}, Ports: []Port{{workload.TCP, 80}}, Directories: []string{"/srv"},
		Selector: declare.Selector{MatchLabels: map[string]string{"disk": "ssd"}}, Architectures: []string{"amd64"}}
	var words, cures []string
	for i, f := range Check(&n, &left, &r) {
		if i > 0 && f.Reason < Reason(i-1) {
			t.Errorf("%v is out of order", f.Reason)
		}
		words, cures = append(words, f.String()), append(cures, f.Cure())
	}
	if want := "its agent is silent; is cordoned; has not disk=ssd; is arm64; has taint dedicated=gpu:NoSchedule; has no directory /srv; port 80/TCP is taken by n/other; " +
		"needs 2 gpu, 1 are free; needs 1 cpu, 250m is free; needs 512Mi memory, 300Mi is free"; strings.Join(words, "; ") != want {
		t.Errorf("words:\n got %s\nwant %s", strings.Join(words, "; "), want)
	}
	if want := "make it healthy; uncordon it; label it disk=ssd; add architecture arm64; tolerate dedicated=gpu:NoSchedule; make directory /srv; free port 80/TCP; +1 gpu; " +
		"+750m cpu; +212Mi memory"; strings.Join(cures, "; ") != want {
		t.Errorf("cures:\n got %s\nwant %s", strings.Join(cures, "; "), want)
	}
	if err := Refuse("n/web-1", Check(&n, &left, &r)); !reason.Is(err, reason.InstanceRefused) {
		t.Errorf("refusal: %v", err)
	}
	if err := Refuse("n/web-1", nil); err != nil {
		t.Errorf("refusal of nothing: %v", err)
	}
}

// TestReasonsHaveWords: each reason has a name, words and a cure.
func TestReasonsHaveWords(t *testing.T) {
	seen := map[string]bool{}
	for i := range Reasons {
		r := Refusal{Reason: Reason(i), What: "x", Need: 2, Have: 1, Holder: "y"}
		if strings.Contains(r.Reason.String(), "(") || seen[r.Reason.String()] || r.String() == "" || r.Cure() == "" {
			t.Errorf("reason %d: %q, %q, %q", i, r.Reason, r, r.Cure())
		}
		seen[r.Reason.String()] = true
	}
}

func TestBytesText(t *testing.T) {
	for _, c := range []struct {
		n        int64
		up, down string
	}{{0, "0", "0"}, {1, "1", "1"}, {1023, "1023", "1023"}, {1025, "2Ki", "1Ki"}, {512 << 20, "512Mi", "512Mi"}, {3 << 29, "1536Mi", "1536Mi"}, {1<<30 + 1, "1025Mi", "1024Mi"},
		{200<<30 + 1, "201Gi", "200Gi"}, {-1 << 30, "-1Gi", "-1Gi"}, {-1025, "-1Ki", "-2Ki"}} {
		if up, down := bytesText(c.n, true), bytesText(c.n, false); up != c.up || down != c.down {
			t.Errorf("%d is %s and %s, want %s and %s", c.n, up, down, c.up, c.down)
		}
	}
}

func TestLeavesAt(t *testing.T) {
	began := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	taint := func(key string, effect declare.TaintEffect) Taint {
		return Taint{declare.Taint{Key: key, Effect: effect}, began}
	}
	for _, seconds := range []int64{-5, 0, 300, 1 << 62} {
		tolerations := []workload.Toleration{{Key: "gone", Operator: workload.TolerationExists, TolerationSeconds: &seconds}}
		at, leaves := LeavesAt([]Taint{taint("gone", declare.TaintNoExecute)}, tolerations)
		if !leaves || at.Before(began) || seconds == 300 && !at.Equal(began.Add(5*time.Minute)) {
			t.Errorf("%d seconds: %v, %v", seconds, at, leaves)
		}
		if at, leaves := LeavesAt([]Taint{taint("gone", declare.TaintNoExecute), taint("other", declare.TaintNoExecute)}, tolerations); !leaves || !at.Equal(began) {
			t.Errorf("with another taint: %v, %v", at, leaves)
		}
	}
	for _, one := range []Taint{taint("gone", declare.TaintNoSchedule), taint("gone", declare.TaintPreferNoSchedule)} {
		if at, leaves := LeavesAt([]Taint{one}, nil); leaves {
			t.Errorf("%s makes it leave at %v", one, at)
		}
	}
	if at, leaves := LeavesAt([]Taint{taint("gone", declare.TaintNoExecute)}, []workload.Toleration{{Key: "gone"}}); leaves {
		t.Errorf("one that tolerates it for ever leaves at %v", at)
	}
}
