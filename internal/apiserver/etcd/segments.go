package etcd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// segments is what a look into the directory of etcd's log shows. The log goes on in a new segment when one is full, which etcd
// allocates beforehand: the spare. When it cannot, it does not try again, and ends when the last segment is full.
type segments struct {
	last      string   // name of the newest one; empty when there is no log yet
	spare     bool     // the next one is allocated, or is being allocated
	torn      []string // files that were to be the next one, and that nobody works on any more
	allocated int64    // bytes of the disk that all files which are or were to be the next one take
}

// lookAtLog looks into the directory of a log. One that is not there has no segments.
func lookAtLog(dir string) (segments, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return segments{}, err
	}
	var s segments
	for _, e := range entries {
		switch name := e.Name(); filepath.Ext(name) {
		case ".wal":
			s.last = max(s.last, name) // they are numbered, in a fixed number of digits
		case ".tmp":
			if err := s.addSpare(filepath.Join(dir, name), e); err != nil {
				return segments{}, err
			}
		}
	}
	return s, nil
}

func (s *segments) addSpare(path string, e fs.DirEntry) error {
	st, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has become a segment meanwhile
	}
	if err != nil {
		return err
	}
	s.allocated += blocks(st)
	if st.Size() >= wal.SegmentSizeBytes {
		s.spare = true
		return nil
	}
	// etcd holds a lock on what it works on.
	switch f, err := fileutil.TryLockFile(path, os.O_WRONLY, fileutil.PrivateFileMode); {
	case errors.Is(err, fileutil.ErrLocked), errors.Is(err, fs.ErrNotExist):
		s.spare = true
		return nil
	case err != nil:
		return err
	default:
		s.torn = append(s.torn, path)
		return f.Close()
	}
}

// stuck says, from two looks, that the log has no next segment and will get none.
func (s segments) stuck(before segments) bool {
	return !s.spare && !before.spare && s.last != "" && s.last == before.last
}

// blocks is how many bytes of the disk a file takes.
func blocks(st fs.FileInfo) int64 {
	const sector = 512 // unit of st_blocks, says stat(2)
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Blocks * sector
	}
	return 0
}

// needs is how many bytes must be free on the disk when a member starts: what it takes then, and what must be left. A new one
// has to be written to at once.
func needs(dir string) (int64, error) {
	log, err := lookAtLog(logDir(dir))
	if err != nil {
		return 0, err
	}
	n := int64(shrinkBytesMin)
	if log.last == "" {
		n = growBytesMin() + wal.SegmentSizeBytes
	}
	n += max(0, wal.SegmentSizeBytes-log.allocated)
	switch st, err := os.Stat(databasePath(dir)); {
	case errors.Is(err, fs.ErrNotExist):
		return n + reserveBytes, nil
	case err != nil:
		return 0, err
	default:
		return n + max(0, st.Size()+reserveBytes-blocks(st)), nil
	}
}

// Where etcd keeps what it has, below the directory of a member.
func logDir(dir string) string       { return filepath.Join(dir, "member", "member", "wal") }
func databasePath(dir string) string { return filepath.Join(dir, "member", "member", "snap", "db") }
