package client

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// Options are what a Client needs. Those without a default are required.
type Options struct {
	Store    Store
	Host     Host
	Identity Identity
	Session  wire.Session
	Log      *slog.Logger
	// Heartbeat is the longest pause between two heads of a server; a watch that is silent for two and a half of it is given up, and one whose connection
	// answers nothing when it is asked, sooner: see pingAfter. The
	// default is a minute.
	Heartbeat time.Duration
	// Dial makes connections. The default is TCP, with what lets the kernel find out that the other end is gone.
	Dial Dial
	// Spool is the directory that what is at a fallback location is brought over into. The default is that of the system for temporary files.
	Spool string
	// Links is told how the host stands to its servers. The default tells nobody.
	Links *Links
	// Peers are the other hosts of the cluster that are asked while there is no server. The default is to ask none.
	Peers func() []catalog.Peer
	// Deposit is given what a server leaves here for another host. It must not block for long. The default is to pass over it.
	Deposit func(wire.Deposit)
	// Names is where what there is by name is kept. The default is not to ask for it.
	Names *Names
	// Heard is called with the echo of a report that the server which leads has heard. It must not block. The default tells nobody.
	Heard func(echo uint64)
	// Hungry says that somebody waits for the echo of the newest report. It must not block. The default is nobody.
	Hungry func() bool
	// Random spreads pauses. The default is seeded at random.
	Random *rand.Rand
}

// heartbeatMax is the longest pause between two heads, as the server has it.
const heartbeatMax = time.Minute

func (o Options) withDefaults() Options {
	if o.Heartbeat == 0 {
		o.Heartbeat = heartbeatMax
	}
	if o.Dial == nil {
		o.Dial = TCP
	}
	if o.Links == nil {
		o.Links = &Links{}
	}
	if o.Deposit == nil {
		o.Deposit = func(wire.Deposit) {}
	}
	if o.Heard == nil {
		o.Heard = func(uint64) {}
	}
	if o.Hungry == nil {
		o.Hungry = func() bool { return false }
	}
	if o.Random == nil {
		o.Random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.Store == nil || o.Host == nil || o.Identity == nil || o.Log == nil:
		return &reason.Error{Code: reason.InternalFault, Doing: "make a transfer client", Cause: errors.New("a part is missing")}
	case o.Heartbeat < 0:
		return &reason.Error{Code: reason.InternalFault, Doing: "make a transfer client", Cause: errors.New("its heartbeat is negative")}
	case len(o.Identity.Servers()) == 0:
		return &reason.Error{Code: reason.InvalidValue, Doing: "make a transfer client", Cause: errors.New("there is no server to ask"), Hint: "join again"}
	}
	return nil
}
