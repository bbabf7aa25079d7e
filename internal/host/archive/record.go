package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/reason"
)

// record is what is known of a directory that was unpacked here. Later versions read it too: fields may be added, and none ever gets
// another meaning.
type record struct {
	Path string `json:"path"`
	// Made are the directories that may stand there: the one that was unpacked last, and while one takes the other's place both.
	Made []made `json:"made,omitempty"`
	// Left are what may stand beside it under temporary names, and is to be removed.
	Left []left `json:"left,omitempty"`
}

// made is one unpacked directory.
type made struct {
	durable.Inode
	Recipe   string   `json:"recipe"`
	Imprints imprints `json:"imprints"`
	Bytes    int64    `json:"bytes"`
	Digest   string   `json:"digest"` // of the archive, for a person
}

// left is a temporary name, and the things that may have it. No others are removed.
type left struct {
	Temp   string          `json:"temp"`
	Inodes []durable.Inode `json:"inodes"`
}

// at returns what was made of the thing that stands at the path.
func (c *record) at(sig disk.Signature) *made {
	for i := range c.Made {
		if c.Made[i].Inode == durable.InodeOf(sig) {
			return &c.Made[i]
		}
	}
	return nil
}

// recordPath is where the record of a path is: a path may hold what no file name can.
func (t *Type) recordPath(p string) string {
	sum := sha256.Sum256([]byte(p))
	return filepath.Join(t.records, hex.EncodeToString(sum[:]))
}

// read reads the record of a path. One that is damaged counts as none: then what stands there is nobody's.
func (t *Type) read(p string) (record, error) {
	c, err := readRecord(t.recordPath(p))
	if err != nil || c.Path != p {
		return record{Path: p}, err
	}
	return c, nil
}

func readRecord(file string) (record, error) {
	var c record
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, disk.Fault("read what was unpacked", file, err)
	}
	if json.Unmarshal(b, &c) != nil {
		return record{}, nil
	}
	return c, nil
}

// write makes a record durable. It goes on when the context has ended: what was done is not forgotten.
func (t *Type) write(ctx context.Context, c *record) error {
	ctx = context.WithoutCancel(ctx)
	if err := os.Mkdir(t.records, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return unrecorded(c.Path, err)
	}
	root, err := disk.OpenRoot("/")
	if err != nil {
		return unrecorded(c.Path, err)
	}
	defer root.Close()
	file := t.recordPath(c.Path)
	if len(c.Made) == 0 && len(c.Left) == 0 {
		if err := durable.Remove(ctx, root, durable.RemoveSpec{Path: file}); err != nil {
			return unrecorded(c.Path, err)
		}
		return nil
	}
	b, err := json.Marshal(c)
	if err == nil {
		_, err = durable.Write(ctx, root, durable.WriteSpec{Path: file, Content: bytes.NewReader(b), Size: int64(len(b)), Mode: 0o600, UID: durable.Keep, GID: durable.Keep})
	}
	if err != nil {
		return unrecorded(c.Path, err)
	}
	return nil
}

func unrecorded(p string, err error) error {
	return &reason.Error{Code: reason.StateUnwritable, Doing: "note what is unpacked to " + disk.Shown(p), Cause: err, Hint: "the agent's user must own its state directory, with room on it"}
}

// sweep removes what earlier runs have left beside a path, and notes what is still there.
func (t *Type) sweep(ctx context.Context, c *record) error {
	if len(c.Left) == 0 {
		return nil
	}
	var errs []error
	var rest []left
	for _, l := range c.Left {
		if err := durable.RemoveTree(ctx, t.root, beside(c.Path, l.Temp), l.Inodes...); err != nil {
			errs = append(errs, err)
			rest = append(rest, l)
		}
	}
	c.Left = rest
	return errors.Join(append(errs, t.write(ctx, c))...)
}

func beside(p, name string) string {
	dir, _ := disk.Split(p)
	return disk.Join(dir, name)
}

// Sweep removes what a killed run has left of a record that was being written.
func (t *Type) Sweep(ctx context.Context, _ []string) error {
	root, err := disk.OpenRoot("/")
	if err != nil {
		return unrecorded(t.records, err)
	}
	defer root.Close()
	_, err = durable.SweepTemporaries(ctx, root, []string{t.records}, nil)
	return err
}

// Forget removes what killed runs have left, and the records of what is not there any more.
func (t *Type) Forget(ctx context.Context, _ [][]byte) error {
	if !t.working.TryLock() {
		return nil // an Apply does its own
	}
	defer t.working.Unlock()
	entries, err := os.ReadDir(t.records)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return disk.Fault("list what was unpacked", t.records, err)
	}
	var errs []error
	for _, e := range entries {
		c, err := readRecord(filepath.Join(t.records, e.Name()))
		if err != nil || c.Path == "" || filepath.Base(t.recordPath(c.Path)) != e.Name() {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, t.forget(ctx, &c))
	}
	return errors.Join(errs...)
}

func (t *Type) forget(ctx context.Context, c *record) error {
	err := t.sweep(ctx, c)
	now, statErr := t.root.Stat(c.Path)
	if statErr != nil || c.at(now.Signature) != nil {
		return errors.Join(err, statErr)
	}
	c.Made = nil
	return errors.Join(err, t.write(ctx, c))
}
