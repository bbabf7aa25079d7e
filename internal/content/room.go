package content

import (
	"fmt"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// reserveMax is the most that is left free on a file system, for what a host needs to live on; of a small one it is a twentieth, as
	// file systems keep for root.
	reserveMax   = 64 << 20
	reserveShare = 20
)

// Spare says whether the file system of a path can take so many bytes more without taking what the host needs to live on. The error is
// DiskFull, or InputOutput.
func Spare(path string, more int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return &reason.Error{Code: reason.InputOutput, Doing: "ask how much room there is at " + disk.Shown(path), Cause: err}
	}
	size, free := st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize)
	reserve := min(size/reserveShare, reserveMax)
	if uint64(more)+reserve <= free {
		return nil
	}
	return &reason.Error{
		Code: reason.DiskFull, Doing: "find room at " + disk.Shown(path), Hint: "make room on it; it goes on by itself",
		Cause: fmt.Errorf("%d MiB more are needed, and of %d MiB that are free %d stay for the host itself", more>>20, free>>20, reserve>>20),
	}
}

// sizeError is that of bytes which are too few or too many.
type sizeError struct{ got, want int64 }

func (e sizeError) Error() string { return fmt.Sprintf("it has %d bytes, not %d", e.got, e.want) }
