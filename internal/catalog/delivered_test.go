package catalog

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// TestClaimOf: the claim is read out of whatever is a body, and of nothing else.
func TestClaimOf(t *testing.T) {
	items, err := Compile([]declare.Resource{{Name: "d", Data: &declare.Data{Key: "path:/a", Value: "x"}}, {Name: "f", File: &declare.File{Path: "/data:x"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		if Delivered(i.Body) != strings.HasPrefix(i.Claim, "data:") || ClaimOf(i.Body) != i.Claim {
			t.Errorf("%s: delivered %t, claim %q", i.Claim, Delivered(i.Body), ClaimOf(i.Body))
		}
	}
	for _, bad := range [][]byte{nil, {0xff}, []byte("data:x"), {0xa0}, {0xa1, 0x61, 'c', 0x01}} {
		if Delivered(bad) || ClaimOf(bad) != "" {
			t.Errorf("%x is delivered", bad)
		}
	}
	// A later version may say more of data, and other kinds may come: what is delivered stays so.
	later, err := encoding.Marshal(map[string]any{"c": "data:x", "v": 2, "z": []string{"new"}})
	if err != nil || !Delivered(later) {
		t.Errorf("data of a later version is acted upon: %v", err)
	}
}

// TestDataItem: whatever stands around data, its entry is the same.
func TestDataItem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := declare.Data{Key: rapid.StringMatching(`[a-z/]{1,40}`).Draw(t, "key"), Value: rapid.StringN(0, 100, 400).Draw(t, "value")}
		if _, mistake, _ := d.Mistake(); mistake != "" {
			t.Fatal(mistake)
		}
		item, err := DataItem(&d)
		if err != nil {
			t.Fatal(err)
		}
		name := rapid.StringMatching(`[a-z]{1,9}`).Draw(t, "name")
		compiled, err := Compile([]declare.Resource{{Name: name, Data: &d}})
		if err != nil || len(compiled) != 1 || compiled[0].Claim != item.Claim || !bytes.Equal(compiled[0].Body, item.Body) {
			t.Fatalf("%q, and compiled as %s: %q, %v", item, name, compiled, err)
		}
		back, err := ReadDataItem(item.Body)
		if err != nil || back.Claim != item.Claim || item.Claim != DataClaim(d.Key) {
			t.Fatalf("%+v, %v", back, err)
		}
		desired, err := DecodeBody(KeyOf(item.Claim), item.Body)
		if err != nil || desired.Resource.Data == nil || *desired.Resource.Data != d {
			t.Fatalf("%+v, %v", desired, err)
		}
	})
}

func TestReadDataItemRefuses(t *testing.T) {
	file, err := Compile([]declare.Resource{{Name: "f", File: &declare.File{Path: "/f"}}})
	if err != nil {
		t.Fatal(err)
	}
	encode := func(content any) []byte {
		b, err := encoding.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	resource := func(r declare.Resource) []byte { return encode(r) }
	for what, body := range map[string][]byte{
		"nothing":          nil,
		"a file":           file[0].Body,
		"another claim":    encode(map[string]any{"v": 1, "c": "data:b", "r": declare.Resource{Data: &declare.Data{Key: "a"}}}),
		"a name":           encode(map[string]any{"v": 1, "c": "data:a", "r": declare.Resource{Name: "a", Data: &declare.Data{Key: "a"}}}),
		"an order":         encode(map[string]any{"v": 1, "c": "data:a", "r": declare.Resource{Data: &declare.Data{Key: "a"}}, "q": []string{"path:/a"}}),
		"a seal":           encode(map[string]any{"v": 1, "c": "data:a", "r": declare.Resource{Data: &declare.Data{Key: "a"}}, "s": Sealed{Key: "k"}}),
		"a condition":      encode(map[string]any{"v": 1, "c": "data:a", "r": declare.Resource{When: "x", Data: &declare.Data{Key: "a"}}}),
		"a bad key":        encode(map[string]any{"v": 1, "c": "data:a b", "r": declare.Resource{Data: &declare.Data{Key: "a b"}}}),
		"a later version":  encode(map[string]any{"v": 2, "c": "data:a", "r": declare.Resource{Data: &declare.Data{Key: "a"}}}),
		"only a resource":  resource(declare.Resource{Data: &declare.Data{Key: "a"}}),
		"more than it all": bytes.Repeat([]byte{0}, declare.BodyBytesMax+1),
	} {
		if item, err := ReadDataItem(body); err == nil || !reason.Is(err, reason.StateCorrupt) && !reason.Is(err, reason.BodyTooLarge) {
			t.Errorf("%s: %+v, %v", what, item, err)
		}
	}
}

func FuzzReadDataItem(f *testing.F) {
	for _, d := range []declare.Data{{Key: "a"}, {Key: "users/alice/quota", Value: "10G"}, {Key: "b", Base64: "AAEC/w=="}} {
		item, err := DataItem(&d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(item.Body)
	}
	f.Add([]byte{0xa3, 0x61, 'c'})
	f.Fuzz(func(t *testing.T, body []byte) {
		item, err := ReadDataItem(body)
		if err != nil {
			return
		}
		again, err := ReadDataItem(item.Body)
		if err != nil || !bytes.Equal(item.Body, body) || again.Claim != item.Claim || !Delivered(body) || item.Row().Digest != sha256.Sum256(body) {
			t.Errorf("%q is read as %+v, %v", body, again, err)
		}
	})
}

func TestResolveData(t *testing.T) {
	want := func(config, value string) Datum {
		return Datum{Config: config, Data: declare.Data{Key: "k", Value: value}}
	}
	for _, c := range []struct {
		wants      []Datum
		priorities []int
		value      string
		conflict   bool
	}{
		{[]Datum{want("a", "1")}, []int{100}, "1", false},
		{[]Datum{want("a", "1"), want("b", "2")}, []int{200, 100}, "1", false},
		{[]Datum{want("a", "1"), want("b", "1")}, []int{100, 100}, "1", false},
		{[]Datum{want("a", "1"), want("b", "2")}, []int{100, 100}, "", true},
		{[]Datum{want("a", "1"), want("b", "1"), want("c", "2")}, []int{200, 200, 100}, "1", false},
	} {
		got, err := ResolveData(c.wants, c.priorities)
		if c.conflict != reason.Is(err, reason.PriorityConflict) || err == nil && (got.Value != c.value || got.Config != "a") {
			t.Errorf("%+v: %+v, %v", c.wants, got, err)
		}
	}
}

// TestRevisionDigestWith: without a bundle the digest is what it always was, and with one it is that of both.
func TestRevisionDigestWith(t *testing.T) {
	resources := []declare.Resource{{Name: "f", File: &declare.File{Path: "/f"}}}
	plain, err := RevisionDigest(resources)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[Digest]bool{plain: true}
	for _, bundle := range []string{"sha256:" + strings.Repeat("0", 64), "sha256:" + strings.Repeat("1", 64)} {
		for _, of := range [][]declare.Resource{nil, resources} {
			d, err := RevisionDigestWith(of, &declare.BundleReference{Digest: bundle})
			if err != nil || seen[d] {
				t.Errorf("%s beside %d resources has the digest of something else, %v", bundle, len(of), err)
			}
			seen[d] = true
		}
	}
	if same, err := RevisionDigestWith(resources, nil); err != nil || same != plain {
		t.Errorf("without a bundle: %s, %v", same, err)
	}
}

// TestDelivered: what is data is told from what is acted upon, by the claim alone, wherever it stands.
func TestDelivered(t *testing.T) {
	of := func(v any) []byte {
		b, err := encoding.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	type fields = map[string]any
	for name, c := range map[string]struct {
		body []byte
		want bool
	}{
		"data":                           {of(fields{"v": 1, "c": "data:a", "r": "x"}), true},
		"data, a long claim":             {of(fields{"v": 1, "c": "data:" + strings.Repeat("x", 300)}), true},
		"data, a claim of 30 bytes":      {of(fields{"v": 1, "c": "data:" + strings.Repeat("x", 25)}), true},
		"a field of a later version":     {of(fields{"a": 1, "c": "data:a"}), true},
		"that field, and a path":         {of(fields{"a": 1, "c": "path:/data:a"}), false},
		"a path":                         {of(fields{"v": 1, "c": "path:/data:a"}), false},
		"a kind that begins so":          {of(fields{"v": 1, "c": "database:a"}), false},
		"a key of a node's own":          {of(fields{"v": 1, "c": "key:00"}), false},
		"no claim":                       {of(fields{"v": 1}), false},
		"nothing":                        {nil, false},
		"no map":                         {[]byte("data:a"), false},
		"a claim that is longer than it": {[]byte{0xa1, 0x61, 'c', 0x6f, 'd', 'a', 't', 'a', ':'}, false},
		"a length that is cut off":       {[]byte{0xa1, 0x61, 'c', 0x79, 0xff}, false},
	} {
		if got := Delivered(c.body); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	items, err := Compile([]declare.Resource{{Name: "a", File: &declare.File{Path: "/data:a"}}})
	if err != nil || Delivered(items[0].Body) {
		t.Errorf("a file is data: %v", err)
	}
}

// FuzzDelivered: the short way says what decoding says, of all that can be decoded.
func FuzzDelivered(f *testing.F) {
	for _, b := range [][]byte{
		{0xa1, 0x61, 'c', 0x66, 'd', 'a', 't', 'a', ':', 'x'},
		{0xa1, 0x61, 'c', 0x78, 0x06, 'd', 'a', 't', 'a', ':', 'x'},
		append([]byte{0xa1, 0x61, 'c', 0x79, 0x01, 0x00}, bytes.Repeat([]byte{'d'}, 256)...),
		{0xa2, 0x61, 'a', 0x01, 0x61, 'c', 0x65, 'd', 'a', 't', 'a', ':'},
		{0xa1, 0x61, 'c', 0x01},
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := Delivered(body)
		var b struct {
			Claim string `json:"c"`
		}
		if lenient.Unmarshal(body, &b) != nil {
			return // it is acted upon, or not: nobody can read it
		}
		if want := strings.HasPrefix(b.Claim, deliveredPrefix); got != want {
			t.Errorf("%x: %v, want %v", body, got, want)
		}
	})
}
