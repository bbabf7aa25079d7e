package etcd

import (
	"fmt"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"
)

// purpose is what a write is for.
type purpose uint8

const (
	// grow is a write after which there is more in the database.
	grow purpose = iota
	// shrink deletes objects, or cuts history: how a user makes room.
	shrink
)

// room is what is left for etcd. It ends with the process that it is in when it cannot write, so nothing is written without.
type room struct {
	bytes    int64 // that are free on the file system
	files    int64 // that the file system can still hold; negative where it has no such bound
	reserved int64 // that the database can grow by within what it has on the disk already
}

// The floors below which nothing is written. What grows leaves room for the next part of etcd's log, which etcd allocates as a
// whole, and for a snapshot of its state, the audit log and other processes in the moment in which one of ours is written.
const (
	growBytesSpare, shrinkBytesMin = 32 << 20, 16 << 20
	growFilesMin, shrinkFilesMin   = 64, 16
	// pendingMax bounds the bytes that are on their way to the database, and those that it has taken and not written yet.
	pendingMax = 8 << 20
	// What is on its way lands in what the database has reserved, and takes no room of the file system. It takes more than it
	// is: whole pages, the pages above, and the list of free ones, of 4 MiB for two GiB.
	growReservedMin, shrinkReservedMin = 4 * pendingMax, 4 << 20
	// reserveBytes is how much the database has reserved to grow in, at most.
	reserveBytes = growReservedMin + 16<<20
)

// growBytesMin is what must be left on the file system after a write that grows.
func growBytesMin() int64 { return wal.SegmentSizeBytes + growBytesSpare }

// scarce is what there may be too little of.
type scarce uint8

const (
	scarceBytes scarce = iota
	scarceFiles
	scarceReserved
)

// lack is what a write has not got.
type lack struct {
	of         scarce
	has, needs int64
}

// String says it in a few words.
func (l lack) String() string {
	switch l.of {
	case scarceFiles:
		return fmt.Sprintf("room for %d more files, and %d are needed", l.has, l.needs)
	case scarceReserved:
		return fmt.Sprintf("%s reserved for the database, and %s are needed", mebibytes(l.has), mebibytes(l.needs))
	default:
		return fmt.Sprintf("%s free, and %s are needed", mebibytes(l.has), mebibytes(l.needs))
	}
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// lacks says what a write has not got; ok is false when it has everything.
func (r room) lacks(p purpose) (l lack, ok bool) {
	needs := room{bytes: growBytesMin(), files: growFilesMin, reserved: growReservedMin}
	if p == shrink {
		needs = room{bytes: shrinkBytesMin, files: shrinkFilesMin, reserved: shrinkReservedMin}
	}
	switch {
	case r.bytes < needs.bytes:
		return lack{of: scarceBytes, has: r.bytes, needs: needs.bytes}, true
	case r.files >= 0 && r.files < needs.files:
		return lack{of: scarceFiles, has: r.files, needs: needs.files}, true
	case r.reserved < needs.reserved:
		return lack{of: scarceReserved, has: r.reserved, needs: needs.reserved}, true
	}
	return lack{}, false
}

// look reads what the file system of a directory has left for a user who is not root.
func look(dir string) (bytes, files int64, err error) {
	var st unix.Statfs_t
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Statfs(dir, &st)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	if files = int64(st.Ffree); st.Files == 0 {
		files = -1
	}
	return int64(st.Bavail) * st.Bsize, files, nil
}
