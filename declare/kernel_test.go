package declare

import (
	"slices"
	"strings"
	"testing"
)

// mistakes validates one resource, and returns where it is wrong.
func mistakes(r Resource) string { return summary(Validate(config(r))) }

func TestValidateSysctl(t *testing.T) {
	for key, p := range map[string]string{
		"net.ipv4.ip_forward": "net/ipv4/ip_forward", "kernel.core_pattern": "kernel/core_pattern", "net.ipv4.conf.eth0/100.forwarding": "net/ipv4/conf/eth0.100/forwarding",
		"net.bridge.bridge-nf-call-iptables": "net/bridge/bridge-nf-call-iptables", "fs.binfmt_misc.status": "fs/binfmt_misc/status",
	} {
		if got := mistakes(Resource{Name: "x", Sysctl: &Sysctl{Key: key, Value: "1"}}); got != "" {
			t.Errorf("%s: %s", key, got)
		}
		if got := SysctlPath(key); got != "/proc/sys/"+p || SysctlKey(got) != key || CanonicalSysctl(p) != key || CanonicalSysctl(key) != key {
			t.Errorf("%s: %s, %s, %s", key, got, SysctlKey(got), CanonicalSysctl(p))
		}
	}
	for _, bad := range []string{
		"forward", "net/ipv4/ip_forward", "/proc/sys/net/ipv4/ip_forward", ".net.ipv4", "net..ipv4", "net.ipv4.", "net.//.x", "net./.x", "net.ipv4.*", "net.ipv4 .x", "net.a=b", "net.a:b", "net.é",
		"a." + strings.Repeat("b", 199),
	} {
		if got := mistakes(Resource{Name: "x", Sysctl: &Sysctl{Key: bad, Value: "1"}}); got != "TK0414 spec.resources[0].sysctl.key" {
			t.Errorf("%q: %s", bad, got)
		}
	}
	for value, want := range map[string]string{
		"0": "", "4096 87380 6291456": "", "|/usr/lib/x %p": "", "": "TK0413 spec.resources[0].sysctl.value", " 1": "TK0414 spec.resources[0].sysctl.value", "1  2": "TK0414 spec.resources[0].sysctl.value",
		"1\t2": "TK0414 spec.resources[0].sysctl.value", "1\n": "TK0414 spec.resources[0].sysctl.value", strings.Repeat("1", 4096): "TK0414 spec.resources[0].sysctl.value",
	} {
		if got := mistakes(Resource{Name: "vm.swappiness", Sysctl: &Sysctl{Value: value}}); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
	if got := mistakes(Resource{Name: "vm.swappiness", Expand: true, Sysctl: &Sysctl{Value: "$(node.labels['x'])"}}); got != "" {
		t.Errorf("expanded: %s", got)
	}
	faults := Validate(config(Resource{Name: "x", Sysctl: &Sysctl{Key: "/proc/sys/net/ipv4/ip_forward", Value: "1"}}))
	if !strings.Contains(faults[0].Hint, `"net.ipv4.ip_forward"`) {
		t.Errorf("hint: %s", faults[0].Hint)
	}
	r := Resource{Name: "net.bridge.bridge-nf-call-iptables", Sysctl: &Sysctl{Value: "1"}}
	if edges := r.AutoEdges(); len(edges) != 1 || edges[0].Other != (Claim{ClaimKernelModule, "br_netfilter"}) {
		t.Errorf("edges: %v", edges)
	}
	two := []Resource{{Name: "a.b", Sysctl: &Sysctl{Value: "1"}}, {Name: "c", Sysctl: &Sysctl{Key: "a.b", Value: "2"}}}
	if got := summary(Validate(config(two...))); got != "TK0421 spec.resources[1].sysctl.key" {
		t.Errorf("two of one key: %s", got)
	}
}

func TestValidateKernelModule(t *testing.T) {
	module := func(m KernelModule) Resource { return Resource{Name: "br-netfilter", KernelModule: &m} }
	for _, c := range []struct {
		m    KernelModule
		want string
	}{
		{KernelModule{}, ""}, {KernelModule{State: ModuleUnloaded}, ""}, {KernelModule{State: ModuleBlocked}, ""}, {KernelModule{Options: map[string]string{"a": "1,2", "b_c": "/dev/x"}}, ""},
		{KernelModule{Module: "a b"}, "module"}, {KernelModule{Module: "x.ko"}, "module"}, {KernelModule{Module: "/x"}, "module"}, {KernelModule{Module: strings.Repeat("x", 56)}, "module"},
		{KernelModule{State: "load"}, "state"}, {KernelModule{Options: map[string]string{"a b": "1"}}, "options"}, {KernelModule{Options: map[string]string{"a": "1 2"}}, "options"},
		{KernelModule{Options: map[string]string{"a": ""}}, "options"}, {KernelModule{Options: map[string]string{"a": "1\ninstall x /bin/sh"}}, "options"},
		{KernelModule{Options: map[string]string{"a": strings.Repeat("x", 4096)}}, "options"},
	} {
		want := ""
		if c.want != "" {
			want = "TK0414 spec.resources[0].kernelModule." + c.want
		}
		if got := mistakes(module(c.m)); got != want {
			t.Errorf("%+v: %s, want %s", c.m, got, want)
		}
	}
	if got := mistakes(module(KernelModule{State: ModuleBlocked, Options: map[string]string{"a": "1"}})); got != "TK0415 spec.resources[0].kernelModule.options" {
		t.Errorf("blocked with options: %s", got)
	}
	r := module(KernelModule{})
	if r.Claim() != (Claim{ClaimKernelModule, "br_netfilter"}) {
		t.Errorf("claim: %v", r.Claim())
	}
	if !slices.ContainsFunc(r.AutoEdges(), func(e AutoEdge) bool { return e.Other == Claim{ClaimPackage, "kmod"} }) {
		t.Errorf("edges: %v", r.AutoEdges())
	}
}

func FuzzSysctlKey(f *testing.F) {
	for _, s := range []string{"net.ipv4.ip_forward", "net.ipv4.conf.eth0/1.x", "../x", "a./.b", "/a.b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if message, _ := sysctlKeyMistake(key); message != "" {
			return
		}
		p := SysctlPath(key)
		if !strings.HasPrefix(p, "/proc/sys/") || strings.Contains(p+"/", "/../") || strings.Contains(p+"/", "/./") || strings.Contains(p, "//") || SysctlKey(p) != key {
			t.Fatalf("%q is %q", key, p)
		}
	})
}
