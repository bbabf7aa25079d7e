package held

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// record is the content of the file of heads.
type record struct {
	Mark    catalog.Mark `cbor:"1,keyasint"`
	Head    []byte       `cbor:"2,keyasint,omitempty"`
	Verdict wire.Verdict `cbor:"3,keyasint"`
	Refused wire.Refused `cbor:"4,keyasint"`
	Life    Life         `cbor:"5,keyasint"`
	// The heads, signed, of Life.Enforced and Life.Before: statements are applied to them while the newest head is refused. Nil where they are not known.
	EnforcedHead []byte `cbor:"6,keyasint,omitempty"`
	BeforeHead   []byte `cbor:"7,keyasint,omitempty"`
}

// Life is what an agent must know of its earlier runs.
type Life struct {
	Starts   uint64       `cbor:"1,keyasint"` // how often it has started
	Enforced catalog.Mark `cbor:"2,keyasint"` // what is enforced; zero where nothing is
	Before   catalog.Mark `cbor:"3,keyasint"` // what was enforced before that, and had settled
	Settled  bool         `cbor:"4,keyasint"` // all that can be done for what is enforced has been done once
	Trial    Trial        `cbor:"5,keyasint"` // of what is enforced and not settled
	Try      *Try         `cbor:"6,keyasint,omitempty"`
	// Delivered is how many entries of Enforced are delivered and not acted upon.
	Delivered uint64 `cbor:"7,keyasint,omitempty"`
}

// Trial is how the agent has fared on the way to a state: package agent/core says what follows from it.
type Trial struct {
	Epoch   uint64         `cbor:"1,keyasint"`
	Version uint64         `cbor:"2,keyasint"`
	Root    catalog.Digest `cbor:"3,keyasint"`
	Deaths  uint32         `cbor:"4,keyasint,omitempty"`
	Open    bool           `cbor:"5,keyasint,omitempty"`
}

// Try is a state that is only enforced until its time is up, unless it is confirmed before.
type Try struct {
	Mark     catalog.Mark `cbor:"1,keyasint"`
	Fallback catalog.Mark `cbor:"2,keyasint"`
	Boot     string       `cbor:"3,keyasint"` // which run of the kernel Until is of
	Until    int64        `cbor:"4,keyasint"` // nanoseconds of that run
	Left     int64        `cbor:"5,keyasint"` // nanoseconds that were left when this was written: what another run of the kernel counts from
}

// roots are the catalogs that must stay.
func (l *Life) roots(mark catalog.Digest) []catalog.Digest {
	list := []catalog.Digest{mark, l.Enforced.Root, l.Before.Root}
	if l.Try != nil {
		list = append(list, l.Try.Mark.Root, l.Try.Fallback.Root)
	}
	return list
}

// On is the life when a state is taken on: the one before is what there is to go back to, where that was reached.
func (l Life) On(m catalog.Mark, way Trial) Life {
	if l.Settled && l.Try == nil {
		l.Before = l.Enforced
	}
	l.Enforced, l.Settled, l.Trial = m, false, way
	return l
}

// clone is a copy that shares nothing.
func (l Life) clone() Life {
	if l.Try != nil {
		t := *l.Try
		l.Try = &t
	}
	return l
}

func (s *Store) readHeads(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	payload, err := s.top.readRecord(headsName, headsName)
	if err == nil {
		err = wire.Decode(payload, &s.record)
	}
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case !reason.Is(err, reason.StateCorrupt):
		return err
	}
	// Both copies are gone: that takes more than a bit. A host that nobody keeps is worse than one that may believe an older head
	// once more, so it begins anew, and says so.
	s.record = record{}
	return s.damagedLocked(s.top, headsName, &reason.Error{Code: reason.StateCorrupt, Doing: "read " + disk.Shown(filepath.Join(s.state, headsName)), Cause: err})
}

// changeLocked makes a changed record durable. After an error the old one counts.
func (s *Store) changeLocked(r record) error {
	payload, err := wire.Encode(&r)
	if err == nil {
		err = s.top.writeRecord(headsName, headsName, payload)
	}
	if s.unnoted = err; err != nil {
		return err
	}
	if s.record, s.counted = r, false; s.uncounted {
		s.uncounted = s.top.remove(startsName) != nil // otherwise some numbers of starts are left out, which does no harm
	}
	return nil
}

// Kept is part of client.Heads.
func (s *Store) Kept() (core.Kept, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.record
	return core.Kept{Mark: r.Mark, Head: r.Head, Verdict: r.Verdict, Refused: r.Refused, Ground: r.ground(), Statements: slices.Clone(s.statements)}, nil
}

// Accept is part of client.Heads.
func (s *Store) Accept(mark catalog.Mark, head []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.record.Mark
	same := mark.Epoch == have.Epoch && mark.Version == have.Version
	switch {
	case mark.Epoch < have.Epoch, mark.Epoch == have.Epoch && mark.Version < have.Version, same && have.Version > 0 && mark.Root != have.Root:
		return &reason.Error{Code: reason.HeadRefused, Doing: fmt.Sprintf("accept version %d of epoch %d", mark.Version, mark.Epoch),
			Cause: fmt.Errorf("version %d of epoch %d was accepted before, with root %s", have.Version, have.Epoch, have.Root)}
	case same && mark.Issued <= have.Issued && have.Version > 0:
		return nil
	}
	r := s.record
	r.Mark, r.Head = mark, head
	if !same {
		r.Verdict = wire.Verdict{}
	}
	return s.changeLocked(r)
}

// Remember is part of client.Heads. The agent calls it too, for a verdict that it comes to later.
func (s *Store) Remember(v wire.Verdict) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if blamed, err := s.blameLocked(v); blamed {
		return err
	}
	if !s.record.isOn(&v) {
		return nil
	}
	v.Root = s.record.Mark.Root
	if v == s.record.Verdict {
		return nil
	}
	r := s.record
	r.Verdict = v
	return s.changeLocked(r)
}

// Count is part of client.Heads. What was counted becomes durable with the next change, or when the store is closed: whoever floods a
// host with forgeries makes it write nothing.
func (s *Store) Count(refused wire.Refused) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted = s.counted || s.record.Refused != refused
	s.record.Refused = refused
	return nil
}

// Life returns what is known of earlier runs. The caller owns it.
func (s *Store) Life() Life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Life.clone()
}

// SetLife replaces that, durably. After an error the old one counts.
func (s *Store) SetLife(l Life) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changeLocked(s.record.setLife(l))
}

// SetComing notes that the agent sets out for a state, or, with the zero value, that it has arrived. It is there after the death of the
// process; a power cut may lose it, which is a death that is not counted.
func (s *Store) SetComing(t Trial) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t == (Trial{}) {
		return s.top.remove(comingName)
	}
	payload, err := wire.Encode(&t)
	if err != nil {
		return err
	}
	return s.top.writeLoose(comingName, appendFrame(header(comingName), payload))
}

// Coming returns what SetComing noted last; the zero value where there is nothing, or nothing that can be read.
func (s *Store) Coming() Trial {
	s.mu.Lock()
	defer s.mu.Unlock()
	var t Trial
	payload, err := s.top.readRecord(comingName, comingName)
	if err != nil || wire.Decode(payload, &t) != nil {
		return Trial{}
	}
	return t
}

// ShownHead reads the head that the host of a state directory has accepted last, as it was signed; empty where there is none. The store may be
// open in another place.
func ShownHead(stateDir string) ([]byte, error) {
	d, err := openDirectory(stateDir)
	if err != nil {
		return nil, err
	}
	defer d.root.Close()
	payload, err := d.readRecord(headsName, headsName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var r record
	if err == nil {
		err = wire.Decode(payload, &r)
	}
	return r.Head, err
}
