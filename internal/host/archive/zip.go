package archive

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"tako.dev/tako/internal/reason"
)

const (
	// directoryMax bounds the directory of a zip file, all of which is read into memory: 100 bytes and a name for each entry.
	directoryMax = 16 << 20
	// endLen and commentMax are those of the record at the end, APPNOTE.TXT 4.3.16.
	endLen     = 22
	commentMax = 1<<16 - 1
	linkMax    = 4095 // PATH_MAX, limits.h
)

// unzip reads a zip file.
func unzip(ctx context.Context, in io.ReaderAt, size int64, s *sink) error {
	if err := directoryFits(in, size, s); err != nil {
		return err
	}
	r, err := zip.NewReader(in, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // names are judged below
		return err
	}
	if len(r.File) > entriesMax {
		return s.tooLarge(fmt.Sprintf("it has %d entries, at most %d are unpacked", len(r.File), entriesMax))
	}
	for _, f := range r.File {
		if err := ctx.Err(); err != nil {
			return reason.Ended(s.doing, err)
		}
		if err := unzipOne(ctx, f, s); err != nil {
			return err
		}
	}
	return nil
}

// directoryFits refuses a file whose directory is too large to be read, before it is read.
func directoryFits(in io.ReaderAt, size int64, s *sink) error {
	tail := make([]byte, min(size, endLen+commentMax))
	if _, err := in.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	at := bytes.LastIndex(tail, []byte("PK\x05\x06"))
	if at < 0 || len(tail)-at < endLen {
		return errors.New("it has no directory at its end")
	}
	end := tail[at:]
	entries, length := binary.LittleEndian.Uint16(end[10:]), binary.LittleEndian.Uint32(end[12:])
	if entries == 1<<16-1 || length == 1<<32-1 || bytes.Contains(tail, []byte("PK\x06\x07")) {
		return s.tooLarge("it is a large zip file (zip64)")
	}
	if length > directoryMax {
		return s.tooLarge(fmt.Sprintf("its directory has %d bytes, at most %d are read", length, directoryMax))
	}
	return nil
}

func unzipOne(ctx context.Context, f *zip.File, s *sink) error {
	if strings.Contains(f.Name, `\`) {
		return s.refuse(f.Name, "its name has a backslash, which other programs take for a slash")
	}
	const encrypted = 1 // APPNOTE.TXT 4.4.4
	if f.Flags&encrypted != 0 {
		return errors.New("it is encrypted")
	}
	mode := f.Mode()
	if mode.IsDir() {
		return s.directory(f.Name, permOf(mode))
	}
	if mode.Type() != 0 && mode.Type() != fs.ModeSymlink {
		return s.refuse(f.Name, "it is "+typeOf(mode))
	}
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	if mode.Type() == 0 {
		return s.file(ctx, f.Name, permOf(mode), f.Modified, r)
	}
	target, err := io.ReadAll(io.LimitReader(r, linkMax+1))
	if err != nil {
		return err
	}
	return s.symlink(f.Name, string(target))
}

// permOf is a mode as the kernel has it.
func permOf(m fs.FileMode) uint32 {
	perm := uint32(m.Perm())
	for bit, special := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			perm |= special
		}
	}
	return perm
}
