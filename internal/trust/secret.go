package trust

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"

	"tako.dev/tako/internal/reason"
)

const (
	secretBlock = "TAKO MACHINE SECRET"
	// idHeader carries the id of the key in its PEM block: a person can compare it, and a damaged key does not match it.
	idHeader = "Key-Id"
	// secretFileMax is several times what ringKeysMax blocks take.
	secretFileMax = 8 << 10
)

// LoadSecret reads the machine secret: a file that holds one PEM block per key, the key that seals first. Errors: KeyFileUnsafe
// when others may read the file or own it, KeyFileDamaged when it is missing (the cause is then fs.ErrNotExist) or holds
// something else.
func LoadSecret(path string) (*Ring, error) {
	b, err := ReadPrivate(path, secretFileMax)
	if err != nil {
		return nil, err
	}
	r, err := decodeSecret(b)
	if err != nil {
		return nil, &reason.Error{
			Code: reason.KeyFileDamaged, Doing: "read machine secret " + path, Cause: err,
			Hint: "put the file back from where it is kept, or copy it from another server of the cluster",
		}
	}
	return r, nil
}

// LoadOrCreateSecret reads the machine secret, and makes one when there is none. created says that it did: the file must then be
// copied to where it survives this machine. Of several callers at once one creates and the others read what it made. Errors: as
// LoadSecret and CreatePrivate.
func LoadOrCreateSecret(path string) (r *Ring, created bool, err error) {
	r, err = LoadSecret(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return r, false, err
	}
	r = NewRing()
	err = CreatePrivate(path, encodeSecret(r))
	switch {
	case errors.Is(err, fs.ErrExist):
		r, err = LoadSecret(path)
		return r, false, err
	case err != nil:
		return nil, false, err
	}
	return r, true, nil
}

func encodeSecret(r *Ring) []byte {
	var b bytes.Buffer
	for _, m := range r.keys {
		block := &pem.Block{Type: secretBlock, Headers: map[string]string{idHeader: fmt.Sprintf("%x", m.id)}, Bytes: m.key[:]}
		b.Write(pem.EncodeToMemory(block))
	}
	return b.Bytes()
}

func decodeSecret(b []byte) (*Ring, error) {
	var keys [][]byte
	var ids []string
	for len(bytes.TrimSpace(b)) > 0 {
		block, rest := pem.Decode(b)
		if block == nil || block.Type != secretBlock || len(keys) == ringKeysMax {
			return nil, fmt.Errorf("it holds something else than 1 to %d PEM blocks %q", ringKeysMax, secretBlock)
		}
		keys, ids, b = append(keys, block.Bytes), append(ids, block.Headers[idHeader]), rest
	}
	r, err := ringOf(keys)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	for i, m := range r.keys {
		if ids[i] != fmt.Sprintf("%x", m.id) {
			return nil, fmt.Errorf("key %d is not the one that its %s line names", i+1, idHeader)
		}
	}
	return r, nil
}
