package verify

import (
	"bytes"
	"errors"
)

// Headers that carry a signature: over the object in a repository with ids of SHA-1, and in one with ids of SHA-256. An
// object that was converted may carry both; neither is part of what either signs.
const (
	headerSHA1   = "gpgsig"
	headerSHA256 = "gpgsig-sha256"
)

var (
	errNoSignature = errors.New("it is not signed")
	errSeveral     = errors.New("it has several signatures")
	errMalformed   = errors.New("its headers are malformed")
)

// splitCommit takes the signature out of a commit as it is stored, and leaves what is signed.
func splitCommit(raw []byte) (payload, signature []byte, err error) {
	line, _, _ := bytes.Cut(raw, []byte{'\n'})
	wanted := headerSHA1
	switch len(line) {
	case len("tree ") + 40:
	case len("tree ") + 64:
		wanted = headerSHA256
	default:
		return nil, nil, errMalformed
	}
	found, into := false, &payload
	for rest := raw; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			return nil, nil, errMalformed
		}
		line := rest[:end]
		if end == 1 { // the message begins
			payload = append(payload, rest...)
			break
		}
		rest = rest[end:]
		text := line
		switch key, value, _ := bytes.Cut(line, []byte{' '}); {
		case line[0] == ' ' && into != &payload:
			text = line[1:] // more of a header that is taken out
		case line[0] == ' ':
		case string(key) == wanted && found:
			return nil, nil, errSeveral
		case string(key) == wanted:
			found, into, text = true, &signature, value
		case string(key) == headerSHA1 || string(key) == headerSHA256:
			into = new([]byte) // of the other kind: dropped
		default:
			into = &payload
		}
		*into = append(*into, text...)
	}
	if !found {
		return nil, nil, errNoSignature
	}
	return payload, signature, nil
}

// splitTag takes the signature from the end of an annotated tag: it begins with the last line that begins one.
func splitTag(raw []byte) (payload, signature []byte, err error) {
	at := -1
	for pos := 0; pos < len(raw); {
		rest := raw[pos:]
		if bytes.HasPrefix(rest, []byte(beginOpenPGP)) || bytes.HasPrefix(rest, []byte(beginSSH)) {
			at = pos
		}
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			break
		}
		pos += end
	}
	if at < 0 {
		return nil, nil, errNoSignature
	}
	return raw[:at], raw[at:], nil
}
