package spectest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Corpus wants the corpus of a fuzz target, testdata/fuzz/TARGET, to have these inputs. What a fuzzer has found there stays.
func Corpus(t *testing.T, target string, inputs map[string][]any) {
	t.Helper()
	if len(inputs) == 0 {
		t.Fatalf("%s has no inputs", target)
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		var b strings.Builder
		b.WriteString("go test fuzz v1\n")
		for _, v := range inputs[name] {
			switch v := v.(type) {
			case []byte:
				fmt.Fprintf(&b, "[]byte(%q)\n", v)
			case string:
				fmt.Fprintf(&b, "string(%q)\n", v)
			case uint8:
				fmt.Fprintf(&b, "byte(%q)\n", v)
			default:
				t.Fatalf("%s, %s: an input of %T", target, name, v)
			}
		}
		Golden(t, filepath.Join("testdata", "fuzz", target, name), []byte(b.String()))
	}
}

// CorpusOf is Corpus of a target that takes one slice of bytes.
func CorpusOf(t *testing.T, target string, inputs map[string][]byte) {
	t.Helper()
	all := map[string][]any{}
	for name, data := range inputs {
		all[name] = []any{data}
	}
	Corpus(t, target, all)
}

// nested is how deep the nested inputs are: far above what anything has, and few enough bytes to be kept.
const nested = 500

// Hostile are inputs for a decoder of CBOR beside a good one: cut off, followed by something, with tags, lengths that are not known or that nothing
// could have, nested, of other types, with a key twice, and of a later version.
func Hostile(good []byte) map[string][]byte {
	all := map[string][]byte{
		"good":           good,
		"empty":          {},
		"cut-off":        good[:len(good)/2],
		"followed":       append(bytes.Clone(good), 0),
		"tagged":         append([]byte{0xc1}, good...),
		"tags":           append(bytes.Repeat([]byte{0xc1}, nested), good...),
		"nested-arrays":  append(bytes.Repeat([]byte{0x81}, nested), 0),
		"nested-maps":    append(bytes.Repeat([]byte{0xa1, 0x01}, nested), 0),
		"endless-map":    {0xbf, 0x01, 0x01, 0xff},
		"endless-array":  {0x9f, 0x01, 0xff},
		"endless-bytes":  {0xa1, 0x01, 0x5f, 0x41, 0x00, 0xff},
		"array-of-2e63":  {0xa1, 0x01, 0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"map-of-2e40":    {0xbb, 0, 0, 1, 0, 0, 0, 0, 0},
		"bytes-of-2e62":  {0xa1, 0x01, 0x5b, 0x40, 0, 0, 0, 0, 0, 0, 0},
		"text-of-2e32":   {0xa1, 0x01, 0x7a, 0xff, 0xff, 0xff, 0xff, 'a'},
		"many-empty":     append([]byte{0xa1, 0x02, 0x99, 0x10, 0x00}, bytes.Repeat([]byte{0xa0}, 0x1000)...),
		"no-utf8":        {0xa1, 0x02, 0x62, 0xff, 0xfe},
		"float":          {0xa1, 0x01, 0xf9, 0x3c, 0x00},
		"null":           {0xf6},
		"number-of-2e64": {0xa1, 0x01, 0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	}
	v, err := Decode(good)
	if err != nil {
		return all
	}
	if len(v.pairs) > 0 {
		first := append(v.pairs[0][0].Encode(), v.pairs[0][1].Encode()...)
		all["key-twice"] = append(append(appendHead(nil, majorMap, uint64(len(v.pairs)+1)), first...), good[len(appendHead(nil, majorMap, uint64(len(v.pairs)))):]...)
		later := Value{major: majorMap, pairs: append(slices.Clone(v.pairs), [2]Value{Uint(1 << 40), Text("of a later version")}, [2]Value{Text("zz"), Array(Uint(1))})}
		all["later-version"] = later.Encode()
		other := Value{major: majorMap, pairs: slices.Clone(v.pairs)}
		for i := range other.pairs {
			other.pairs[i][1] = Text("another type")
		}
		all["other-types"] = other.Encode()
	}
	if len(v.items) > 0 {
		all["one-more"] = Array(append(slices.Clone(v.items), Uint(1))...).Encode()
		all["one-less"] = Array(v.items[:len(v.items)-1]...).Encode()
	}
	return all
}

// HostileFile are inputs for a reader of a file that begins with a line: of another version, cut off at each of its first bytes, with other bytes in
// between, with lengths that nothing could have, and followed by something.
func HostileFile(good []byte, line string) map[string][]byte {
	later := strings.NewReplacer("1\n", "2\n", "2\n", "3\n").Replace(line)
	after := func(b ...byte) []byte { return append([]byte(line), b...) }
	all := map[string][]byte{
		"good":          good,
		"empty":         {},
		"line-alone":    []byte(line),
		"later-version": append([]byte(later), good[len(line):]...),
		"no-line":       good[len(line):],
		"lengths-max":   after(bytes.Repeat([]byte{0xff}, 64)...),
		"lengths-none":  after(make([]byte, 64)...),
		"cut-off":       good[:len(good)/2],
		"last-byte-off": good[:len(good)-1],
		"followed":      append(bytes.Clone(good), 0),
		"twice":         append(bytes.Clone(good), good...),
	}
	for i, at := range []int{len(line), len(line) + 3, len(line) + 8, len(good) / 2, len(good) - 1} {
		if at < len(good) {
			changed := bytes.Clone(good)
			changed[at] ^= 0x81
			all[fmt.Sprintf("changed-%d", i)] = changed
		}
	}
	return all
}

// Allocated is how many bytes f allocates: nothing may be made room for that is only said to come.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Targets wants each fuzz target of the package in this folder to have a corpus.
func Targets(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			target, found := strings.CutPrefix(line, "func Fuzz")
			if !found {
				continue
			}
			target, _, _ = strings.Cut("Fuzz"+target, "(")
			if corpus, err := os.ReadDir(filepath.Join("testdata", "fuzz", target)); err != nil || len(corpus) < 5 {
				t.Errorf("%s has a corpus of %d: %v", target, len(corpus), err)
			}
		}
	}
}
