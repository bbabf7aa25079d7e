package catalog

import (
	"bytes"
	"encoding/hex"
	"slices"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/spectest"
)

// TestCorpus keeps the corpus of each target: what real encoders write, and what somebody may send instead.
func TestCorpus(t *testing.T) {
	v := madeVectors(t)
	bodies := map[string][]any{}
	for _, item := range vectorItems(t) {
		key, _, _ := bytes.Cut([]byte(item.Claim), []byte(":"))
		bodies["row-"+string(key)] = []any{item.Claim, item.Body}
		bodies["elsewhere-"+string(key)] = []any{"path:/elsewhere", item.Body}
	}
	site := vectorItems(t)[slices.IndexFunc(vectorItems(t), func(i Item) bool { return i.Claim == "path:/etc/nginx/sites-enabled/default" })]
	for name, data := range spectest.Hostile(site.Body) {
		bodies[name] = []any{site.Claim, data}
	}
	later, err := encoding.Marshal(map[string]any{"v": 99, "c": "moon:full", "r": map[string]any{"moon": map[string]any{"phase": "full"}}})
	if err != nil {
		t.Fatal(err)
	}
	bodies["later-schema"] = []any{"moon:full", later}
	bodies["long-claim"] = []any{"path:/" + string(bytes.Repeat([]byte("a"), declare.ClaimBytesMax)), site.Body}
	spectest.Corpus(t, "FuzzDecodeBody", bodies)

	own := map[string][]any{}
	for i, row := range v.OwnRows {
		kind, _, _ := bytes.Cut([]byte(row.Claim), []byte(":"))
		own["good-"+string(kind)] = []any{row.Claim, bytesOf(t, row.Body)}
		own["of-another-kind-"+string(kind)] = []any{v.OwnRows[(i+1)%len(v.OwnRows)].Claim, bytesOf(t, row.Body)}
	}
	for name, data := range spectest.Hostile(bytesOf(t, v.OwnRows[0].Body)) {
		own[name] = []any{v.OwnRows[0].Claim, data}
	}
	spectest.Corpus(t, "FuzzDecodeOwn", own)

	tpl := webTemplate(t)
	id, item := TemplateLayer(tpl.Namespace, tpl.Revision), itemOf(t, tpl)
	templates := map[string][]any{"of-another-revision": {"Revision/shop/other", item.Body}, "no-template": {"NodeConfig/shop/web", item.Body}}
	for name, data := range spectest.Hostile(item.Body) {
		templates[name] = []any{id, data}
	}
	var b templateBody
	if err := decoding.Unmarshal(item.Body, &b); err != nil {
		t.Fatal(err)
	}
	for name, spec := range spectest.Hostile(b.Spec) {
		b.Spec = spec
		if templates["spec-"+name], err = hostileTemplate(id, &b); err != nil {
			t.Fatal(err)
		}
	}
	spectest.Corpus(t, "FuzzDecodeTemplate", templates)

	data, err := DataItem(&declare.Data{Key: "app/greeting", Value: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	spectest.CorpusOf(t, "FuzzReadDataItem", spectest.Hostile(data.Body))
	spectest.CorpusOf(t, "FuzzDelivered", spectest.Hostile(data.Body))
	entry, err := (&Entry{Resource: declare.Resource{Name: "a", File: &declare.File{Path: "/a", Content: "x"}}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	spectest.CorpusOf(t, "FuzzDecode", spectest.Hostile(entry))
	spectest.CorpusOf(t, "FuzzDecodeList", spectest.Hostile(bytesOf(t, v.List.Encoded)))
	spectest.CorpusOf(t, "FuzzDecodeHead", hostileSigned(t, v.Heads[1], v.Statements[0]))
	spectest.CorpusOf(t, "FuzzDecodeStatement", hostileSigned(t, v.Statements[0], v.Heads[0]))

	spectest.CorpusOf(t, "FuzzReadOrder", spectest.HostileFile(bytesOf(t, v.Order), orderHeader))
	items := vectorItems(t)
	var rows bytes.Buffer
	if err := WriteRows(&rows, len(items), RowsOf(items)); err != nil {
		t.Fatal(err)
	}
	hostile := spectest.HostileFile(rows.Bytes(), rowsHeader)
	hostile["a-body-of-4GiB"] = append(append([]byte(rowsHeader), 0, 0, 0, 1), append(make([]byte, 32), 0xff, 0xff, 0xff, 0xff)...)
	hostile["rows-that-are-not-there"] = append([]byte(rowsHeader), 0, 0x1e, 0x84, 0x80)
	spectest.CorpusOf(t, "FuzzReadRows", hostile)
	nodeCorpus(t, v)
	spectest.Targets(t)
}

// hostileTemplate is a body with another template in it.
func hostileTemplate(id string, b *templateBody) ([]any, error) {
	data, err := encoding.Marshal(b)
	return []any{id, data}, err
}

func nodeCorpus(t *testing.T, v *vectors) {
	t.Helper()
	nodes := map[string][]byte{
		"empty": {}, "tag-2": {2, 0, 0}, "tag-255": {0xff}, "no-children": {1, 0, 0}, "children-cut-off": append([]byte{1, 0xff, 0xff}, make([]byte, 31)...),
		"a-row-and-a-half": make([]byte, 1+96), "65-rows": make([]byte, 1+65*64), "the-same-row-twice": make([]byte, 1+2*64), "children-behind": append([]byte{1, 0, 1}, make([]byte, 64)...),
	}
	for i, n := range v.Nodes {
		nodes["good-"+string(rune('0'+i))] = bytesOf(t, n.Node)
	}
	spectest.CorpusOf(t, "FuzzNode", nodes)

	// The header of a root, and a part that may come for it. A node cannot be below itself: nobody knows the hash of what has its hash in it.
	leaf := encodeLeaf(nil, nil)
	interior := bytesOf(t, v.Nodes[2].Node)
	same := append([]byte{1, 0xff, 0xff}, bytes.Repeat(leafHashBytes(nil), fanout)...)
	pairs := map[string][]any{}
	for name, part := range map[string][]byte{"leaf": leaf, "interior": interior, "the-same-child-sixteen-times": same, "empty": {}, "tag-2": {2}} {
		top := KeyOf(string(part))
		for rows, count := range map[string]int{"none": 0, "one": 1, "hundred": 100, "too-many": EntriesMax + 1} {
			pairs[name+"-of-"+rows] = []any{header(count, top), part}
		}
	}
	pairs["another-form"] = []any{append([]byte("layer-v2"), header(1, KeyOf("a"))[8:]...), leaf}
	pairs["another-fanout"] = []any{append([]byte("layer-v1\x20\x40"), header(1, KeyOf("a"))[10:]...), leaf}
	pairs["cut-off"] = []any{header(1, KeyOf("a"))[:20], leaf}
	pairs["followed"] = []any{append(header(1, KeyOf("a")), 0), leaf}
	spectest.Corpus(t, "FuzzDescent", pairs)
}

func leafHashBytes(rows []Row) []byte {
	h := leafHash(rows)
	return h[:]
}

func bytesOf(t *testing.T, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// hostileSigned are inputs for what is [body, signature]: of the pair and of the body, and signed otherwise than it says.
func hostileSigned(t *testing.T, good, other signedVector) map[string][]byte {
	t.Helper()
	pair, err := spectest.Decode(bytesOf(t, good.Encoded))
	if err != nil {
		t.Fatal(err)
	}
	body, signature := pair.Items()[0].Content(), pair.Items()[1].Content()
	all := spectest.Hostile(bytesOf(t, good.Encoded))
	for name, b := range spectest.Hostile(body) {
		all["body-"+name] = spectest.Array(spectest.Bytes(b), spectest.Bytes(signature)).Encode()
	}
	forged := bytes.Clone(signature)
	forged[0] ^= 1
	all["signed-wrongly"] = spectest.Array(spectest.Bytes(body), spectest.Bytes(forged)).Encode()
	all["signed-by-another-role"] = spectest.Array(spectest.Bytes(body), spectest.Bytes(bytesOf(t, other.Signature))).Encode()
	all["a-signature-of-no-bytes"] = spectest.Array(spectest.Bytes(body), spectest.Bytes(nil)).Encode()
	all["a-signature-of-a-kilobyte"] = spectest.Array(spectest.Bytes(body), spectest.Bytes(make([]byte, 1<<10))).Encode()
	all["something-else-that-was-signed"] = bytesOf(t, other.Encoded)
	all["too-large"] = spectest.Array(spectest.Bytes(make([]byte, headBytesMax+1)), spectest.Bytes(signature)).Encode()
	return all
}

// FuzzReadRows: whatever a file of rows says, no more is made room for than one body, and what is read is written as it was.
func FuzzReadRows(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		var rows []Row
		bodies := map[Digest][]byte{}
		var err error
		used := spectest.Allocated(func() {
			err = ReadRows(bytes.NewReader(data), func(key Digest, body []byte) error {
				row := Row{Key: key, Digest: KeyOf(string(body))}
				rows, bodies[key] = append(rows, row), body
				return nil
			})
		})
		// A body is read into the room that its length says; the maps of this test take some more.
		if most := uint64(declare.BodyBytesMax + 64*len(data) + 64<<10); used > most {
			t.Errorf("%d bytes are allocated for %d", used, len(data))
		}
		if err != nil {
			return
		}
		var again bytes.Buffer
		err = WriteRows(&again, len(rows), func(yield func(Digest, []byte) bool) {
			for _, row := range rows {
				if !yield(row.Key, bodies[row.Key]) {
					return
				}
			}
		})
		if err != nil || !bytes.Equal(again.Bytes(), data) {
			t.Errorf("%v: %x is read, and written as %x", err, data, again.Bytes())
		}
	})
}
