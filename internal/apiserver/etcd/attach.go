package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"golang.org/x/sync/semaphore"
)

// Attach lets a client of this member read and write by calls within the process. The socket took a third of the processor
// time of a write. Watches, leases and lists in parts stay with the socket. What the client writes is refused while there is no
// room for it: nothing else in the process may write.
func (m *Member) Attach(client *kubernetes.Client) {
	g := guard{KVServer: &m.calls, admit: m.admit, full: func() { m.overQuota.Store(true) }}
	client.KV = attached{KV: clientv3.NewKVFromKVClient(adapter.KvServerToKvClient(g), client.Client), socket: client.KV, guard: g}
	client.Lease = guardedLease{Lease: client.Lease, guard: g}
}

// attached is a client's way to read and write.
type attached struct {
	clientv3.KV
	socket clientv3.KV
	guard  guard
}

// GetStream lists in parts, which there is no call for.
func (a attached) GetStream(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	return a.socket.GetStream(ctx, key, opts...)
}

// Compact cuts history. A call would wait for the end of it, whatever its context says.
func (a attached) Compact(ctx context.Context, revision int64, opts ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	return guarded(ctx, a.guard, shrink, 0, func() (*clientv3.CompactResponse, error) { return a.socket.Compact(ctx, revision, opts...) })
}

// calls are the calls into a member. The socket does for its clients what they do here: none is under way when the member goes,
// since it would read from a database that is not mapped any more: who takes it away holds the lock.
type calls struct {
	pb.UnimplementedKVServer
	ended  func() error // why etcd does not answer any more, nil if it does
	mu     lock         // shared by each call; guards server
	server pb.KVServer  // nil when there is none any more
}

// lock is like sync.RWMutex, but whoever shares it does not wait for it any longer than his context lasts: etcd may take minutes to
// be opened again.
type lock struct{ all *semaphore.Weighted }

// sharers is more than there ever are.
const sharers = 1 << 30

func newLock() lock { return lock{semaphore.NewWeighted(sharers)} }

func (l lock) share(ctx context.Context) error { return l.all.Acquire(ctx, 1) }

func (l lock) leave() { l.all.Release(1) }

func (l lock) Lock() { _ = l.all.Acquire(context.Background(), sharers) } // which does not end

func (l lock) Unlock() { l.all.Release(sharers) }

// call makes one call.
func call[Q, A any](ctx context.Context, c *calls, f func(pb.KVServer, context.Context, *Q) (*A, error), request *Q) (*A, error) {
	if err := c.ended(); err != nil {
		return nil, err
	}
	if err := c.mu.share(ctx); err != nil {
		return nil, err
	}
	defer c.mu.leave()
	if c.server == nil {
		return nil, rpctypes.ErrGRPCStopped
	}
	return f(c.server, ctx, request)
}

// Range reads.
func (c *calls) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return call(ctx, c, pb.KVServer.Range, r)
}

// Put writes one key.
func (c *calls) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return call(ctx, c, pb.KVServer.Put, r)
}

// DeleteRange deletes.
func (c *calls) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return call(ctx, c, pb.KVServer.DeleteRange, r)
}

// Txn compares, then reads and writes.
func (c *calls) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return call(ctx, c, pb.KVServer.Txn, r)
}
