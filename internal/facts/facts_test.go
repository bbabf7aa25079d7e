package facts

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// full is a host that knows every fact.
var full = Facts{
	Hostname: "web-1", FQDN: "web-1.example.com", Arch: "amd64", BootID: "0b6e7e2c", CPUModel: "Some CPU",
	Disks:    []Disk{{Name: "nvme0n1", Bytes: 512, Model: "Some SSD"}, {Name: "sda", Bytes: 1 << 40, Model: "Some disk", Rotational: true}},
	Timezone: "Europe/Berlin", SystemdVersion: 252, PackageManager: "apt", SELinux: "disabled",
	OS:       OS{ID: "debian", Family: "debian", Version: "12", Codename: "bookworm", Name: "Debian GNU/Linux"},
	Kernel:   Kernel{Name: "Linux", Release: "6.1.0-18-amd64"},
	CPUCount: 2, MemoryBytes: 1 << 30,
	Network: Network{PrimaryInterface: "eth0", PrimaryAddress: netip.MustParseAddr("192.0.2.1"), Addresses: prefixes("192.0.2.1/24", "fd00::2/64"),
		Interfaces: []Interface{{Name: "eth0", MAC: "52:54:00:12:34:56", Addresses: prefixes("192.0.2.1/24", "fd00::2/64")}}},
	Virtualization: "kvm",
}

func TestGetKnowsExactlyTheDeclaredNames(t *testing.T) {
	for _, f := range declare.FactNames() {
		v, ok := full.Get(f.Name)
		if !ok {
			t.Errorf("%s: not known", f.Name)
			continue
		}
		switch v.(type) {
		case string:
			if f.Type != declare.Text {
				t.Errorf("%s: is a string, declared as %v", f.Name, f.Type)
			}
		case int64:
			if f.Type != declare.Integer {
				t.Errorf("%s: is an integer, declared as %v", f.Name, f.Type)
			}
		case []string:
			if f.Type != declare.List {
				t.Errorf("%s: is a list, declared as %v", f.Name, f.Type)
			}
		default:
			t.Errorf("%s: is a %T", f.Name, v)
		}
		if v, ok := (Facts{}).Get(f.Name); ok {
			t.Errorf("%s: %v on a host that knows nothing", f.Name, v)
		}
	}
	if _, ok := full.Get("facts.os"); ok {
		t.Error("facts.os is not a fact")
	}
}

func TestCollectFromAHostsFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"root/etc/os-release":            "ID=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\nNAME=\"Debian GNU/Linux\"\n",
		"proc/sys/kernel/hostname":       "web-1\n",
		"proc/sys/kernel/ostype":         "Linux\n",
		"proc/sys/kernel/osrelease":      "6.1.0-18-amd64\n",
		"proc/meminfo":                   "MemTotal:        1048576 kB\nMemFree: 1 kB\n",
		"proc/cpuinfo":                   "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu hypervisor\n",
		"proc/sys/kernel/random/boot_id": "0b6e7e2c\n",
		"root/etc/hosts":                 "127.0.1.1 web-1.example.com web-1\n",
		"root/usr/bin/apt-get":           "",
		"root/usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so": "",
		"sys/block/sda/size":                 "2147483648\n",
		"sys/block/sda/device/model":         "Some disk       \n",
		"sys/block/sda/queue/rotational":     "1\n",
		"sys/block/nvme0n1/size":             "1\n",
		"sys/block/nvme0n1/device/model":     "Some SSD\n",
		"sys/block/nvme0n1/queue/rotational": "0\n",
		"sys/block/dm-0/size":                "9\n",
		"sys/block/sr0/size":                 "9\n",
		"sys/block/sr0/device/model":         "Some drive\n",
		"sys/block/sdb/size":                 "0\n",
		"sys/block/sdb/device/model":         "no medium\n",
		"sys/devices/system/cpu/online":      "0-1\n",
		"sys/class/dmi/id/sys_vendor":        "QEMU\n",
		"sys/devices/system/clocksource/clocksource0/available_clocksource": "kvm-clock tsc acpi_pm \n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/usr/share/zoneinfo/Europe/Berlin", dir+"/root/etc/localtime"); err != nil {
		t.Fatal(err)
	}
	at := places{root: dir + "/root", proc: dir + "/proc", sys: dir + "/sys", run: dir + "/run"}
	got, err := at.collect()
	if err != nil {
		t.Fatal(err)
	}
	want := full
	want.Arch, want.Network = got.Arch, Network{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestCollectGoesOnWhenAFileCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/etc/os-release", 0o755); err != nil { // a directory in the file's place
		t.Fatal(err)
	}
	f, err := Collect(dir)
	if !reason.Is(err, reason.SystemCallFailed) || !strings.Contains(err.Error(), "etc/os-release") {
		t.Errorf("error is %v", err)
	}
	if f.Kernel.Name != "Linux" || f.CPUCount < 1 || f.MemoryBytes < 1<<20 {
		t.Errorf("the other facts are gone: %+v", f)
	}
}

func TestCollectOnThisHost(t *testing.T) {
	f, err := Collect("/")
	if err != nil {
		t.Fatal(err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if f.Hostname != hostname || f.Kernel.Name != "Linux" || f.CPUCount < 1 || f.MemoryBytes < 1<<20 || f.Virtualization == "" {
		t.Errorf("%+v", f)
	}
	t.Logf("%+v", f)
}
