package snapshots

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/catalog"
)

// key is the n-th of many keys, between which there are others.
func key(n int) (k catalog.Digest) {
	binary.BigEndian.PutUint64(k[:], uint64(n)<<8)
	return k
}

// layerOf is a layer of so many rows, of which a part has some. The frame of a part is its keys.
type layerOf struct {
	rows, each int
	made       atomic.Int64
	fail       error
}

// root is that of the layer.
func (l *layerOf) root() catalog.Digest { return key(1_000_000 + l.rows) }

func (l *layerOf) make(from catalog.Digest) (Part, error) {
	l.made.Add(1)
	p := Part{End: true}
	n := 0
	for i := range l.rows {
		k := key(i + 1)
		if bytes.Compare(k[:], from[:]) < 0 {
			continue
		}
		if n == l.each {
			p.Next, p.End = k, false
			break
		}
		p.Frame, p.Last = append(p.Frame, k[:]...), k
		n++
	}
	return p, l.fail
}

// wanted are the keys of the layer from one on.
func (l *layerOf) wanted(from catalog.Digest) []byte {
	var all []byte
	for i := range l.rows {
		if k := key(i + 1); bytes.Compare(k[:], from[:]) >= 0 {
			all = append(all, k[:]...)
		}
	}
	return all
}

// read reads at most so many parts of it; negative: all.
func (l *layerOf) read(s *Store, from catalog.Digest, parts int) (got []byte, err error) {
	for frame, err := range s.Frames(l.root(), from, l.make) {
		if err != nil || parts == 0 {
			return got, err
		}
		parts--
		got = append(got, frame...)
	}
	return got, nil
}

func newStore(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := New(filepath.Join(t.TempDir(), "kept"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *Store) files(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Each part of a layer is made once, for one host after the other, for many at once, and where the first has gone in the middle.
func TestEachPartIsMadeOnce(t *testing.T) {
	s := newStore(t, Options{})
	l := &layerOf{rows: 1000, each: 7}
	if _, err := l.read(s, catalog.Digest{}, 20); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if got, err := l.read(s, catalog.Digest{}, -1); err != nil || !bytes.Equal(got, l.wanted(catalog.Digest{})) {
				t.Errorf("%d bytes came, %v", len(got), err)
			}
		})
	}
	all.Wait()
	if n := l.made.Load(); n != (1000+6)/7 {
		t.Errorf("%d parts were made", n)
	}
}

// A layer of one part, and what is asked for in the middle of one, are made and not kept.
func TestNotKept(t *testing.T) {
	s := newStore(t, Options{})
	for _, l := range []*layerOf{{rows: 7, each: 7}, {rows: 0, each: 1}} {
		for range 3 {
			if got, err := l.read(s, catalog.Digest{}, -1); err != nil || !bytes.Equal(got, l.wanted(catalog.Digest{})) {
				t.Errorf("%d bytes came, %v", len(got), err)
			}
		}
		if l.made.Load() != 3 {
			t.Errorf("%d parts were made", l.made.Load())
		}
	}
	l := &layerOf{rows: 20, each: 7}
	if got, err := l.read(s, key(3), -1); err != nil || !bytes.Equal(got, l.wanted(key(3))) {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	if files := s.files(t); len(files) > 0 {
		t.Errorf("there are files %v", files)
	}
	var none *Store
	if got, err := l.read(none, catalog.Digest{}, -1); err != nil || !bytes.Equal(got, l.wanted(catalog.Digest{})) {
		t.Errorf("without a store %d bytes came, %v", len(got), err)
	}
}

// TestSame: whoever reads what, from which key on and how far, whatever was let go meanwhile and whatever the disk has changed, gets the rows
// of his layer from that key on.
func TestSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStore(t, Options{Bytes: rapid.Int64Range(0, 4_000).Draw(rt, "bytes")})
		layers := []*layerOf{{rows: 40, each: 3}, {rows: 41, each: 20}, {rows: 1, each: 1}, {rows: 100, each: 9}}
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			if files := s.files(t); len(files) > 0 && rapid.IntRange(0, 4).Draw(rt, "damage") == 0 {
				f := files[rapid.IntRange(0, len(files)-1).Draw(rt, "file")]
				data, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				at := rapid.IntRange(0, len(data)).Draw(rt, "at")
				if data = append(data, 0); rapid.Bool().Draw(rt, "cut") {
					data = data[:at]
				} else {
					data[at] ^= 1
				}
				if err := os.WriteFile(f, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			l := layers[rapid.IntRange(0, len(layers)-1).Draw(rt, "layer")]
			from := key(rapid.IntRange(0, l.rows+2).Draw(rt, "from"))
			if rapid.Bool().Draw(rt, "between") {
				from[31] = 1
			}
			parts := rapid.IntRange(-1, 20).Draw(rt, "parts")
			got, err := l.read(s, from, parts)
			if want := l.wanted(from); err != nil || !bytes.HasPrefix(want, got) || parts < 0 && len(got) != len(want) || parts > 0 && len(got) == 0 && len(want) > 0 {
				rt.Fatalf("%d bytes of %d came, %v", len(got), len(want), err)
			}
			if s.used > s.opts.Bytes {
				rt.Fatalf("it keeps %d bytes", s.used)
			}
		}
	})
}

// What the disk has changed is made anew, and told of once.
func TestDamage(t *testing.T) {
	var log bytes.Buffer
	s := newStore(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	l := &layerOf{rows: 100, each: 10}
	for range 2 {
		if _, err := l.read(s, catalog.Digest{}, -1); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(s.files(t)[0], 500); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got, err := l.read(s, catalog.Digest{}, -1); err != nil || !bytes.Equal(got, l.wanted(catalog.Digest{})) {
			t.Errorf("%d bytes came, %v", len(got), err)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "it is shorter than what was written") {
		t.Errorf("it is told of in %d lines: %s", n, &log)
	}
	// Ten at first, one that was read and nine that were not, and ten that were kept anew.
	if n := l.made.Load(); n > 30 {
		t.Errorf("%d parts were made", n)
	}
}

// Where nothing can be written hosts get what they want all the same.
func TestNoDirectory(t *testing.T) {
	s := newStore(t, Options{})
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	l := &layerOf{rows: 100, each: 10}
	for range 2 {
		if got, err := l.read(s, catalog.Digest{}, -1); err != nil || !bytes.Equal(got, l.wanted(catalog.Digest{})) {
			t.Errorf("%d bytes came, %v", len(got), err)
		}
	}
}

// Where there is no room for more, all that is kept makes room, and hosts get what they want.
func TestNoRoom(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 20)
	s := newStore(t, Options{Room: func(bytes int64) error {
		if bytes > free.Load() {
			return errors.New("the disk is full")
		}
		return nil
	}})
	first, second := &layerOf{rows: 100, each: 10}, &layerOf{rows: 101, each: 10}
	for _, room := range []int64{1 << 20, 0} {
		free.Store(room)
		for _, l := range []*layerOf{first, second} {
			if got, err := l.read(s, catalog.Digest{}, -1); err != nil || !bytes.Equal(got, l.wanted(catalog.Digest{})) {
				t.Errorf("%d bytes came, %v", len(got), err)
			}
		}
	}
	if files := s.files(t); len(files) != 2 {
		t.Errorf("what needs nothing more is not kept: %v", files)
	}
	third := &layerOf{rows: 102, each: 10}
	if got, err := third.read(s, catalog.Digest{}, -1); err != nil || !bytes.Equal(got, third.wanted(catalog.Digest{})) {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	if files := s.files(t); len(files) > 0 || s.used != 0 {
		t.Errorf("%v of %d bytes are kept on a full disk", files, s.used)
	}
}

// What cannot be made ends who wanted it, and nobody else.
func TestNotMade(t *testing.T) {
	s := newStore(t, Options{})
	l := &layerOf{rows: 100, each: 10}
	if _, err := l.read(s, catalog.Digest{}, 5); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the disk of bodies is gone")
	l.fail = broken
	if got, err := l.read(s, catalog.Digest{}, -1); !errors.Is(err, broken) || !bytes.Equal(got, l.wanted(catalog.Digest{})[:len(got)]) || len(got) == 0 {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	l.fail = nil
	if got, err := l.read(s, catalog.Digest{}, -1); err != nil || !bytes.Equal(got, l.wanted(catalog.Digest{})) {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
}

// What was asked for last stays, within the bounds of bytes and of files.
func TestShrinks(t *testing.T) {
	s := newStore(t, Options{Bytes: 10_000})
	first, second, third := &layerOf{rows: 100, each: 10}, &layerOf{rows: 101, each: 10}, &layerOf{rows: 200, each: 10}
	for _, l := range []*layerOf{first, second, first, third, first} {
		if _, err := l.read(s, catalog.Digest{}, -1); err != nil {
			t.Fatal(err)
		}
	}
	if first.made.Load() != 10 || len(s.files(t)) != 2 || s.used > 10_000 {
		t.Errorf("%d parts were made of what was asked for often; there are %v of %d bytes", first.made.Load(), s.files(t), s.used)
	}
	for i := range layersMax + 5 {
		l := &layerOf{rows: 2 + i, each: 1}
		if _, err := l.read(s, catalog.Digest{}, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.files(t)); n > layersMax {
		t.Errorf("%d files are open", n)
	}
}

// Files are of one process: another one removes them, and so does the end.
func TestBeginsEmpty(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "layer-1"), []byte("left"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(dir)
	if err != nil || st.Mode().Perm() != 0o700 || len(s.files(t)) > 0 {
		t.Errorf("there is %v with mode %v, %v", s.files(t), st.Mode(), err)
	}
	l := &layerOf{rows: 10, each: 2}
	next, stop := pull(s, l)
	defer stop()
	next()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got := slices.Concat(next(), next(), next(), next())
	if want := l.wanted(key(3)); !bytes.Equal(got, want) {
		t.Errorf("after the end %d bytes came, %d are left", len(got), len(want))
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
}

// pull has the parts of a layer come one by one.
func pull(s *Store, l *layerOf) (next func() []byte, stop func()) {
	more, stop := iter.Pull2(s.Frames(l.root(), catalog.Digest{}, l.make))
	return func() []byte {
		frame, _, _ := more()
		return slices.Clone(frame)
	}, stop
}
