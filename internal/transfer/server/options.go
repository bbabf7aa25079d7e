package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/bucket"
	"tako.dev/tako/internal/transfer/server/index"
	"tako.dev/tako/internal/transfer/snapshots"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// Options are what a Server works with. Those without a default are required.
type Options struct {
	Cluster trust.ClusterID
	// Heads and Content are what hosts are served. Default: both from Catalogs and Objects, which are for nothing else.
	Heads    Heads
	Content  Content
	Catalogs Catalogs
	Members  Members
	Presence Presence
	Audit    Audit
	Objects  Objects // default: there are none
	// Snapshots is where the default of Content keeps what it has sent to hosts that had nothing. Default: it keeps nothing.
	Snapshots *snapshots.Store
	// Stored is what other servers are given that ask for it. Default: nothing.
	Stored Stored
	// Servers are the addresses of all servers, which hosts are told; it answers from memory. Default: hosts know them by themselves.
	Servers func() []string
	// Serving is why hosts and relays are better with another server, which ends their watches within a heartbeat, and refuses others; nil: they are not.
	// It answers from memory. Default: they never are.
	Serving func() error
	// Entrusted are the nodes for whose hosts that of another node keeps what is signed while they are away: a few, of which it leaves
	// out those that are known to be elsewhere. It does not block. Default: nobody keeps anything.
	Entrusted func(holder Identity) []Identity
	// Names sends what there is by name, from an edition on, until stop is closed or one of the others ends. Default: nobody is told of names.
	Names func(ctx context.Context, have wire.NamesMark, stop <-chan struct{}, send func(wire.Names) error)
	// Certificate is the server's own, the newest at each call.
	Certificate func() (*tls.Certificate, error)
	// Authorities are those that may have issued the certificates of hosts, at each call.
	Authorities func() *x509.CertPool
	Limits      Limits
	Times       Times
	Metrics     prometheus.Registerer // default: nowhere
	Log         *slog.Logger          // default: nowhere
}

// Limits bound what hosts, and others, can make the server do at once. A zero value is the default.
type Limits struct {
	// Connections is how many may be open; default 20,000: twice the hosts of a large cluster, so that all can come back while what they
	// left is still being noticed.
	Connections int
	// Strangers is how many of those may not have shown who they are; default 2,000. Of one address half of them may come, so that
	// one that stays silent keeps nobody else out; at least 16.
	Strangers int
	// NodeConnections is how many of one node may be open; default 8: an agent has one, and another one while the first is being found lost.
	NodeConnections int
	// NodeCalls is how many calls about itself one node may make each second, reports and watches; default 20: an agent makes at most ten.
	// Ten times as many may come at once. NodeFetches is the same of calls for content; default 100. RelayCalls is the same of all calls of one
	// relay; default 1,000: ten hosts that fetch.
	NodeCalls, NodeFetches, RelayCalls int
	// RelayAgents is how many agents may be connected through one relay; default 4,000: what two relays have when one of them is away.
	RelayAgents int
	// Accepts is how many connections are taken in each second; default 500. Twice as many may come at once; more wait in the kernel.
	Accepts int
	// SourceAccepts is the same of one address, for connections that do not show who they are; default 50: some hundredths of a processor. Forty
	// times as many may come at once; more are closed.
	SourceAccepts int
	// Snapshots, Deltas and Objects are how many of each are sent at once; default 16, 64 and 16.
	Snapshots, Deltas, Objects int
	// IndexRows is of how many rows of layers is remembered what their tries are made of, for calls of nodes; default 200,000, which
	// takes some 40 MB when all of it is used.
	IndexRows int
}

// all: a handshake takes about a millisecond of one processor.
func (l Limits) all() bucket.Rate {
	return bucket.Rate{Burst: 2 * float64(l.Accepts), Second: float64(l.Accepts)}
}

// source: forty times as much at once as each second: all hosts behind one address translation come back at once, and each gives back
// what it has used when it has shown who it is, or has joined.
func (l Limits) source() bucket.Rate {
	return bucket.Rate{Burst: 40 * float64(l.SourceAccepts), Second: float64(l.SourceAccepts)}
}

// strangersOfOne: hosts behind one address translation that come back at once are strangers for a handshake each, some hundreds at a time.
func (l Limits) strangersOfOne() int { return max(l.Strangers/2, 16) }

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Connections: or(l.Connections, 20_000), Strangers: or(l.Strangers, 2_000), NodeConnections: or(l.NodeConnections, 8),
		NodeCalls: or(l.NodeCalls, 20), NodeFetches: or(l.NodeFetches, 100), RelayCalls: or(l.RelayCalls, 1_000), RelayAgents: or(l.RelayAgents, 4_000), Accepts: or(l.Accepts, 500), SourceAccepts: or(l.SourceAccepts, 50),
		Snapshots: or(l.Snapshots, 16), Deltas: or(l.Deltas, 64), Objects: or(l.Objects, 16), IndexRows: or(l.IndexRows, 200_000),
	}
}

func (l Limits) validate() error {
	for _, n := range []int{l.Connections, l.Strangers, l.NodeConnections, l.NodeCalls, l.NodeFetches, l.RelayCalls, l.RelayAgents, l.Accepts, l.SourceAccepts, l.Snapshots, l.Deltas, l.Objects, l.IndexRows} {
		if n < 1 {
			return fmt.Errorf("a limit is %d, at least 1", n)
		}
	}
	return nil
}

// Between is a time that is drawn anew each time, so that many hosts do not fall into step.
type Between struct{ Min, Max time.Duration }

// Times are how long things take. A zero value is the default; tests have shorter ones.
type Times struct {
	// Heartbeat is after how long a watch repeats the newest head; default 45 to 60 s. Hosts wait for two and a half of the longest.
	Heartbeat Between
	// Watch is how long one lasts; default 10 to 20 minutes. The host then opens another, perhaps of another server.
	Watch Between
	// Again is after how long it does so; default 0 to 2 s, which is well below what makes it count as away.
	Again Between
	// Write is how long a host may take to read one piece of an answer; default 10 s.
	Write time.Duration
	// Handshake is how long one may take; default 10 s.
	Handshake time.Duration
	// Stranger is how long a connection may be open that has not shown who it is; default 30 s: enough to join.
	Stranger time.Duration
	// Sweep is how often the server looks for connections of nodes that are gone; default 3 s, so that with what Members may be behind
	// it is below 10 s. A watch of such a node ends at once as a rule, because Catalogs knows.
	Sweep time.Duration
	// Turn is how long a call waits for its turn; default 2 s. Then it is told to come again.
	Turn time.Duration
	// Send is how long one sync may send; default 60 s. It is then cut off, and goes on where it was when its turn comes again.
	Send time.Duration
	// Stop is how long calls may go on when the server stops; default 1 s.
	Stop time.Duration
}

func (t Times) withDefaults() Times {
	return Times{
		Heartbeat: or(t.Heartbeat, Between{45 * time.Second, 60 * time.Second}), Watch: or(t.Watch, Between{10 * time.Minute, 20 * time.Minute}),
		Again: or(t.Again, Between{0, 2 * time.Second}), Write: or(t.Write, 10*time.Second), Handshake: or(t.Handshake, 10*time.Second),
		Stranger: or(t.Stranger, 30*time.Second), Sweep: or(t.Sweep, 3*time.Second), Turn: or(t.Turn, 2*time.Second), Send: or(t.Send, time.Minute),
		Stop: or(t.Stop, time.Second),
	}
}

func (t Times) validate() error {
	for _, b := range []Between{t.Heartbeat, t.Watch, t.Again} {
		if b.Min < 0 || b.Max < b.Min || b.Max == 0 {
			return fmt.Errorf("%s to %s is no range of times", b.Min, b.Max)
		}
	}
	for _, d := range []time.Duration{t.Write, t.Handshake, t.Stranger, t.Sweep, t.Turn, t.Send, t.Stop} {
		if d <= 0 {
			return fmt.Errorf("a time is %s", d)
		}
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.Limits, o.Times = o.Limits.withDefaults(), o.Times.withDefaults()
	if o.Heads == nil && o.Catalogs != nil {
		o.Heads = o.Catalogs
	}
	if o.Content == nil && o.Catalogs != nil {
		o.Content = &memory{catalogs: o.Catalogs, objects: o.Objects, snapshots: o.Snapshots, index: index.New(o.Limits.IndexRows)}
	}
	if o.Servers == nil {
		o.Servers = func() []string { return nil }
	}
	if o.Serving == nil {
		o.Serving = func() error { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	return o
}

func (o Options) validate() error {
	var err error
	switch {
	case o.Cluster == "":
		err = errors.New("it has no cluster")
	case o.Heads == nil || o.Content == nil || o.Members == nil || o.Presence == nil || o.Audit == nil || o.Certificate == nil || o.Authorities == nil:
		err = errors.New("one of its parts is missing")
	default:
		err = errors.Join(o.Limits.validate(), o.Times.validate())
	}
	if err != nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "make the server of the transfer", Cause: err}
	}
	return nil
}
