package wire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"tako.dev/tako/internal/catalog"
)

// PathObject is GET /v1/object/DIGEST: a whole object, "sha256:" and hexadecimal digits. With Range, "bytes=N-", it begins at N.
const PathObject = "/v1/object/"

// PathBundle is GET /v1/bundle/DIGEST, for servers of the cluster alone: a whole bundle, as the difference from one without entries. Range is as of
// an object.
const PathBundle = "/v1/bundle/"

// The headers of the call for an object, which has no message. A server that asks another one sends neither.
const (
	// HeaderHead is the signed head that the host shows, in base64 without padding.
	HeaderHead = "Tako-Head"
	// HeaderKey is the key of the entry that names the object, in hexadecimal digits: where the server looks whether the host may have it.
	HeaderKey = "Tako-Key"
)

// headMax bounds a head in a header: far above what one has.
const headMax = 4 << 10

// DecodeRange reads the first byte that a Range asks for: "bytes=N-", or nothing for all.
func DecodeRange(header string) (int64, error) {
	if header == "" {
		return 0, nil
	}
	text, found := strings.CutPrefix(header, "bytes=")
	text, open := strings.CutSuffix(text, "-")
	from, err := strconv.ParseInt(text, 10, 64)
	if !found || !open || err != nil || from < 0 {
		return 0, fmt.Errorf("%.100q is not bytes=N-", header)
	}
	return from, nil
}

// EncodeHead is a signed head for HeaderHead.
func EncodeHead(head []byte) string { return base64.RawStdEncoding.EncodeToString(head) }

// DecodeHead reads what EncodeHead wrote.
func DecodeHead(text string) ([]byte, error) {
	if len(text) > headMax {
		return nil, errors.New("the head is too long")
	}
	return base64.RawStdEncoding.DecodeString(text)
}

// DecodeKey reads a key of a HeaderKey, as its String wrote it.
func DecodeKey(text string) (catalog.Digest, error) {
	key, ok := catalog.ParseDigest(text)
	if !ok {
		return key, errors.New("it is no key: 64 small hexadecimal digits")
	}
	return key, nil
}
