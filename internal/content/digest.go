package content

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// Digest names content by its sha256.
type Digest [sha256.Size]byte

// digestPrefix leaves room for another function one day.
const digestPrefix = "sha256:"

// DigestOf returns the digest of some bytes.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

// ParseDigest reads the text form, "sha256:" and 64 small hexadecimal digits. There is one text for each digest.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	digits, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || len(digits) != hex.EncodedLen(len(d)) || strings.ToLower(digits) != digits {
		return Digest{}, badDigest(s)
	}
	if _, err := hex.Decode(d[:], []byte(digits)); err != nil {
		return Digest{}, badDigest(s)
	}
	return d, nil
}

func badDigest(s string) error {
	if len(s) > 100 {
		s = s[:100]
	}
	return &reason.Error{
		Code: reason.InvalidValue, Doing: "read digest " + disk.Shown(s),
		Hint: "a digest is sha256: and 64 hexadecimal digits in small letters",
	}
}

// String returns the text form.
func (d Digest) String() string { return digestPrefix + d.hex() }

// IsZero reports whether the digest is the zero value, which stands for no content.
func (d Digest) IsZero() bool { return d == Digest{} }

func (d Digest) hex() string { return hex.EncodeToString(d[:]) }

// MarshalText writes the text form; the zero digest is the empty text.
func (d Digest) MarshalText() ([]byte, error) {
	if d.IsZero() {
		return nil, nil
	}
	return []byte(d.String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*d = Digest{}
		return nil
	}
	v, err := ParseDigest(string(b))
	if err == nil {
		*d = v
	}
	return err
}

// SumOf reads a file from its start to its end, and returns its digest and size.
func SumOf(ctx context.Context, f io.ReadSeeker) (Digest, int64, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return Digest{}, 0, err
	}
	sum, buf, size := sha256.New(), make([]byte, copyBuffer), int64(0)
	for {
		if err := ctx.Err(); err != nil {
			return Digest{}, 0, err
		}
		n, err := f.Read(buf)
		sum.Write(buf[:n])
		size += int64(n)
		if errors.Is(err, io.EOF) {
			return Digest(sum.Sum(nil)), size, nil
		}
		if err != nil {
			return Digest{}, 0, err
		}
	}
}
