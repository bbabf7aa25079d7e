package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"tako.dev/tako/internal/reason"
)

// file is one file of a disk.
type file struct {
	data  []byte // as who reads it now sees it
	there bool
	// durable is what the platter has; kept tells whether it has the file at all.
	durable []byte
	kept    bool
}

// dies is the panic of a process that is killed in the middle of something.
type dies struct{ power bool }

// disk is a disk of a machine. What a process has written is there for the next one; what was not synced may be gone, or be there in part, after
// a power cut. A fuse kills the process at one of the next system calls.
type disk struct {
	w     *world
	files map[string]*file
	full  bool
	fuse  int  // system calls until the process is killed; 0: it is not
	power bool // and the machine with it
}

func newDisk(w *world) *disk { return &disk{w: w, files: map[string]*file{}} }

// call is before each system call that changes something.
func (d *disk) call() {
	if d.fuse > 0 {
		if d.fuse--; d.fuse == 0 {
			panic(dies{d.power})
		}
	}
}

func (d *disk) file(name string) *file {
	f := d.files[name]
	if f == nil {
		f = &file{}
		d.files[name] = f
	}
	return f
}

// errFull is that of a full disk.
var errFull = &reason.Error{Code: reason.DiskFull, Doing: "write"}

// replace replaces a file as a whole, durably: written beside it, synced, renamed, and the directory synced.
func (d *disk) replace(name string, data []byte) error {
	d.call()
	if d.full {
		return errFull
	}
	d.call() // between what was written and its sync
	d.call() // between that and the rename
	f := d.file(name)
	f.data, f.there = data, true
	d.call() // before the directory is synced
	f.durable, f.kept = data, true
	return nil
}

// loose replaces a file for the next process.
func (d *disk) loose(name string, data []byte) error {
	d.call()
	if d.full {
		return errFull
	}
	f := d.file(name)
	f.data, f.there = data, true
	return nil
}

// extend appends to a file. Nothing is synced.
func (d *disk) extend(name string, data []byte) error {
	d.call()
	if d.full {
		return errFull
	}
	f := d.file(name)
	f.data, f.there = append(slices.Clip(f.data), data...), true
	return nil
}

// truncate shortens a file, for the next process.
func (d *disk) truncate(name string, size int) {
	d.call()
	f := d.file(name)
	f.data = f.data[:min(size, len(f.data))]
}

// remove removes a file, for the next process.
func (d *disk) remove(name string) {
	d.call()
	if f := d.files[name]; f != nil {
		f.data, f.there = nil, false
	}
}

// read is what is in a file; false where there is none.
func (d *disk) read(name string) ([]byte, bool) {
	f := d.files[name]
	if f == nil || !f.there {
		return nil, false
	}
	return f.data, true
}

// names are the files whose names begin so, sorted.
func (d *disk) names(prefix string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		if d.files[name].there && strings.HasPrefix(name, prefix) {
			list = append(list, name)
		}
	}
	return list
}

// cutPower is what a power cut makes of what was not synced: it is there, it is not, or a beginning of it is, with zeros behind.
func (d *disk) cutPower() {
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		f := d.files[name]
		if f.there == f.kept && bytes.Equal(f.data, f.durable) {
			continue
		}
		switch d.w.random.IntN(4) {
		case 0: // all of it had been written
		case 1:
			if f.there && len(f.data) > 0 {
				torn := slices.Clone(f.data)
				clear(torn[d.w.random.IntN(len(torn)):])
				f.data = torn
			}
		case 2:
			if f.there && len(f.data) > 0 {
				f.data = f.data[:d.w.random.IntN(len(f.data))]
			}
		default:
			f.data, f.there = f.durable, f.kept
		}
		// A file that was replaced as a whole is the old or the new one.
		if f.there && !isLoose(name) && !bytes.Equal(f.data, f.durable) {
			f.data, f.there = f.durable, f.kept
		}
		f.durable, f.kept = f.data, f.there
	}
}

// isLoose tells whether a file is one that is not synced as a whole before it gets its name.
func isLoose(name string) bool { return name == stageFile || name == comingFile }

// flip changes a bit of a file.
func (d *disk) flip(name string) {
	f := d.files[name]
	data := slices.Clone(f.data)
	data[d.w.random.IntN(len(data))] ^= 1 << d.w.random.IntN(8)
	f.data, f.durable = data, data
}

// clone is a copy of all that is there.
func (d *disk) clone() *disk {
	c := newDisk(d.w)
	for name, f := range d.files { // each by itself
		copied := *f
		copied.durable, copied.kept = f.data, f.there
		c.files[name] = &copied
	}
	return c
}

// errDamaged is of what has not the checksum that stands beside it.
var errDamaged = errors.New("it has another checksum")

// frameHead is the length and the checksum.
const frameHead = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is a payload with its length and a checksum over both.
func frame(b, payload []byte) []byte {
	at := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	sum := crc32.Update(crc32.Checksum(b[at:], castagnoli), castagnoli, payload)
	return append(binary.BigEndian.AppendUint32(b, sum), payload...)
}

// unframe takes the first frame off.
func unframe(b []byte) (payload, rest []byte, ok bool) {
	if len(b) < frameHead || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-frameHead) {
		return nil, nil, false
	}
	n := frameHead + int(binary.BigEndian.Uint32(b))
	payload, rest = b[frameHead:n], b[n:]
	return payload, rest, crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, payload) == binary.BigEndian.Uint32(b[4:])
}

// twice is a record as it stands in a file: what a disk does to one copy leaves the other.
func twice(payload []byte) []byte { return frame(frame(nil, payload), payload) }

// bothWhole tells whether both copies are there.
func bothWhole(data []byte) bool {
	_, rest, first := unframe(data)
	_, _, second := unframe(rest)
	return first && second
}

// either is what twice has made a file of.
func either(data []byte) ([]byte, error) {
	if payload, _, ok := unframe(data); ok {
		return payload, nil
	}
	if payload, _, ok := unframe(data[len(data)/2:]); ok {
		return payload, nil
	}
	return nil, &reason.Error{Code: reason.StateCorrupt, Doing: "read a record", Cause: errDamaged}
}
