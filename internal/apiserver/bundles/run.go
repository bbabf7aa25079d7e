package bundles

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
)

const (
	// collectEvery is how often what nothing names is looked for, and collectFirst when that is done after a start: as of objects.
	collectEvery = 24 * time.Hour
	collectFirst = 10 * time.Minute
	// lookEvery is how often it is seen whether something in memory is not needed any more.
	lookEvery = time.Minute
)

// Named lists the digests of the bundles that anything declared names, as text.
type Named func(ctx context.Context) (map[string]bool, error)

// Run looks through what is pushed, and collects what nothing has named for long, until the context ends.
func (s *Store) Run(ctx context.Context, named Named, log *slog.Logger) {
	collect, look := time.NewTimer(collectFirst), time.NewTicker(lookEvery)
	defer collect.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-s.queue:
			s.work(ctx, j, log)
		case now := <-look.C:
			s.forget(now)
		case now := <-collect.C:
			if err := s.collect(ctx, named, now); err != nil && ctx.Err() == nil {
				log.Warn("collect bundles that nothing names", "err", err)
			}
			collect.Reset(collectEvery)
		}
	}
}

// work looks one upload through. What was refused is thrown away; what could not be stored now may be tried again.
func (s *Store) work(ctx context.Context, j *job, log *slog.Logger) {
	began := time.Now()
	err := s.accept(ctx, j.upload)
	if ctx.Err() != nil {
		err = ctx.Err() // the part stays: whoever pushes goes on with the next server
	} else if removeErr := s.drop(j.upload, err); removeErr != nil {
		log.Warn("remove what was pushed", "digest", bundle.Digest(j.root), "err", removeErr)
	}
	j.err, j.ended = err, time.Now()
	close(j.done)
	if err != nil {
		log.Warn("a bundle was not accepted", "digest", bundle.Digest(j.root), "namespace", j.namespace, "err", err)
		return
	}
	log.Info("a bundle was accepted", "digest", bundle.Digest(j.root), "namespace", j.namespace, "bytes", j.size, "took", time.Since(began))
	s.arrived(j.root)
}

// drop removes what has come of an upload that is over.
func (s *Store) drop(u upload, err error) error {
	if err != nil && !isRefusal(err) {
		return nil
	}
	if err := os.Remove(s.partPath(u)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// collect removes nothing where it is not known what is named.
func (s *Store) collect(ctx context.Context, named Named, now time.Time) error {
	texts, err := named(ctx)
	if err != nil {
		return err
	}
	all, parts, err := s.list()
	errs := []error{err}
	used := int64(0)
	for _, k := range all {
		used += k.bytes
	}
	for _, k := range all { // the oldest first
		if texts[bundle.Digest(k.root)] {
			errs = append(errs, os.Chtimes(k.path, now, now)) // from now on it is as old as the time since something named it
			continue
		}
		age := now.Sub(k.named)
		if age <= ageMin || age <= ageMax && used <= quota/2 {
			continue
		}
		if err := s.Remove(k.root); err != nil {
			errs = append(errs, err)
			continue
		}
		used -= k.bytes
	}
	for _, k := range parts {
		if now.Sub(k.named) > partAge {
			errs = append(errs, os.Remove(k.path))
		}
	}
	return errors.Join(errs...)
}

// Remove takes a bundle away as a whole: what dies on the way leaves no half of it. Layers that have it open go on reading it.
func (s *Store) Remove(root catalog.Digest) error {
	aside, err := os.MkdirTemp(filepath.Join(s.dir, tmpDir), "gone-")
	if err != nil {
		return err
	}
	if err := os.Rename(s.path(root), filepath.Join(aside, root.String())); err != nil {
		return err
	}
	return os.RemoveAll(aside)
}
