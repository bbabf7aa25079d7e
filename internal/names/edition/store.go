package edition

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// Bounds of an edition.
const (
	// RowsMax is how many rows there are: what a host of a large fleet can keep beside its work, some 150 MB.
	RowsMax = 262_144
	// bytesMax is of all rows as they come.
	bytesMax = 128 << 20
	// stepsMax is how many changes are kept for those who are behind, and stepRowsMax how many rows those have together. Who is further behind gets
	// all rows.
	stepsMax, stepRowsMax = 1024, 65_536
)

// Options are what a Store believes.
type Options struct {
	Cluster trust.ClusterID
	// Keys are those that may sign heads now.
	Keys func(now time.Time) catalog.Keys
	// Alone says that nobody asks this Store for what others have not yet: it keeps no changes.
	Alone bool
}

// Store is the newest edition with its rows. Use New. Its methods may be called from any goroutine.
type Store struct {
	opts Options

	mu      sync.Mutex // guards what follows
	rows    *set
	edition Edition
	signed  []byte
	steps   []step // the oldest first; each leads to the next
	stepped int    // rows in them
	changed chan struct{}
	coming  staged
}

// step is a change between two editions.
type step struct {
	from wire.NamesMark
	change
}

// staged is what has come of a way whose last part has not.
type staged struct {
	from wire.NamesMark
	change
	bytes int
}

// New makes a Store that has nothing.
func New(o Options) *Store {
	return &Store{opts: o, rows: &set{}, changed: make(chan struct{})}
}

// Edition is the newest one; that of zero mark where there is none.
func (s *Store) Edition() Edition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.edition
}

// Mark is that of the newest edition.
func (s *Store) Mark() wire.NamesMark { return s.Edition().Mark }

// Get is the row of a key, false where there is none.
func (s *Store) Get(key string) (Row, bool) {
	s.mu.Lock()
	r := s.rows.get(key)
	s.mu.Unlock()
	if r == nil {
		return Row{}, false
	}
	row, err := decodeRow(r.body)
	return row, err == nil
}

// Saying is how the newest edition says something.
type Saying uint8

// The ways.
const (
	Unsaid    Saying = iota // not at all
	Otherwise               // there is another row with the key
	Same                    // byte for byte
)

// Says tells how the newest edition says a row, which may be nil, under a key.
func (s *Store) Says(key string, as *Row) Saying {
	s.mu.Lock()
	r := s.rows.get(key)
	s.mu.Unlock()
	if r == nil {
		return Unsaid
	}
	if as == nil {
		return Otherwise
	}
	if body, err := wire.Encode(as); err != nil || !bytes.Equal(body, r.body) {
		return Otherwise
	}
	return Same
}

// Keys are the keys of all rows, in no order that matters.
func (s *Store) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]string, 0, s.rows.count)
	for _, r := range s.rows.all() {
		keys = append(keys, r.key)
	}
	return keys
}

// Draft is what is to be said next.
type Draft struct {
	Mark   wire.NamesMark // later than the newest
	Issued time.Time
	Put    []Row
	Gone   []string
	Left   int // how many rows are left out, because of RowsMax
}

// Publish makes the next edition. The error is InternalFault.
func (s *Store) Publish(d Draft, key *trust.SigningKey) error {
	c := change{gone: d.Gone}
	for i := range d.Put {
		body, err := wire.Encode(&d.Put[i])
		if err != nil {
			return err
		}
		c.put = append(c.put, newRow(d.Put[i].Key, body))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Mark.Compare(s.edition.Mark) <= 0 {
		return &reason.Error{Code: reason.InternalFault, Doing: "publish names", Cause: fmt.Errorf("edition %+v is not later than %+v", d.Mark, s.edition.Mark)}
	}
	undo := s.rows.apply(c)
	e := Edition{Protocol: protocol, Key: key.Public().ID(), Cluster: s.opts.Cluster, Mark: d.Mark, Root: s.rows.root(), Rows: uint64(s.rows.count), Issued: d.Issued.UnixMilli(), Left: uint64(d.Left)}
	signed, err := e.sign(key)
	if err != nil || e.Rows > RowsMax || s.rows.bytes > bytesMax {
		s.rows.apply(undo)
		return errors.Join(err, &reason.Error{Code: reason.InternalFault, Doing: "publish names", Cause: fmt.Errorf("%d rows with %d bytes", e.Rows, s.rows.bytes)})
	}
	s.adoptLocked(e, signed, c)
	return nil
}

// adoptLocked has an edition be the newest, to which a change has led.
func (s *Store) adoptLocked(e Edition, signed []byte, c change) {
	if !s.opts.Alone {
		s.steps = append(s.steps, step{s.edition.Mark, c})
		s.stepped += len(c.put) + len(c.gone)
		for len(s.steps) > 1 && (len(s.steps) > stepsMax || s.stepped > stepRowsMax) {
			s.stepped -= len(s.steps[0].put) + len(s.steps[0].gone)
			s.steps[0] = step{}
			s.steps = s.steps[1:]
		}
	}
	s.edition, s.signed = e, signed
	close(s.changed)
	s.changed = make(chan struct{})
}

// News is what another edition says that the one before did not.
type News struct {
	Mark wire.NamesMark
	Put  []Row
	Gone []string
	All  bool // there is nothing else: what it does not say is not in the edition
}

// Take takes a part. With the last one of a way the edition is verified and becomes the newest: then news are what is different in it; otherwise they are nil.
// After an error the way has to begin anew: the errors are StateCorrupt, HeadRefused, and TransferWrong where the parts do not lead to what is signed.
func (s *Store) Take(m *wire.Names, now time.Time) (*News, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news, err := s.takeLocked(m, now)
	if err != nil || news != nil {
		s.coming = staged{}
	}
	return news, err
}

func (s *Store) takeLocked(m *wire.Names, now time.Time) (*News, error) {
	if err := m.Validate(); err != nil {
		return nil, wrong(err)
	}
	if m.Empty() {
		return nil, nil
	}
	c := &s.coming
	if len(c.put)+len(c.gone) > 0 && c.from != m.From {
		return nil, wrong(errors.New("a way goes on that has begun elsewhere"))
	}
	c.from = m.From
	c.gone = append(c.gone, m.Gone...)
	for _, body := range m.Rows {
		r, err := decodeRow(body)
		if err != nil {
			return nil, err
		}
		c.put = append(c.put, newRow(r.Key, body))
		c.bytes += len(body)
	}
	if len(c.put) > RowsMax || len(c.gone) > RowsMax || c.bytes > bytesMax {
		return nil, wrong(fmt.Errorf("%d rows with %d bytes are more than there may be", len(c.put), c.bytes))
	}
	if len(m.Edition) == 0 {
		return nil, nil
	}
	e, err := verify(m.Edition, s.opts.Keys(now), s.opts.Cluster)
	if err != nil {
		return nil, err
	}
	if e.Mark.Compare(s.edition.Mark) <= 0 {
		return &News{Mark: s.edition.Mark}, nil // what is here is later
	}
	return s.arriveLocked(e, m.Edition)
}

func wrong(cause error) error {
	return &reason.Error{Code: reason.TransferWrong, Doing: "take the names", Cause: cause}
}

// arriveLocked takes up an edition whose way has come.
func (s *Store) arriveLocked(e Edition, signed []byte) (*News, error) {
	c := s.coming.change
	if key, twice := doubled(c.put); twice {
		return nil, wrong(fmt.Errorf("row %.64q is there twice", key)) // it could not be undone
	}
	if s.coming.from == (wire.NamesMark{}) {
		c = s.differenceLocked(c)
	} else if s.coming.from != s.edition.Mark {
		return nil, wrong(fmt.Errorf("the way begins at %+v, and here is %+v", s.coming.from, s.edition.Mark))
	}
	undo := s.rows.apply(c)
	if root := s.rows.root(); root != e.Root || uint64(s.rows.count) != e.Rows || s.rows.bytes > bytesMax {
		s.rows.apply(undo)
		return nil, wrong(fmt.Errorf("%d rows came to root %s, signed are %d rows with root %s", s.rows.count, root, e.Rows, e.Root))
	}
	s.adoptLocked(e, signed, c)
	return newsOf(e.Mark, c)
}

// doubled finds a key that several rows have.
func doubled(rows []*row) (string, bool) {
	seen := make(map[string]bool, len(rows))
	for _, r := range rows {
		if seen[r.key] {
			return r.key, true
		}
		seen[r.key] = true
	}
	return "", false
}

// differenceLocked is the change from the rows that are here to those that came.
func (s *Store) differenceLocked(all change) (c change) {
	came := make(map[string]bool, len(all.put))
	for _, r := range all.put {
		came[r.key] = true
		if old := s.rows.get(r.key); old == nil || old.digest != r.digest {
			c.put = append(c.put, r)
		}
	}
	for _, r := range s.rows.all() {
		if !came[r.key] {
			c.gone = append(c.gone, r.key)
		}
	}
	return c
}

// After is the way from the edition that somebody has to the newest one, which is mark, in parts that are to be sent in order; none where he has that or a
// later one. changed is closed when there is another one. The rows in the parts are shared: change nothing in them.
func (s *Store) After(have wire.NamesMark) (parts []wire.Names, mark wire.NamesMark, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.edition.Mark.Compare(have) <= 0 {
		return nil, have, s.changed
	}
	from, c := s.wayLocked(have)
	return partsOf(from, c, s.signed), s.edition.Mark, s.changed
}

// wayLocked is what has changed since an edition, or all rows where that is not known any more.
func (s *Store) wayLocked(have wire.NamesMark) (from wire.NamesMark, c change) {
	for i := range s.steps {
		if s.steps[i].from != have || have == (wire.NamesMark{}) {
			continue
		}
		rows := map[string]*row{} // nil: it is gone
		for _, st := range s.steps[i:] {
			for _, key := range st.gone {
				rows[key] = nil
			}
			for _, r := range st.put {
				rows[r.key] = r
			}
		}
		for key, r := range rows {
			if r == nil {
				c.gone = append(c.gone, key)
			} else {
				c.put = append(c.put, r)
			}
		}
		return have, c
	}
	return wire.NamesMark{}, change{put: s.rows.all()}
}

// Since is what the newest edition says that an earlier one did not; everything, where it is not known any more what has changed. News are nil where there
// is none that is later. changed is closed when there is another one. The error is StateCorrupt.
func (s *Store) Since(have wire.NamesMark) (news *News, changed <-chan struct{}, err error) {
	s.mu.Lock()
	mark, changed := s.edition.Mark, s.changed
	if mark.Compare(have) <= 0 {
		s.mu.Unlock()
		return nil, changed, nil
	}
	from, c := s.wayLocked(have)
	s.mu.Unlock()
	news, err = newsOf(mark, c)
	if err == nil {
		news.All = from == wire.NamesMark{}
	}
	return news, changed, err
}

// newsOf is what a change says that has led to an edition.
func newsOf(mark wire.NamesMark, c change) (*News, error) {
	news := &News{Mark: mark, Gone: c.gone}
	for _, r := range c.put {
		row, err := decodeRow(r.body)
		if err != nil {
			return nil, err // it was decoded when it came
		}
		news.Put = append(news.Put, row)
	}
	return news, nil
}

// partsOf divides a change into parts, of which the last one has the edition.
func partsOf(from wire.NamesMark, c change, signed []byte) []wire.Names {
	var parts []wire.Names
	part, size := wire.Names{From: from}, 0
	room := func(n int) {
		if size+n > wire.PartBytesMax || len(part.Rows) == wire.NamesRowsMax || len(part.Gone) == wire.NamesRowsMax {
			parts = append(parts, part)
			part, size = wire.Names{From: from}, 0
		}
		size += n
	}
	for _, key := range c.gone {
		room(len(key))
		part.Gone = append(part.Gone, key)
	}
	for _, r := range c.put {
		room(len(r.body))
		part.Rows = append(part.Rows, r.body)
	}
	part.Edition = signed
	return append(parts, part)
}

// Index makes an index say what the news say. What cannot be a name is left out, and the others are there: the errors say why, at most ten of them.
func (n *News) Index(x *names.Index) (*names.Index, []error) {
	edit := x.Edit()
	var errs []error
	for _, key := range n.Gone {
		Drop(edit, key)
	}
	for i := range n.Put {
		if err := n.Put[i].put(edit); err != nil && len(errs) < 10 {
			errs = append(errs, err)
		}
	}
	return edit.Commit(n.Mark.Number), errs
}
