package instances

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

const (
	// recordName is the file of a record, and damagedName what it is called where it cannot be read: for a person to look at.
	recordName  = "record"
	damagedName = "record.damaged"
	// gonePrefix begins the names of directories that are being removed. No UID begins so.
	gonePrefix = ".gone-"
	// recordHead is the line that a file begins with; a checksum of four bytes follows, little endian, and the record.
	recordHead = "tako instance 1\n"
	// recordBytes bounds what is read of a file.
	recordBytes = 512 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// records is the directory with what belongs to instances.
type records struct {
	dir  string
	root *disk.Root // nil until something is written
}

// read reads all records. What cannot be read is set aside, and told; strange are the directories without one.
func (r *records) read(damaged func(uid string, err error)) (list []core.Record, strange []string, err error) {
	entries, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, disk.Fault("list", r.dir, err)
	}
	for _, e := range entries {
		uid := e.Name()
		first := run.ID{Instance: uid, Task: "t", Attempt: 1}
		switch {
		case strings.HasPrefix(uid, gonePrefix):
			removeAll(filepath.Join(r.dir, uid))
			continue
		case first.Valid() != nil:
			continue // nothing of ours
		}
		record, err := r.get(uid)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			strange = append(strange, uid)
		case reason.Is(err, reason.StateNewer):
			return nil, nil, err
		case err != nil:
			name := filepath.Join(r.dir, uid, recordName)
			err = errors.Join(err, os.Rename(name, filepath.Join(r.dir, uid, damagedName)))
			damaged(uid, err)
			strange = append(strange, uid)
		default:
			list = append(list, record)
		}
	}
	return list, strange, nil
}

func (r *records) get(uid string) (core.Record, error) {
	name := filepath.Join(r.dir, uid, recordName)
	st, err := os.Lstat(name)
	if err != nil {
		return core.Record{}, err
	}
	corrupt := func(why string) error {
		return &reason.Error{Code: reason.StateCorrupt, Doing: "read " + disk.Shown(name), Cause: errors.New(why), Hint: "what runs is found, and taken over"}
	}
	if !st.Mode().IsRegular() || st.Size() > recordBytes {
		return core.Record{}, corrupt("it is no file of such a size")
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return core.Record{}, disk.Fault("read", name, err)
	}
	data, ok := bytes.CutPrefix(data, []byte(recordHead))
	if !ok || len(data) < 4 || binary.LittleEndian.Uint32(data) != crc32.Checksum(data[4:], castagnoli) {
		return core.Record{}, corrupt("its checksum is wrong")
	}
	return core.DecodeRecord(uid, data[4:])
}

// put makes a record durable.
func (r *records) put(uid string, record []byte) error {
	if err := r.make(uid); err != nil {
		return err
	}
	file := binary.LittleEndian.AppendUint32([]byte(recordHead), crc32.Checksum(record, castagnoli))
	file = append(file, record...)
	_, err := durable.Write(context.Background(), r.root, durable.WriteSpec{Path: "/" + uid + "/" + recordName, Content: bytes.NewReader(file), Size: int64(len(file)),
		Mode: 0o600, UID: durable.Keep, GID: durable.Keep, Force: true})
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "write the record of instance " + uid, Cause: err, Hint: "the agent needs its state directory writable, with some room"}
	}
	return nil
}

// make makes the directory of an instance, which survives a power cut.
func (r *records) make(uid string) error {
	if r.root == nil {
		if err := os.MkdirAll(r.dir, 0o700); err != nil {
			return disk.Fault("make", r.dir, err)
		}
		root, err := disk.OpenRoot(r.dir)
		if err != nil {
			return err
		}
		r.root = root
	}
	err := os.Mkdir(filepath.Join(r.dir, uid), 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		var above *os.File
		if above, err = os.Open(r.dir); err == nil {
			err = errors.Join(disk.Sync(above), above.Close())
		}
	}
	if err != nil {
		return disk.Fault("make", filepath.Join(r.dir, uid), err)
	}
	return nil
}

// away moves the directory of an instance out of the way, and returns where it is then; empty where there is none.
func (r *records) away(uid string) (string, error) {
	to, err := os.MkdirTemp(r.dir, gonePrefix)
	if err == nil {
		err = os.Rename(filepath.Join(r.dir, uid), filepath.Join(to, uid))
	}
	if errors.Is(err, fs.ErrNotExist) {
		if to != "" {
			removeAll(to)
		}
		return "", nil
	}
	if err != nil {
		return to, disk.Fault("move away", filepath.Join(r.dir, uid), err)
	}
	return to, nil
}

func (r *records) close() error {
	if r.root == nil {
		return nil
	}
	return r.root.Close()
}

// removeAll removes a directory of instances that was moved away. What cannot be removed now is tried again by the next run. A file system
// in memory is taken off first.
func removeAll(dir string) {
	mounted, _ := filepath.Glob(filepath.Join(dir, "*", volumesName, "*"))
	for _, path := range mounted {
		_ = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // EINVAL: it is none
	}
	_ = os.RemoveAll(dir)
}
