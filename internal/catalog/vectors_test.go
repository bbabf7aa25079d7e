package catalog

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/spectest"
	"tako.dev/tako/internal/trust"
)

// vectors are testdata/vectors.json: what the code makes of inputs that stand there too. Bytes and hashes are in hexadecimal digits.
type vectors struct {
	About       string            `json:"about"`
	Keys        []keyVector       `json:"keys"`
	Rows        []rowVector       `json:"rows"`
	Layer       string            `json:"layer"` // the root of the rows
	OwnRows     []rowVector       `json:"ownRows"`
	Template    templateVector    `json:"template"`
	Tries       []trieVector      `json:"tries"`
	Nodes       []nodeVector      `json:"nodes"`
	Differences []differentVector `json:"differences"`
	Descent     descentVector     `json:"descent"`
	List        listVector        `json:"list"`
	Heads       []signedVector    `json:"heads"`
	Statements  []signedVector    `json:"statements"`
	Order       string            `json:"order"`
}

type keyVector struct {
	Role    string `json:"role"`
	Warning string `json:"warning"`
	Seed    string `json:"seed"`
	Public  string `json:"public"`
	ID      string `json:"id"`
}

type rowVector struct {
	Claim      string `json:"claim"`
	Key        string `json:"key"`
	Body       string `json:"body"`
	Diagnostic string `json:"diagnostic"`
	Digest     string `json:"digest"`
}

// templateVector is a layer of one row, with what is in the bytes of its body beside.
type templateVector struct {
	ID   string    `json:"id"`
	Row  rowVector `json:"row"`
	Spec string    `json:"spec"` // diagnostic
	Root string    `json:"root"`
}

type trieVector struct {
	Entries int    `json:"entries"`
	Rule    string `json:"rule"`
	Top     string `json:"top"`
	Header  string `json:"header"`
	Root    string `json:"root"`
}

type nodeVector struct {
	Of   string `json:"of"`
	Node string `json:"node"`
	Hash string `json:"hash"`
}

type changeVector struct {
	Key     string `json:"key"`
	Digest  string `json:"digest,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
}

type differentVector struct {
	What    string         `json:"what"`
	Base    string         `json:"base"`
	Target  string         `json:"target"`
	Changes []changeVector `json:"changes"`
}

type descentVector struct {
	What   string      `json:"what"`
	Base   string      `json:"base"`
	Target string      `json:"target"`
	Rounds []nodeRound `json:"rounds"`
}

type nodeRound struct {
	Asked []string `json:"asked"`
	Sent  []string `json:"sent"`
}

type listVector struct {
	Layers  []string `json:"layers"`
	Encoded string   `json:"encoded"`
	Root    string   `json:"root"`
}

type signedVector struct {
	What       string `json:"what"`
	Diagnostic string `json:"diagnostic"` // of the body
	Signs      string `json:"signs"`      // the bytes that are signed
	Signature  string `json:"signature"`
	Encoded    string `json:"encoded"`
}

// The rule by which the tries of the vectors have their rows.
const trieRule = `row i of n, from 0: key = SHA-256("data:" + i), digest = SHA-256("value " + i), i in decimal`

func ruledRow(i int) Row {
	return Row{Key: KeyOf("data:" + strconv.Itoa(i)), Digest: KeyOf("value " + strconv.Itoa(i))}
}

func ruledTrie(n int) Trie {
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = ruledRow(i)
	}
	return Build(rows)
}

// testKey is a key that everybody knows.
func testKey(t testing.TB, fill byte) ([]byte, *trust.SigningKey) {
	t.Helper()
	seed := bytes.Repeat([]byte{fill}, ed25519.SeedSize)
	der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		t.Fatal(err)
	}
	key, err := trust.DecodeSigningKey(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	return seed, key
}

func vectorItems(t testing.TB) []Item {
	t.Helper()
	const path = "testdata/vectors/rows.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	docs, faults := declare.Read(path, text)
	if len(faults) == 0 {
		faults = docs[0].Validate()
	}
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	items, err := Compile(docs[0].Config.Spec.Resources)
	if err != nil {
		t.Fatal(err)
	}
	return items
}

func rowVectors(t testing.TB, items []Item) []rowVector {
	t.Helper()
	var rows []rowVector
	for _, item := range items {
		row := item.Row()
		rows = append(rows, rowVector{Claim: item.Claim, Key: row.Key.String(), Body: hex.EncodeToString(item.Body), Diagnostic: diagnostic(t, item.Body), Digest: row.Digest.String()})
	}
	return rows
}

func templateVectorOf(t testing.TB) templateVector {
	t.Helper()
	tpl := webTemplate(t)
	item := itemOf(t, tpl)
	var b templateBody
	if err := decoding.Unmarshal(item.Body, &b); err != nil {
		t.Fatal(err)
	}
	return templateVector{ID: TemplateLayer(tpl.Namespace, tpl.Revision), Row: rowVectors(t, []Item{item})[0], Spec: diagnostic(t, b.Spec), Root: TrieOf([]Item{item}).Root().String()}
}

func diagnostic(t testing.TB, data []byte) string {
	t.Helper()
	v, err := spectest.Decode(data)
	if err != nil {
		t.Fatalf("%x: %v", data, err)
	}
	return v.String()
}

func nodeVectors(t testing.TB) []nodeVector {
	t.Helper()
	var all []nodeVector
	for _, of := range []struct {
		what string
		n    int
		node func(*Trie) Digest
	}{
		{"the top of the trie of 0, a leaf without rows", 0, func(t *Trie) Digest { return t.Hash() }},
		{"the top of the trie of 2, a leaf", 2, func(t *Trie) Digest { return t.Hash() }},
		{"the top of the trie of 100, an interior node", 100, func(t *Trie) Digest { return t.Hash() }},
		{"the first child of that, a leaf", 100, func(t *Trie) Digest { return t.top.node.children[0].hash }},
	} {
		trie := ruledTrie(of.n)
		data, found, err := NewNodes(trie).Encoded(of.node(&trie))
		if err != nil || !found {
			t.Fatal(err)
		}
		all = append(all, nodeVector{Of: of.what, Node: hex.EncodeToString(data), Hash: Digest(sha256.Sum256(data)).String()})
	}
	return all
}

func differentVectors(t testing.TB) []differentVector {
	t.Helper()
	hundred := ruledTrie(100)
	edited, err := hundred.Apply(Changes(slices.SortedFunc(slices.Values([]Change{
		{Key: ruledRow(5).Key, Deleted: true}, {Key: ruledRow(7).Key, Digest: KeyOf("another value")}, {Key: ruledRow(100).Key, Digest: ruledRow(100).Digest},
	}), func(a, b Change) int { return bytes.Compare(a.Key[:], b.Key[:]) })...))
	if err != nil {
		t.Fatal(err)
	}
	var all []differentVector
	for _, d := range []struct {
		what         string
		base, target Trie
	}{
		{"of the trie of 100: row 5 goes, row 7 has the digest SHA-256(\"another value\"), row 100 comes", hundred, edited},
		{"of the trie of 2: both go", ruledTrie(2), Trie{}},
		{"a snapshot of the trie of 2", Trie{}, ruledTrie(2)},
	} {
		v := differentVector{What: d.what, Base: d.base.Root().String(), Target: d.target.Root().String()}
		for c, err := range Difference(d.base, d.target, Digest{}) {
			if err != nil {
				t.Fatal(err)
			}
			change := changeVector{Key: c.Key.String(), Deleted: c.Deleted}
			if !c.Deleted {
				change.Digest = c.Digest.String()
			}
			v.Changes = append(v.Changes, change)
		}
		all = append(all, v)
	}
	return all
}

// descentVectorOf is a descent from the trie of 10,000 rows to that of 10,001.
func descentVectorOf(t testing.TB) descentVector {
	t.Helper()
	base, target := ruledTrie(10_000), ruledTrie(10_001)
	v := descentVector{What: "from the trie of 10,000 to that of 10,001", Base: base.Root().String(), Target: target.Root().String()}
	nodes, d := NewNodes(target), NewDescent(target.Root(), base, EntriesMax)
	for {
		wanted := d.Wanted(256)
		if len(wanted) == 0 {
			break
		}
		var round nodeRound
		for _, hash := range wanted {
			data, found, err := nodes.Encoded(hash)
			if err != nil || !found {
				t.Fatalf("%s: %v", hash, err)
			}
			if err := d.Take(data); err != nil {
				t.Fatal(err)
			}
			round.Asked, round.Sent = append(round.Asked, hash.String()), append(round.Sent, hex.EncodeToString(data))
		}
		v.Rounds = append(v.Rounds, round)
	}
	if built, err := d.Built(); err != nil || built.Root() != target.Root() {
		t.Fatal(err)
	}
	return v
}

func signedVectorOf(t testing.TB, what, purpose string, body, signature, encoded []byte) signedVector {
	t.Helper()
	return signedVector{What: what, Diagnostic: diagnostic(t, body), Signs: hex.EncodeToString(append([]byte(purpose), body...)),
		Signature: hex.EncodeToString(signature), Encoded: hex.EncodeToString(encoded)}
}

func headVectors(t testing.TB, key *trust.SigningKey, list listVector) []signedVector {
	t.Helper()
	root := digestOf(t, list.Root)
	h := Head{Cluster: testNode.Cluster, Node: testNode.Name, UID: testNode.UID, Epoch: 1, Version: 4711,
		Roots: []FormatRoot{{Format: FormatV1, Root: root}}, Entries: 10, Bytes: 1234, Issued: 1_800_000_000, Expires: 1_800_086_400, MinProtocol: HeadProtocol}
	full := h
	full.Version, full.Window, full.Consent = 4712, 60, 100
	full.Roots = append(full.Roots, FormatRoot{Format: 2, Root: KeyOf("of a later format")})
	full.Try = &Try{Seconds: 600, Fallback: KeyOf("the catalog before")}
	full.Absorbed = []AbsorbedNumber{{Layer: "NodeConfig/prod/web", Number: 3}}
	var all []signedVector
	for what, h := range map[string]Head{"1, a head as most are": h, "2, a head with every field, and a root in a later format": full} {
		s, b := signed(t.(*testing.T), h, key)
		all = append(all, signedVectorOf(t, what, headPurpose, s.Body, s.Signature, b))
	}
	slices.SortFunc(all, func(a, b signedVector) int { return bytes.Compare([]byte(a.What), []byte(b.What)) })
	return all
}

func digestOf(t testing.TB, text string) Digest {
	t.Helper()
	d, ok := ParseDigest(text)
	if !ok {
		t.Fatalf("%q is no digest", text)
	}
	return d
}

func madeVectors(t *testing.T) *vectors {
	t.Helper()
	v := &vectors{About: "Made by the tests of internal/catalog; what the fields mean is in docs/spec/transfer.md. Bytes are in hexadecimal digits. The keys are for these vectors, and everybody knows them."}
	headsSeed, heads := testKey(t, 1)
	operatorSeed, operator := testKey(t, 2)
	for role, k := range map[string]struct {
		seed []byte
		key  *trust.SigningKey
	}{"heads": {headsSeed, heads}, "operator": {operatorSeed, operator}} {
		v.Keys = append(v.Keys, keyVector{Role: role, Warning: "TEST KEY, never use it", Seed: hex.EncodeToString(k.seed), Public: k.key.Public().String(), ID: string(k.key.Public().ID())})
	}
	slices.SortFunc(v.Keys, func(a, b keyVector) int { return bytes.Compare([]byte(a.Role), []byte(b.Role)) })

	items := vectorItems(t)
	v.Rows, v.Layer = rowVectors(t, items), TrieOf(items).Root().String()
	own, err := Own{
		Keys:   []OwnKey{{ID: "00112233445566778899aabbccddeeff", Sealed: bytes.Repeat([]byte{7}, 80)}},
		Holds:  []Hold{{Config: "NodeConfig/prod/web", Claim: "unit:nginx.service", Reason: "incident 42", Owner: "ann", Until: 1_800_003_600}},
		Labels: map[string]string{"role": "web", "zone": "b"},
		Peers: []Peer{
			{Name: "web-2", UID: "22222222-2222-2222-2222-222222222222", Address: "192.0.2.7:6445"},
			{Name: "web-3", UID: "33333333-3333-3333-3333-333333333333", Address: "[2001:db8::7]:6445"},
		},
		Instances: []Instance{
			{UID: "44444444-4444-4444-4444-444444444444", Namespace: "shop", Name: "web-0", Workload: "web", Revision: "web-abcdefghij"},
			{UID: "55555555-5555-5555-5555-555555555555", Namespace: "shop", Name: "load-7", Workload: "load", Revision: "load-abcdefghij", Slot: 7, Job: true, Stop: true, Lease: 60},
		},
	}.Items()
	if err != nil {
		t.Fatal(err)
	}
	v.OwnRows = rowVectors(t, own)
	v.Template = templateVectorOf(t)
	for _, n := range []int{0, 1, 2, 64, 65, 100, 10_000} {
		trie := ruledTrie(n)
		v.Tries = append(v.Tries, trieVector{Entries: n, Rule: trieRule, Top: trie.Hash().String(), Header: hex.EncodeToString(header(trie.Len(), trie.Hash())), Root: trie.Root().String()})
	}
	v.Nodes, v.Differences, v.Descent = nodeVectors(t), differentVectors(t), descentVectorOf(t)

	list, err := NewList(Layer{Priority: 100, ID: "NodeConfig/prod/vectors", Root: TrieOf(items).Root()}, Layer{Priority: 1500, ID: "ClusterNodeConfig/base", Root: ruledTrie(100).Root()},
		Layer{Priority: OwnPriority, ID: "own", Root: TrieOf(own).Root()})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := list.Encode()
	if err != nil {
		t.Fatal(err)
	}
	v.List = listVector{Encoded: hex.EncodeToString(encoded), Root: ListRoot(encoded).String()}
	for _, l := range list {
		v.List.Layers = append(v.List.Layers, fmt.Sprintf("%d %s %s", l.Priority, l.ID, l.Root))
	}
	v.Heads = headVectors(t, heads, v.List)

	st := Statement{Cluster: testCluster, Layer: "NodeConfig/prod/vectors", Epoch: 1, Number: 3, Root: TrieOf(items[:2]).Root(), Issued: 1_800_000_000, Expires: 1_800_604_800}
	for _, item := range items[:2] {
		st.Bytes += uint64(len(item.Body))
	}
	s, err := st.Sign(operator)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	v.Statements = []signedVector{signedVectorOf(t, "about the first two of the rows", statementPurpose, s.Body, s.Signature, b)}
	var order bytes.Buffer
	if err := WriteOrder(&order, b, items[:2]); err != nil {
		t.Fatal(err)
	}
	v.Order = hex.EncodeToString(order.Bytes())
	return v
}

// TestVectors: what this version writes has the bytes and hashes that stand in testdata/vectors.json, and those that somebody comes to who
// has read docs/spec/transfer.md alone.
func TestVectors(t *testing.T) {
	v := madeVectors(t)
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	spectest.Golden(t, "testdata/vectors.json", append(text, '\n'))
	if text, err = os.ReadFile("testdata/vectors.json"); err != nil {
		t.Fatal(err)
	}
	var read vectors
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	r := reader{t: t, public: map[string]ed25519.PublicKey{}}
	r.keys(read.Keys)
	r.rows(read.Rows, read.Layer)
	r.rows(read.OwnRows, "")
	r.template(&read.Template)
	r.tries(&read)
	r.differences(read.Differences)
	r.descent(&read.Descent)
	r.list(&read)
	r.signed("tako/head/1\n", "heads", read.Heads)
	r.signed("tako/layer-statement/1\n", "operator", read.Statements)
	r.order(&read)
	if r.checks < 120 {
		t.Errorf("the second reader has checked %d things", r.checks)
	}
	kinds := map[string]bool{}
	for _, row := range read.Rows {
		kinds[row.Claim[:bytes.IndexByte([]byte(row.Claim), ':')]] = true
	}
	if len(kinds) < 7 {
		t.Errorf("there are rows of %v only", slices.Sorted(maps.Keys(kinds)))
	}
}
