package content

import (
	"context"
	"fmt"
	"os"

	"tako.dev/tako/internal/reason"
)

// Adopt makes a file of the same file system an object, without copying it: it is read, made durable and renamed to its place. It must
// be what want and size say, otherwise it is ContentMismatch, and is removed. After any other error, which is BackupFailed, it is still there.
func (s *Store) Adopt(ctx context.Context, name string, want Digest, size int64) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return unstored(err, "")
	}
	defer f.Close()
	got, n, err := SumOf(ctx, f)
	if err != nil {
		return unstored(err, "")
	}
	if got != want || n != size {
		_ = os.Remove(name) // whoever fetches it anew overwrites it
		return &reason.Error{Code: reason.ContentMismatch, Doing: "take object " + want.String(), Cause: fmt.Errorf("it is %s of %d bytes, not of %d", got, n, size)}
	}
	if err := s.reserve(n); err != nil {
		return err
	}
	w := intake{store: s, file: f, size: n}
	if err = w.settle(want); err != nil && !w.placed {
		s.release(n)
	}
	return err
}
