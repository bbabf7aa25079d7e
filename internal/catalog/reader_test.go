package catalog

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"

	"tako.dev/tako/internal/spectest"
)

// reader is a second reader of the vectors. It is written from docs/spec/transfer.md, and calls nothing of this package.
type reader struct {
	t      *testing.T
	public map[string]ed25519.PublicKey // by role
	checks int
}

func (r *reader) check(ok bool, format string, args ...any) {
	r.t.Helper()
	if r.checks++; !ok {
		r.t.Errorf("the second reader: "+format, args...)
	}
}

func (r *reader) bytes(digits string) []byte {
	r.t.Helper()
	b, err := hex.DecodeString(digits)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// cbor reads an item, and wants the second writer to make the same bytes of it.
func (r *reader) cbor(data []byte) spectest.Value {
	r.t.Helper()
	v, err := spectest.Decode(data)
	if err != nil {
		r.t.Fatalf("%x: %v", data, err)
	}
	r.check(bytes.Equal(v.Encode(), data), "%x is written as %x", data, v.Encode())
	return v
}

func hash(parts ...[]byte) []byte {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

func (r *reader) keys(all []keyVector) {
	for _, k := range all {
		public := ed25519.NewKeyFromSeed(r.bytes(k.Seed)).Public().(ed25519.PublicKey)
		r.public[k.Role] = public
		r.check(k.Public == "ed25519:"+base64.RawURLEncoding.EncodeToString(public), "key %s", k.Role)
		r.check(k.ID == hex.EncodeToString(hash([]byte("tako/key/1\n"), public)[:16]), "the ID of key %s", k.Role)
	}
}

// secondRow is a row of a trie.
type secondRow struct{ key, digest []byte }

func (r *reader) rows(all []rowVector, root string) {
	var rows []secondRow
	for _, v := range all {
		body := r.bytes(v.Body)
		row := secondRow{hash([]byte(v.Claim)), hash(body)}
		r.check(hex.EncodeToString(row.key) == v.Key && hex.EncodeToString(row.digest) == v.Digest, "row %s", v.Claim)
		item := r.cbor(body)
		claim, found := item.Named("c")
		r.check(found && string(claim.Content()) == v.Claim, "the claim in the body of %s", v.Claim)
		schema, found := item.Named("v")
		r.check(found && schema.Number() == 1, "the schema of the body of %s", v.Claim)
		rows = append(rows, row)
	}
	if root != "" {
		r.check(hex.EncodeToString(secondRoot(rows)) == root, "the root of %d rows", len(rows))
	}
}

// template reads the layer of a revision of a workload.
func (r *reader) template(v *templateVector) {
	r.rows([]rowVector{v.Row}, v.Root)
	namespaceAndName, found := strings.CutPrefix(v.ID, "Revision/")
	r.check(found && v.Row.Claim == "template:"+namespaceAndName, "the claim of the template of %s", v.ID)
	body := r.cbor(r.bytes(v.Row.Body))
	spec, found := body.Named("t")
	inside := r.cbor(spec.Content())
	r.check(found && inside.String() == v.Spec, "what is declared in %s", v.ID)
	tasks, _ := inside.Named("tasks")
	names := map[string]bool{}
	for _, task := range tasks.Items() {
		name, _ := task.Named("name")
		names[string(name.Content())] = true
	}
	secrets, found := body.Named("x")
	r.check(found && len(secrets.Items()) == 2, "the secrets of %s", v.ID)
	for _, s := range secrets.Items() {
		task, _ := s.Named("t")
		_, env := s.Named("e")
		_, file := s.Named("f")
		sealed, _ := s.Named("s")
		key, found := sealed.Named("k")
		r.check(names[string(task.Content())] && env != file && found && len(key.Content()) == 32, "a secret of %s", v.ID)
	}
}

// secondNode is the encoding of the node of rows that have their first depth half bytes in common, and all nodes below it.
func secondNode(rows []secondRow, depth int, below map[string][]byte) []byte {
	var node []byte
	if len(rows) <= 64 {
		sorted := append([]secondRow{}, rows...)
		for i := range sorted { // few enough to insert them
			for j := i; j > 0 && bytes.Compare(sorted[j].key, sorted[j-1].key) < 0; j-- {
				sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
			}
		}
		node = []byte{0}
		for _, row := range sorted {
			node = append(append(node, row.key...), row.digest...)
		}
	} else {
		var children [16][]secondRow
		for _, row := range rows {
			at := row.key[depth/2] >> 4
			if depth%2 == 1 {
				at = row.key[depth/2] & 15
			}
			children[at] = append(children[at], row)
		}
		var bits uint16
		var hashes []byte
		for i, c := range children {
			if len(c) > 0 {
				bits |= 1 << i
				hashes = append(hashes, hash(secondNode(c, depth+1, below))...)
			}
		}
		node = append(binary.BigEndian.AppendUint16([]byte{1}, bits), hashes...)
	}
	below[hex.EncodeToString(hash(node))] = node
	return node
}

func secondHeader(count int, top []byte) []byte {
	return append(binary.BigEndian.AppendUint64([]byte("layer-v1\x10\x40"), uint64(count)), top...)
}

func secondRoot(rows []secondRow) []byte {
	return hash(secondHeader(len(rows), hash(secondNode(rows, 0, map[string][]byte{}))))
}

func secondRuled(n int) []secondRow {
	var rows []secondRow
	for i := range n {
		rows = append(rows, secondRow{hash([]byte("data:" + strconv.Itoa(i))), hash([]byte("value " + strconv.Itoa(i)))})
	}
	return rows
}

func (r *reader) tries(v *vectors) {
	nodes := map[string][]byte{}
	for _, trie := range v.Tries {
		rows := secondRuled(trie.Entries)
		top := hash(secondNode(rows, 0, nodes))
		header := secondHeader(len(rows), top)
		r.check(hex.EncodeToString(top) == trie.Top && hex.EncodeToString(header) == trie.Header, "the trie of %d", trie.Entries)
		r.check(hex.EncodeToString(hash(header)) == trie.Root && hex.EncodeToString(secondRoot(rows)) == trie.Root, "the root of %d", trie.Entries)
	}
	for _, n := range v.Nodes {
		r.check(hex.EncodeToString(nodes[n.Hash]) == n.Node, "%s", n.Of)
	}
}

// differences applies each to its base, and wants the root of its target.
func (r *reader) differences(all []differentVector) {
	bases := map[string][]secondRow{}
	for _, n := range []int{0, 2, 100} {
		bases[hex.EncodeToString(secondRoot(secondRuled(n)))] = secondRuled(n)
	}
	for _, d := range all {
		base, known := bases[d.Base]
		r.check(known, "the base of %s", d.What)
		changed, last := map[string]string{}, ""
		for _, c := range d.Changes {
			r.check(c.Key > last && c.Deleted == (c.Digest == ""), "the order in %s", d.What)
			changed[c.Key], last = c.Digest, c.Key
		}
		var rows []secondRow
		for _, row := range base {
			if _, gone := changed[hex.EncodeToString(row.key)]; !gone {
				rows = append(rows, row)
			}
		}
		for key, digest := range changed {
			if digest != "" {
				rows = append(rows, secondRow{r.bytes(key), r.bytes(digest)})
			}
		}
		r.check(hex.EncodeToString(secondRoot(rows)) == d.Target, "%s leads to %x", d.What, secondRoot(rows))
	}
}

// descent follows the rounds: each asks for what the ones before have named, and what the base does not have in that place.
func (r *reader) descent(d *descentVector) {
	had := map[string][]byte{}
	r.check(hex.EncodeToString(secondRoot(secondRuled(10_000))) == d.Base, "the base of the descent")
	secondNode(secondRuled(10_000), 0, had)
	want := []string{d.Target}
	nodes := map[string][]byte{}
	for i, round := range d.Rounds {
		r.check(strings.Join(round.Asked, " ") == strings.Join(want, " "), "round %d asks for %v, want %v", i, round.Asked, want)
		want = nil
		for j, sent := range round.Sent {
			node := r.bytes(sent)
			r.check(hex.EncodeToString(hash(node)) == round.Asked[j], "round %d, node %d", i, j)
			nodes[round.Asked[j]] = node
			var children []byte
			switch {
			case i == 0:
				children = node[len("layer-v1")+2+8:]
			case node[0] == 1:
				children = node[3:]
			}
			for ; len(children) > 0; children = children[32:] {
				if child := hex.EncodeToString(children[:32]); had[child] == nil {
					want = append(want, child)
				}
			}
		}
	}
	r.check(len(want) == 0, "the descent ends before it has %v", want)
	all := map[string][]byte{}
	secondNode(secondRuled(10_001), 0, all)
	for h, node := range nodes {
		r.check(h == d.Target || bytes.Equal(all[h], node), "node %s is not in the target", h)
	}
}

func (r *reader) list(v *vectors) {
	encoded := r.bytes(v.List.Encoded)
	r.check(hex.EncodeToString(hash([]byte("catalog-v1"), encoded)) == v.List.Root, "the root of the list")
	var layers []spectest.Value
	for _, words := range v.List.Layers {
		parts := strings.Fields(words)
		priority, err := strconv.ParseInt(parts[0], 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		layers = append(layers, spectest.Array(spectest.Int(priority), spectest.Text(parts[1]), spectest.Bytes(r.bytes(parts[2]))))
	}
	r.check(bytes.Equal(spectest.Array(layers...).Encode(), encoded), "the list is written as %x", spectest.Array(layers...).Encode())
}

// signed verifies what is [body, signature] over the purpose and the body.
func (r *reader) signed(purpose, role string, all []signedVector) {
	for _, s := range all {
		pair := r.cbor(r.bytes(s.Encoded)).Items()
		r.check(len(pair) == 2, "%s has %d parts", s.What, len(pair))
		body, signature := pair[0].Content(), pair[1].Content()
		message := append([]byte(purpose), body...)
		r.check(hex.EncodeToString(message) == s.Signs && hex.EncodeToString(signature) == s.Signature, "what is signed of %s", s.What)
		r.check(ed25519.Verify(r.public[role], message, signature), "the signature of %s", s.What)
		r.check(r.cbor(body).String() == s.Diagnostic, "the fields of %s", s.What)
		forged := append([]byte{}, message...)
		forged[len(forged)-1] ^= 1
		r.check(!ed25519.Verify(r.public[role], forged, signature), "a forged one of %s", s.What)
	}
}

// order reads the file of an order: the statement, and the rows that it is about.
func (r *reader) order(v *vectors) {
	rest, begins := bytes.CutPrefix(r.bytes(v.Order), []byte("tako order 1\n"))
	r.check(begins, "the order does not begin as one")
	take := func(n uint32) []byte {
		part := rest[:n]
		rest = rest[n:]
		return part
	}
	statement := take(binary.BigEndian.Uint32(take(4)))
	r.check(hex.EncodeToString(statement) == v.Statements[0].Encoded, "the statement of the order")
	r.check(string(take(uint32(len("tako layer rows 1\n")))) == "tako layer rows 1\n", "the rows of the order")
	var rows []secondRow
	for range binary.BigEndian.Uint32(take(4)) {
		key := take(32)
		rows = append(rows, secondRow{key, hash(take(binary.BigEndian.Uint32(take(4))))})
	}
	root, found := r.cbor(r.cbor(statement).Items()[0].Content()).At(7)
	r.check(found && bytes.Equal(root.Content(), secondRoot(rows)) && len(rest) == 0, "the root of the order")
}
