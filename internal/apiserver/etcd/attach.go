package etcd

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
)

// Attach lets a client of this member read and write by calls within the process. The socket took a third of the processor
// time of a write. Watches, leases and lists in parts stay with the socket.
func (m *Member) Attach(client *kubernetes.Client) {
	m.calls.server = v3rpc.NewQuotaKVServer(m.etcd.Server)
	client.KV = attached{
		KV:     clientv3.NewKVFromKVClient(adapter.KvServerToKvClient(&m.calls), client.Client),
		socket: client.KV,
	}
}

// attached is a client's way to read and write.
type attached struct {
	clientv3.KV
	socket clientv3.KV
}

// GetStream lists in parts, which there is no call for.
func (a attached) GetStream(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	return a.socket.GetStream(ctx, key, opts...)
}

// calls are the calls into a member. The socket does for its clients what they do here: none is under way when the member goes,
// since it would read from a database that is not mapped any more.
type calls struct {
	pb.UnimplementedKVServer
	server  pb.KVServer
	mu      sync.RWMutex // held for reading by each call; guards stopped
	stopped bool
}

// stop waits for the calls under way, which etcd bounds, and refuses all further ones.
func (c *calls) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}

// call makes one call.
func call[Q, A any](ctx context.Context, c *calls, f func(context.Context, *Q) (*A, error), request *Q) (*A, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.stopped {
		return nil, rpctypes.ErrGRPCStopped
	}
	return f(ctx, request)
}

// Range reads.
func (c *calls) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return call(ctx, c, c.server.Range, r)
}

// Put writes one key.
func (c *calls) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return call(ctx, c, c.server.Put, r)
}

// DeleteRange deletes.
func (c *calls) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return call(ctx, c, c.server.DeleteRange, r)
}

// Txn compares, then reads and writes.
func (c *calls) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return call(ctx, c, c.server.Txn, r)
}

// Compact cuts history.
func (c *calls) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return call(ctx, c, c.server.Compact, r)
}
