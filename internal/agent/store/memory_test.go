package store

import (
	"runtime"
	"testing"

	"tako.dev/tako/internal/converge"
)

// heap is how much is alive, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second takes what only finalizers held
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemory opens large states: of an entry no more stays in memory than where it is.
func TestMemory(t *testing.T) {
	for _, c := range []struct {
		count int
		limit int64
	}{{1_000, 128 << 10}, {100_000, 2 << 20}} {
		if c.count > 1_000 && testing.Short() {
			t.Skip("short: 100,000 entries")
		}
		dir := t.TempDir()
		s := open(t, dir)
		must(t, s.SetActive(converge.Digest{1}, entries(c.count, "one")))
		must(t, s.Close())
		s = nil
		before := heap()
		s = open(t, dir)
		after := heap()
		t.Logf("%d entries: %d KiB", c.count, (after-before)/1024)
		if after-before > c.limit || s.Active().Len() != c.count {
			t.Errorf("%d entries of %d cost %d bytes, at most %d", s.Active().Len(), c.count, after-before, c.limit)
		}
		must(t, s.Close())
	}
}
