package held

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// version is of all file formats. A file of a later one is left alone.
	version = 1
	// frameHead is the length and the checksum, four bytes each, the highest first.
	frameHead = 8
	// frameMax is above a body with what stands around it, and above a record.
	frameMax = 2 << 20
	// recordMax is above two copies of the largest record, which is a list of 257 layers.
	recordMax = 2*frameMax + headerMax
	// headerMax is more than any header line has, also those of later versions.
	headerMax = 64

	corruptName = "corrupt"
	// corruptKept is how many damaged files are kept for a person to look at.
	corruptKept = 10
	// corruptTime ends the name of a damaged file; it sorts by time.
	corruptTime = "20060102T150405.000000000Z"
)

// castagnoli is the polynomial that processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errNewer says that a file is of a later version.
var errNewer = errors.New("a later version of tako-agent has written it")

// directory is a folder of the state directory.
type directory struct {
	root *os.Root
	path string // of the host, for people
}

func makeDirectory(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return unwritable("make", path, err)
	}
	return nil
}

func openDirectory(path string) (*directory, error) {
	if err := makeDirectory(path); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, unwritable("open", path, err)
	}
	return &directory{root: root, path: path}, nil
}

// write replaces a file, atomically and durably. fill's error is returned as it is, and the file keeps its place.
func (d *directory) write(name string, fill func(io.Writer) error) error {
	temporary := disk.TempName(name)
	err := d.writeBeside(temporary, fill)
	if err == nil {
		err = d.root.Rename(temporary, name)
	}
	if err != nil {
		if gone := d.root.Remove(temporary); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return unwritable("write", filepath.Join(d.path, name), err)
	}
	return d.sync()
}

func (d *directory) writeBeside(temporary string, fill func(io.Writer) error) error {
	f, err := d.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = disk.Sync(f)
	}
	return errors.Join(err, f.Close())
}

// writeLoose replaces a file for whoever comes after this process. It is not made durable.
func (d *directory) writeLoose(name string, content []byte) error {
	temporary := disk.TempName(name)
	err := d.root.WriteFile(temporary, content, 0o600)
	if err == nil {
		err = d.root.Rename(temporary, name)
	}
	return unwritable("write", filepath.Join(d.path, name), err)
}

// sync makes durable what was renamed or removed.
func (d *directory) sync() error {
	f, err := d.root.Open(".")
	if err != nil {
		return unwritable("open", d.path, err)
	}
	return unwritable("write", d.path, errors.Join(disk.Sync(f), f.Close()))
}

// sweep removes what a killed process left half written.
func (d *directory) sweep() error {
	names, err := d.names()
	for _, name := range names {
		if disk.IsTemporary(name) {
			err = errors.Join(err, d.root.Remove(name))
		}
	}
	return unwritable("clean", d.path, err)
}

func (d *directory) names() ([]string, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, unwritable("open", d.path, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, &reason.Error{Code: reason.InputOutput, Doing: "list " + disk.Shown(d.path), Cause: err}
	}
	return names, nil
}

// remove removes a file, if it is there.
func (d *directory) remove(name string) error {
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unwritable("remove", filepath.Join(d.path, name), err)
	}
	return nil
}

// setAside keeps a damaged file for a person to look at.
func (d *directory) setAside(state, name string, now time.Time) error {
	corrupt := filepath.Join(state, corruptName)
	if err := os.Mkdir(corrupt, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return unwritable("make", corrupt, err)
	}
	kept := filepath.Join(corrupt, name+"."+now.UTC().Format(corruptTime))
	if err := os.Rename(filepath.Join(d.path, name), kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unwritable("set aside", filepath.Join(d.path, name), err)
	}
	return trimCorrupt(corrupt)
}

// trimCorrupt keeps the newest damaged files.
func trimCorrupt(corrupt string) error {
	entries, err := os.ReadDir(corrupt)
	if err != nil {
		return unwritable("list", corrupt, err)
	}
	age := func(e fs.DirEntry) string { return e.Name()[strings.IndexByte(e.Name(), '.')+1:] }
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(age(a), age(b)) })
	for len(entries) > corruptKept {
		if err := os.RemoveAll(filepath.Join(corrupt, entries[0].Name())); err != nil {
			return unwritable("remove", filepath.Join(corrupt, entries[0].Name()), err)
		}
		entries = entries[1:]
	}
	return nil
}

// header is the first line of a file of a kind.
func header(kind string) []byte { return fmt.Appendf(nil, "tako %s %d\n", kind, version) }

// checkHeader reads the line that a file begins with, without its end.
func checkHeader(line, kind string) error {
	digits, ok := strings.CutPrefix(line, "tako "+kind+" ")
	if !ok {
		return errors.New("it does not begin with the line of such a file")
	}
	v, err := strconv.ParseUint(digits, 10, 32)
	switch {
	case err != nil || v == 0:
		return errors.New("it does not begin with the line of such a file")
	case v > version:
		return errNewer
	}
	return nil
}

// cutHeader is what stands behind the header.
func cutHeader(data []byte, kind string) ([]byte, error) {
	line, rest, ok := bytes.Cut(data, []byte("\n"))
	if !ok || len(line) > headerMax {
		return nil, errors.New("it does not begin with the line of such a file")
	}
	return rest, checkHeader(string(line), kind)
}

// appendFrame appends length, checksum and payload.
func appendFrame(b, payload []byte) []byte {
	at := len(b)
	b = append(append(b, make([]byte, frameHead)...), payload...)
	sealFrame(b[at:])
	return b
}

// sealFrame fills in the head of a frame whose payload is there.
func sealFrame(frame []byte) {
	payload := frame[frameHead:]
	binary.BigEndian.PutUint32(frame, uint32(len(payload)))
	binary.BigEndian.PutUint32(frame[4:], checksum(frame[:4], payload))
}

// checksum covers the length too, so that a run of zeros is no frame.
func checksum(length, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, payload)
}

// cutFrame takes the frame that data begins with; false where it is torn or damaged.
func cutFrame(data []byte) (payload, rest []byte, ok bool) {
	if len(data) < frameHead {
		return nil, nil, false
	}
	n := int64(binary.BigEndian.Uint32(data))
	if n > frameMax || n > int64(len(data)-frameHead) {
		return nil, nil, false
	}
	payload, rest = data[frameHead:frameHead+n], data[frameHead+n:]
	return payload, rest, checksum(data[:4], payload) == binary.BigEndian.Uint32(data[4:])
}

// writeRecord replaces a file by a record, which stands in it twice: what the disk does to one copy leaves the other.
func (d *directory) writeRecord(name, kind string, payload []byte) error {
	if len(payload) > frameMax {
		return &reason.Error{Code: reason.InternalFault, Doing: "write " + disk.Shown(filepath.Join(d.path, name)), Cause: fmt.Errorf("%d bytes, the limit is %d", len(payload), frameMax)}
	}
	data := appendFrame(appendFrame(header(kind), payload), payload)
	return d.write(name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// readRecord reads what writeRecord wrote. The errors are fs.ErrNotExist, StateNewer, StateCorrupt, and what keeps the file from being
// read.
func (d *directory) readRecord(name, kind string) ([]byte, error) {
	path := filepath.Join(d.path, name)
	f, err := d.root.Open(name)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, recordMax))
	if err != nil {
		return nil, unreadable(path, err)
	}
	rest, err := cutHeader(data, kind)
	if err != nil {
		return nil, unreadable(path, err)
	}
	for _, frame := range [][]byte{rest, rest[len(rest)/2:]} {
		if payload, _, ok := cutFrame(frame); ok {
			return payload, nil
		}
	}
	return nil, unreadable(path, errors.New("both copies in it are damaged"))
}

// unreadable is the error of reading a file that is there.
func unreadable(path string, err error) error {
	doing := "read " + disk.Shown(path)
	var system *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return err
	case errors.Is(err, errNewer):
		return &reason.Error{Code: reason.StateNewer, Doing: doing, Cause: err, Hint: "run the newer version again"}
	case errors.As(err, &system):
		return &reason.Error{Code: reason.InputOutput, Doing: doing, Cause: err}
	}
	return &reason.Error{Code: reason.StateCorrupt, Doing: doing, Cause: err}
}

// unwritable is the error of writing; nil stays nil, and an error with a code stays what it is.
func unwritable(what, path string, err error) error {
	var have *reason.Error
	if err == nil || errors.As(err, &have) {
		return err
	}
	return &reason.Error{Code: reason.StateUnwritable, Doing: what + " " + disk.Shown(path), Cause: err,
		Hint: "the agent needs its state directory writable, with room for a copy of what is in it"}
}
