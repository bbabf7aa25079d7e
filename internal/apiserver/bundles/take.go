package bundles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
)

// Take brings a bundle here from where it is, and returns when it is here: an upload like another, which this server makes itself. It goes on with
// what has come before. Errors: those of the source, TransferBusy while somebody puts it here, BundleRefused, and ObjectUnstored.
func (s *Store) Take(ctx context.Context, root catalog.Digest, from content.Source) error {
	if s.Has(root) {
		return nil
	}
	size, err := s.sizeOf(ctx, root, from)
	if err != nil {
		return err
	}
	u := upload{root: root, size: size, taken: true}
	if !s.begin(u) {
		return busy("fetch bundle " + bundle.Digest(root))
	}
	j, err := s.takeAll(ctx, u, from)
	s.end(u)
	if err != nil {
		return err
	}
	select {
	case <-j.done:
		s.told(j)
		return j.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sizeOf asks how long the whole is: what has come of it is kept by that.
func (s *Store) sizeOf(ctx context.Context, root catalog.Digest, from content.Source) (int64, error) {
	size, rest, err := from(ctx, 0)
	if err != nil {
		return 0, err
	}
	_ = rest.Close() // it begins anew where this server is
	if size > bundle.DifferenceBytesMax {
		return 0, &reason.Error{Code: reason.TransferWrong, Doing: "fetch bundle " + bundle.Digest(root), Cause: fmt.Errorf("it has %d bytes, at most %d are allowed", size, int64(bundle.DifferenceBytesMax))}
	}
	return size, nil
}

// takeAll takes all of an upload, and has it looked through.
func (s *Store) takeAll(ctx context.Context, u upload, from content.Source) (*job, error) {
	if j := s.job(u); j != nil {
		return j, nil
	}
	at := int64(0)
	if st, err := os.Stat(s.partPath(u)); err == nil {
		at = min(st.Size(), u.size)
	}
	for at < u.size {
		next, err := s.takeMore(ctx, u, at, from)
		if err != nil {
			return nil, err
		}
		at = next
	}
	return s.enqueue(u)
}

// takeMore takes what comes of one call, piece by piece; at least something.
func (s *Store) takeMore(ctx context.Context, u upload, at int64, from content.Source) (int64, error) {
	doing := "fetch bundle " + bundle.Digest(u.root)
	size, rest, err := from(ctx, at)
	if err != nil {
		return at, err
	}
	defer rest.Close()
	if size != u.size {
		return at, &reason.Error{Code: reason.TransferWrong, Doing: doing, Cause: fmt.Errorf("it had %d bytes, and now %d", u.size, size)}
	}
	begun, broken := at, &breaking{r: rest}
	for at < size && broken.err == nil {
		was := at
		if at, err = s.append(u, at, io.LimitReader(broken, min(PieceMax, size-at))); err != nil {
			return at, err
		}
		if at == was {
			break
		}
	}
	switch {
	case at > begun:
		return at, nil // where it was cut off it is taken up again
	case broken.err != nil && !errors.Is(broken.err, io.ErrUnexpectedEOF):
		return at, broken.err
	}
	return at, &reason.Error{Code: reason.ServerUnreachable, Doing: doing, Cause: errors.New("it does not get on")}
}

// breaking reads until something is wrong with what it reads, which is its end: what has come before that is good.
type breaking struct {
	r   io.Reader
	err error
}

// Read is part of io.Reader.
func (b *breaking) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err, err = err, io.EOF
	}
	return n, err
}

// Whole is a bundle as a difference from none. It is not for several goroutines. Use Store.Whole, and Close.
type Whole struct {
	bundle *Bundle
	size   int64

	at   int64  // where what comes next stands
	left []byte // of what has come
	next func() ([]byte, bool)
	stop func()
	err  error // why it ends early
}

// Whole opens a bundle for who takes all of it. The errors are BundleMissing, StateCorrupt and InputOutput.
func (s *Store) Whole(root catalog.Digest) (*Whole, error) {
	b, err := openFiles(s.path(root))
	if err != nil {
		return nil, unreadable(root, err)
	}
	w := &Whole{bundle: b, stop: func() {}}
	changes, length, _ := w.changes()
	if w.size, err = bundle.Size(changes, length); err != nil {
		return nil, errors.Join(unreadable(root, err), b.close())
	}
	w.seek(0)
	return w, nil
}

// Size is how many bytes there are.
func (w *Whole) Size() int64 { return w.size }

// Close lets the files go.
func (w *Whole) Close() error {
	w.stop()
	return w.bundle.close()
}

// ReadAt reads. It is cheap where each read begins where the one before has ended; otherwise it begins anew.
func (w *Whole) ReadAt(p []byte, at int64) (n int, err error) {
	if at != w.at {
		w.seek(at)
	}
	for n < len(p) {
		if len(w.left) == 0 {
			piece, more := w.next()
			if !more {
				err = io.EOF
				if w.err != nil {
					err = w.err
				}
				break
			}
			w.left = piece
		}
		copied := copy(p[n:], w.left)
		n, w.left = n+copied, w.left[copied:]
	}
	w.at += int64(n)
	return n, err
}

var errStopped = errors.New("nobody reads any more")

// seek has what stands at a place come next, piece by piece. A piece is good until the next one.
func (w *Whole) seek(at int64) {
	w.stop()
	w.at, w.left, w.err = at, nil, nil
	w.next, w.stop = iter.Pull(func(yield func([]byte) bool) {
		changes, length, body := w.changes()
		err := bundle.Write(writer(func(b []byte) error {
			if !yield(b) {
				return errStopped
			}
			return nil
		}), at, changes, length, body)
		if !errors.Is(err, errStopped) {
			w.err = err
		}
	})
}

// writer writes by a function.
type writer func([]byte) error

// Write is part of io.Writer.
func (w writer) Write(b []byte) (int, error) {
	if err := w(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// changes are all entries, in the order of their keys; length and body are of the one that was yielded last.
func (w *Whole) changes() (all iter.Seq2[catalog.Change, error], length func(catalog.Change) int, body func(catalog.Change) ([]byte, error)) {
	var now row
	bodies := window{file: w.bundle.bodies, ahead: bodiesAhead}
	all = func(yield func(catalog.Change, error) bool) {
		next := w.bundle.each()
		for {
			var err error
			if now, err = next(); errors.Is(err, io.EOF) {
				return
			}
			if !yield(catalog.Change{Key: now.Key, Digest: now.Digest}, err) || err != nil {
				return
			}
		}
	}
	body = func(catalog.Change) ([]byte, error) {
		data, there := bodies.read(int64(now.at), int(now.length))
		if !there {
			return nil, io.ErrUnexpectedEOF // who takes it finds that out, too
		}
		return data, nil
	}
	return all, func(catalog.Change) int { return int(now.length) }, body
}
