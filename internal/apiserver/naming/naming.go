package naming

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/names/server"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// failedPause is how long after an edition could not be read the next one is looked at: what is answered meanwhile is the one before.
const failedPause = time.Second

// Options say where, and from what. Store and Addresses are required.
type Options struct {
	Addresses []netip.AddrPort // by UDP and TCP
	Store     *edition.Store
	Metrics   prometheus.Registerer // default: nowhere
	Log       *slog.Logger          // default: nowhere
}

// Naming answers for names. Use New.
type Naming struct {
	opts    Options
	server  *server.Server
	nothing *names.Index
}

// New starts nothing. The error is InternalFault, for options that make no sense.
func New(o Options) (*Naming, error) {
	if o.Store == nil || len(o.Addresses) == 0 {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "set up the DNS", Cause: errors.New("there is nothing to answer from, or nowhere to")}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var servers []netip.Addr
	for _, a := range o.Addresses {
		servers = append(servers, a.Addr())
	}
	nothing, err1 := names.New(names.Options{Servers: servers})
	answering, err2 := server.New(server.Options{Rate: server.PublicRate(), Home: true})
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(collector{answering})
	}
	return &Naming{opts: o, server: answering, nothing: nothing}, nil
}

// Run answers until the context ends. An address that cannot be listened at is tried again.
func (n *Naming) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { n.follow(ctx) })
	n.server.Serve(ctx, n.opts.Addresses, n.opts.Log)
}

// follow has what is answered be the newest edition.
func (n *Naming) follow(ctx context.Context) {
	var have wire.NamesMark
	index := n.nothing
	for {
		news, changed, err := n.opts.Store.Since(have)
		switch {
		case err != nil:
			n.opts.Log.Error("names are answered from an earlier edition", "err", err)
			select {
			case <-time.After(failedPause):
			case <-ctx.Done():
				return
			}
		case news != nil:
			index, have = n.next(index, news), news.Mark
			n.server.Swap(index)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// next is what there is after some news.
func (n *Naming) next(x *names.Index, news *edition.News) *names.Index {
	if news.All {
		x = n.nothing
	}
	x, errs := news.Index(x)
	for _, err := range errs {
		n.opts.Log.Debug("a name is not served", "err", err)
	}
	return x
}
