package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/server"
)

// Options are what a Relay works with. Those without a default are required.
type Options struct {
	Identity *Identity
	// Servers are the addresses of servers, HOST:PORT, the first of them before the others. Default: where the relay has joined.
	Servers []string
	// CacheDir is a directory for what is kept; nothing else may be in it. It is made where it is not there.
	CacheDir string
	// CacheBytes is how much is kept there at most, beside what is on its way; default 10 GiB.
	CacheBytes int64
	// Limits and Times are as of a server. Limits.Snapshots is by default 64: what was kept costs the reading of a file.
	Limits  server.Limits
	Times   server.Times
	Metrics prometheus.Registerer // default: nowhere
	Log     *slog.Logger          // default: nowhere
	// Dial makes connections to servers; default TCP.
	Dial client.Dial
	// Random spreads pauses. The default is seeded at random.
	Random *rand.Rand
}

const (
	cacheBytesDefault = 10 << 30
	// cacheBytesMin is room for a layer of some thousand entries: with less every answer pushes out the one before.
	cacheBytesMin = 1 << 20
)

func (o Options) withDefaults() Options {
	if o.CacheBytes == 0 {
		o.CacheBytes = cacheBytesDefault
	}
	if o.Limits.Snapshots == 0 {
		o.Limits.Snapshots = 64
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Random == nil {
		o.Random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if len(o.Servers) == 0 && o.Identity != nil {
		o.Servers = o.Identity.Servers()
	}
	return o
}

func (o Options) validate() error {
	var err error
	switch {
	case o.Identity == nil || o.CacheDir == "":
		err = errors.New("a part is missing")
	case len(o.Servers) == 0:
		err = errors.New("there is no server to ask")
	case o.CacheBytes < cacheBytesMin:
		return &reason.Error{Code: reason.InvalidValue, Doing: "make a relay", Cause: fmt.Errorf("a cache of %d bytes, at least %d", o.CacheBytes, int64(cacheBytesMin))}
	}
	if err != nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "make a relay", Cause: err}
	}
	return nil
}
