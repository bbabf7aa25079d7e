package server

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
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
