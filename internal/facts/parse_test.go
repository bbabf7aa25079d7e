package facts

import (
	"net/netip"
	"reflect"
	"testing"
)

func TestParseOSRelease(t *testing.T) {
	tests := []struct {
		name, content string
		want          OS
	}{
		{"debian", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\nID=debian\n",
			OS{"debian", "debian", "12", "bookworm", "Debian GNU/Linux"}},
		{"ubuntu", "ID=ubuntu\nID_LIKE=debian\nVERSION_ID='24.04'\n", OS{ID: "ubuntu", Family: "debian", Version: "24.04"}},
		{"derived of derived", "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", OS{ID: "linuxmint", Family: "debian"}},
		{"rocky", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", OS{ID: "rocky", Family: "rhel"}},
		{"fedora", "ID=fedora\n", OS{ID: "fedora", Family: "rhel"}},
		{"leap", "ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n", OS{ID: "opensuse-leap", Family: "suse"}},
		{"unknown is its own family", "ID=void\n", OS{ID: "void", Family: "void"}},
		{"no ID", "NAME=Thing\n", OS{ID: "linux", Family: "linux", Name: "Thing"}},
		{"nothing", "", OS{}},
		{"comments, blanks, rubbish", "# ID=no\n\n  ID=debian  \nrubbish\n=\n", OS{ID: "debian", Family: "debian"}},
		{"last one counts", "ID=a\nID=b\n", OS{ID: "b", Family: "b"}},
		{"quotes and escapes", `NAME="A \"B\" \$C"'d\e'` + "\nID=x\n", OS{ID: "x", Family: "x", Name: `A "B" $Cd\e`}},
		{"no newline at the end", "ID=debian", OS{ID: "debian", Family: "debian"}},
		{"CRLF", "ID=debian\r\nVERSION_ID=12\r\n", OS{ID: "debian", Family: "debian", Version: "12"}},
	}
	for _, tt := range tests {
		if got := parseOSRelease([]byte(tt.content)); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestParseCPUList(t *testing.T) {
	for in, want := range map[string]int64{
		"0\n": 1, "0-3\n": 4, "0-3,8\n": 5, "0-1,4-5,7": 5, "": 0, "\n": 0, "x": 0, "3-1": 0, "0-": 0, "0,,1": 0, "-1": 0, "0-99999999": 0,
	} {
		if got := parseCPUList([]byte(in)); got != want {
			t.Errorf("%q: got %d, want %d", in, got, want)
		}
	}
}

func TestParseMemTotal(t *testing.T) {
	for in, want := range map[string]int64{
		"MemTotal:       24684100 kB\nMemFree: 1 kB\n": 24684100 * 1024,
		"MemFree: 1 kB\nMemTotal: 5 kB":                5 * 1024,
		"":                                             0,
		"MemTotal: 5\n":                                0,
		"MemTotal: -5 kB\n":                            0,
		"MemTotal: 9223372036854775807 kB\n":           0,
	} {
		if got := parseMemTotal([]byte(in)); got != want {
			t.Errorf("%q: got %d, want %d", in, got, want)
		}
	}
}

const routes4 = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
wlan0	00000000	0100A8C0	0003	0	0	600	00000000	0	0	0
eth0	00000000	010200C0	0003	0	0	100	00000000	0	0	0
eth1	00000000	010200C0	0002	0	0	1	00000000	0	0	0
eth1	00000000	00000000	0201	0	0	1	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
tun0	00000000	00000000	0001	0	0	0	00000080	0	0	0
`

const routes6 = `fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000002 00000000 00000003     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 00000400 00000001 00000000 00200201     eth1
`

func TestParseRoutes(t *testing.T) {
	if got, want := parseRoutes4([]byte(routes4)), []route{{"wlan0", 600, false}, {"eth0", 100, false}}; !reflect.DeepEqual(got, want) {
		t.Errorf("v4: got %+v, want %+v", got, want)
	}
	if got, want := parseRoutes6([]byte(routes6)), []route{{"eth0", 1024, true}}; !reflect.DeepEqual(got, want) {
		t.Errorf("v6: got %+v, want %+v", got, want)
	}
}

func TestNetworkOf(t *testing.T) {
	eth0 := netInterface{"eth0", "", prefixes("fe80::1/64", "192.0.2.2/24", "192.0.2.3/24", "fd00::2/64")}
	wlan0 := netInterface{"wlan0", "", prefixes("198.51.100.7/24")}
	bare := netInterface{"tun0", "", nil}
	six := netInterface{"eth6", "", prefixes("fe80::6/64", "2001:db8::6/64")}
	mixed := netInterface{"eth7", "", prefixes("fd00::7/64", "192.0.2.7/24")}
	instances := netInterface{InstancesBridge, "", prefixes("10.213.0.1/16")}
	v4 := func(device string, metric uint64) route { return route{device, metric, false} }
	v6 := func(device string, metric uint64) route { return route{device, metric, true} }
	tests := []struct {
		name       string
		routes     []route
		interfaces []netInterface
		iface      string
		address    string
	}{
		{"lowest metric", []route{v4("wlan0", 600), v4("eth0", 100)}, []netInterface{wlan0, eth0}, "eth0", "192.0.2.2"},
		{"first of equals", []route{v4("wlan0", 0), v4("eth0", 0)}, []netInterface{eth0, wlan0}, "wlan0", "198.51.100.7"},
		{"IPv4 before IPv6", []route{v6("eth6", 1), v4("wlan0", 600)}, []netInterface{six, wlan0}, "wlan0", "198.51.100.7"},
		{"IPv6 alone", []route{v6("eth6", 1024)}, []netInterface{six}, "eth6", "2001:db8::6"},
		{"without an address, the next", []route{v4("tun0", 0), v4("eth0", 9)}, []netInterface{bare, eth0}, "eth0", "192.0.2.2"},
		{"interface is down", []route{v4("eth9", 0)}, []netInterface{eth0}, "", ""},
		{"no default route", nil, []netInterface{bare, mixed}, "eth7", "192.0.2.7"},
		{"no default route, IPv6 alone", nil, []netInterface{six}, "eth6", "2001:db8::6"},
		{"no default route, and a choice", nil, []netInterface{eth0, wlan0}, "", ""},
		{"no network", nil, []netInterface{bare}, "", ""},
		{"beside networks of instances", nil, []netInterface{eth0, instances}, "eth0", "192.0.2.2"},
	}
	for _, tt := range tests {
		got := networkOf(tt.routes, tt.interfaces)
		address := ""
		if got.PrimaryAddress.IsValid() {
			address = got.PrimaryAddress.String()
		}
		if got.PrimaryInterface != tt.iface || address != tt.address {
			t.Errorf("%s: got %s %s, want %s %s", tt.name, got.PrimaryInterface, address, tt.iface, tt.address)
		}
	}
	all := networkOf(nil, []netInterface{eth0, instances, six}).Addresses
	if want := prefixes("192.0.2.2/24", "192.0.2.3/24", "fd00::2/64", "2001:db8::6/64"); !reflect.DeepEqual(all, want) {
		t.Errorf("addresses: got %v, want %v", all, want)
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, s := range texts {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

func TestVirtualization(t *testing.T) {
	tests := []struct {
		name string
		give signs
		want string
	}{
		{"metal", signs{firmware: []string{"PowerEdge R640", "Dell Inc."}}, "none"},
		{"nothing known", signs{}, "none"},
		{"nspawn", signs{containerFile: "systemd-nspawn", firmware: []string{"KVM"}}, "systemd-nspawn"},
		{"lxc by environment", signs{initEnviron: []byte("HOME=/\x00container=lxc\x00")}, "lxc"},
		{"environment of another name", signs{initEnviron: []byte("mycontainer=lxc\x00")}, "none"},
		{"odd word is no sign", signs{containerFile: "x\x1b[0m"}, "none"},
		{"docker", signs{dockerFile: true, hypervisorFlag: true}, "docker"},
		{"podman", signs{podmanFile: true}, "podman"},
		{"openvz", signs{openVZ: true}, "openvz"},
		{"wsl", signs{kernelRelease: "5.15.90.1-microsoft-standard-WSL2"}, "wsl"},
		{"kvm by firmware", signs{firmware: []string{"KVM"}, hypervisorFlag: true}, "kvm"},
		{"qemu run by kvm", signs{firmware: []string{"Standard PC", "QEMU"}, clockSources: "kvm-clock tsc acpi_pm"}, "kvm"},
		{"qemu emulated", signs{firmware: []string{"Standard PC", "QEMU"}, clockSources: "tsc acpi_pm"}, "qemu"},
		{"kvm without firmware", signs{clockSources: "kvm-clock tsc", hypervisorFlag: true}, "kvm"},
		{"kvm on arm", signs{deviceTree: "linux,kvm"}, "kvm"},
		{"xen", signs{hypervisorType: "xen", hypervisorFlag: true}, "xen"},
		{"vmware", signs{firmware: []string{"VMware Virtual Platform", "VMware, Inc."}}, "vmware"},
		{"virtualbox", signs{firmware: []string{"VirtualBox", "innotek GmbH"}}, "oracle"},
		{"hyper-v", signs{firmware: []string{"Virtual Machine", "Microsoft Corporation"}, hypervisorFlag: true}, "microsoft"},
		{"surface, of metal", signs{firmware: []string{"Surface Pro", "Microsoft Corporation"}}, "none"},
		{"ec2", signs{firmware: []string{"t3.micro", "Amazon EC2"}, hypervisorFlag: true}, "amazon"},
		{"ec2 metal", signs{firmware: []string{"Amazon EC2", "c5.metal"}}, "none"},
		{"unknown hypervisor", signs{hypervisorFlag: true}, "vm-other"},
	}
	for _, tt := range tests {
		if got := virtualization(tt.give); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestHasHypervisorFlag(t *testing.T) {
	for in, want := range map[string]bool{
		"model name\t: hypervisor\nflags\t\t: fpu vme\n": false,
		"flags\t\t: fpu hypervisor lahf_lm\n":            true,
		"flags : nohypervisor\n":                         false,
		"Features\t: fp asimd\n":                         false,
		"":                                               false,
	} {
		if got := hasHypervisorFlag([]byte(in)); got != want {
			t.Errorf("%q: got %v", in, got)
		}
	}
}

// FuzzParse gives every parser the same bytes: none may panic, none may make up what cannot be.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		routes4, routes6, "ID=debian\nNAME=\"a\\", "0-3,8\n", "MemTotal: 1 kB\n", "flags : hypervisor\n", "container=lxc\x00", "'", "\\", "=",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		parseOSRelease(b)
		if n := parseCPUList(b); n < 0 {
			t.Errorf("%d processors", n)
		}
		if n := parseMemTotal(b); n < 0 || n%1024 != 0 {
			t.Errorf("%d bytes of memory", n)
		}
		for _, r := range append(parseRoutes4(b), parseRoutes6(b)...) {
			if r.device == "" {
				t.Error("route without device")
			}
		}
		hasHypervisorFlag(b)
		if v := virtualization(signs{initEnviron: b, containerFile: firstLine(b), clockSources: string(b)}); v == "" {
			t.Error("virtualization must have a word")
		}
	})
}
