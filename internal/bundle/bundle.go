package bundle

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// magic begins a difference; the number is that of the form.
const magic = "tako bundle difference 1\n"

const (
	// lengthBytes is the length of a body, the highest byte first. It is 0 of what is deleted, and then a key follows: no body is empty.
	lengthBytes = 4
	// DifferenceBytesMax is more than the largest difference has: all bodies, their lengths, and as many deletions.
	DifferenceBytesMax = declare.BundleBytesMax + declare.BundleEntriesMax*(2*lengthBytes+sha256.Size) + int64(len(magic))
	// readBuffer is what reading costs beside the largest body.
	readBuffer = 64 << 10
)

// digestPrefix is that of the digests of contents.
const digestPrefix = "sha256:"

// Digest is the text form of the root of a bundle, as spec.bundle.digest has it.
func Digest(root catalog.Digest) string { return digestPrefix + root.String() }

// ParseDigest reads what Digest wrote, and nothing else. The error is InvalidValue.
func ParseDigest(text string) (catalog.Digest, error) {
	digits, found := strings.CutPrefix(text, digestPrefix)
	root, ok := catalog.ParseDigest(digits)
	if !found || !ok {
		return catalog.Digest{}, &reason.Error{Code: reason.InvalidValue, Doing: fmt.Sprintf("read digest %.80q", text), Hint: "a digest is sha256: and 64 hexadecimal digits in small letters"}
	}
	return root, nil
}

// Size is how many bytes Write writes of changes; length says how long the body of a change is that deletes nothing.
func Size(changes iter.Seq2[catalog.Change, error], length func(catalog.Change) int) (int64, error) {
	n := int64(len(magic))
	for c, err := range changes {
		if err != nil {
			return 0, err
		}
		n += changeBytes(c, length)
	}
	return n, nil
}

func changeBytes(c catalog.Change, length func(catalog.Change) int) int64 {
	if c.Deleted {
		return lengthBytes + sha256.Size
	}
	return lengthBytes + int64(length(c))
}

// Write writes changes, which are in the order of their keys, from a byte on. Only the bodies are asked for of which something is written.
// The errors are those of changes, of body and of w.
func Write(w io.Writer, from int64, changes iter.Seq2[catalog.Change, error], length func(catalog.Change) int, body func(catalog.Change) ([]byte, error)) error {
	skip := skipper{w, from}
	if _, err := io.WriteString(&skip, magic); err != nil {
		return err
	}
	for c, err := range changes {
		if err != nil {
			return err
		}
		if n := changeBytes(c, length); skip.left >= n {
			skip.left -= n
			continue
		}
		var head [lengthBytes]byte
		content := c.Key[:]
		if !c.Deleted {
			var err error
			if content, err = body(c); err != nil {
				return err
			}
			binary.BigEndian.PutUint32(head[:], uint32(len(content)))
		}
		if _, err := skip.Write(head[:]); err != nil {
			return err
		}
		if _, err := skip.Write(content); err != nil {
			return err
		}
	}
	return nil
}

// skipper leaves out what comes first.
type skipper struct {
	w    io.Writer
	left int64
}

func (s *skipper) Write(b []byte) (int, error) {
	skipped := int(min(int64(len(b)), s.left))
	s.left -= int64(skipped)
	if skipped == len(b) {
		return len(b), nil
	}
	n, err := s.w.Write(b[skipped:])
	return skipped + n, err
}

// Change is a change as it was read: of data that is new or another, its body.
type Change struct {
	Key  catalog.Digest
	Body []byte // nil of what is deleted; good until the next change
}

// Read reads a difference, and yields its changes in the order of their keys. Each body is of data that could be declared, in the one form
// that it has. After an error nothing follows; it is StateCorrupt, BodyTooLarge, or that of r.
func Read(r io.Reader) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		d := reader{r: bufio.NewReaderSize(r, readBuffer)}
		err := d.begin()
		for err == nil {
			var c Change
			if c, err = d.next(); err == nil && !yield(c, nil) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(Change{}, err)
		}
	}
}

type reader struct {
	r    *bufio.Reader
	last catalog.Digest
	any  bool // there was one before
	body []byte
	sum  int64 // of bodies
	n    int
}

func corrupt(format string, args ...any) error {
	return &reason.Error{Code: reason.StateCorrupt, Doing: "read a bundle", Cause: fmt.Errorf(format, args...)}
}

func (d *reader) begin() error {
	got := make([]byte, len(magic))
	if err := d.fill(got); err != nil {
		return err
	}
	if !bytes.Equal(got, []byte(magic)) {
		return corrupt("it does not begin with %q", magic)
	}
	return nil
}

// fill reads all of b; that something is missing is a mistake of the file.
func (d *reader) fill(b []byte) error {
	_, err := io.ReadFull(d.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return corrupt("it ends in the middle")
	}
	return err
}

// next reads a change. The error is io.EOF at the end.
func (d *reader) next() (Change, error) {
	if _, err := d.r.Peek(1); err != nil {
		return Change{}, err
	}
	var head [lengthBytes]byte
	if err := d.fill(head[:]); err != nil {
		return Change{}, err
	}
	if d.n++; d.n > 2*declare.BundleEntriesMax {
		return Change{}, corrupt("it has more than %d changes", 2*declare.BundleEntriesMax)
	}
	c, err := d.change(binary.BigEndian.Uint32(head[:]))
	if err != nil {
		return Change{}, err
	}
	if d.any && bytes.Compare(d.last[:], c.Key[:]) >= 0 {
		return Change{}, corrupt("its entries are not in order")
	}
	d.last, d.any = c.Key, true
	return c, nil
}

func (d *reader) change(length uint32) (c Change, err error) {
	if length == 0 {
		return c, d.fill(c.Key[:])
	}
	if d.sum += int64(length); length > declare.BodyBytesMax || d.sum > declare.BundleBytesMax {
		return c, corrupt("an entry has %d bytes, and those before it %d", length, d.sum-int64(length))
	}
	if uint32(cap(d.body)) < length {
		d.body = make([]byte, length)
	}
	d.body = d.body[:length]
	if err := d.fill(d.body); err != nil {
		return c, err
	}
	item, err := catalog.ReadDataItem(d.body)
	if err != nil {
		return c, err
	}
	return Change{Key: catalog.KeyOf(item.Claim), Body: d.body}, nil
}
