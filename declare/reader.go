package declare

import (
	"bytes"
	"fmt"
	"reflect"
	"unicode/utf8"

	"tako.dev/tako/internal/reason"
)

// Read reads a YAML or JSON file of one or several documents. It returns every document of a known kind, as far as it
// could be read, and every mistake in order of place; with a mistake, the documents serve for finding more mistakes and
// must not be acted upon. The name is for messages only. Read keeps nothing of data.
//
// A file is cut into documents, and a document into its frame and batches of resources, before anything is parsed. So a
// mistake in one resource hides none in another, and memory is bounded by the result and not by the parser's tree:
//
//	for each document of the file:
//	    parse and decode the document without the items of spec.resources
//	    for each batch of items:
//	        parse it; where that fails, parse each item alone
//	        decode each item
func Read(name string, data []byte) ([]Document, []Fault) {
	r := reader{file: name}
	text, ok := r.clean(data)
	if !ok {
		return nil, r.faults
	}
	for s := range splitStream(text) {
		r.document(s)
	}
	return r.documents, SortFaults(r.faults)
}

// ReadAs reads a text of one document of another kind as strictly as Read does. into points to a struct that names the fields by its json
// tags, as NodeConfig does; it holds what could be read. The document, which has places and no Config, is nil where there is none.
func ReadAs(name string, data []byte, into any) (*Document, []Fault) {
	r := reader{file: name}
	text, ok := r.clean(data)
	if !ok {
		return nil, r.faults
	}
	var document *Document
	for s := range splitStream(text) {
		body, ok := r.parse(s)
		if body = plain(body); body == nil {
			continue // comments, or what cannot be parsed
		}
		if document != nil {
			r.fault(Fault{Code: reason.MalformedYAML, Line: s.line, Column: 1, Message: "a second document where one must stand"})
			break
		}
		d := newDecoder(&r, false)
		d.at = s.place
		v := reflect.ValueOf(into).Elem()
		if _, ok := pairsOf(body); !ok {
			d.wrongType(body, v.Type(), nil)
			continue
		}
		d.value(body, v, firstToken(body))
		document = &Document{File: name, Positions: d.positions, incomplete: d.incomplete || !ok, broken: d.broken}
	}
	return document, SortFaults(r.faults)
}

// reader collects what one file holds.
type reader struct {
	file      string
	documents []Document
	faults    []Fault
}

// faultsMax bounds what is kept of a file, or of a config, that is no declaration at all, in memory and for the reader of it.
const faultsMax = 10_000

// fault records a mistake and returns it to be completed at once.
func (r *reader) fault(f Fault) *Fault {
	f.File = r.file
	if len(r.faults) == faultsMax {
		return &f
	}
	r.faults = append(r.faults, f)
	return &r.faults[len(r.faults)-1]
}

// clean checks what a text must be before YAML is thought of, and brings its line ends to one form.
func (r *reader) clean(data []byte) (string, bool) {
	if len(data) > DocumentBytesMax {
		r.fault(Fault{Code: reason.DocumentTooLarge, Line: 1, Column: 1,
			Message: fmt.Sprintf("the file has %d bytes, at most %d are read", len(data), DocumentBytesMax), Hint: "split it into several files"})
		return "", false
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if at, message, hint := badCharacter(data); at >= 0 {
		line, column := placeOf(data, at)
		r.fault(Fault{Code: reason.MalformedYAML, Line: line, Column: column, Message: message, Hint: hint})
		return "", false
	}
	return string(data), true
}

// badCharacter finds the first byte that YAML does not allow to stand unescaped (YAML 1.2.2, 5.1).
func badCharacter(data []byte) (at int, message, hint string) {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return 0, "the file is UTF-16", "save it as UTF-8"
	}
	for i := 0; i < len(data); {
		c := data[i]
		switch {
		case c >= 0x20 && c < 0x7f, c == '\n', c == '\t':
			i++
			continue
		case c == '\r':
			return i, "carriage return without a line feed", "end lines with a line feed; in a text in double quotes write \\r"
		case c < 0x20 || c == 0x7f:
			return i, fmt.Sprintf("control character U+%04X", c), fmt.Sprintf("in a text in double quotes write \\x%02x", c)
		}
		size := 0
		if r, n := utf8.DecodeRune(data[i:]); r == utf8.RuneError && n == 1 {
			return i, fmt.Sprintf("byte 0x%02x is not UTF-8", c), "save the file as UTF-8"
		} else if r >= 0x80 && r < 0xa0 && r != 0x85 {
			return i, fmt.Sprintf("control character U+%04X", r), fmt.Sprintf("in a text in double quotes write \\x%02x", r)
		} else {
			size = n
		}
		i += size
	}
	return -1, "", ""
}

func placeOf(data []byte, at int) (line, column int) {
	before := data[:at]
	start := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1
}

// document reads one document of the stream.
func (r *reader) document(s section) {
	frame, items := splitResources(s)
	body, ok := r.parse(frame)
	if body == nil {
		if ok && len(items) == 0 {
			return // a document of comments
		}
		r.decodeBroken(items)
		return
	}
	d := newDecoder(r, len(items) > 0)
	d.at = frame.place
	config, known := d.document(body)
	if !known {
		return
	}
	r.items(d, config, items)
	r.documents = append(r.documents, Document{File: r.file, Config: config, Positions: d.positions, incomplete: d.incomplete || !ok, broken: d.broken})
}

// decodeBroken looks for mistakes in the resources of a document whose frame cannot be parsed.
func (r *reader) decodeBroken(items []section) {
	d := newDecoder(r, true)
	d.positions.close(d.positions.openRoot(1, 1))
	r.items(d, &NodeConfig{}, items)
}

// items parses and decodes resources in batches. There is one more of them than the limit at most, for Validate to refuse.
func (r *reader) items(d *decoder, config *NodeConfig, items []section) {
	const (
		batchItems = 64       // amortises the parser's fixed cost; more does not help
		batchBytes = 64 << 10 // the parser takes some 60 bytes for each byte of text: 4 MiB
	)
	for len(items) > 0 {
		n, size := 1, len(items[0].text)
		for n < len(items) && n < batchItems && size+len(items[n].text) <= batchBytes {
			size += len(items[n].text)
			n++
		}
		r.batch(d, config, items[:n])
		items = items[n:]
	}
}

func (r *reader) batch(d *decoder, config *NodeConfig, batch []section) {
	whole := joinSections(batch)
	if len(batch) > 1 {
		if seq, ok := r.tryParse(whole); ok {
			d.at = whole.place
			d.resourceItems(seq, config)
			return
		}
	}
	for _, one := range batch {
		if len(one.text) > itemBytesMax {
			r.fault(Fault{Code: reason.BodyTooLarge, Line: one.line, Column: 1, Message: fmt.Sprintf("the resource has %d bytes of text, at most %d are read", len(one.text), itemBytesMax)})
			d.incomplete = true
			continue
		}
		seq, ok := r.parse(one)
		d.incomplete = d.incomplete || !ok
		if seq == nil {
			continue
		}
		d.at = one.place
		d.resourceItems(seq, config)
	}
}

// itemBytesMax bounds the text of one resource: a body of the largest size with each byte written as an escape of six.
const itemBytesMax = 6 * BodyBytesMax
