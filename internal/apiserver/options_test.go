package apiserver

import (
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
