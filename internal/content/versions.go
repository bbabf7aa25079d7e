package content

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// versionsFile names what stood where: one line each, the oldest first.
	versionsFile = "versions"
	// versionsMax bounds the lines that a tidy leaves: the repairs of a month on a host where much happens.
	versionsMax = 20_000
	// versionsBytesMax bounds what is read of the file: twice as many lines with the longest paths that people have.
	versionsBytesMax = 32 << 20
	crcDigits        = 8
)

// Version is a content that stood at a path, as it was when it was replaced or removed.
type Version struct {
	At     time.Time `json:"at"`
	Path   []byte    `json:"path"` // bytes, because it need not be UTF-8
	Digest Digest    `json:"digest"`
	Size   int64     `json:"size"` // bytes
	Mode   uint32    `json:"mode"` // permissions
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
}

// Keep is Put for what has stood at a path, which is noted: Versions lists it. Of v only Path, Mode, UID and GID count; without a path
// nothing is noted. A note that cannot be
// written is no error, because the content is kept all the same; the last notes may be lost with the power, but none by a kill.
func (s *Store) Keep(ctx context.Context, v Version, r io.Reader) (Digest, int64, error) {
	d, n, err := s.Put(ctx, r)
	if err == nil && len(v.Path) > 0 {
		v.At, v.Digest, v.Size = time.Now().UTC(), d, n
		_ = s.note(v)
	}
	return d, n, err
}

// keptAlways is the size up to which what replaces a file of many, such as a line of it, always keeps its old content: far above what people
// have. Of a larger one the old contents would soon fill the store, so they are kept while there is room to spare.
const keptAlways = 1 << 20

// Keeper returns what keeps the content of a file at a path before it is replaced or removed, for durable.WriteSpec. Without a store it is nil.
func (s *Store) Keeper(ctx context.Context, path string) func(old *os.File, st disk.Stat) error {
	if s == nil {
		return nil
	}
	return func(old *os.File, st disk.Stat) error {
		if st.Size == 0 || !s.Takes(st) || st.Size > keptAlways && !s.Spares(st.Size) {
			return nil
		}
		_, _, err := s.Keep(ctx, Version{Path: []byte(path), Mode: st.Perm(), UID: st.UID, GID: st.GID}, old)
		if err != nil {
			return &reason.Error{Code: reason.BackupFailed, Doing: "back up " + disk.Shown(path), Cause: err}
		}
		return nil
	}
}

// note appends a version, with one write, so that lines of two processes never mix. It begins with a line's end: the line before may be torn.
func (s *Store) note(v Version) error {
	f, err := os.OpenFile(filepath.Join(s.dir, versionsFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append([]byte{'\n'}, encodeVersion(v)...))
	return errors.Join(err, f.Close())
}

// encodeVersion makes a line: the checksum of the text, and the text.
func encodeVersion(v Version) []byte {
	text, _ := json.Marshal(v) // of plain fields, which never fails
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(text), text)
}

// decodeVersion reads a line without its end; false for one that is not whole.
func decodeVersion(line []byte) (v Version, ok bool) {
	sum, text, found := bytes.Cut(line, []byte{' '})
	if !found || len(sum) != crcDigits || string(sum) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) {
		return Version{}, false
	}
	err := json.Unmarshal(text, &v)
	return v, err == nil && !v.Digest.IsZero() && len(v.Path) > 0 && v.Size >= 0
}

// Versions lists what has stood at a path and is still kept, the newest first; the empty path is all.
func (s *Store) Versions(path string) ([]Version, error) {
	all, err := s.versions()
	if err != nil {
		return nil, err
	}
	list := all[:0]
	for _, v := range all {
		if (path == "" || string(v.Path) == path) && s.Has(v.Digest) {
			list = append(list, v)
		}
	}
	slices.Reverse(list)
	return list, nil
}

// versions reads all that are whole, the oldest first.
func (s *Store) versions() ([]Version, error) {
	f, err := os.Open(filepath.Join(s.dir, versionsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, disk.Fault("read", filepath.Join(s.dir, versionsFile), err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, versionsBytesMax))
	if err != nil {
		return nil, disk.Fault("read", f.Name(), err)
	}
	var list []Version
	for line := range bytes.Lines(b) {
		if v, ok := decodeVersion(bytes.TrimSuffix(line, []byte{'\n'})); ok {
			list = append(list, v)
		}
	}
	return list, nil
}

// TidyVersions drops the notes of contents that are not kept any more, and of the others the oldest beyond 20,000.
func (s *Store) TidyVersions() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.versions()
	if err != nil || len(all) == 0 {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(v Version) bool { return !s.Has(v.Digest) })
	kept = kept[max(len(kept)-versionsMax, 0):]
	if len(kept) == len(all) {
		return nil
	}
	var text strings.Builder
	for _, v := range kept {
		text.Write(encodeVersion(v))
	}
	if err := s.replaceVersions(text.String()); err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "tidy content store " + disk.Shown(s.dir), Cause: err}
	}
	return nil
}

// replaceVersions puts a new file in the place of the old one.
func (s *Store) replaceVersions(text string) error {
	f, err := os.CreateTemp(filepath.Join(s.dir, tmpDir), "versions-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = disk.Sync(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.dir, versionsFile))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(s.dir)
}

// Beside opens the store of a host beside its owner, who may be running: it cleans nothing up. What is put here the owner counts when it
// opens the store next. Where there is no store the error is ResourceUnknown.
func Beside(dir string) (*Store, error) {
	s := &Store{dir: filepath.Clean(dir), quota: quotaDefault}
	err := s.each(func(_ string, _ Digest, st fs.FileInfo) error {
		s.used += st.Size()
		return nil
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &reason.Error{Code: reason.NoOldContent, Doing: "open content store " + disk.Shown(dir), Cause: unix.ENOENT, Hint: "no agent has kept anything here yet; which host is meant is said by --root and --state"}
	case errors.Is(err, fs.ErrPermission):
		return nil, &reason.Error{Code: reason.RootNeeded, Doing: "open content store " + disk.Shown(dir), Cause: err}
	case err != nil:
		return nil, disk.Fault("open content store", dir, err)
	}
	return s, nil
}
