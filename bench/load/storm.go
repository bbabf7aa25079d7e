package load

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/registry"
)

// configKey is where the store has a config of the default namespace.
func configKey(name string) string {
	return registry.Prefix + "/" + v1alpha1.GroupName + "/" + v1alpha1.ResourceNodeConfigs + "/default/" + name
}

// Storm replaces a config so many times, one after the other, and returns how long that took; body makes what it is replaced by. The versions
// go directly into the store of the server: the API would take some seconds of the same processors for a thousand of them. To everybody who
// watches it is as if the API had written them: each is made of what is stored at that moment, has the next generation, and is durable.
func (s *Server) Storm(ctx context.Context, name string, versions int, body func(round int) ([]byte, error)) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, crowdMax)
	defer cancel()
	bodies := make([][]byte, versions)
	for round := range bodies {
		var err error
		if bodies[round], err = body(round); err != nil {
			return 0, err
		}
	}
	store, err := etcdOf(socketOf(s.dir))
	if err != nil {
		return 0, err
	}
	defer store.Close()
	key := configKey(name)
	got, err := store.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	if len(got.Kvs) != 1 {
		return 0, fmt.Errorf("the store has no %s", key)
	}
	value, revision := got.Kvs[0].Value, got.Kvs[0].ModRevision
	start := time.Now()
	for _, body := range bodies {
		if value, revision, err = replace(ctx, store, key, value, revision, body); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// replace writes a version after the one that was seen last. Where the server has written its status meanwhile, it is made anew of that.
func replace(ctx context.Context, store *clientv3.Client, key string, value []byte, revision int64, body []byte) ([]byte, int64, error) {
	for {
		next, err := nextVersion(value, body)
		if err != nil {
			return nil, 0, err
		}
		done, err := store.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, string(next))).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return nil, 0, err
		}
		if done.Succeeded {
			return next, done.Header.Revision, nil
		}
		there := done.Responses[0].GetResponseRange().Kvs
		if len(there) != 1 {
			return nil, 0, fmt.Errorf("%s has gone", key)
		}
		value, revision = there[0].Value, there[0].ModRevision
	}
}

// nextVersion is a stored config with the spec of another one, as the API stores it.
func nextVersion(stored, body []byte) ([]byte, error) {
	var is, to v1alpha1.NodeConfig
	if err := json.Unmarshal(stored, &is); err != nil {
		return nil, fmt.Errorf("read what is stored: %w", err)
	}
	if err := json.Unmarshal(body, &to); err != nil {
		return nil, err
	}
	is.Spec = to.Spec
	is.Generation++
	return json.Marshal(&is)
}

// goneMetric is how many nodes the server says are lost.
const goneMetric = `tako_presence_nodes{presence="gone"}`

// Gone waits until the server says of so many hosts that they are lost.
func (s *Server) Gone(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, crowdMax)
	defer cancel()
	c := s.Client()
	defer c.Leave()
	for {
		gone, err := c.Value(ctx, goneMetric)
		if err != nil {
			return err
		}
		if int(gone) == count {
			return nil
		}
		if err := Pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("of %d hosts, %v are known to be lost: %w", count, gone, err)
		}
	}
}
