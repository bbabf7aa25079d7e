package store

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
)

// Record remembers what the engine asks to be remembered, at a moment in wall time and in stamp. When one of the records is
// a NotificationAdded, all are durable when it returns; otherwise they become so later. After an error (StateUnwritable) the
// notifications to be added are not remembered; everything else is, and reaches the disk when that can be written again.
func (s *Store) Record(recs []converge.Record, now time.Time, at host.Stamp) error {
	events := make([]event, 0, len(recs))
	for i := range recs {
		r := &recs[i]
		switch r.Kind {
		case converge.NotificationAdded:
			events = append(events, event{Kind: notificationAdded, Notification: &notification{
				Target: r.Target, Source: r.Source, Cause: r.Cause, Seq: r.Seq, At: at}})
		case converge.NotificationCleared:
			events = append(events, event{Kind: notificationCleared, Key: r.Target, Seq: r.Seq})
		case converge.BudgetSpent:
			events = append(events, event{Kind: budgetSpent, Key: r.Target, Budget: spent(r.Budget, now)})
		case converge.BudgetCleared:
			events = append(events, event{Kind: budgetCleared, Key: r.Target})
		}
	}
	return s.commit(events, false)
}

// Confirm notes that the change of source became visible at a moment: its notifications that have no stamp yet get this
// one. It is not durable when it returns; a crash makes of a missing stamp a later one.
func (s *Store) Confirm(source converge.Key, at host.Stamp) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ledger.unseen[source]) == 0 {
		return nil
	}
	return s.commitLocked([]event{{Kind: changeVisible, Key: source, At: &at}}, false)
}

// Since returns the latest moment at which something became visible that target is notified of, of the notifications up to
// a number; zero where there are none. One that is not confirmed counts from when it was recorded; one that a crash left
// unconfirmed counts from Open, if it is of the same boot.
func (s *Store) Since(target converge.Key, upto uint64) host.Stamp {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.since(target, upto, s.boot)
}

// Resume returns the notifications that are still owed, by number, and the budgets, each with what is left of its wait.
func (s *Store) Resume(now time.Time) ([]converge.Pending, map[converge.Key]converge.Budget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := make([]converge.Pending, 0, len(s.ledger.notifications))
	for _, n := range s.ledger.notifications {
		pending = append(pending, converge.Pending{Seq: n.Seq, Target: n.Target, Source: n.Source})
	}
	slices.SortFunc(pending, func(a, b converge.Pending) int { return cmp.Compare(a.Seq, b.Seq) })
	budgets := make(map[converge.Key]converge.Budget, len(s.ledger.budgets))
	for k, b := range s.ledger.budgets {
		budgets[k] = b.left(now)
	}
	return pending, budgets
}

// AddRemovals remembers, durably, what is to be undone once the next active state is set. As long as its claim is active a
// removal is not pending; if the swap never happens it is void.
func (s *Store) AddRemovals(rs []Removal) error {
	events := make([]event, len(rs))
	for i := range rs {
		events[i] = event{Kind: removalAdded, Removal: &rs[i]}
	}
	return s.commit(events, true)
}

// Removals returns the pending removals in the order that they were added. Errors: StateCorrupt where the disk has lost what is active.
func (s *Store) Removals() ([]Removal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ledger.removals) == 0 {
		return nil, nil
	}
	active := map[declare.Claim]bool{}
	for ref, err := range s.Active().Refs() {
		if err != nil {
			return nil, err
		}
		if _, ok := s.ledger.removals[ref.Claim]; ok {
			active[ref.Claim] = true
		}
	}
	var pending []Removal
	for _, r := range s.ledger.inOrder() {
		if !active[r.Claim] {
			pending = append(pending, r.Removal)
		}
	}
	return pending, nil
}

// RemovalDone forgets a removal. It is not durable when it returns: removing what is gone already succeeds again.
func (s *Store) RemovalDone(c declare.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.ledger.removals[c]; !ok {
		return nil
	}
	return s.commitLocked([]event{{Kind: removalOver, Key: key(c)}}, false)
}

// VoidRemovals forgets, durably, the removals of what has been taken over.
func (s *Store) VoidRemovals(taken func(declare.Claim) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var void []event
	for _, r := range s.ledger.inOrder() {
		if taken(r.Claim) {
			void = append(void, event{Kind: removalOver, Key: key(r.Claim)})
		}
	}
	return s.commitLocked(void, true)
}

// SetHold remembers a hold, durably, in the place of the one of the same config and claim.
func (s *Store) SetHold(h Hold) error { return s.commit([]event{{Kind: holdSet, Hold: &h}}, true) }

// EndHolds forgets, durably, the holds that are over, and returns them by what they are of.
func (s *Store) EndHolds(over func(Hold) bool) ([]Hold, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []Hold
	var events []event
	for _, h := range s.holdsLocked() {
		if over(h) {
			ended = append(ended, h)
			events = append(events, event{Kind: holdEnded, Hold: &Hold{Config: h.Config, Claim: h.Claim}})
		}
	}
	return ended, s.commitLocked(events, true)
}

// Holds returns the holds that were set and have not been ended; some may be over by themselves.
func (s *Store) Holds() []Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holdsLocked()
}

func (s *Store) holdsLocked() []Hold {
	var list []Hold
	for _, thing := range slices.Sorted(maps.Keys(s.ledger.holds)) {
		list = append(list, s.ledger.holds[thing])
	}
	return list
}

// originalMax bounds the description of what was there before: contents are kept elsewhere, by digest.
const originalMax = 1 << 20

// SetOriginal remembers, durably, what was there before the first change of a resource. The store keeps data, at most
// 1 MiB.
func (s *Store) SetOriginal(k converge.Key, data []byte) error {
	if err := tooLarge("remember what was there before "+string(k), len(data), originalMax); err != nil {
		return err
	}
	return s.commit([]event{{Kind: originalKept, Key: k, Original: data}}, true)
}

// Original returns what SetOriginal remembered. The caller does not change it.
func (s *Store) Original(k converge.Key) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.ledger.originals[k]
	return data, ok
}

// Originals returns all that SetOriginal has been given and DropOriginal not. The caller does not change the data.
func (s *Store) Originals() map[converge.Key][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ledger.originals)
}

// DropOriginal forgets what was there before; not durably.
func (s *Store) DropOriginal(k converge.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.ledger.originals[k]; !ok {
		return nil
	}
	return s.commitLocked([]event{{Kind: originalDropped, Key: k}}, false)
}

// convergedRow is one row of the file of what was converged.
type convergedRow struct {
	Key    converge.Key    `cbor:"1,keyasint"`
	Digest converge.Digest `cbor:"2,keyasint"`
}

// Converged returns the desires that were converged when SetConverged was called last. What cannot be read is left out.
func (s *Store) Converged() map[converge.Key]converge.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[converge.Key]converge.Digest{}
	// Damage was told of at Open; here it only means that less is known.
	_, _ = s.readFrames(convergedName, func(payload []byte, _ int64) error {
		var row convergedRow
		if err := decoding.Unmarshal(payload, &row); err != nil {
			return err
		}
		found[row.Key] = row.Digest
		return nil
	})
	return found
}

// SetConverged replaces what Converged returns.
func (s *Store) SetConverged(rows iter.Seq2[converge.Key, converge.Digest]) error {
	file := header(convergedName)
	for k, d := range rows {
		file = appendFrame(file, convergedRow{k, d})
	}
	return s.replace(convergedName, file)
}

// SaveReport replaces the report.
func (s *Store) SaveReport(data []byte) error {
	if err := tooLarge("save the report", len(data), payloadMax); err != nil {
		return err
	}
	return s.replace(reportName, appendRaw(header(reportName), data))
}

// Report returns what SaveReport was given last, and when that was; nil where there is none.
func (s *Store) Report() ([]byte, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var data []byte
	st, err := s.readFrames(reportName, func(payload []byte, _ int64) error {
		data = payload
		return nil
	})
	if err = readError(s.path(reportName), err); err != nil || data == nil {
		return nil, time.Time{}, err
	}
	return data, time.Unix(0, st.Mtime), nil
}
