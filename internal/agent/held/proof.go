package held

import (
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// Proof is when the servers were proven to be alive last: the newest head that was accepted was issued then. now is what clocks show; it is not
// taken to be before anything that was verified was issued, statements of operators too, although those prove nothing of servers. Where there
// is no head, or it cannot be read any more, nothing was proven since 1970.
func (s *Store) Proof(now time.Time) catalog.Proof {
	s.mu.Lock()
	defer s.mu.Unlock()
	issued, statements := s.record.Mark.Issued, s.statements
	if s.looks { // it belongs to an agent that may write it at this moment, so it is read each time
		var r record
		if payload, err := s.top.readRecord(headsName, headsName); err == nil && wire.Decode(payload, &r) == nil {
			issued = r.Mark.Issued
		}
		var x statementsRecord
		if payload, err := s.top.readRecord(statementsName, statementsName); err == nil && wire.Decode(payload, &x) == nil {
			statements = x.Statements
		}
	}
	p := catalog.Proof{Issued: time.Unix(issued, 0), Now: latest(now, trust.Built(), time.Unix(issued, 0))}
	for i := range statements {
		p.Now = latest(p.Now, time.Unix(statements[i].Issued, 0))
	}
	return p
}

func latest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.After(first) {
			first = t
		}
	}
	return first
}

// Judged reports whether the host has decided about the newest head that was accepted: what it says is enforced, or was refused.
func (s *Store) Judged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, e, v := &s.record.Mark, &s.record.Life.Enforced, &s.record.Verdict
	refused := v.Type == wire.Rejected || v.Type == wire.Withheld || v.Type == wire.Quarantined
	return refused || m.Epoch == e.Epoch && m.Version == e.Version
}

// Telling is the store for who writes what is transferred: told is called after a head was accepted or judged, however that ended.
func (s *Store) Telling(told func()) client.Store { return telling{s, told} }

type telling struct {
	*Store
	told func()
}

// Accept is part of client.Heads.
func (t telling) Accept(mark catalog.Mark, head []byte) error {
	defer t.told()
	return t.Store.Accept(mark, head)
}

// Remember is part of client.Heads.
func (t telling) Remember(v wire.Verdict) error {
	defer t.told()
	return t.Store.Remember(v)
}
