package body

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// FuzzUTF8Body reads in pieces of any size: what is UTF-8 comes through as it was, anything else is refused, and the refusal names the
// first wrong byte.
func FuzzUTF8Body(f *testing.F) {
	for _, s := range []string{"", "a", "é€😀", "\xff", "a\xc3", "😀\xf0\x9f\x98", "\xc0\x80", "\xed\xa0\x80", "€\xe2\x28\xa1", "�"} {
		f.Add([]byte(s), uint8(1))
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, piece uint8) {
		body := &utf8Body{ReadCloser: io.NopCloser(&pieces{text, int(piece%8) + 1})}
		got, err := io.ReadAll(body)
		if utf8.Valid(text) {
			if err != nil || !bytes.Equal(got, text) {
				t.Fatalf("%q: read %q, %v", text, got, err)
			}
			return
		}
		at := 0
		for {
			r, size := utf8.DecodeRune(text[at:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			at += size
		}
		want := fmt.Sprintf("byte %d, counted from 0, is 0x%02x", at, text[at])
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), want) {
			t.Fatalf("%q: %v, want %s", text, err, want)
		}
	})
}

// pieces is a reader of a few bytes at a time.
type pieces struct {
	rest []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

func TestUTF8BodyPassesOnErrors(t *testing.T) {
	if _, err := io.ReadAll(&utf8Body{ReadCloser: io.NopCloser(iotest.TimeoutReader(strings.NewReader("abc")))}); err != iotest.ErrTimeout {
		t.Errorf("%v, want %v", err, iotest.ErrTimeout)
	}
}

// TestUTF8: every body is looked at, but for those of the media types that are not text.
func TestUTF8(t *testing.T) {
	for kind, refused := range map[string]bool{
		"application/json": true, "application/yaml": true, "application/apply-patch+yaml": true, "application/merge-patch+json": true,
		"": true, "nonsense/": true, "text/plain; charset=latin1": true, "application/json, application/cbor": true,
		"application/vnd.kubernetes.protobuf": false, "application/cbor": false, "application/apply-patch+cbor": false,
		"application/vnd.kubernetes.protobuf; type=x": false,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("\xff"))
		r.Header.Set("Content-Type", kind)
		var err error
		UTF8(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, err = io.ReadAll(r.Body) })).ServeHTTP(httptest.NewRecorder(), r)
		if apierrors.IsBadRequest(err) != refused {
			t.Errorf("%q: %v", kind, err)
		}
	}
}
