// Package etcdtest starts an etcd for a test.
package etcdtest

import (
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"tako.dev/tako/internal/apiserver/etcd"
)

// Connect starts an etcd with an empty directory, and returns a client of it. Both end with the test, which fails where one cannot be had.
func Connect(t testing.TB) *kubernetes.Client {
	t.Helper()
	member, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Close)
	client, err := etcd.Connect(t.Context(), etcd.Connection{Endpoints: member.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
