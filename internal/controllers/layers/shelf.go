package layers

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"tako.dev/tako/internal/catalog"
)

// The bounds of what is kept of layers that no Assignment names.
const (
	// keptMin is how many of one config: as many as a host may have missed while it was away for a moment.
	keptMin = 8
	// keptFor is how long one is, however many there are up to keptMax: an hour of changes, which a host that restarts, or is cut off
	// for a while, gets as a difference. After that it asks by hash.
	keptFor = time.Hour
	// keptMax is how many of one config: a change each minute for an hour. Who changes a config more often than that has layers of which
	// most were on no host.
	keptMax = 64
	// failedMax is how many revisions are remembered that lead to no layer, of all configs together: hundreds of people have mistakes to
	// correct then. What is forgotten is found again when it is asked for.
	failedMax = 1024
	// sweepPause is how long it is at least between two looks for layers of workloads' revisions that were not asked for since keptFor: each is of one
	// revision alone, and when that has gone nothing calls for a look at it any more.
	sweepPause = time.Minute
	// keptBytesMax is of all configs together, counted as if nothing were shared between them; most is.
	keptBytesMax = 256 << 20
)

// revisionID names a revision of a config.
type revisionID struct{ config, revision string }

// reference names an object that a revision takes values from.
type reference struct {
	kind            string // kindSecret, kindConfigMap or kindBundle
	namespace, name string
}

// result is what a revision compiles to: a layer, or why there is none, as long as nothing that it refers to is newer than what was read.
type result struct {
	layer *Layer
	err   error
	read  map[reference]reading
	asked time.Time
}

// reading is what was found of an object.
type reading struct {
	version uint64 // of what was not there, the last that was heard of it
	there   bool
}

// shelf keeps results, and the layers of a config by their roots. It is safe for concurrent use and calls nobody.
type shelf struct {
	mu      sync.Mutex // guards what follows
	results map[revisionID]*result
	configs map[string]*row
	heard   map[reference]*heard
	bytes   int64 // of memory, of layers that nobody uses
	swept   time.Time
}

// row is the layers of one config.
type row struct {
	kept map[catalog.Digest]*kept
	used map[catalog.Digest]int // by Assignments
}

// kept is a layer with when it was asked for last.
type kept struct {
	layer *Layer
	asked time.Time
}

// heard is the newest version of an object that a watch has told of, while somebody refers to it.
type heard struct {
	version uint64
	configs map[string]int // that refer to it, with how many results and compiles of each
}

func newShelf() *shelf {
	return &shelf{results: map[revisionID]*result{}, configs: map[string]*row{}, heard: map[reference]*heard{}}
}

// get returns a result that is good still.
func (s *shelf) get(id revisionID, now time.Time) (*result, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.results[id]
	if r == nil || !s.goodLocked(r) {
		return nil, false
	}
	r.asked = now
	if r.layer != nil {
		s.askedLocked(id.config, r.layer, now)
	}
	return r, true
}

// good reports whether nothing that the result comes from is known to be newer.
func (s *shelf) goodLocked(r *result) bool {
	for ref, read := range r.read {
		if h := s.heard[ref]; h != nil && h.version > read.version {
			return false
		}
	}
	return true
}

// begin says that a compile will read those objects: from now on it is known when they change. It returns what was heard of them so
// far. end takes it back.
func (s *shelf) begin(config string, refs []reference) map[reference]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := make(map[reference]uint64, len(refs))
	for _, ref := range refs {
		versions[ref] = s.referLocked(config, ref).version
	}
	return versions
}

func (s *shelf) end(config string, refs []reference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range refs {
		s.unreferLocked(config, ref)
	}
}

func (s *shelf) referLocked(config string, ref reference) *heard {
	h := s.heard[ref]
	if h == nil {
		h = &heard{configs: map[string]int{}}
		s.heard[ref] = h
	}
	h.configs[config]++
	return h
}

func (s *shelf) unreferLocked(config string, ref reference) {
	h := s.heard[ref]
	if h.configs[config]--; h.configs[config] == 0 {
		delete(h.configs, config)
	}
	if len(h.configs) == 0 {
		delete(s.heard, ref)
	}
}

// put keeps a result in the place of the one before.
func (s *shelf) put(id revisionID, r *result, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref := range r.read {
		s.referLocked(id.config, ref)
	}
	s.dropLocked(id)
	s.results[id], r.asked = r, now
	if r.layer == nil {
		s.trimFailedLocked()
		return
	}
	r.layer = s.askedLocked(id.config, r.layer, now)
	s.trimLocked(id.config, now)
	s.sweepLocked(now)
}

// sweep lets go of the layers of workloads' revisions that are not in use.
func (s *shelf) sweepLocked(now time.Time) {
	if now.Sub(s.swept) < sweepPause {
		return
	}
	s.swept = now
	for config := range s.configs {
		if _, is := catalog.TemplateOf(config); is {
			s.trimLocked(config, now)
		}
	}
}

// drop forgets the result of a revision; its layer stays as long as layers do.
func (s *shelf) dropLocked(id revisionID) {
	r := s.results[id]
	if r == nil {
		return
	}
	delete(s.results, id)
	for ref := range r.read {
		s.unreferLocked(id.config, ref)
	}
}

func (s *shelf) rowLocked(config string) *row {
	r := s.configs[config]
	if r == nil {
		r = &row{kept: map[catalog.Digest]*kept{}, used: map[catalog.Digest]int{}}
		s.configs[config] = r
	}
	return r
}

// asked notes that a layer was asked for, and returns the one that is kept: of two with the same root one is enough.
func (s *shelf) askedLocked(config string, layer *Layer, now time.Time) *Layer {
	r := s.rowLocked(config)
	if k := r.kept[layer.Root]; k != nil {
		k.asked = now
		return k.layer
	}
	r.kept[layer.Root] = &kept{layer, now}
	if r.used[layer.Root] <= 0 {
		s.bytes += layer.memory
	}
	return layer
}

// at returns the layer of a config at a root.
func (s *shelf) at(config string, root catalog.Digest) (*Layer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.configs[config]; r != nil {
		if k := r.kept[root]; k != nil {
			return k.layer, true
		}
	}
	return nil, false
}

// latest returns the layer of a config that was asked for last, or nil.
func (s *shelf) latest(config string) *Layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.configs[config]
	if r == nil || len(r.kept) == 0 {
		return nil
	}
	return slices.MaxFunc(slices.Collect(maps.Values(r.kept)), byAsked).layer
}

func byAsked(a, b *kept) int { return a.asked.Compare(b.asked) }

// use counts an Assignment more that names a root; by is -1 for one less.
func (s *shelf) use(config string, root catalog.Digest, by int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rowLocked(config)
	before := r.used[root] > 0
	// It may be below 0 for a moment: one who replaces and one who sweeps do not wait for each other.
	if r.used[root] += by; r.used[root] == 0 {
		delete(r.used, root)
	}
	after := r.used[root] > 0
	if k := r.kept[root]; k != nil && before != after {
		if after {
			s.bytes -= k.layer.memory
		} else {
			s.bytes += k.layer.memory
			k.asked = now // from here on it is old
		}
	}
	s.trimLocked(config, now)
}

// trim lets go what nobody uses and is over the bounds, the oldest first.
func (s *shelf) trimLocked(config string, now time.Time) {
	r, least := s.configs[config], keptMin
	if _, is := catalog.TemplateOf(config); is {
		least = 0
	}
	idle := r.idle()
	for i, k := range idle { // the newest first
		if i >= least && (i >= keptMax || now.Sub(k.asked) > keptFor) {
			s.forgetLocked(config, k)
		}
	}
	if len(r.kept) == 0 && len(r.used) == 0 {
		delete(s.configs, config)
	}
	for s.bytes > keptBytesMax {
		config, k := s.oldestLocked()
		s.forgetLocked(config, k)
	}
}

// trimFailed forgets the revision without a layer that was asked for least lately, if there are too many.
func (s *shelf) trimFailedLocked() {
	failed, oldest := 0, revisionID{}
	for id, r := range s.results {
		if r.layer != nil {
			continue
		}
		if failed++; failed == 1 || r.asked.Before(s.results[oldest].asked) {
			oldest = id
		}
	}
	if failed > failedMax {
		s.dropLocked(oldest)
	}
}

// idle are the layers that no Assignment names, the newest first.
func (r *row) idle() []*kept {
	var idle []*kept
	for root, k := range r.kept {
		if r.used[root] <= 0 {
			idle = append(idle, k)
		}
	}
	slices.SortFunc(idle, func(a, b *kept) int { return cmp.Or(byAsked(b, a), slices.Compare(a.layer.Root[:], b.layer.Root[:])) })
	return idle
}

func (s *shelf) oldestLocked() (string, *kept) {
	var of string
	var oldest *kept
	for config, r := range s.configs {
		for _, k := range r.idle() {
			if oldest == nil || k.asked.Before(oldest.asked) {
				of, oldest = config, k
			}
		}
	}
	return of, oldest
}

// forget lets a layer go, with the results that it is in.
func (s *shelf) forgetLocked(config string, k *kept) {
	delete(s.configs[config].kept, k.layer.Root)
	s.bytes -= k.layer.memory
	for id, r := range s.results {
		if id.config == config && r.layer == k.layer {
			s.dropLocked(id)
		}
	}
}

// tell notes that an object has that version now, and returns the configs for which that is news.
func (s *shelf) tell(ref reference, version uint64) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tellLocked(ref, version)
}

func (s *shelf) tellLocked(ref reference, version uint64) []string {
	h := s.heard[ref]
	if h == nil || h.version >= version {
		return nil
	}
	h.version = version
	var news []string
	for config := range h.configs {
		if s.outdatedLocked(config, ref, version) {
			news = append(news, config)
		}
	}
	return news
}

// came notes that something is there that has no versions, and returns the configs for which that is news.
func (s *shelf) came(ref reference) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.heard[ref]; h != nil {
		return s.tellLocked(ref, h.version+1)
	}
	return nil
}

// outdated reports whether something of a config was made of an older version. A compile that is not finished counts: it may have read
// before.
func (s *shelf) outdatedLocked(config string, ref reference, version uint64) bool {
	results := 0
	for id, r := range s.results {
		if read, refers := r.read[ref]; id.config == config && refers {
			results++
			if read.version < version {
				return true
			}
		}
	}
	return results < s.heard[ref].configs[config]
}

// tellAll notes what a list says of a kind: version by object, and of what is not in it that it was gone at the version of the list.
func (s *shelf) tellAll(kind string, versions map[reference]uint64, at uint64) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var news []string
	for ref := range s.heard {
		if ref.kind != kind {
			continue
		}
		version, there := versions[ref]
		if !there {
			version = s.goneLocked(ref, at)
		}
		news = append(news, s.tellLocked(ref, version)...)
	}
	return news
}

// goneLocked is the version of an object that a list does not have. Who has found none is told nothing new.
func (s *shelf) goneLocked(ref reference, at uint64) uint64 {
	referring := 0
	for _, n := range s.heard[ref].configs {
		referring += n
	}
	for _, r := range s.results {
		if read, refers := r.read[ref]; refers && !read.there {
			referring--
		}
	}
	if referring == 0 {
		return s.heard[ref].version
	}
	return at
}
