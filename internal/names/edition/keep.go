package edition

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// keepPause is the shortest between two writes of the file, and so how old the names may be after a crash while no server is there. What changes often
// would be written ten times a second, as a whole.
const keepPause = 5 * time.Second

// Load takes the edition that Keep has written. News are nil where there is none. The error says why what is there is not believed, or cannot be read; then
// it is as if there were none.
func (s *Store) Load(path string, now time.Time) (*News, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer f.Close() // it was only read
	news, err := s.Read(f, now)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return news, nil
}

func unreadable(path string, err error) error {
	return &reason.Error{Code: reason.StateCorrupt, Doing: "read the names in " + path, Cause: err, Hint: "they come anew when a server is there"}
}

// Keep writes the newest edition to a file whenever there is another one, until the context ends. What goes wrong is told to trouble, and tried again
// with the next edition.
func (s *Store) Keep(ctx context.Context, path string, trouble func(error)) {
	var written wire.NamesMark
	write := func() {
		mark := s.Mark()
		if mark == written {
			return
		}
		if err := s.save(path); err != nil {
			trouble(&reason.Error{Code: reason.StateUnwritable, Doing: "keep the names in " + path, Cause: err})
			return
		}
		written = mark
	}
	defer write()
	for {
		_, _, changed := s.After(wire.NamesMark{Epoch: ^uint64(0)})
		write()
		timer := time.NewTimer(keepPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// save replaces the file as a whole. It has no secret in it, but is nobody else's to write.
func (s *Store) save(path string) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(s.Write(f), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
