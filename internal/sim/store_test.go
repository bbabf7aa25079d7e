package sim

import (
	"maps"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/trust"
)

// assignment is what is assigned to a node, as one write to the store has it.
type assignment struct {
	node     string
	version  uint64 // revision of the store
	list     catalog.List
	encoded  []byte
	root     catalog.Digest
	bytes    uint64
	consent  uint8
	absorbed []catalog.AbsorbedNumber
}

// store is etcd: numbered writes, a log of them that is compacted, and old copies that somebody may put in its place.
type store struct {
	w         *world
	revision  uint64
	present   map[string]*assignment // by node
	log       []*assignment          // by version
	compacted uint64                 // what was written up to there is only known as it is now
	chain     *trust.Chain
	key       *trust.SigningKey // that heads are signed with
	copies    []storeCopy
	replaced  int // times that an old copy was put in its place
}

// storeCopy is a backup.
type storeCopy struct {
	revision uint64
	present  map[string]*assignment
	number   uint64 // of the newest trust document
}

func newStore(w *world) *store {
	return &store{w: w, present: map[string]*assignment{}, revision: 1, chain: w.by.chain, key: w.by.heads}
}

// assign writes what a node is to have. Servers learn it by their watches.
func (s *store) assign(node string, layers []catalog.Layer, consent uint8, absorbed []catalog.AbsorbedNumber) {
	list, err := catalog.NewList(layers...)
	must(0, err)
	a := &assignment{node: node, list: list, encoded: must(list.Encode()), consent: consent, absorbed: absorbed}
	a.root = catalog.ListRoot(a.encoded)
	for _, l := range list {
		a.bytes += s.w.truth.layers[l.Root].bytes
	}
	s.revision += 1 + s.w.random.Uint64N(3) // others write, too
	a.version = s.revision
	s.present[node] = a
	s.log = append(s.log, a)
	s.w.truth.lists[a.root] = list
	for _, x := range s.w.servers {
		x.tell()
	}
}

// since are the writes after a revision, in order; false where the log does not go back so far.
func (s *store) since(revision uint64) ([]*assignment, bool) {
	if revision < s.compacted {
		return nil, false
	}
	at, _ := slices.BinarySearchFunc(s.log, revision, func(a *assignment, r uint64) int {
		if a.version <= r {
			return -1
		}
		return 1
	})
	return s.log[at:], true
}

// compact forgets the log.
func (s *store) compact() {
	s.compacted, s.log = s.revision, nil
}

// backup takes a copy.
func (s *store) backup() {
	s.copies = append(s.copies, storeCopy{s.revision, maps.Clone(s.present), s.chain.Current().Number})
}

// replace puts an old copy in the place of the store; false where there is none that fits: trust documents are kept beside it.
func (s *store) replace() bool {
	for _, c := range s.copies {
		if c.number == s.chain.Current().Number && c.revision < s.revision {
			s.revision, s.present, s.log, s.compacted = c.revision, maps.Clone(c.present), nil, c.revision
			s.copies, s.replaced = nil, s.replaced+1
			return true
		}
	}
	return false
}

// nodes are the names of those that have something, sorted.
func (s *store) nodes() []string { return slices.Sorted(maps.Keys(s.present)) }

// How servers derive heads: package controllers/heads.
const (
	// signPeriod is how long one signature is repeated, and headLife how long a head is good: less than in truth, so that heads expire within a run.
	signPeriod = 3 * time.Minute
	headLife   = 7 * time.Minute
	// freshFor is how old a view may be that new heads are signed from.
	freshFor = 30 * time.Second
	// proveEvery is how often that is proven.
	proveEvery = 10 * time.Second
	// compareEvery is how often all is read again.
	compareEvery = 5 * time.Minute
	// retainFor is how long what was replaced is known.
	retainFor = 10 * time.Minute
	// catchUpMax is how long a host waits for a server that is behind.
	catchUpMax = 2 * time.Second
)
