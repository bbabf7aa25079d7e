package catalog

import (
	"bytes"
	"strings"
	"testing"

	"tako.dev/tako/declare"
)

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
		if want := strings.HasPrefix(b.Claim, deliveredClaim); got != want {
			t.Errorf("%x: %v, want %v", body, got, want)
		}
	})
}
