package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// guard is between a client and a member of etcd. It refuses writes that there is no room for, and says in our words what etcd refuses.
type guard struct {
	pb.KVServer
	// admit says why a write of so many bytes is not taken; done is called when it was.
	admit func(ctx context.Context, p purpose, bytes int) (done func(), err error)
	// full is told that the quota is reached.
	full func()
}

// Put writes one key.
func (g guard) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return guarded(ctx, g, grow, len(r.Key)+len(r.Value), func() (*pb.PutResponse, error) { return g.KVServer.Put(ctx, r) })
}

// DeleteRange deletes.
func (g guard) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return guarded(ctx, g, shrink, len(r.Key), func() (*pb.DeleteRangeResponse, error) { return g.KVServer.DeleteRange(ctx, r) })
}

// Txn compares, then reads and writes.
func (g guard) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	p, bytes, writes := purposeOf(ctx, r)
	if !writes {
		return g.KVServer.Txn(ctx, r)
	}
	return guarded(ctx, g, p, bytes, func() (*pb.TxnResponse, error) { return g.KVServer.Txn(ctx, r) })
}

// guarded makes one write.
func guarded[A any](ctx context.Context, g guard, p purpose, bytes int, write func() (A, error)) (a A, err error) {
	done, err := g.admit(ctx, p, bytes)
	if err != nil {
		return a, err
	}
	defer done()
	if a, err = write(); isQuota(err) {
		g.full()
		return a, noQuota(ownDatabase, ownCure)
	}
	return a, err
}

// compactKey is what the library writes before each time that it cuts history.
const compactKey = "compact_rev_key"

// purposeOf says what a transaction is for, and how much it may write; writes is false when it only reads.
func purposeOf(ctx context.Context, r *pb.TxnRequest) (p purpose, bytes int, writes bool) {
	// A deletion that somebody has to finish, by a finalizer, begins with a mark in the object.
	info, ok := request.RequestInfoFrom(ctx)
	deletes := ok && (info.Verb == "delete" || info.Verb == "deletecollection")
	p = shrink
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			put := op.GetRequestPut()
			if put != nil && !deletes && string(put.Key) != compactKey || op.GetRequestTxn() != nil {
				p = grow
			}
			bytes += len(put.GetKey()) + len(put.GetValue())
			writes = writes || op.GetRequestRange() == nil
		}
	}
	return p, bytes, writes
}

// guardedLease refuses leases that there is no room for.
type guardedLease struct {
	clientv3.Lease
	guard guard
}

// Grant makes a lease.
func (l guardedLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	return guarded(ctx, l.guard, grow, leaseBytes, func() (*clientv3.LeaseGrantResponse, error) { return l.Lease.Grant(ctx, ttl) })
}

// leaseBytes is what a lease takes, at most.
const leaseBytes = 64
