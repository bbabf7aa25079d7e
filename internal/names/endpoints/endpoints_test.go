package endpoints

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/names"
)

var (
	httpPort = names.Port{Name: "http", Protocol: workload.TCP}
	adminTCP = names.Port{Name: "admin-x"}
	dnsUDP   = names.Port{Name: "dns", Protocol: workload.UDP}
	dnsTCP   = names.Port{Name: "dns", Protocol: workload.TCP}
)

func instance(namespace, w string, n int, ports ...names.Port) *names.Instance {
	i := &names.Instance{Namespace: namespace, Workload: w, Name: fmt.Sprintf("%s-%05d", w, n), Index: int32(n), Node: "n1.rack", Revision: "r1",
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})}}
	for at, p := range ports {
		i.Endpoints = append(i.Endpoints, names.Endpoint{Port: p, Number: uint16(8000 + at*100 + n%100)})
	}
	return i
}

func index(t testing.TB, instances ...*names.Instance) *names.Index {
	t.Helper()
	x, err := names.New(names.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := x.Edit()
	for _, i := range instances {
		if err := e.PutInstance(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.PutWorkload(names.Workload{Namespace: "prod", Name: "waiting", Ports: []names.Port{httpPort}}); err != nil {
		t.Fatal(err)
	}
	return e.Commit(1)
}

// TestFiles: both files say what is ready, byte for byte, and are written again only when that has changed, or they have.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	both := instance("prod", "web", 1, httpPort, adminTCP)
	both.Addresses = append(both.Addresses, netip.MustParseAddr("2001:db8::1"))
	both.Endpoints[0].Text = map[string]string{"path": "/<a> b"}
	x := index(t, instance("prod", "web", 0, httpPort), both, instance("qa", "names", 3, dnsUDP, dnsTCP))
	write := func(x *names.Index, want bool) {
		t.Helper()
		if changed, err := Write(t.Context(), root, "/", x); err != nil || changed != want {
			t.Fatalf("changed %t, should %t: %v", changed, want, err)
		}
	}
	write(x, true)
	write(x, false)
	for name, want := range map[string]string{DocumentFile: "testdata/endpoints.json", TableFile: "testdata/endpoints"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		golden, err := os.ReadFile(want)
		if err != nil || string(got) != string(golden) {
			t.Errorf("%s says\n%s\n%v", name, got, err)
		}
		before, err := os.Stat(filepath.Join(dir, name))
		if err != nil || before.Mode() != 0o644 {
			t.Errorf("%s has mode %v, %v", name, before.Mode(), err)
		}
		write(x.Edit().Commit(2), false)
		if after, err := os.Stat(filepath.Join(dir, name)); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s is another file though it says the same", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("x", len(got))), 0o644); err != nil {
			t.Fatal(err)
		}
		write(x, true)
	}
	e := x.Edit()
	e.DropInstance("prod", "web-00000")
	write(e.Commit(3), true)
	left, err := os.ReadFile(filepath.Join(dir, TableFile))
	if err != nil || strings.Contains(string(left), "web-00000") {
		t.Errorf("what is gone is there: %s, %v", left, err)
	}
	if _, err := Write(t.Context(), root, "/missing", x); err == nil {
		t.Error("a directory that is not there can be written to")
	}
}

// TestBounded: of very many instances each service lists its share, and says how many there are.
func TestBounded(t *testing.T) {
	var instances []*names.Instance
	for n := range 3000 {
		instances = append(instances, instance("prod", "many", n, httpPort))
	}
	d := DocumentOf(index(t, instances...))
	if s := d.Services[0]; s.Workload != "many" || len(s.Endpoints) != perService || s.Ready != 3000 {
		t.Errorf("%s lists %d of %d", s.Workload, len(s.Endpoints), s.Ready)
	}
	for w := range 30 {
		for n := range 600 {
			instances = append(instances, instance("prod", fmt.Sprintf("w%02d", w), n, httpPort))
		}
	}
	instances = append(instances, instance("prod", "zz", 0, httpPort))
	x := index(t, instances...)
	d, sum := DocumentOf(x), 0
	for _, s := range d.Services {
		sum += len(s.Endpoints)
		if len(s.Endpoints) == 0 && s.Ready > 0 {
			t.Errorf("%s lists none of %d", s.Workload, s.Ready)
		}
	}
	if sum > endpointsMax || sum < endpointsMax/2 {
		t.Errorf("%d are listed together", sum)
	}
	e := x.Edit()
	for w := range servicesMax {
		if err := e.PutWorkload(names.Workload{Namespace: "qa", Name: fmt.Sprintf("x%05d", w), Ports: []names.Port{httpPort}}); err != nil {
			t.Fatal(err)
		}
	}
	if d := DocumentOf(e.Commit(2)); len(d.Services) != servicesMax || d.Left != 33 {
		t.Errorf("%d services are listed, %d left out", len(d.Services), d.Left)
	}
}

// TestRead: the document can be read by what its types say, and each line of the table has nine words.
func TestRead(t *testing.T) {
	d := DocumentOf(index(t, instance("prod", "web", 0, httpPort, dnsUDP)))
	b, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var back Document
	if err := json.Unmarshal(b, &back); err != nil || fmt.Sprint(back) != fmt.Sprint(d) {
		t.Errorf("%v is read from what was %v: %v", back, d, err)
	}
	for line := range strings.Lines(string(d.Table())) {
		if words := strings.Split(strings.TrimSuffix(line, "\n"), " "); line[0] != '#' && (len(words) != 9 || slices.Contains(words, "")) {
			t.Errorf("%q has %d words", line, len(words))
		}
	}
}

// TestEnvironment: a task learns of one instance of each service of its namespace, and all variables of a workload are of one.
func TestEnvironment(t *testing.T) {
	x := index(t, instance("prod", "web", 0, httpPort, adminTCP), instance("prod", "web", 1, httpPort, adminTCP), instance("prod", "web", 2, httpPort, names.Port{Name: "zz"}),
		instance("prod", "2nd", 0, dnsUDP, dnsTCP), instance("prod", "silent", 0), instance("qa", "other", 0, httpPort))
	env := Environment(x, "prod", "/run/tako/endpoints.json", 1)
	want := []string{"TAKO_DOMAIN=prod.tako.internal", "TAKO_ENDPOINTS=/run/tako/endpoints.json",
		"_2ND_SERVICE_HOST=10.0.0.0", "_2ND_SERVICE_PORT=8000", "_2ND_SERVICE_PORT_DNS=8000",
		"WEB_SERVICE_HOST=10.0.0.1", "WEB_SERVICE_PORT=8001", "WEB_SERVICE_PORT_HTTP=8001", "WEB_SERVICE_PORT_ADMIN_X=8101"}
	if !slices.Equal(env, want) {
		t.Errorf("%q", env)
	}
	for rotate := range uint64(6) {
		host := ""
		for _, v := range Environment(x, "prod", "", rotate) {
			name, value, _ := strings.Cut(v, "=")
			switch {
			case name == "WEB_SERVICE_HOST":
				host = value
			case strings.HasPrefix(name, "WEB_SERVICE_PORT") && value[len(value)-1] != host[len(host)-1]:
				t.Errorf("%d: %s is not of %s", rotate, v, host)
			}
		}
		if host == "" {
			t.Errorf("%d: no host", rotate)
		}
	}
	if env := Environment(x, "empty", "/e", 0); len(env) != 2 {
		t.Errorf("of a namespace with nothing: %q", env)
	}
	var many []*names.Instance
	for n := range 400 {
		many = append(many, instance("prod", fmt.Sprintf("w%03d", n), 0, httpPort))
	}
	if env := Environment(index(t, many...), "prod", "/e", 0); len(env) > variablesMax || len(env) < variablesMax-3 {
		t.Errorf("%d variables", len(env))
	}
}
