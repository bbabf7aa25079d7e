package archive

import (
	"archive/tar"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	copyBuffer = 64 << 10
	// entriesMax is ours: a hundred times a large program, and what a check can look at within a second.
	entriesMax = 100_000
	// ratioMax and ratioFree: more than 200 times its size comes out of no archive of programs and data; a small one may have more.
	ratioMax  = 200
	ratioFree = 64 << 20
	// partsMax bounds the depth of what is unpacked.
	partsMax = 64
	// drainMax is what may stand behind the end of a tar archive: padding of a tape's block, or what another program has put there.
	drainMax = 16 << 20
)

// input is an archive that can be read anywhere.
type input interface {
	io.Reader
	io.ReaderAt
}

// unpack reads an archive into a sink.
func unpack(ctx context.Context, in input, size int64, s *sink) error {
	head := make([]byte, 512)
	n, err := in.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return s.unreadable(err)
	}
	head = head[:n]
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		err = unzip(ctx, in, size, s)
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		var z *gzip.Reader
		if z, err = gzip.NewReader(in); err == nil {
			err = untar(ctx, z, s)
		}
	case bytes.HasPrefix(head, []byte("BZh")):
		err = untar(ctx, bzip2.NewReader(in), s)
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z'}):
		err = errors.New("it is compressed with xz, which is not read")
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		err = errors.New("it is compressed with zstd, which is not read")
	default:
		err = untar(ctx, in, s)
	}
	if err != nil {
		return s.unreadable(err)
	}
	if s.entries == 0 {
		return s.unreadable(errors.New("nothing is in it, or nothing is left after strip"))
	}
	return nil
}

// unreadable is the error of an archive that cannot be read, unless it is one already that says more.
func (s *sink) unreadable(err error) error {
	var coded *reason.Error
	if errors.As(err, &coded) {
		return err
	}
	return &reason.Error{Code: reason.ArchiveUnreadable, Doing: s.doing, Cause: err, Hint: "it must be tar, tar.gz, tar.bz2 or zip: look at it with `file` and `tar -tf`"}
}

// untar reads a tar archive from its start.
func untar(ctx context.Context, in io.Reader, s *sink) error {
	in = bounded(in, s)
	r := tar.NewReader(in)
	for {
		if err := ctx.Err(); err != nil {
			return reason.Ended(s.doing, err)
		}
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			// A sum of what is compressed comes at its end.
			_, err := io.Copy(io.Discard, io.LimitReader(in, drainMax))
			return err
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // names are judged below
			return err
		}
		if err := untarOne(ctx, h, r, s); err != nil {
			return err
		}
	}
}

func untarOne(ctx context.Context, h *tar.Header, r io.Reader, s *sink) error {
	perm := uint32(h.Mode) & disk.PermMask
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		return s.file(ctx, h.Name, perm, h.ModTime, r)
	case tar.TypeDir:
		return s.directory(h.Name, perm)
	case tar.TypeSymlink:
		return s.symlink(h.Name, h.Linkname)
	case tar.TypeLink:
		return s.hardLink(h.Name, h.Linkname)
	case tar.TypeXGlobalHeader:
		return nil
	case tar.TypeChar, tar.TypeBlock:
		return s.refuse(h.Name, "it is a device")
	case tar.TypeFifo:
		return s.refuse(h.Name, "it is a FIFO")
	}
	return s.refuse(h.Name, fmt.Sprintf("it is of type %q, which is not known here", h.Typeflag))
}

// bounded ends what is decompressed, its headers included, when more comes out of it than may.
func bounded(in io.Reader, s *sink) io.Reader { return &bounding{in: in, sink: s} }

type bounding struct {
	in   io.Reader
	sink *sink
	out  int64
}

func (b *bounding) Read(p []byte) (int, error) {
	n, err := b.in.Read(p)
	// Headers are half a KiB for each entry, and padding as much; long names are bounded by the library.
	if b.out += int64(n); b.out > b.sink.limit()+entriesMax*2048 {
		return n, b.sink.tooLarge(fmt.Sprintf("more than %d bytes come out of it", b.sink.limit()))
	}
	return n, err
}

// typeOf names what a zip file says that an entry is.
func typeOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeDevice != 0:
		return "a device"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "of a type that is not known here"
}
