package relay

import (
	"context"
	"io"
	"os"
	"sync"
)

// growing is a file that is written by one, and read by many while it grows. It is closed when nobody uses it any more.
type growing struct {
	file *os.File

	mu      sync.Mutex // guards what follows
	uses    int
	size    int64 // that may be read
	ended   bool
	err     error         // why it has ended before its end
	changed chan struct{} // closed when something above changes
}

// newGrowing is a file of which nothing is there yet, in use once.
func newGrowing(f *os.File) *growing { return &growing{file: f, uses: 1, changed: make(chan struct{})} }

// whole is a file that is there, in use once.
func whole(f *os.File, size int64) *growing {
	return &growing{file: f, uses: 1, size: size, ended: true, changed: make(chan struct{})}
}

// use has it stay open until it is released; false when it is closed already.
func (g *growing) use() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.uses == 0 {
		return false
	}
	g.uses++
	return true
}

// release ends a use.
func (g *growing) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.uses--; g.uses == 0 {
		_ = g.file.Close() // it was read, or is not kept
	}
}

// Write adds to it.
func (g *growing) Write(p []byte) (int, error) {
	n, err := g.file.Write(p)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.size += int64(n)
	g.changedLocked()
	return n, err
}

// end says that nothing more comes; err is why not, where more should.
func (g *growing) end(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended, g.err = true, err
	g.changedLocked()
}

func (g *growing) changedLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// wait waits until there is something at a place. The error is io.EOF at the end, or why it does not come.
func (g *growing) wait(ctx context.Context, at int64) error {
	for {
		g.mu.Lock()
		size, ended, err, changed := g.size, g.ended, g.err, g.changed
		g.mu.Unlock()
		switch {
		case at < size:
			return nil
		case ended && err == nil:
			return io.EOF
		case ended:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reader reads it from a place on, and waits for what is on its way.
type reader struct {
	g    *growing
	at   int64
	wait func(at int64) error
}

func (g *growing) from(ctx context.Context, at int64) *reader {
	return &reader{g: g, at: at, wait: func(at int64) error { return g.wait(ctx, at) }}
}

// Read reads.
func (r *reader) Read(p []byte) (int, error) {
	if err := r.wait(r.at); err != nil {
		return 0, err
	}
	r.g.mu.Lock()
	there := r.g.size - r.at
	r.g.mu.Unlock()
	n, err := r.g.file.ReadAt(p[:min(int64(len(p)), there)], r.at)
	r.at += int64(n)
	return n, err
}
