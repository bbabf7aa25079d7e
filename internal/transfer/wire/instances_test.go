package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"tako.dev/tako/internal/catalog"
)

// manyInstances are as many as a host may have, each with texts of so many bytes and so many ports.
func manyInstances(message, ports int) []Instance {
	all := make([]Instance, catalog.InstancesMax)
	for i := range all {
		all[i] = Instance{UID: fmt.Sprintf("%036d", i), Attempt: 1 << 31, Phase: InstanceFailed, Ready: true, Code: 902, Message: strings.Repeat("x", message), Since: 1 << 62, OfNode: true,
			Restarts: 1 << 31, CPU: 1 << 63, Memory: 1 << 63, Revision: strings.Repeat("r", RevisionHashMax)}
		for p := range ports {
			all[i].Ports = append(all[i].Ports, InstancePort{Name: fmt.Sprintf("port-number-%03d", p), Number: 65535})
		}
	}
	return all
}

// TestFitInstances: whatever a host has, its report is taken, and what matters most is in it.
func TestFitInstances(t *testing.T) {
	for _, c := range []struct{ message, ports, texts, withPorts int }{
		{InstanceMessageMax, 2, catalog.InstancesMax, catalog.InstancesMax}, {10 * InstanceMessageMax, 2, catalog.InstancesMax, catalog.InstancesMax},
		{0, 0, 0, 0}, {10, 16, 0, 600}, {InstanceMessageMax, 1024, 0, 10},
	} {
		all := manyInstances(c.message, c.ports)
		slices.Reverse(all)
		r := Report{Session: Session{ID: "a"}, Instances: FitInstances(all)}
		if err := r.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		data, err := Encode(r)
		if err != nil || len(data) > InstancesBytesMax+1<<10 || len(r.Instances) != catalog.InstancesMax {
			t.Errorf("%+v: %d bytes, %v", c, len(data), err)
		}
		texts, ports := 0, 0
		for i := range r.Instances {
			if r.Instances[i].Phase != InstanceFailed || r.Instances[i].Code != 902 {
				t.Fatalf("%+v: something of instance %d is lost", c, i)
			}
			texts, ports = texts+min(len(r.Instances[i].Message), 1), ports+min(len(r.Instances[i].Ports), 1)
		}
		if texts < c.texts || ports < c.withPorts {
			t.Errorf("%+v: %d texts and the ports of %d are left", c, texts, ports)
		}
	}
	if all := FitInstances(make([]Instance, catalog.InstancesMax+5)); len(all) != catalog.InstancesMax {
		t.Errorf("%d instances", len(all))
	}
	if one := FitInstances([]Instance{{UID: "a", Message: strings.Repeat("ä", InstanceMessageMax) + "\xff"}}); !utf8.ValidString(one[0].Message) || len(one[0].Message) != InstanceMessageMax {
		t.Errorf("a text is cut to %q", one[0].Message)
	}
}

// TestInstanceBounds: what is above them is refused, each by its words.
func TestInstanceBounds(t *testing.T) {
	long := strings.Repeat("x", nameMax+1)
	for want, change := range map[string]func(*Report){
		"1025 instances":           func(r *Report) { r.Instances = make([]Instance, catalog.InstancesMax+1) },
		"UID of an instance":       func(r *Report) { r.Instances[0].UID = long },
		"message of an instance":   func(r *Report) { r.Instances[0].Message = long },
		"revision of an instance":  func(r *Report) { r.Instances[0].Revision = long },
		"not in order":             func(r *Report) { r.Instances = append(r.Instances, r.Instances[0]) },
		"name of a port":           func(r *Report) { r.Instances[0].Ports[0].Name = long },
		"bytes of instances":       func(r *Report) { r.Instances = manyInstances(InstanceMessageMax, 8) },
		"less than nothing":        func(r *Report) { r.Offers.Disk = -1 },
		"address of instances":     func(r *Report) { r.Offers.Address = long },
		"architecture":             func(r *Report) { r.Offers.Arch = long },
		"65 runtimes":              func(r *Report) { r.Offers.Runtimes = make([]string, OffersMax+1) },
		"name of a runtime":        func(r *Report) { r.Offers.Runtimes[0] = long },
		"kind of a device":         func(r *Report) { r.Offers.Devices[long] = nil },
		"65 devices":               func(r *Report) { r.Offers.Devices["gpu"] = make([]string, OffersMax+1) },
		"name of a device":         func(r *Report) { r.Offers.Devices["gpu"][0] = long },
		"257 directories":          func(r *Report) { r.Offers.Directories = make([]string, DirectoriesMax+1) },
		"its directory has 5000 b": func(r *Report) { r.Offers.Directories[0] = strings.Repeat("x", 5000) },
		"kinds of devices": func(r *Report) {
			for i := range OffersMax {
				r.Offers.Devices[fmt.Sprint(i)] = nil
			}
		},
	} {
		r := full()["Report"].(*Report)
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		if change(r); r.Validate() == nil || !strings.Contains(r.Validate().Error(), want) {
			t.Errorf("%s: %v", want, r.Validate())
		}
	}
}

// TestReportOfAnOlderAgent: what an agent sends that knows no instances is read as one that has none.
func TestReportOfAnOlderAgent(t *testing.T) {
	r := full()["Report"].(*Report)
	r.Instances, r.Offers = nil, nil
	data, err := Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[int]any
	if err := Decode(data, &fields); err != nil || fields[20] != nil || fields[21] != nil {
		t.Errorf("%v: it says something of them: %v", err, fields)
	}
	var back Report
	if err := Decode(data, &back); err != nil || back.Instances != nil || back.Offers != nil || back.Validate() != nil {
		t.Errorf("%+v, %v", back, err)
	}
}

// TestLargestReport: the largest report is below what a request may have, and one frame has room for it beside the certificate of its agent.
func TestLargestReport(t *testing.T) {
	r := full()["Report"].(*Report)
	r.Instances = FitInstances(manyInstances(InstanceMessageMax, 3))
	for range catalog.LayersMax {
		r.Configs = append(r.Configs, ConfigReport{ID: strings.Repeat("c", 253), Message: strings.Repeat("m", MessageMax)})
	}
	data, err := Encode(r)
	if err != nil || len(data) > RequestMax {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	var frame bytes.Buffer
	if err := WriteFrame(&frame, RelayUp{Protocol: Protocol, Agents: []RelayedAgent{{Number: 1, Certificate: make([]byte, CertificateMax), Report: r}}}); err != nil {
		t.Error(err)
	}
}
