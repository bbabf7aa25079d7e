package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/reason"
)

// The names below STATE/upgrade.
const (
	newName      = "new"      // the new program, as it is rehearsed
	previousName = "previous" // a copy of the one before
	trialName    = "trial"    // the note of a trial
	overName     = "over"     // the same, once the copy has decided that it is over
	refusedName  = "refused"  // what was put back last, and why
)

// noteBytesMax is far above what a note has.
const noteBytesMax = 64 << 10

// trial says which program is on trial, and where.
type trial struct {
	Program string         `json:"program"` // path
	To      content.Digest `json:"to"`
	// Invocation is systemd's identity of the agent's run that began the trial.
	Invocation string `json:"invocation"`
}

// refusal says which program was put back.
type refusal struct {
	Digest content.Digest `json:"digest"`
	Why    string         `json:"why"`
	Said   string         `json:"said,omitempty"` // what it has logged last
}

// read reads a note; false where there is none. One that cannot be read is StateCorrupt: notes are written whole or not at all.
func (t *Type) read(name string, note any) (bool, error) {
	path := t.path(name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &reason.Error{Code: reason.InputOutput, Doing: "read " + path, Cause: err}
	}
	defer f.Close()
	data := make([]byte, noteBytesMax)
	n, err := f.Read(data)
	if err == nil {
		err = json.Unmarshal(data[:n], note)
	}
	if err != nil {
		return false, &reason.Error{Code: reason.StateCorrupt, Doing: "read " + path, Cause: err, Hint: "rm " + path}
	}
	return true, nil
}

// write makes a note durable.
func (t *Type) write(ctx context.Context, name string, note any) error {
	data, err := json.Marshal(note)
	if err != nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "write a note of an upgrade", Cause: err}
	}
	_, err = durable.Write(ctx, t.Root, durable.WriteSpec{Path: t.path(name), Content: bytes.NewReader(data), Size: int64(len(data)), Mode: 0o600, UID: durable.Keep, GID: durable.Keep})
	return err
}

// drop removes a note, durably. There is an error where it was not there: somebody else has decided.
func (t *Type) drop(name string) error {
	err := os.Remove(t.path(name))
	if err == nil {
		err = t.sync()
	}
	return err
}

func (t *Type) sync() error {
	d, err := os.Open(t.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return disk.Fsync(int(d.Fd()))
}

// ready makes the directory, for the agent's user alone, and removes what a killed run has left in it and beside the program.
func (t *Type) ready(ctx context.Context) error {
	if err := os.Mkdir(t.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "make the directory " + t.dir, Cause: err}
	}
	for _, path := range []string{t.program, t.path(newName), t.path(previousName), t.path(trialName), t.path(refusedName)} {
		if err := t.Beside(ctx, path); err != nil {
			return err
		}
	}
	return nil
}
