package exec

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"time"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// record is the stored form of the last run of a command that succeeded. Later versions read it too: fields may be added, and none
// ever gets another meaning.
type record struct {
	Title  string     `json:"title"`  // whose it is, for a person who looks
	Digest string     `json:"digest"` // digestOf, as hexadecimal digits
	Began  host.Stamp `json:"began"`
	At     time.Time  `json:"at"` // the same by the wall clock, for a person
}

// nameOf is the name of the record of a key: a key may hold what no file name can.
func nameOf(key string) string {
	digest := sha256.Sum256([]byte(key))
	return hex.EncodeToString(digest[:16]) // 128 bits, more than enough against a chance
}

// last reads the last run of a command. The zero record means that there was none. One that is damaged counts as none: then the
// command runs once too often, which it must bear.
func (r *resource) last() (record, error) {
	b, err := os.ReadFile(r.record)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record{}, disk.Fault("read what has run", r.record, err)
	}
	var rec record
	if err != nil || json.Unmarshal(b, &rec) != nil {
		return record{}, nil
	}
	return rec, nil
}

// ranWith reports whether the last run was one of what is declared now.
func (r *resource) ranWith(rec record) bool { return rec.Digest == hex.EncodeToString(r.digest[:]) }

// beganAfter reports whether a run of what is declared now began later than a moment. Of another boot than the present one it is not
// known what was later.
func (r *resource) beganAfter(rec record, since host.Stamp) bool {
	switch {
	case !r.ranWith(rec) || rec.Began.Boot == "":
		return false
	case rec.Began.Boot == since.Boot:
		return rec.Began.USec > since.USec
	}
	now, err := systemd.Now()
	return err == nil && rec.Began.Boot == now.Boot && since.Boot != ""
}

// note makes durable that the command has run. It goes on when the context has ended: what was done is not forgotten.
func (t *Type) note(ctx context.Context, r *resource, began host.Stamp, at time.Time) error {
	ctx = context.WithoutCancel(ctx)
	b, err := json.Marshal(record{Title: r.title, Digest: hex.EncodeToString(r.digest[:]), Began: began, At: at.UTC().Truncate(time.Second)})
	if err != nil {
		return unrecorded(r, err)
	}
	_, err = durable.Write(ctx, t.root, durable.WriteSpec{Path: r.record, Content: bytes.NewReader(b), Size: int64(len(b)), Mode: 0o600, UID: durable.Keep, GID: durable.Keep})
	if err != nil {
		return unrecorded(r, err)
	}
	return nil
}

// unrecorded is the error of a command that has run and could not be recorded: it will run again.
func unrecorded(r *resource, err error) error {
	e := *reason.Of(disk.Fault("record that "+r.title+" has run", path.Base(r.record), err))
	e.Hint = "the command has run, and runs once more, because nothing says so"
	return &e
}

// isThere reports whether a path leads to something; what cannot be looked at counts as nothing.
func isThere(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}
