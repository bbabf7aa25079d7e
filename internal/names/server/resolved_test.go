package server

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"tako.dev/tako/internal/host/hosttest/apart"
	"tako.dev/tako/internal/names"
)

// resolvedProgram finds systemd-resolved: of this machine, or unpacked by tools/needs.sh.
func resolvedProgram(t *testing.T) string {
	t.Helper()
	unpacked := filepath.Join(cmp.Or(os.Getenv("TAKO_TEST_CACHE"), "/var/cache/tako-test"), "unpacked")
	for _, p := range []string{"/usr/lib/systemd/systemd-resolved", filepath.Join(unpacked, "usr/lib/systemd/systemd-resolved"), filepath.Join(unpacked, "lib/systemd/systemd-resolved")} {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	t.Skip("needs systemd-resolved, which tools/needs.sh unpacks")
	return ""
}

// resolvedHost has a network of its own, with one link that is up and a server of the DNS on it, and the settings of systemd-resolved to
// itself. The daemon becomes the user that its package makes.
const resolvedHost = `
ip link set lo up
ip link add up0 type veth peer name up1
ip address add 192.0.2.1/24 dev up0
ip link set up0 up
ip link set up1 up
cp /etc/passwd /etc/group "$1"
grep -q '^systemd-resolve:' /etc/passwd || echo 'systemd-resolve:x:64999:64999::/:/usr/sbin/nologin' >>"$1/passwd"
grep -q '^systemd-resolve:' /etc/group || echo 'systemd-resolve:x:64999:' >>"$1/group"
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/group" /etc/group
mount -t tmpfs tmpfs /etc/systemd
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/netif/links /run/systemd/resolve
chown systemd-resolve:systemd-resolve /run/systemd/resolve
printf 'ADMIN_STATE=configured\nOPER_STATE=routable\nDNS=192.0.2.1\nLLMNR=no\nMDNS=no\n' >"/run/systemd/netif/links/$(ip -o link show up0 | cut -d: -f1)"
`

// TestResolved has the real systemd-resolved, set as docs/names.md says, ask for programs of a host: about the domain it asks us alone, about
// everything else the answers of others count, and a change is in what programs hear next.
func TestResolved(t *testing.T) {
	program := resolvedProgram(t)
	needsDig(t)
	if !apart.Run(t, apart.Host{Namespaces: []string{"--net"}, Script: resolvedHost}) {
		return
	}
	x := shop(t)
	ours, others := serve(t, "127.0.0.88:53", x), serve(t, "192.0.2.1:53", elsewhere(t))
	startResolved(t, program)
	at := netip.MustParseAddrPort("127.0.0.53:53")

	for question, want := range map[string]string{
		"web.prod.tako.internal A":                   "10.0.0.11 10.0.0.12",
		"_postgresql._tcp.db.prod.tako.internal SRV": "0 1 5432 db-m3qz.db.prod.tako.internal.",
		"_http._tcp.prod.tako.internal PTR":          "web-7f9c._http._tcp.prod.tako.internal. web-x2k4._http._tcp.prod.tako.internal.",
		"web-7f9c._http._tcp.prod.tako.internal TXT": `"txtvers=1" "path=/shop"`,
		"www.node.example.org A":                     "198.51.100.1",
		"batch.prod.tako.internal A":                 "",
	} {
		if got := strings.Join(shell(t, at, "", "dig +short "+question), " "); got != want {
			t.Errorf("%s: %q", question, got)
		}
	}
	for name, rcode := range map[string]int{"bacth.prod.tako.internal.": dns.RcodeNameError, "nothing.example.org.": dns.RcodeNameError, "batch.prod.tako.internal.": dns.RcodeSuccess} {
		if r := ask(t, at, "udp", name, dns.TypeA, 1232); r.Rcode != rcode {
			t.Errorf("%s: %s", name, dns.RcodeToString[r.Rcode])
		}
	}
	if c := others.Counts(); c.Answered["REFUSED"] != 0 || c.Answered["NOERROR"] == 0 {
		t.Errorf("others were asked about ours: %+v", c)
	}

	e := x.Edit()
	e.DropInstance("prod", "db-m3qz")
	without := e.Commit(2)
	for round, view := range []*names.Index{without, x} {
		ours.Swap(view)
		if r := ask(t, at, "udp", "db.prod.tako.internal.", dns.TypeA, 1232); len(r.Answer) != round {
			t.Errorf("after a change it still says %v", r.Answer)
		}
	}
}

// plainHost has a network of its own, with a server of the DNS on a link, and two servers in its resolv.conf: ours, and that one.
const plainHost = `
ip link set lo up
ip link add up0 type veth peer name up1
ip address add 192.0.2.1/24 dev up0
ip link set up0 up
ip link set up1 up
printf 'nameserver 127.0.0.88\nnameserver 192.0.2.1\noptions timeout:2 attempts:1\n' >"$1/resolv.conf"
printf 'hosts: files dns\n' >"$1/nsswitch.conf"
mount --bind "$1/resolv.conf" "$(readlink -f /etc/resolv.conf)"
mount --bind "$1/nsswitch.conf" /etc/nsswitch.conf
`

// TestPlainResolver: programs of a host without a resolver of its own, by the C library and by that of Go, find our names and those of others, where its
// resolv.conf has us first; and those of others while nobody answers for us.
func TestPlainResolver(t *testing.T) {
	if _, err := exec.LookPath("getent"); err != nil {
		t.Skip("needs getent, of Debian's package libc-bin")
	}
	if !apart.Run(t, apart.Host{Namespaces: []string{"--net"}, Script: plainHost}) {
		return
	}
	ask := map[string]func(name string) string{
		"C": func(name string) string {
			out, _ := exec.CommandContext(t.Context(), "getent", "ahostsv4", name).Output() // an error is that there is none
			var all []string
			for line := range strings.Lines(string(out)) {
				all = append(all, strings.Fields(line)[0])
			}
			slices.Sort(all)
			return strings.Join(slices.Compact(all), " ")
		},
		"Go": func(name string) string {
			all, _ := (&net.Resolver{PreferGo: true}).LookupHost(t.Context(), name) // an error is that there is none
			slices.Sort(all)
			return strings.Join(all, " ")
		},
	}
	others := map[string]string{"www.node.example.org": "198.51.100.1", "nothing.example.org": ""}
	all := map[string]string{"web.prod.tako.internal": "10.0.0.11 10.0.0.12", "batch.prod.tako.internal": "", "bacth.prod.tako.internal": ""}
	maps.Copy(all, others)
	serve(t, "192.0.2.1:53", elsewhere(t))
	t.Run("answered", func(t *testing.T) {
		ours := serve(t, "127.0.0.88:53", shop(t))
		for name, want := range all {
			for by, ask := range ask {
				if got := ask(name); got != want {
					t.Errorf("%s by %s: %q, want %q", name, by, got, want)
				}
			}
		}
		if c := ours.Counts(); c.Answered["REFUSED"] == 0 || c.Answered["NOERROR"] == 0 || c.Answered["NXDOMAIN"] == 0 {
			t.Errorf("we were not asked first: %+v", c)
		}
	})
	for name, want := range others {
		for by, ask := range ask {
			if got := ask(name); got != want {
				t.Errorf("%s by %s while nobody answers for us: %q, want %q", name, by, got, want)
			}
		}
	}
}

// elsewhere is a domain that is not ours.
func elsewhere(t *testing.T) *names.Index {
	t.Helper()
	x, err := names.New(names.Options{Domain: "example.org"})
	if err != nil {
		t.Fatal(err)
	}
	e := x.Edit()
	if err := e.PutNode(names.Node{Name: "www", Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.1")}}); err != nil {
		t.Fatal(err)
	}
	return e.Commit(1)
}

// startResolved starts the daemon with the settings of the page, waits until it says that it is ready, and ends it with the test.
func startResolved(t *testing.T, program string) {
	t.Helper()
	page, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range block.FindAllStringSubmatch(string(page), -1) {
		if path, settings, _ := strings.Cut(b[2], "\n"); b[1] == "ini" {
			path = strings.TrimPrefix(path, "# ")
			if packaged, err := os.ReadFile("../../../packaging/resolved.conf.d/tako.conf"); err != nil || string(packaged) != settings {
				t.Errorf("packaging has other settings than the page: %q, %v", packaged, err)
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(settings), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "/run/notify", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	if err := os.Chmod("/run/notify", 0o666); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	daemon := exec.CommandContext(context.Background(), program)
	daemon.Env, daemon.Stdout, daemon.Stderr = append(os.Environ(), "NOTIFY_SOCKET=/run/notify"), &log, &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		if err := daemon.Wait(); err != nil || t.Failed() {
			t.Logf("systemd-resolved: %v\n%s", err, log.String())
		}
	})
	if err := ready.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for message := make([]byte, 4096); ; {
		n, err := ready.Read(message)
		if err != nil {
			t.Fatalf("systemd-resolved does not become ready: %v", err)
		}
		if strings.Contains(string(message[:n]), "READY=1") {
			return
		}
	}
}
