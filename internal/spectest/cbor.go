package spectest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The major types of RFC 8949, section 3.1, that are spoken here.
const (
	majorUint = iota
	majorNegative
	majorBytes
	majorText
	majorArray
	majorMap
	majorSimple = 7
)

// The simple values.
const simpleFalse, simpleTrue, simpleNull = 20, 21, 22

// depthMax is above what any message has.
const depthMax = 16

// Value is an item of CBOR. One of the fields is set, as its major type says.
type Value struct {
	major  byte
	number uint64 // of a number what stands in its head; of a simple value which one
	text   []byte // of bytes and text
	items  []Value
	pairs  [][2]Value
}

// Decode reads one item of core deterministic CBOR (RFC 8949, section 4.2.1) and nothing behind it. It refuses every other form: longer
// heads, unknown lengths, tags, floats, keys out of order or twice, text that is no UTF-8.
func Decode(data []byte) (Value, error) {
	v, rest, err := decode(data, 0)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes follow", len(rest))
	}
	return v, err
}

func decode(data []byte, depth int) (v Value, rest []byte, err error) {
	if depth > depthMax {
		return v, nil, errors.New("too deep")
	}
	major, number, rest, err := readHead(data)
	v = Value{major: major, number: number}
	if err != nil {
		return v, nil, err
	}
	switch major {
	case majorUint, majorNegative:
		return v, rest, nil
	case majorBytes, majorText:
		if number > uint64(len(rest)) {
			return v, nil, errors.New("cut off")
		}
		v.text = rest[:number]
		if major == majorText && !utf8.Valid(v.text) {
			return v, nil, errors.New("text that is no UTF-8")
		}
		return v, rest[number:], nil
	case majorArray:
		for range number {
			var item Value
			if item, rest, err = decode(rest, depth+1); err != nil {
				return v, nil, err
			}
			v.items = append(v.items, item)
		}
		return v, rest, nil
	case majorMap:
		return decodeMap(v, rest, depth)
	case majorSimple:
		if simpleFalse <= number && number <= simpleNull {
			return v, rest, nil
		}
	}
	return v, nil, fmt.Errorf("an item of type %d with %d", major, number)
}

func decodeMap(v Value, rest []byte, depth int) (Value, []byte, error) {
	var last []byte
	for i := range v.number {
		var pair [2]Value
		var err error
		at := rest
		if pair[0], rest, err = decode(rest, depth+1); err != nil {
			return v, nil, err
		}
		key := at[:len(at)-len(rest)]
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return v, nil, errors.New("keys are not in order")
		}
		last = key
		if pair[1], rest, err = decode(rest, depth+1); err != nil {
			return v, nil, err
		}
		v.pairs = append(v.pairs, pair)
	}
	return v, rest, nil
}

// readHead reads what an item begins with, in its shortest form alone.
func readHead(data []byte) (major byte, number uint64, rest []byte, err error) {
	if len(data) == 0 {
		return 0, 0, nil, errors.New("cut off")
	}
	major, number, rest = data[0]>>5, uint64(data[0]&0x1f), data[1:]
	if number < 24 {
		return major, number, rest, nil
	}
	size := 1 << (number - 24)
	if number > 27 || len(rest) < size {
		return 0, 0, nil, fmt.Errorf("a head of %#x", data[0])
	}
	number = binary.BigEndian.Uint64(append(make([]byte, 8-size, 8), rest[:size]...))
	if size == 1 && number < 24 || size > 1 && number>>(4*size) == 0 || major == majorSimple {
		return 0, 0, nil, errors.New("a head that is longer than it must be")
	}
	return major, number, rest[size:], nil
}

// Encode writes the item in core deterministic CBOR.
func (v Value) Encode() []byte {
	b := appendHead(nil, v.major, v.number)
	switch v.major {
	case majorBytes, majorText:
		b = append(appendHead(nil, v.major, uint64(len(v.text))), v.text...)
	case majorArray:
		b = appendHead(nil, majorArray, uint64(len(v.items)))
		for _, item := range v.items {
			b = append(b, item.Encode()...)
		}
	case majorMap:
		b = appendHead(nil, majorMap, uint64(len(v.pairs)))
		pairs := make([][]byte, 0, len(v.pairs)) // a key is no beginning of another one, so to order pairs is to order keys
		for _, p := range v.pairs {
			pairs = append(pairs, append(p[0].Encode(), p[1].Encode()...))
		}
		slices.SortFunc(pairs, bytes.Compare)
		b = append(b, slices.Concat(pairs...)...)
	}
	return b
}

func appendHead(b []byte, major byte, number uint64) []byte {
	switch {
	case number < 24:
		return append(b, major<<5|byte(number))
	case number < 1<<8:
		return append(b, major<<5|24, byte(number))
	case number < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, major<<5|25), uint16(number))
	case number < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, major<<5|26), uint32(number))
	}
	return binary.BigEndian.AppendUint64(append(b, major<<5|27), number)
}

// Uint, Int, Bytes, Text, Array, Map and Bool make items. Map takes keys and values in turn.
func Uint(n uint64) Value { return Value{major: majorUint, number: n} }

// Int is a number of either sign.
func Int(n int64) Value {
	if n < 0 {
		return Value{major: majorNegative, number: uint64(-(n + 1))}
	}
	return Uint(uint64(n))
}

// Bytes is a byte string.
func Bytes(b []byte) Value { return Value{major: majorBytes, text: b} }

// Text is a text string.
func Text(s string) Value { return Value{major: majorText, text: []byte(s)} }

// Bool is true or false.
func Bool(b bool) Value {
	if b {
		return Value{major: majorSimple, number: simpleTrue}
	}
	return Value{major: majorSimple, number: simpleFalse}
}

// Null is what stands for bytes, or an array, of which there are none.
func Null() Value { return Value{major: majorSimple, number: simpleNull} }

// Array is an array.
func Array(items ...Value) Value { return Value{major: majorArray, items: items} }

// Map is a map of keys and values, in turn.
func Map(keysAndValues ...Value) Value {
	v := Value{major: majorMap}
	for pair := range slices.Chunk(keysAndValues, 2) {
		v.pairs = append(v.pairs, [2]Value{pair[0], pair[1]})
	}
	return v
}

// At is what a map has at a small key; false where it has none.
func (v Value) At(key uint64) (Value, bool) {
	for _, p := range v.pairs {
		if p[0].major == majorUint && p[0].number == key {
			return p[1], true
		}
	}
	return Value{}, false
}

// Named is what a map has at a name; false where it has none.
func (v Value) Named(key string) (Value, bool) {
	for _, p := range v.pairs {
		if p[0].major == majorText && string(p[0].text) == key {
			return p[1], true
		}
	}
	return Value{}, false
}

// Items are those of an array.
func (v Value) Items() []Value { return v.items }

// Content is that of bytes and text.
func (v Value) Content() []byte { return v.text }

// Number is an unsigned number.
func (v Value) Number() uint64 { return v.number }

// String is the item in diagnostic notation (RFC 8949, section 8).
func (v Value) String() string {
	switch v.major {
	case majorNegative:
		return "-" + strconv.FormatUint(v.number+1, 10)
	case majorBytes:
		return "h'" + hex.EncodeToString(v.text) + "'"
	case majorText:
		return strconv.Quote(string(v.text))
	case majorArray:
		items := make([]string, 0, len(v.items))
		for _, item := range v.items {
			items = append(items, item.String())
		}
		return "[" + strings.Join(items, ", ") + "]"
	case majorMap:
		pairs := make([]string, 0, len(v.pairs))
		for _, p := range v.pairs {
			pairs = append(pairs, p[0].String()+": "+p[1].String())
		}
		return "{" + strings.Join(pairs, ", ") + "}"
	case majorSimple:
		return [...]string{"false", "true", "null"}[v.number-simpleFalse]
	}
	return strconv.FormatUint(v.number, 10)
}
