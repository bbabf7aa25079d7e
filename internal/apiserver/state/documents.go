package state

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// documentsPause is how long a watch that has ended, or documents that cannot be read, are left alone.
const documentsPause = 5 * time.Second

// Documents are the trust documents while a server runs, which somebody may add to meanwhile: `tako trust`, or another server. Use
// NewDocuments. They are safe for concurrent use.
type Documents struct {
	etcd   *clientv3.Client
	keys   *trust.Keys
	log    *slog.Logger
	newest atomic.Pointer[trust.Chain]
}

// NewDocuments begins with what was read at the start. Nothing is followed before Run.
func NewDocuments(etcd *clientv3.Client, keys *trust.Keys, first *trust.Chain, log *slog.Logger) *Documents {
	d := &Documents{etcd: etcd, keys: keys, log: log}
	d.newest.Store(first)
	return d
}

// Newest is the newest chain that was read and verified. It answers from memory.
func (d *Documents) Newest() *trust.Chain { return d.newest.Load() }

// Read reads the newest chain from the store. What is refused, or goes behind what was believed before, changes nothing.
func (d *Documents) Read(ctx context.Context) (*trust.Chain, error) {
	c, _, err := readChain(ctx, d.etcd, d.keys)
	if err == nil && c == nil {
		err = &reason.Error{Code: reason.TrustRefused, Doing: "read the trust documents", Hint: notOurs}
	}
	if err != nil {
		return nil, err
	}
	for {
		old := d.newest.Load()
		// Both are verified: one holds the other, or somebody has put an old one back.
		longer, err := old.Extend(c.After(0))
		if err != nil {
			return nil, err
		}
		if longer.Current().Number == old.Current().Number {
			return old, nil
		}
		if d.newest.CompareAndSwap(old, longer) {
			return longer, nil
		}
	}
}

// Run follows the documents until the context ends.
func (d *Documents) Run(ctx context.Context) {
	for ctx.Err() == nil {
		d.follow(ctx)
		select {
		case <-time.After(documentsPause):
		case <-ctx.Done():
		}
	}
}

// follow reads the documents now, and each time that they change, until the watch ends.
func (d *Documents) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := d.etcd.Watch(clientv3.WithRequireLeader(ctx), chainKey)
	for {
		if c, err := d.Read(ctx); err == nil {
			d.log.Debug("trust documents read", "number", c.Current().Number, "epoch", c.Current().Epoch)
		} else if ctx.Err() == nil {
			d.log.Error("trust documents cannot be used: the ones before are in force", "err", err)
			return
		}
		if answer, open := <-changes; !open || answer.Err() != nil {
			return
		}
	}
}
