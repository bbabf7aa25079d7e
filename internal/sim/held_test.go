package sim

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"iter"
	"maps"
	"slices"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// The files of a host.
const (
	headsFile      = "heads"
	statementsFile = "statements"
	stageFile      = "stage"
	comingFile     = "coming"
	activeFile     = "active"
	ledgerFile     = "ledger"
	listPrefix     = "list/"
	layerPrefix    = "layer/"
)

// listsRecent is how many of the newest lists stay in any case.
const listsRecent = 2

// record is the content of the file of heads.
type record struct {
	Mark     catalog.Mark `cbor:"1,keyasint"`
	Head     []byte       `cbor:"2,keyasint,omitempty"`
	Verdict  wire.Verdict `cbor:"3,keyasint"`
	Refused  wire.Refused `cbor:"4,keyasint"`
	Life     life         `cbor:"5,keyasint"`
	Enforced []byte       `cbor:"6,keyasint,omitempty"` // the head of Life.Enforced, where it is known
	Before   []byte       `cbor:"7,keyasint,omitempty"` // and that of Life.Before
}

// listRecord is the content of the file of a list.
type listRecord struct {
	Number  uint64 `cbor:"1,keyasint"`
	Encoded []byte `cbor:"2,keyasint"`
}

// rowRecord is a row of the file of a layer, or of the stage: the key, and the body. One that is deleted has none.
type rowRecord struct {
	key, digest catalog.Digest // of the body
	deleted     bool
	body        []byte
}

// row is the frame of a row.
func row(b []byte, key catalog.Digest, deleted bool, body []byte) []byte {
	kind := byte(0)
	if deleted {
		kind = 1
	}
	return frame(b, append(append(append(make([]byte, 0, 1+len(key)+len(body)), kind), key[:]...), body...))
}

// decodeRow reads what row has written; false where it is nothing of that.
func decodeRow(payload []byte) (r rowRecord, ok bool) {
	if len(payload) < 1+len(r.key) || payload[0] > 1 {
		return r, false
	}
	r.deleted, r.key, r.body = payload[0] == 1, catalog.Digest(payload[1:1+len(r.key)]), payload[1+len(r.key):]
	if !r.deleted {
		r.digest = sha256.Sum256(r.body)
	}
	return r, true
}

// held is what a host keeps of its cluster: the parts of packages agent/held and layerstore that the machine can see, over a disk that loses
// things. One is made for each run of the agent.
type held struct {
	disk       *disk
	record     record
	statements []core.Statement
	layers     map[catalog.Digest]verified       // in this run
	remains    map[catalog.Digest]catalog.Digest // by what was damaged
	fetch      *core.Fetch                       // whose stage is open
}

// verified is a layer, and the bytes that it was read from.
type verified struct {
	*layer
	from []byte
}

// is tells whether a file still has the bytes that were verified: whatever writes to a disk makes others.
func (v verified) is(data []byte) bool {
	return v.layer != nil && len(v.from) == len(data) && (len(data) == 0 || &v.from[0] == &data[0])
}

// openHeld reads what the last run has left.
func openHeld(d *disk) *held {
	h := &held{disk: d, layers: map[catalog.Digest]verified{}, remains: map[catalog.Digest]catalog.Digest{}}
	h.load(headsFile, &h.record)
	h.load(statementsFile, &h.statements)
	return h
}

// load reads a record; what cannot be read is as if it were not there.
func (h *held) load(name string, into any) {
	data, there := h.disk.read(name)
	if !there {
		return
	}
	if payload, err := either(data); err == nil {
		must(0, wire.Decode(payload, into))
	}
}

func (h *held) keep(name string, what any) error {
	return h.disk.replace(name, twice(must(wire.Encode(what))))
}

// change makes another record durable. After an error the old one counts.
func (h *held) change(r record) error {
	err := h.keep(headsFile, &r)
	if err == nil {
		h.record = r
	}
	return err
}

func (h *held) kept() core.Kept {
	r := &h.record
	k := core.Kept{Mark: r.Mark, Head: r.Head, Verdict: r.Verdict, Refused: r.Refused, Statements: slices.Clone(h.statements)}
	if e := &r.Life.Enforced; e.Epoch != r.Mark.Epoch || e.Version != r.Mark.Version {
		k.Ground = r.Enforced
	}
	return k
}

// before tells whether a mark is below another one.
func before(a, b catalog.Mark) bool {
	return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Version < b.Version
}

func (h *held) accept(mark catalog.Mark, head []byte) error {
	have := h.record.Mark
	same := mark.Epoch == have.Epoch && mark.Version == have.Version
	switch {
	case before(mark, have), same && have.Version > 0 && mark.Root != have.Root:
		return &reason.Error{Code: reason.HeadRefused, Doing: "accept a head"}
	case same && mark.Issued <= have.Issued && have.Version > 0:
		return nil
	}
	r := h.record
	r.Mark, r.Head = mark, head
	if !same {
		r.Verdict = wire.Verdict{}
	}
	return h.change(r)
}

func (h *held) remember(v wire.Verdict) error {
	if changed, blamed := core.Blame(h.statements, v); blamed {
		return h.setStatements(changed)
	}
	m := &h.record.Mark
	if v.Epoch != m.Epoch || v.Version != m.Version || v.Root != m.Root && v.Root != h.record.Life.Enforced.Root {
		return nil
	}
	v.Root = m.Root
	r := h.record
	r.Verdict = v
	return h.change(r)
}

func (h *held) setStatements(list []core.Statement) error {
	for i := range list {
		for j := range h.statements {
			have, next := &h.statements[j], &list[i]
			if have.Layer == next.Layer && (next.Epoch < have.Epoch || next.Epoch == have.Epoch && next.Number < have.Number) {
				return &reason.Error{Code: reason.StatementRefused, Doing: fmt.Sprintf("accept statement %d", next.Number)}
			}
		}
	}
	err := h.keep(statementsFile, list)
	if err == nil {
		h.statements = slices.Clone(list)
	}
	return err
}

// setLife makes another life durable, with the heads that belong to it.
func (h *held) setLife(l life) error {
	r := h.record
	find := func(m catalog.Mark) []byte {
		switch {
		case m.Version == 0:
		case m.Epoch == r.Mark.Epoch && m.Version == r.Mark.Version:
			return r.Head
		case m.Epoch == r.Life.Enforced.Epoch && m.Version == r.Life.Enforced.Version:
			return r.Enforced
		case m.Epoch == r.Life.Before.Epoch && m.Version == r.Life.Before.Version:
			return r.Before
		}
		return nil
	}
	next := r
	next.Enforced, next.Before, next.Life = find(l.Enforced), find(l.Before), l
	return h.change(next)
}

func listName(root catalog.Digest) string  { return listPrefix + root.String() }
func layerName(root catalog.Digest) string { return layerPrefix + root.String() }

// readList reads a list; a damaged one is not there.
func (h *held) readList(name string) (r listRecord, root catalog.Digest, ok bool) {
	data, there := h.disk.read(name)
	if !there {
		return r, root, false
	}
	payload, err := either(data)
	if err != nil || wire.Decode(payload, &r) != nil {
		return r, root, false
	}
	root = catalog.ListRoot(r.Encoded)
	return r, root, listName(root) == name
}

// Lists is part of core.Held.
func (h *held) Lists() ([]catalog.Digest, error) {
	type numbered struct {
		number uint64
		root   catalog.Digest
	}
	var found []numbered
	for _, name := range h.disk.names(listPrefix) {
		if r, root, ok := h.readList(name); ok {
			found = append(found, numbered{r.Number, root})
		}
	}
	slices.SortStableFunc(found, func(a, b numbered) int { return int(b.number) - int(a.number) })
	roots := make([]catalog.Digest, len(found))
	for i := range found {
		roots[i] = found[i].root
	}
	return roots, nil
}

// List is part of core.Held.
func (h *held) List(root catalog.Digest) ([]byte, error) {
	r, _, ok := h.readList(listName(root))
	if !ok {
		return nil, nil
	}
	return r.Encoded, nil
}

func (h *held) putList(encoded []byte) error {
	root := catalog.ListRoot(encoded)
	order, _ := h.Lists()
	number := uint64(1)
	if len(order) > 0 {
		if order[0] == root {
			return nil
		}
		newest, _, _ := h.readList(listName(order[0]))
		number = newest.Number + 1
	}
	if err := h.keep(listName(root), &listRecord{Number: number, Encoded: encoded}); err != nil {
		return err
	}
	h.trim()
	return nil
}

// trim lets go of what nothing leads to any more.
func (h *held) trim() {
	order, _ := h.Lists()
	stays := map[catalog.Digest]bool{h.record.Mark.Root: true, h.record.Life.Enforced.Root: true, h.record.Life.Before.Root: true}
	wanted := map[string]bool{}
	for i, root := range order {
		if i >= listsRecent && !stays[root] {
			h.disk.remove(listName(root))
			continue
		}
		encoded, _ := h.List(root)
		list, err := catalog.DecodeList(encoded)
		if err != nil {
			continue
		}
		for _, l := range list {
			wanted[layerName(l.Root)] = true
			if left, damaged := h.remains[l.Root]; damaged {
				wanted[layerName(left)] = true
			}
		}
	}
	for _, name := range h.disk.names(layerPrefix) {
		if !wanted[name] {
			h.disk.remove(name)
		}
	}
}

// layer reads a layer and verifies all of it, once in a run.
func (h *held) layer(root catalog.Digest) *layer {
	name := layerName(root)
	data, there := h.disk.read(name)
	if !there {
		delete(h.layers, root)
		return nil
	}
	if v := h.layers[root]; v.is(data) {
		return v.layer
	}
	l, whole := readLayer(data)
	if whole && l.trie.Root() == root {
		h.layers[root] = verified{l, data}
		return l
	}
	h.disk.remove(name) // it is set aside
	if left := l.trie.Root(); l.trie.Len() > 0 && left != root && h.writeLayer(l) == nil {
		h.remains[root] = left
	}
	return nil
}

// readLayer reads the rows of the file of a layer that are what they were.
func readLayer(data []byte) (l *layer, whole bool) {
	l = &layer{bodies: map[catalog.Digest][]byte{}}
	var rows []catalog.Row
	whole = true
	for len(data) > 0 {
		payload, rest, ok := unframe(data)
		if rest == nil {
			whole = false
			break // the rest is not to be found
		}
		data = rest
		r, read := decodeRow(payload)
		if !ok || !read || len(rows) > 0 && bytes.Compare(rows[len(rows)-1].Key[:], r.key[:]) >= 0 {
			whole = false
			continue
		}
		rows = append(rows, catalog.Row{Key: r.key, Digest: r.digest})
		l.bodies[r.digest] = r.body
	}
	l.trie = catalog.Build(rows)
	return l, whole
}

func (h *held) writeLayer(l *layer) error {
	var b []byte
	for r, err := range l.trie.From(catalog.Digest{}) {
		b = row(b, r.Key, false, l.bodies[r.Digest])
		must(0, err)
	}
	return h.disk.replace(layerName(l.trie.Root()), b)
}

// Trie is part of core.Held.
func (h *held) Trie(root catalog.Digest) (catalog.Trie, bool, error) {
	if l := h.layer(root); l != nil {
		return l.trie, true, nil
	}
	return catalog.Trie{}, false, nil
}

// Remains is part of core.Held.
func (h *held) Remains(root catalog.Digest) (catalog.Trie, bool, error) {
	left, damaged := h.remains[root]
	if !damaged {
		return catalog.Trie{}, false, nil
	}
	return h.Trie(left)
}

// Room is part of core.Held.
func (h *held) Room(catalog.Digest, uint64) error {
	if h.disk.full {
		return errFull
	}
	return nil
}

// begin opens the stage of a fetch, with what is there of it. A torn end is cut off.
func (h *held) begin(f core.Fetch) (core.Staged, error) {
	h.fetch = nil
	first := frame(nil, must(wire.Encode(&f)))
	data, there := h.disk.read(stageFile)
	if !there || !bytes.HasPrefix(data, first) {
		if err := h.disk.loose(stageFile, first); err != nil {
			return core.Staged{}, err
		}
		data = first
	}
	var staged core.Staged
	good := len(first)
	for r, rest := range stagedIn(data[len(first):]) {
		if r == nil || staged.Count > 0 && bytes.Compare(staged.Last[:], r.key[:]) >= 0 {
			break
		}
		staged.Count, staged.Last, staged.Bytes = staged.Count+1, r.key, staged.Bytes+uint64(len(r.body))
		good = len(data) - rest
	}
	h.disk.truncate(stageFile, good)
	h.fetch = &f
	return staged, nil
}

// stagedIn iterates over the changes in a log, with how many bytes stand behind each; nil is one that cannot be read, and the last.
func stagedIn(data []byte) iter.Seq2[*rowRecord, int] {
	return func(yield func(*rowRecord, int) bool) {
		for len(data) > 0 {
			payload, rest, ok := unframe(data)
			r, read := decodeRow(payload)
			if !ok || !read {
				yield(nil, 0)
				return
			}
			if data = rest; !yield(&r, len(rest)) {
				return
			}
		}
	}
}

func (h *held) append(changes []wire.Change) error {
	var b []byte
	for i := range changes {
		b = row(b, changes[i].Key, changes[i].Deleted, changes[i].Body)
	}
	return h.disk.extend(stageFile, b)
}

// staged is the log of the open stage, behind its first frame.
func (h *held) staged() []byte {
	data, _ := h.disk.read(stageFile)
	_, rest, ok := unframe(data)
	if h.fetch == nil || !ok {
		return nil
	}
	return rest
}

var errStaged = &reason.Error{Code: reason.StateCorrupt, Doing: "read what was staged"}

// Staged is part of core.Held.
func (h *held) Staged() iter.Seq2[catalog.Change, error] {
	return func(yield func(catalog.Change, error) bool) {
		for r := range stagedIn(h.staged()) {
			if r == nil {
				yield(catalog.Change{}, errStaged)
				return
			}
			if !yield(catalog.Change{Key: r.key, Deleted: r.deleted, Digest: r.digest}, nil) {
				return
			}
		}
	}
}

// Outline is part of core.Held.
func (h *held) Outline(base catalog.Trie) (catalog.Trie, error) { return base.Outline(h.Staged()) }

// commit makes a layer of the base and the stage.
func (h *held) commit(target catalog.Trie) error {
	if h.fetch == nil || h.fetch.Target != target.Root() {
		h.drop()
		return &reason.Error{Code: reason.StateCorrupt, Doing: "commit a layer"}
	}
	base := h.layer(h.fetch.Base)
	if base == nil {
		base = &layer{}
	}
	trie, err := base.trie.Apply(h.Staged())
	if err != nil || trie.Root() != h.fetch.Target {
		h.drop()
		return &reason.Error{Code: reason.StateCorrupt, Doing: "commit a layer", Cause: err}
	}
	came := map[catalog.Digest][]byte{}
	for r := range stagedIn(h.staged()) {
		if !r.deleted {
			came[r.digest] = r.body
		}
	}
	l := &layer{id: h.fetch.Layer, trie: trie, bodies: map[catalog.Digest][]byte{}}
	for r, err := range trie.From(catalog.Digest{}) {
		must(0, err)
		body := came[r.Digest]
		if body == nil {
			body = base.bodies[r.Digest]
		}
		if sha256.Sum256(body) != r.Digest {
			h.drop()
			return &reason.Error{Code: reason.StateCorrupt, Doing: "commit a layer"}
		}
		l.bodies[r.Digest] = body
	}
	if err := h.writeLayer(l); err != nil {
		return err
	}
	delete(h.remains, h.fetch.Target)
	h.drop()
	return nil
}

func (h *held) drop() {
	h.fetch = nil
	h.disk.remove(stageFile)
}

// check reads anew all that there is, and reports whether it is what it was.
func (h *held) check() bool {
	whole, known := true, slices.Collect(maps.Values(h.layers))
	for _, name := range h.disk.names(layerPrefix) {
		data, _ := h.disk.read(name)
		if slices.ContainsFunc(known, func(v verified) bool { return v.is(data) }) {
			continue // nobody has written there since it was read
		}
		if l, good := readLayer(data); !good || layerName(l.trie.Root()) != name {
			whole = false
		}
	}
	for _, name := range h.disk.names(listPrefix) {
		if _, _, ok := h.readList(name); !ok {
			whole = false
		}
	}
	return whole
}
