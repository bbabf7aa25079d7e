package held

import (
	"fmt"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// reserveMax is the most that is left free on the file system of the state directory, for what a host needs to live on: its journals, and
	// who logs in to make room. On a small one it is a twentieth, as file systems keep for root.
	reserveMax = 64 << 20
	// reserveShare is that twentieth.
	reserveShare = 20
	// smallMax is what may be written into the reserve: the change that helps a host with a full disk is most often a small one.
	smallMax = 4 << 20
)

// room is what a file system says of itself, in bytes.
type room struct{ size, free uint64 }

// roomAt asks the file system of a directory.
func roomAt(path string) (room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return room{}, &reason.Error{Code: reason.InputOutput, Doing: "ask how much room there is at " + disk.Shown(path), Cause: err}
	}
	return room{size: st.Blocks * uint64(st.Bsize), free: st.Bavail * uint64(st.Bsize)}, nil
}

// spare says whether so many bytes more can be written, of so many in all, without taking what the host needs to live on.
func (s *Store) spare(more, all uint64) error {
	if all <= smallMax {
		return nil
	}
	r, err := s.room(s.state)
	if err != nil {
		return err
	}
	reserve := min(r.size/reserveShare, reserveMax)
	if more <= r.free && r.free-more >= reserve {
		return nil
	}
	return &reason.Error{
		Code: reason.DiskFull, Doing: "store what the servers have for this host",
		Cause: fmt.Errorf("it needs %s, and the file system of %s has %s free, of which %s stay for the host itself", mebibytes(more), disk.Shown(s.state), mebibytes(r.free), mebibytes(reserve)),
		Hint:  "make room on it, and it goes on by itself; until then the last good state stays enforced",
	}
}

// mebibytes is a size for people.
func mebibytes(n uint64) string { return fmt.Sprintf("%d MiB", n>>20) }

// Room is part of client.Layers.
func (s *Store) Room(root catalog.Digest, bytes uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.listLocked(root)
	if err != nil || l == nil {
		return err
	}
	var have uint64
	for i := range l.list {
		have += s.layers.Size(l.list[i].Root)
	}
	missing := bytes - min(have, bytes)
	return s.spare(missing, missing)
}
