package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/registry"
)

const workloadsPath = "/apis/tako.dev/v1alpha1/namespaces/default/workloads"

// Counter counts what a server has stored, without the server: its etcd only counts keys for it.
type Counter struct{ store *clientv3.Client }

// Counter makes a counter, which the caller closes.
func (s *Server) Counter() (*Counter, error) {
	store, err := etcdOf(socketOf(s.dir))
	return &Counter{store}, err
}

// Close ends the connection.
func (c *Counter) Close() error { return c.store.Close() }

// Instances is how many Instances are stored.
func (c *Counter) Instances(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	got, err := c.store.Get(ctx, registry.Prefix+"/"+v1alpha1.GroupName+"/"+v1alpha1.ResourceInstances+"/", clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithSerializable())
	if err != nil {
		return 0, err
	}
	return int(got.Count), nil
}

// Declare creates a workload of the default namespace.
func (c *Client) Declare(ctx context.Context, body []byte) error {
	return c.Post(ctx, workloadsPath, body)
}

// Redeclare replaces a workload.
func (c *Client) Redeclare(ctx context.Context, name string, body []byte) error {
	return c.Put(ctx, workloadsPath+"/"+name, body)
}

// Drop deletes a workload.
func (c *Client) Drop(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, workloadsPath+"/"+name, nil)
}

// Ready is how many instances of a workload are ready, as its status says.
func (c *Client) Ready(ctx context.Context, name string) (int, error) {
	text, err := c.Get(ctx, workloadsPath+"/"+name)
	if err != nil {
		return 0, err
	}
	var w v1alpha1.Workload
	if err := json.Unmarshal(text, &w); err != nil {
		return 0, fmt.Errorf("read workload %s: %w", name, err)
	}
	return int(w.Status.ReadyReplicas), nil
}
