package mount

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/reason"
)

// unixStat is what os.FileInfo carries.
type unixStat = syscall.Stat_t

const (
	// offMax bounds swapoff(8), which reads back everything: a slow disk takes 20 minutes for 64 GiB.
	offMax = time.Hour
	// swapSign ends the first page of a swap area, swapHeaderAt is where its numbers begin: include/linux/swap.h.
	swapSign, swapHeaderAt, swapUUIDAt = "SWAPSPACE2", 1024, 1036
	// blankMax bounds how much of a file is looked through for anything but zeros, holes not counted.
	blankMax = 64 << 20
	// reserveShare is the part of a file system that a swap file leaves free: one part in so many.
	reserveShare = 20
)

// swapFiles are the file systems that swap to plain files, by their magic number, statfs(2).
var swapFiles = map[int64]bool{unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true}

// swapPlace says why a swap file cannot be in a directory, and, where there is no room for it, how much there is; -1 where there is room.
func swapPlace(dir string, size int64) (unfit string, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", -1, err
	}
	if !swapFiles[int64(st.Type)] {
		return "the file system of " + disk.Shown(dir) + " is none that swaps to files", -1, nil
	}
	free = int64(st.Bavail)*st.Bsize - int64(st.Blocks)*st.Bsize/reserveShare
	if free >= size {
		return "", -1, nil
	}
	return "", max(free, 0) >> 20 << 20, nil
}

// inspect says whether there is a swap area, and whether there is nothing at all. A device is never blank.
func inspect(p string, isFile bool) (prepared, blank bool, err error) {
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) { // a name that udev has given
		f, err = os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return false, false, err
	}
	defer f.Close()
	page := make([]byte, os.Getpagesize())
	n, err := f.ReadAt(page, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, false, err
	}
	if n == len(page) && bytes.HasSuffix(page, []byte(swapSign)) {
		return true, false, nil
	}
	if !isFile {
		return false, false, nil
	}
	blank, err = isBlank(f)
	return false, blank, err
}

// isBlank reports whether a file holds nothing but zeros. What would take too long to look through counts as something.
func isBlank(f *os.File) (bool, error) {
	buf := make([]byte, 256<<10)
	zeros := make([]byte, len(buf))
	at, seen := int64(0), 0
	for {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return true, nil // only holes are left
		}
		if err != nil {
			return false, err
		}
		n, err := f.ReadAt(buf, data)
		if !bytes.Equal(buf[:n], zeros[:n]) {
			return false, nil
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		at = data + int64(n)
		if seen += n; seen >= blankMax {
			return false, nil
		}
	}
}

// image is what a new swap file holds: the first page, and zeros.
type image struct {
	stopped func() error // not nil when nothing more is wanted
	head    []byte
}

// newImage makes the head of a swap area, as mkswap(8) does: version 1, the number of the last page, and a UUID.
func newImage(ctx context.Context, size int64) *image {
	page := os.Getpagesize()
	head := make([]byte, page)
	binary.NativeEndian.PutUint32(head[swapHeaderAt:], 1)
	binary.NativeEndian.PutUint32(head[swapHeaderAt+4:], uint32(min(size/int64(page)-1, 1<<32-1)))
	id := head[swapUUIDAt : swapUUIDAt+16]
	_, _ = rand.Read(id) // it never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	copy(head[page-len(swapSign):], swapSign)
	return &image{stopped: ctx.Err, head: head}
}

// ReadAt reads for ever, until it is stopped.
func (i *image) ReadAt(b []byte, at int64) (int, error) {
	if err := i.stopped(); err != nil {
		return 0, err
	}
	clear(b)
	if at < int64(len(i.head)) {
		copy(b, i.head[at:])
	}
	return len(b), nil
}

func (s *swap) apply(ctx context.Context, t *Type, sight any, done *work) error {
	now := sight.(swapSight)
	if s.gone {
		if err := t.editLines(ctx, done, func(lines []fstabLine) []fstabLine { return drop(lines, s.mine) }); err != nil || !now.on {
			return err
		}
		return s.turnOff(ctx, done)
	}
	var err error
	switch {
	case s.makes(&now):
		err = s.makeFile(ctx, t, done)
	case now.kind == "file" && !now.own:
		_, err = durable.SetAttributes(ctx, t.root, durable.AttributeSpec{Path: s.path, Mode: swapMode, UID: os.Geteuid(), GID: durable.Keep})
		done.changed = done.changed || err == nil
	}
	if err == nil && now.on && s.priority >= 0 && now.priority != s.priority {
		err = s.turnOff(ctx, done)
		now.on = now.on && err != nil
	}
	if err == nil && !now.on {
		err = s.turnOn(ctx, done, s.priority)
	}
	if err != nil {
		return err
	}
	return t.editLines(ctx, done, func(lines []fstabLine) []fstabLine { return put(lines, s.mine, s.line(&now.line)) })
}

// makeFile writes a file with a swap area. It is written and not only allocated: of what was never written, not every file system lets swap
// be made.
func (s *swap) makeFile(ctx context.Context, t *Type, done *work) error {
	if err := t.Beside(ctx, s.path); err != nil {
		return err
	}
	size := s.bytes / int64(os.Getpagesize()) * int64(os.Getpagesize())
	res, err := durable.Write(ctx, t.root, durable.WriteSpec{Path: s.path, Content: newImage(ctx, size), Size: size, Mode: swapMode, UID: durable.Keep, GID: durable.Keep})
	done.changed = done.changed || res.Changed
	if err != nil && ctx.Err() != nil {
		return reason.Ended(s.doing(), ctx.Err())
	}
	return err
}

func (s *swap) turnOn(ctx context.Context, done *work, priority int) error {
	args := []string{"swapon"}
	if priority >= 0 {
		args = append(args, "--priority", strconv.Itoa(priority))
	}
	if err := run(ctx, s.doing(), append(args, "--", s.path)...); err != nil {
		return err
	}
	done.changed = true
	return nil
}

func (s *swap) turnOff(ctx context.Context, done *work) error {
	doing := "stop swapping to " + disk.Shown(s.path)
	output, err := command.Tool{Args: []string{"swapoff", "--", s.path}, Limit: offMax, Keep: toolOutput, Lasting: true}.Run(ctx)
	if err != nil {
		failed := toolError(doing, output, err)
		if bytes.Contains(output, []byte("Cannot allocate memory")) {
			e := reason.Of(failed)
			e.Code, e.Hint = reason.SwapNoRoom, "stop what needs the memory, or add other swap first"
			return e
		}
		return failed
	}
	done.changed = true
	return nil
}

// undo with delete turns it off, forgets it, and removes a file whose size is declared.
func (s *swap) undo(ctx context.Context, t *Type, original []byte) error {
	o := swapOriginal{There: s.bytes == 0}
	var old []oldLine
	if original != nil {
		o = swapOriginal{}
		var err error
		if old, err = unmarshal(s.doing(), original, &o); err != nil {
			return err
		}
	}
	back := *s
	back.gone, back.priority = !o.On, -1
	if o.On {
		back.priority = max(o.Priority, -1)
	}
	c := t.newCall()
	if err := c.load(); err != nil {
		return err
	}
	sight, err := back.look(c)
	if err != nil {
		return err
	}
	now := sight.(swapSight)
	if err := back.obstacle(&now); err != nil {
		return err
	}
	var done work
	err = t.editLines(ctx, &done, func(lines []fstabLine) []fstabLine { return restore(lines, s.mine, old) })
	if err == nil && now.on && (back.gone || back.priority >= 0 && back.priority != now.priority) {
		err = s.turnOff(ctx, &done)
		now.on = now.on && err != nil
	}
	if err == nil && !now.on && o.On {
		err = s.turnOn(ctx, &done, back.priority)
	}
	if err == nil {
		err = s.putFileBack(ctx, t, &o, &now)
	}
	if err != nil || !done.stale {
		return err
	}
	return t.reload(ctx)
}

// putFileBack removes a file that was not there, if it is still one to swap to; empties one that was empty; and gives one that was its mode.
func (s *swap) putFileBack(ctx context.Context, t *Type, o *swapOriginal, now *swapSight) error {
	if now.kind != "file" {
		return nil
	}
	prepared, _, err := inspect(s.path, true)
	switch {
	case err != nil:
		return s.fault(err)
	case o.Blank && prepared:
		_, err := durable.Write(ctx, t.root, durable.WriteSpec{Path: s.path, Content: &image{stopped: ctx.Err}, Size: o.Length, Mode: int(o.Perm), UID: int(o.UID), GID: durable.Keep})
		return err
	case o.There:
		if o.Perm == 0 || o.Perm == now.perm && o.UID == now.uid {
			return nil
		}
		_, err := durable.SetAttributes(ctx, t.root, durable.AttributeSpec{Path: s.path, Mode: int(o.Perm), UID: int(o.UID), GID: durable.Keep})
		return err
	case !prepared:
		return &reason.Error{Code: reason.TypeInTheWay, Doing: "remove " + disk.Shown(s.path), Cause: errors.New("it is no swap file any more")}
	}
	return durable.Remove(ctx, t.root, durable.RemoveSpec{Path: s.path})
}
