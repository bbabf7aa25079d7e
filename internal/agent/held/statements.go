package held

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// statementsRecord is the content of the file of statements.
type statementsRecord struct {
	Statements []core.Statement `cbor:"1,keyasint"`
}

func (s *Store) readStatements() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var r statementsRecord
	payload, err := s.top.readRecord(statementsName, statementsName)
	if err == nil {
		err = wire.Decode(payload, &r)
	}
	switch {
	case err == nil:
		s.statements = r.Statements
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case !reason.Is(err, reason.StateCorrupt):
		return err
	}
	// As for the heads: who has lost both copies may believe an older statement once more, which has not expired.
	return s.damagedLocked(s.top, statementsName, &reason.Error{Code: reason.StateCorrupt, Doing: "read " + disk.Shown(filepath.Join(s.state, statementsName)), Cause: err})
}

// SetStatements is part of client.Heads.
func (s *Store) SetStatements(list []core.Statement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setStatementsLocked(list)
}

func (s *Store) setStatementsLocked(list []core.Statement) error {
	for i := range list {
		next := &list[i]
		at := slices.IndexFunc(s.statements, func(x core.Statement) bool { return x.Layer == next.Layer })
		if at < 0 {
			continue
		}
		have := s.statements[at].Mark()
		if next.Epoch < have.Epoch || next.Epoch == have.Epoch && next.Number < have.Number {
			return &reason.Error{Code: reason.StatementRefused, Doing: fmt.Sprintf("accept statement %d about layer %s", next.Number, next.Layer),
				Cause: fmt.Errorf("number %d of epoch %d was accepted before", have.Number, have.Epoch)}
		}
	}
	payload, err := wire.Encode(&statementsRecord{Statements: list})
	if err != nil {
		return err
	}
	if err := s.top.writeRecord(statementsName, statementsName, payload); err != nil {
		return err
	}
	s.statements = slices.Clone(list)
	return nil
}

// Took is the state of a root that is active, as far as the last run can have taken it on: one in which a statement was tried that was not
// judged yet, or that of the newest head, unless that is refused, with the statements that were in force. coming is what it was on its way to.
func (s *Store) Took(active catalog.Digest, coming Trial, refused bool) (catalog.Mark, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.statements {
		if x := &s.statements[i]; x.Open && x.State.Root == active {
			return x.State, true
		}
	}
	m := s.record.Mark
	if m.Root != active && coming.Epoch == m.Epoch && coming.Version == m.Version {
		m.Root = coming.Root
	}
	return m, !refused && m.Root == active
}

// Blames tells whether a verdict is on a state that was new for a statement.
func (s *Store) Blames(v wire.Verdict) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, blamed := core.Blame(s.statements, v)
	return blamed
}

// TryOf turns what a head says of a trial to what is enforced here. One that is over does not begin anew because of a statement; and what is gone
// back to is what is enforced now, with the statements in it. It may be nil.
func (s *Store) TryOf(t *catalog.Try, statement bool) *catalog.Try {
	switch {
	case t == nil, statement:
		return nil
	case t.Fallback != s.Ground():
		return t
	}
	back := *t
	back.Fallback = s.Life().Enforced.Root
	return &back
}

// Ground is the root of the catalog that the head of the enforced state names, without statements; the root of the mark itself where there
// are none, or it is not known.
func (s *Store) Ground() catalog.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if root, ok := headRoot(s.record.EnforcedHead); ok {
		return root
	}
	return s.record.Life.Enforced.Root
}

func headRoot(signed []byte) (catalog.Digest, bool) {
	if signed == nil {
		return catalog.Digest{}, false
	}
	_, h, err := catalog.DecodeHead(signed)
	if err != nil {
		return catalog.Digest{}, false
	}
	return h.Root()
}

// setLife is the record with another life, and with the heads of what is enforced in it and of what was before, as far as they are known.
func (r record) setLife(l Life) record {
	known := []struct {
		mark catalog.Mark
		head []byte
	}{{r.Mark, r.Head}, {r.Life.Enforced, r.EnforcedHead}, {r.Life.Before, r.BeforeHead}}
	find := func(m catalog.Mark) []byte {
		for _, k := range known {
			if m.Version > 0 && k.mark.Epoch == m.Epoch && k.mark.Version == m.Version {
				return k.head
			}
		}
		return nil
	}
	r.EnforcedHead, r.BeforeHead = find(l.Enforced), find(l.Before)
	r.Life = l.clone()
	return r
}

// ground is the head of the state that is enforced, where the highest that was accepted is another one.
func (r *record) ground() []byte {
	if e := &r.Life.Enforced; e.Epoch == r.Mark.Epoch && e.Version == r.Mark.Version {
		return nil
	}
	return r.EnforcedHead
}

// blameLocked notes a verdict with the statement that it is on; false where it is on a head.
func (s *Store) blameLocked(v wire.Verdict) (bool, error) {
	changed, blamed := core.Blame(s.statements, v)
	if !blamed {
		return false, nil
	}
	return true, s.setStatementsLocked(changed)
}

// isOn tells whether a verdict is on a state of the head that was accepted last: its root is that of the head, or what statements have made of it.
func (r *record) isOn(v *wire.Verdict) bool {
	m := &r.Mark
	return v.Epoch == m.Epoch && v.Version == m.Version && (v.Root == m.Root || v.Root == r.Life.Enforced.Root || r.Life.Try != nil && v.Root == r.Life.Try.Mark.Root)
}
