package client

import (
	"log/slog"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
)

// doubtPause is the shortest between two lines about one kind of what is not believed: anybody who can send heads would fill the log.
const doubtPause = time.Minute

// doubts tells of what servers have sent and the host does not believe: each kind once at first, and then at most once a minute, with how
// often it came. There are as many kinds as the machine knows.
type doubts struct {
	log   *slog.Logger
	kinds map[core.Doubt]*doubt
}

type doubt struct {
	told  time.Time
	since uint64 // how often it came since then
}

func newDoubts(log *slog.Logger) *doubts {
	return &doubts{log: log, kinds: map[core.Doubt]*doubt{}}
}

func (d *doubts) hear(now time.Time, e core.Disbelieve) {
	one := d.kinds[e.Doubt]
	if one == nil {
		one = &doubt{}
		d.kinds[e.Doubt] = one
	}
	one.since++
	if !one.told.IsZero() && now.Sub(one.told) < doubtPause {
		return
	}
	d.log.Warn("do not believe a server", "what", string(e.Doubt), "times", one.since, "code", reason.Of(e.Err).Code.String(), "err", e.Err, "hint", hintOn(e.Doubt))
	one.told, one.since = now, 0
}

// hintOn is what a person does next.
func hintOn(d core.Doubt) string {
	switch d {
	case core.DoubtOld:
		return "nothing to do once: servers that catch up do that. If it goes on, a server may run on an old copy of its data: see `tako status`, and TK1072 for `tako trust bump-epoch`"
	case core.DoubtNode:
		return "whatever answers at the server's address mixes up hosts, or lies: see its log. If this machine is a copy of another one, join it anew"
	case core.DoubtCluster:
		return "the address leads to a server of another cluster: compare `tako-agent status` with `tako trust show` where the server runs"
	case core.DoubtKey:
		return "trust documents are asked for by itself. If it goes on, somebody signs with a key that the root keys have not appointed: compare `tako trust show` with what you know"
	case core.DoubtEpoch:
		return "trust documents are asked for by itself. If it goes on, whoever signs heads claims an epoch that the root keys have not begun: see `tako trust show`"
	case core.DoubtEquivocation:
		return "two servers sign from different data, or somebody has the key: see whether one server was restored from a copy"
	case core.DoubtContent:
		return "it is fetched in another way by itself. If it goes on, whatever answers at the server's address is broken or lies: see its log"
	case core.DoubtStatement:
		return "whoever brings it is told why. If nobody has brought one, somebody plays back old orders: see `tako-agent status`, and who has the role operator in `tako trust show`"
	}
	return "something between this host and its server changes what is sent, or the server is broken: see its log"
}
