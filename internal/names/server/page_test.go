package server

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/names/endpoints"
)

// shop is what the page about names speaks of.
func shop(t *testing.T) *names.Index {
	t.Helper()
	x, err := names.New(names.Options{Servers: []netip.Addr{netip.MustParseAddr("127.0.0.88")}})
	if err != nil {
		t.Fatal(err)
	}
	e := x.Edit()
	http, sql := names.Port{Name: "http", Protocol: workload.TCP}, names.Port{Name: "postgresql", Protocol: workload.TCP}
	for _, err := range []error{
		e.PutWorkload(names.Workload{Namespace: "prod", Name: "batch", Ports: []names.Port{{Name: "metrics"}}}),
		e.PutNode(names.Node{Name: "n3", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.21"), netip.MustParseAddr("2001:db8::21")}}),
		e.PutInstance(&names.Instance{Namespace: "prod", Workload: "web", Name: "web-x2k4", Index: 0, Node: "n1", Revision: "6b5f7d", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.11")},
			Endpoints: []names.Endpoint{{Port: http, Number: 20817, Text: map[string]string{"path": "/shop"}}}}),
		e.PutInstance(&names.Instance{Namespace: "prod", Workload: "web", Name: "web-7f9c", Index: 1, Node: "n2", Revision: "6b5f7d", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.12")},
			Endpoints: []names.Endpoint{{Port: http, Number: 31260, Text: map[string]string{"path": "/shop"}}}}),
		e.PutInstance(&names.Instance{Namespace: "prod", Workload: "db", Name: "db-m3qz", Index: 0, Node: "n3", Revision: "5d9b8c", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.21")},
			Endpoints: []names.Endpoint{{Port: sql, Number: 5432}}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return e.Commit(1)
}

func needsDig(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("dig"); err != nil {
		t.Skip("needs dig, of Debian's package bind9-dnsutils")
	}
}

const pagePath = "../../../docs/names.md"

var (
	block  = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")
	blanks = regexp.MustCompile(`[ \t]+`)
)

// shell runs a command of the page as it stands there, but for whom dig asks, and returns its lines, which an answer has in turn.
func shell(t *testing.T, at netip.AddrPort, dir, command string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	command = strings.ReplaceAll(command, "dig ", "dig @"+at.Addr().String()+" -p "+strconv.Itoa(int(at.Port()))+" ")
	run := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	run.Dir = dir
	out, err := run.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", command, err)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		lines = append(lines, strings.TrimSpace(blanks.ReplaceAllString(line, " ")))
	}
	slices.Sort(lines)
	return lines
}

// TestPage runs what docs/names.md shows, with the real dig, and wants to read there what comes out.
func TestPage(t *testing.T) {
	needsDig(t)
	s, at := run(t, Options{})
	x := shop(t)
	s.Swap(x)
	dir := t.TempDir()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := endpoints.Write(t.Context(), root, "/", x); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, b := range block.FindAllStringSubmatch(string(page), -1) {
		switch b[1] {
		case "console":
			for _, one := range strings.Split("\n"+b[2], "\n$ ")[1:] {
				command, out, _ := strings.Cut(one, "\n")
				want := strings.Split(strings.TrimSpace(out), "\n")
				slices.Sort(want)
				commands++
				if got := shell(t, at, dir, command); !slices.Equal(got, want) {
					t.Errorf("%s\n got %q\nwant %q", command, got, want)
				}
			}
		case "json":
			pageDocument(t, []byte(b[2]), filepath.Join(dir, endpoints.DocumentFile))
		}
	}
	if commands < 15 {
		t.Errorf("%d commands are run", commands)
	}
}

// pageDocument wants the services of the document that the page shows in the file, as they are there.
func pageDocument(t *testing.T, shown []byte, path string) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want, got endpoints.Document
	for b, to := range map[string]*endpoints.Document{string(shown): &want, string(file): &got} {
		if err := json.Unmarshal([]byte(b), to); err != nil {
			t.Fatal(err)
		}
	}
	got.Services = slices.DeleteFunc(got.Services, func(s endpoints.Service) bool { return s.Workload != want.Services[0].Workload })
	if again, err := got.JSON(); err != nil || string(again) != string(shown) {
		t.Errorf("the page should show\n%s\n%v", again, err)
	}
}

// TestBrowseAsClientsDo goes the way of a DNS-SD client from what the host's domain is to where an instance is, with the real dig: RFC 6763,
// section 4. What is asked for next is taken from what came before.
func TestBrowseAsClientsDo(t *testing.T) {
	needsDig(t)
	s, at := run(t, Options{})
	s.Swap(shop(t))
	ask := func(name, qtype string) []string { return shell(t, at, "", "dig +short "+name+" "+qtype) }
	found := map[string]string{}
	for _, which := range []string{"db", "lb"} { // the default, and that of clients which ask nobody: RFC 6763, section 11
		if domains := ask(which+"._dns-sd._udp.prod.tako.internal", "PTR"); !slices.Equal(domains, []string{"prod.tako.internal."}) {
			t.Errorf("%s: %q", which, domains)
		}
	}
	for _, domain := range ask("b._dns-sd._udp.prod.tako.internal", "PTR") {
		for _, kind := range ask("_services._dns-sd._udp."+domain, "PTR") {
			for _, instance := range ask(kind, "PTR") {
				place, text := ask(instance, "SRV"), ask(instance, "TXT")
				if len(place) != 1 || len(text) != 1 || !strings.HasPrefix(text[0], `"txtvers=1"`) {
					t.Fatalf("%s: %q, %q", instance, place, text)
				}
				words := strings.Fields(place[0])
				found[instance] = strings.Join(ask(words[3], "A"), " ") + ":" + words[2]
			}
		}
	}
	// Who browses has in one answer all that resolving needs: RFC 6763, section 12.1.
	added := shell(t, at, "", "dig +noall +additional _http._tcp.prod.tako.internal PTR")
	for _, want := range []string{"web-x2k4._http._tcp.prod.tako.internal. 1 IN SRV 0 1 20817 web-x2k4.web.prod.tako.internal.", `web-7f9c._http._tcp.prod.tako.internal. 1 IN TXT "txtvers=1" "path=/shop"`,
		"web-x2k4.web.prod.tako.internal. 1 IN A 10.0.0.11", "web-7f9c.web.prod.tako.internal. 1 IN A 10.0.0.12"} {
		if !slices.Contains(added, want) {
			t.Errorf("with the instances comes no %s:\n%q", want, added)
		}
	}
	if added := shell(t, at, "", "dig +noall +additional web-7f9c._http._tcp.prod.tako.internal SRV"); !slices.Equal(added, []string{"web-7f9c.web.prod.tako.internal. 1 IN A 10.0.0.12"}) {
		t.Errorf("with the place comes %q", added)
	}
	for instance, want := range map[string]string{"web-x2k4._http._tcp.prod.tako.internal.": "10.0.0.11:20817", "web-7f9c._http._tcp.prod.tako.internal.": "10.0.0.12:31260",
		"db-m3qz._postgresql._tcp.prod.tako.internal.": "10.0.0.21:5432"} {
		if found[instance] != want || len(found) != 3 {
			t.Errorf("%s is at %q of %v", instance, found[instance], found)
		}
	}
}
