package apiserver

import (
	"net"
	"testing"

	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/reason"
)

// TestOptions: what cannot be meant is refused before anything is made.
func TestOptions(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want reason.Code // 0 for good ones
	}{
		"defaults":             {Options{DataDir: "/d"}, 0},
		"a free port":          {Options{DataDir: "/d", Listen: "[::1]:0"}, 0},
		"all addresses":        {Options{DataDir: "/d", Listen: ":6443"}, 0},
		"a relative directory": {Options{DataDir: "d"}, reason.InvalidValue},
		"no port":              {Options{DataDir: "/d", Listen: "localhost"}, reason.InvalidValue},
		"a port too high":      {Options{DataDir: "/d", Listen: ":65536"}, reason.InvalidValue},
		"a port by name":       {Options{DataDir: "/d", Listen: ":https"}, reason.InvalidValue},
		"hosts elsewhere":      {Options{DataDir: "/d", TransferListen: "[::]:7000"}, 0},
		"hosts without a port": {Options{DataDir: "/d", TransferListen: "localhost"}, reason.InvalidValue},
		"no port is left":      {Options{DataDir: "/d", Listen: "127.0.0.1:65535"}, reason.InvalidValue},
		"names":                {Options{DataDir: "/d", DNS: []string{"192.0.2.7:53", "[2001:db8::7]:5353"}}, 0},
		"names at a name":      {Options{DataDir: "/d", DNS: []string{"tako.example.org"}}, reason.InvalidValue},
		"names everywhere":     {Options{DataDir: "/d", DNS: []string{"192.0.2.7:53", "[::]:53"}}, reason.InvalidValue},
		"a tiny quota":         {Options{DataDir: "/d", QuotaBytes: 5}, reason.InvalidValue},
		"a negative quota":     {Options{DataDir: "/d", QuotaBytes: -1}, reason.InvalidValue},
		"the least quota":      {Options{DataDir: "/d", QuotaBytes: quotaMin}, 0},
		"a CA for nothing":     {Options{DataDir: "/d", Etcd: etcd.Connection{CAFile: "ca.pem"}}, reason.Usage},
		"half a certificate":   {Options{DataDir: "/d", Etcd: etcd.Connection{Endpoints: []string{"https://e:2379"}, CertFile: "c.pem"}}, reason.Usage},
		"a cluster":            {Options{DataDir: "/d", Etcd: etcd.Connection{Endpoints: []string{"https://e:2379", "unix:///run/e.sock"}, CAFile: "ca.pem"}}, 0},
		"no URL":               {Options{DataDir: "/d", Etcd: etcd.Connection{Endpoints: []string{"garbage"}}}, reason.Usage},
		"a URL without port":   {Options{DataDir: "/d", Etcd: etcd.Connection{Endpoints: []string{"https://e"}}}, reason.Usage},
		"one bad URL of two":   {Options{DataDir: "/d", Etcd: etcd.Connection{Endpoints: []string{"https://e:2379", "ftp://e:1"}}}, reason.Usage},
	} {
		_, err := New(c.o)
		if c.want == 0 && err != nil || c.want != 0 && !reason.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestTransferListen: hosts are served next to people, unless somebody says where.
func TestTransferListen(t *testing.T) {
	for listen, want := range map[string]string{
		"": "127.0.0.1:6444", "127.0.0.1:6443": "127.0.0.1:6444", ":7000": ":7001", "[::1]:0": "[::1]:0", "tako.example.org:443": "tako.example.org:444",
	} {
		if got := (Options{Listen: listen}).withDefaults().TransferListen; got != want {
			t.Errorf("--listen %q: hosts are served on %s, want %s", listen, got, want)
		}
	}
	if got := (Options{Listen: ":7000", TransferListen: ":9000"}).withDefaults().TransferListen; got != ":9000" {
		t.Errorf("hosts are served on %s", got)
	}
}

// TestTransferAddress: what hosts are told is an address that they can reach.
func TestTransferAddress(t *testing.T) {
	own := ownAddress()
	if own == "" {
		own = "127.0.0.1"
	}
	for _, c := range []struct {
		listen string
		names  []string
		want   string
	}{
		{"127.0.0.1:0", []string{"tako.example.org"}, "127.0.0.1:41000"},
		{"tako.example.org:6444", nil, "tako.example.org:41000"},
		{":6444", []string{"tako.example.org", "192.0.2.1"}, "tako.example.org:41000"},
		{"0.0.0.0:6444", []string{"2001:db8::1"}, "[2001:db8::1]:41000"},
		{"[::]:6444", nil, net.JoinHostPort(own, "41000")},
	} {
		s := &Server{opts: Options{TransferListen: c.listen, Names: c.names}}
		if got := s.transferAddress(&net.TCPAddr{IP: net.IPv4zero, Port: 41000}); got != c.want {
			t.Errorf("--transfer-listen %s, names %v: %s, want %s", c.listen, c.names, got, c.want)
		}
	}
}
