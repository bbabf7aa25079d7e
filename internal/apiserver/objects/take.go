package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// syncEvery is after how many bytes what has come is made durable, so that a power cut costs no more.
const syncEvery = 16 << 20

// Take brings an object here from where it is, and returns when it is here. It goes on with what has come before, also of what somebody has
// begun to put. All of it is durable and has the digest before it is an object; otherwise it is thrown away. Errors: those of the source,
// TransferBusy while somebody puts it here, ContentMismatch, and ObjectUnstored.
func (s *Shelf) Take(ctx context.Context, d content.Digest, from content.Source) error {
	if !s.begin(d) {
		return busy(d)
	}
	defer s.end(d)
	if s.objects.Has(d) {
		return nil
	}
	for {
		size, all, err := s.takeMore(ctx, d, from)
		if err != nil {
			return err
		}
		if all {
			return s.objects.Add(ctx, content.Wanted{Digest: d, Size: size})
		}
	}
}

// takeMore takes what comes of one call; all says that nothing is missing then.
func (s *Shelf) takeMore(ctx context.Context, d content.Digest, from content.Source) (size int64, all bool, err error) {
	part, at, err := s.objects.Part(d)
	if err != nil {
		return 0, false, err
	}
	defer part.Close() // what matters of it is synced
	size, rest, err := from(ctx, at)
	if err != nil {
		if reason.Is(err, reason.CallMalformed) && at > 0 { // there are not so many bytes: what is here is of something else
			err = errors.Join(err, s.objects.Discard(d))
		}
		return 0, false, err
	}
	defer rest.Close()
	if size > declare.ObjectBytesMax {
		return 0, false, &reason.Error{Code: reason.TransferWrong, Doing: "fetch object " + d.String(), Cause: fmt.Errorf("it has %d bytes, at most %d are allowed", size, declare.ObjectBytesMax)}
	}
	if err := s.objects.Room(content.Wanted{Digest: d, Size: size - at}); err != nil {
		return 0, false, err
	}
	n, err := copyDurably(part, io.LimitReader(rest, size-at))
	switch {
	case err == nil && at+n == size:
		return size, true, nil
	case n > 0 && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)):
		return size, false, nil // it was cut off, to be taken up again
	case err == nil:
		err = &reason.Error{Code: reason.ServerUnreachable, Doing: "fetch object " + d.String(), Cause: errors.New("it does not get on")}
	}
	return size, false, err
}

// copyDurably appends what comes; what it says to have written is durable.
func copyDurably(to *os.File, from io.Reader) (n int64, err error) {
	for err == nil {
		var more int64
		more, err = io.CopyN(to, from, syncEvery)
		n += more
		if failed := disk.Sync(to); failed != nil {
			return 0, &reason.Error{Code: reason.ObjectUnstored, Doing: "store an object", Cause: failed}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
