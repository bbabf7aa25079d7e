package state

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"strings"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

const (
	// serverIDName is the file with the ID of the server that the data directory is of.
	serverIDName = "server-id"
	serverIDSize = 8 // bytes
)

// ServerID is what the server of this data directory is called among several, and makes it at the first call. It is no secret.
func (d *Dir) ServerID() (string, error) {
	path := d.Join(serverIDName)
	b, err := trust.ReadPrivate(path, 2*serverIDSize+1)
	if errors.Is(err, fs.ErrNotExist) {
		fresh := make([]byte, serverIDSize)
		_, _ = rand.Read(fresh) // never fails
		id := hex.EncodeToString(fresh)
		return id, trust.CreatePrivate(path, []byte(id+"\n"))
	}
	if err != nil {
		return "", err
	}
	id := strings.TrimSuffix(string(b), "\n")
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != serverIDSize {
		return "", &reason.Error{Code: reason.StateCorrupt, Doing: "read " + path, Cause: errors.New("it is no ID of a server"), Hint: "remove the file: another ID is made"}
	}
	return id, nil
}
