package body

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// UTF8 refuses bodies of JSON and YAML that are not UTF-8, and JSON with escapes that are half of a character. The library's
// decoders would keep other characters in the place of what they cannot read, and nobody would know.
func UTF8(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if kind := r.Header.Get("Content-Type"); r.Body != nil && r.Body != http.NoBody && !isBinary(kind) {
			r.Body = &utf8Body{ReadCloser: r.Body}
			if isJSON(kind) {
				r.Body = &escapesBody{ReadCloser: r.Body}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// isJSON says whether a media type is JSON, which is also what no type is taken for. In YAML a backslash is one in most places, and
// its decoder refuses halves itself.
func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil && (kind == runtime.ContentTypeJSON || strings.HasSuffix(kind, "+json"))
}

// isBinary says whether a media type is one of the two of the library that are not text, in any of their forms.
func isBinary(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == runtime.ContentTypeProtobuf || kind == runtime.ContentTypeCBOR || strings.HasSuffix(kind, "+cbor"))
}

// utf8Body reads a body as long as it is UTF-8. It holds no more than the beginning of a character that a read has cut.
type utf8Body struct {
	io.ReadCloser
	offset int64  // bytes that are whole characters
	cut    []byte // the beginning of the next
}

// Read reads, and refuses what is not UTF-8. The library hands the answer that is the error to the client.
func (b *utf8Body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	wrong, is := b.check(p[:n])
	if !is && errors.Is(err, io.EOF) && len(b.cut) > 0 {
		wrong, is = b.cut[0], true
	}
	if is {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("the body is not UTF-8: byte %d, counted from 0, is 0x%02x; send JSON and YAML in UTF-8", b.offset, wrong))
	}
	return n, err
}

// check looks at what was read; is says that there is a wrong byte, at offset.
func (b *utf8Body) check(p []byte) (wrong byte, is bool) {
	for len(b.cut) > 0 && len(p) > 0 {
		b.cut, p = append(b.cut, p[0]), p[1:]
		if !utf8.FullRune(b.cut) {
			continue
		}
		if r, size := utf8.DecodeRune(b.cut); r == utf8.RuneError && size == 1 {
			return b.cut[0], true
		}
		b.offset += int64(len(b.cut))
		b.cut = b.cut[:0]
	}
	if utf8.Valid(p) {
		b.offset += int64(len(p))
		return 0, false
	}
	for {
		r, size := utf8.DecodeRune(p)
		if r == utf8.RuneError && size == 1 {
			break
		}
		b.offset += int64(size)
		p = p[size:]
	}
	if utf8.FullRune(p) {
		return p[0], true
	}
	b.cut = append(b.cut[:0], p...)
	return 0, false
}
