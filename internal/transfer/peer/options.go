package peer

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/trust"
)

// Store is what the host holds. Its methods may be called from several goroutines; client.Store says what they do.
type Store interface {
	Kept() (core.Kept, error)
	Trie(root catalog.Digest) (catalog.Trie, bool, error)
	Body(root, key catalog.Digest) ([]byte, error)
}

// Identity is who the host is, and whom it believes. Its methods may be called from several goroutines.
type Identity interface {
	Node() catalog.Node
	Certificate() (*tls.Certificate, error)
	Trust() *trust.Chain
}

// Options are what a Server works with. Those without a default are required.
type Options struct {
	Store    Store
	Identity Identity
	// Deposits is what servers have left here for others. Default: nothing.
	Deposits *Deposits
	Limits   Limits
	Log      *slog.Logger // default: nowhere
}

// Limits bound what others make a host do: little, because it has work of its own. A zero value is the default.
type Limits struct {
	// Connections is how many may be open; default 32. SourceConnections is how many of one address; default 4: a host has one or two.
	Connections, SourceConnections int
	// Accepts is how many connections are admitted each second, each of which costs a handshake of a millisecond; default 10. Four times as
	// many may come at once.
	Accepts int
	// Calls is how many calls one node may make each second; default 10, and four times as many at once: a descent makes them one after
	// the other.
	Calls int
	// News, Syncs and Nodes are how many of each call are served at once; default 4, 2 and 1. What a layer of a million rows is made of takes
	// 10 MB while it is looked up, so that this is done once at a time.
	News, Syncs, Nodes int
	// Bytes is how many bytes of content are sent each second; default 4 MiB.
	Bytes int
	// Write is how long a caller may take to read one piece of an answer; default 10 s. Send is how long one answer may take; default 60 s.
	// Then it is cut off, and goes on where it was when it is asked for again.
	Write, Send time.Duration
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Connections: or(l.Connections, 32), SourceConnections: or(l.SourceConnections, 4), Accepts: or(l.Accepts, 10), Calls: or(l.Calls, 10),
		News: or(l.News, 4), Syncs: or(l.Syncs, 2), Nodes: or(l.Nodes, 1), Bytes: or(l.Bytes, 4<<20),
		Write: or(l.Write, 10*time.Second), Send: or(l.Send, time.Minute),
	}
}

func (l Limits) validate() error {
	if min(l.Connections, l.SourceConnections, l.Accepts, l.Calls, l.News, l.Syncs, l.Nodes, l.Bytes) < 1 || min(l.Write, l.Send) <= 0 {
		return errors.New("a limit is below 1")
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.Limits = o.Limits.withDefaults()
	if o.Deposits == nil {
		o.Deposits = NewDeposits()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	err := o.Limits.validate()
	if o.Store == nil || o.Identity == nil {
		err = errors.New("a part is missing")
	}
	if err != nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "set up what answers other hosts", Cause: err}
	}
	return nil
}
