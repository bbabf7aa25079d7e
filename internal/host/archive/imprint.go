package archive

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// imprint is a hash over all entries of a directory.
type imprint [sha256.Size]byte

// MarshalText writes hexadecimal digits.
func (p imprint) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, p[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (p *imprint) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(p) {
		return errors.New("not an imprint")
	}
	_, err := hex.Decode(p[:], b)
	return err
}

// imprints are the two of one directory.
type imprints struct {
	// Quick is over names, types, modes, owners, sizes, ctimes and inodes: it cannot stay the same when something has changed.
	Quick imprint `json:"quick"`
	// Full is over names, types, modes, owners and contents: it stays the same when nothing that matters has changed.
	Full imprint `json:"full"`
}

// errTooMuch ends the look at a directory that cannot be what was unpacked: it is deeper, or there is more in it.
var errTooMuch = errors.New("there is more in it than was unpacked")

// printing walks through a directory, names in order, and hashes what it sees.
type printing struct {
	sum     hash.Hash
	full    bool
	entries int   // that may still come
	bytes   int64 // of files that may still be read
	buffer  []byte
}

// imprintOf takes an imprint of an open directory that holds so many bytes at most. Of one that holds more, or other things than can be
// unpacked, it is zero.
func imprintOf(ctx context.Context, fd int, full bool, bytes int64) (imprint, error) {
	p := printing{sum: sha256.New(), full: full, entries: entriesMax, bytes: bytes, buffer: make([]byte, copyBuffer)}
	err := p.directory(ctx, fd, 0)
	if errors.Is(err, errTooMuch) {
		return imprint{}, nil
	}
	return imprint(p.sum.Sum(nil)), err
}

func (p *printing) directory(ctx context.Context, fd, depth int) error {
	if depth > partsMax {
		return errTooMuch
	}
	names, err := p.names(fd)
	if err != nil {
		return err
	}
	p.number(int64(len(names)))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return reason.Ended("look at what was unpacked", err)
		}
		if err := p.entry(ctx, fd, name, depth); err != nil {
			return err
		}
	}
	return nil
}

// names lists a directory in order. Its descriptor stays where it is.
func (p *printing) names(fd int) ([]string, error) {
	again, err := disk.OpenAt(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(again), ".")
	defer f.Close()
	names, err := f.Readdirnames(p.entries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if p.entries -= len(names); p.entries < 0 {
		return nil, errTooMuch
	}
	slices.Sort(names)
	return names, nil
}

func (p *printing) entry(ctx context.Context, dir int, name string, depth int) error {
	st, err := disk.StatAt(dir, name)
	if err != nil {
		return err
	}
	p.text(name)
	p.number(int64(st.Mode))
	p.number(int64(st.UID))
	p.number(int64(st.GID))
	if st.Type() != unix.S_IFDIR && !p.full {
		p.number(st.Size)
		p.number(st.Ctime)
		p.number(int64(st.Ino))
		return nil
	}
	switch st.Type() {
	case unix.S_IFDIR:
		fd, err := disk.OpenAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return p.directory(ctx, fd, depth+1)
	case unix.S_IFLNK:
		return p.link(dir, name)
	case unix.S_IFREG:
		return p.file(ctx, dir, name)
	}
	return errTooMuch // nothing of the kind is unpacked
}

func (p *printing) link(dir int, name string) error {
	n, err := unix.Readlinkat(dir, name, p.buffer)
	if err == nil {
		p.text(string(p.buffer[:n]))
	}
	return err
}

func (p *printing) file(ctx context.Context, dir int, name string) error {
	fd, err := disk.OpenAt(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if st, err := disk.StatAt(fd, ""); err != nil || st.Type() != unix.S_IFREG {
		return errors.Join(err, errTooMuch)
	}
	sum := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return reason.Ended("look at what was unpacked", err)
		}
		n, err := f.Read(p.buffer)
		sum.Write(p.buffer[:n])
		if p.bytes -= int64(n); p.bytes < 0 {
			return errTooMuch
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	p.sum.Write(sum.Sum(nil))
	return nil
}

// text adds a text, so that two texts are never the same as two others.
func (p *printing) text(s string) {
	p.number(int64(len(s)))
	p.sum.Write([]byte(s))
}

func (p *printing) number(n int64) { _ = binary.Write(p.sum, binary.BigEndian, n) } // a hash takes everything
