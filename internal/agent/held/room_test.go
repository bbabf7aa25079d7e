package held

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client/clienttest"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// heavy is a layer of so many bodies of one MiB.
func heavy(count int) (changes []wire.Change, trie catalog.Trie) {
	changes, _ = clienttest.Rows(count, "x")
	var rows []catalog.Row
	for i := range changes {
		changes[i].Body = []byte(strings.Repeat(string(rune('a'+i)), 1<<20))
		rows = append(rows, catalog.Row{Key: changes[i].Key, Digest: catalog.Digest(sha256.Sum256(changes[i].Body))})
	}
	return changes, catalog.Build(rows)
}

func listOf(t testing.TB, s *Store, roots ...catalog.Digest) catalog.Digest {
	t.Helper()
	var rows []catalog.Layer
	for i, r := range roots {
		rows = append(rows, catalog.Layer{Priority: i + 1, ID: string(rune('a' + i)), Root: r})
	}
	list, err := catalog.NewList(rows...)
	must(t, err)
	encoded, err := list.Encode()
	must(t, err)
	must(t, s.PutList(encoded))
	return catalog.ListRoot(encoded)
}

// TestRoom: what a head says is compared with what is free, without what is there already, and with something left for the host.
func TestRoom(t *testing.T) {
	s := open(t, t.TempDir())
	changes, there := heavy(10)
	root := listOf(t, s, there.Root(), catalog.KeyOf("missing"))
	put(t, s, "a", catalog.Digest{}, changes, there)
	const mib = 1 << 20
	for _, c := range []struct {
		what             string
		size, free, says uint64
		ok               bool
	}{
		{"a head that says nothing", 1000 * mib, 0, 0, true},
		{"a small change on a full disk", 1000 * mib, 5 * mib, 14 * mib, true},
		{"what is missing fits", 10_000 * mib, 165 * mib, 110 * mib, true},
		{"what is missing would take the reserve", 10_000 * mib, 163 * mib, 110 * mib, false},
		{"what is missing would take the reserve of a small disk", 400 * mib, 119 * mib, 110 * mib, false},
		{"a small disk needs a small reserve", 400 * mib, 121 * mib, 110 * mib, true},
		{"more than any disk has", 1 << 50, 1 << 50, 1<<64 - 1, false},
		{"a full disk", 1000 * mib, 0, 110 * mib, false},
	} {
		s.room = func(string) (room, error) { return room{size: c.size, free: c.free}, nil }
		if err := s.Room(root, c.says); c.ok != (err == nil) || !c.ok && !reason.Is(err, reason.DiskFull) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if err := s.Room(catalog.KeyOf("no list"), 1<<40); err != nil {
		t.Errorf("of a list that is not here: %v", err)
	}
}

// TestReserve: a stage does not grow into what the host lives on, whatever its head has said, and goes on where it was.
func TestReserve(t *testing.T) {
	s := open(t, t.TempDir())
	changes, trie := heavy(12)
	fetch := core.Fetch{Layer: "a", Target: trie.Root()}
	free := uint64(reserveMax + 8<<20)
	s.room = func(string) (room, error) {
		info, err := s.stage.file.Stat()
		return room{size: 1 << 40, free: free - uint64(info.Size())}, err
	}
	_, err := s.Begin(fetch)
	must(t, err)
	var appended int
	for ; appended < len(changes); appended++ {
		if err = s.Append(changes[appended : appended+1]); err != nil {
			break
		}
	}
	if !reason.Is(err, reason.DiskFull) || appended != 7 || s.stage.size > 8<<20 {
		t.Fatalf("%d of 12 MiB are staged where 8 are free: %v", appended, err)
	}
	free += 6 << 20
	must(t, s.Append(changes[appended:]))
	if outline, err := s.Outline(catalog.Trie{}); err != nil || outline.Root() != trie.Root() {
		t.Errorf("what is staged makes %s, want %s (%v)", outline.Root(), trie.Root(), err)
	}
	if err := s.Commit(trie); !reason.Is(err, reason.DiskFull) { // the layer needs its own 12
		t.Fatalf("committed: %v", err)
	}
	if _, found, err := s.Trie(trie.Root()); found || err != nil {
		t.Errorf("a layer without room is there: %v", err)
	}
	staged, err := s.Begin(fetch)
	must(t, err)
	if staged.Count != 12 || staged.Bytes != 12<<20 {
		t.Errorf("%d changes are staged, with %d bytes", staged.Count, staged.Bytes)
	}
	free += 12 << 20
	must(t, s.Commit(trie))
	if _, found, err := s.Trie(trie.Root()); !found || err != nil {
		t.Errorf("with room the layer is not there: %v", err)
	}
}

// TestFullDisk: a file system without room for a layer leaves what was there, and what was staged counts when there is room.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=12m"); err != nil {
		t.Skip("needs root in the host's own name space, to mount a small file system: " + err.Error())
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	state := filepath.Join(dir, "state")
	must(t, os.Mkdir(state, 0o700))
	s := open(t, state)
	s.room = func(string) (room, error) { return room{size: 1 << 50, free: 1 << 50}, nil } // it is full all at once
	must(t, s.Accept(mark(1, putCatalog(t, s, "one")), []byte("head")))
	changes, trie := heavy(7)
	fetch := core.Fetch{Layer: "b", Target: trie.Root()}
	_, err := s.Begin(fetch)
	must(t, err)
	must(t, s.Append(changes[:4]))
	filler := filepath.Join(dir, "filler")
	must(t, fillUp(filler))
	for range 2 {
		if err := s.Append(changes[4:]); !reason.Is(err, reason.StateUnwritable) || !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("staged on a full disk: %v", err)
		}
	}
	must(t, os.Remove(filler))
	must(t, s.Append(changes[4:]))
	if err := s.Commit(trie); !reason.Is(err, reason.StateUnwritable) || !errors.Is(err, unix.ENOSPC) { // 14 MiB of 12
		t.Fatalf("committed on a full disk: %v", err)
	}
	k, err := s.Kept()
	must(t, err)
	if _, err := s.Catalog(k.Mark.Root); err != nil {
		t.Errorf("what was there is not there: %v", err)
	}
	names, err := os.ReadDir(filepath.Join(state, layersName))
	must(t, err)
	if len(names) != 1 {
		t.Errorf("half a layer is left: %v", names)
	}
	must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=40m"))
	must(t, s.Close())
	s = open(t, state)
	staged, err := s.Begin(fetch)
	must(t, err)
	if staged.Count != 7 || len(s.Troubles()) > 0 {
		t.Errorf("%d changes are staged; told %v", staged.Count, s.Troubles())
	}
	must(t, s.Commit(trie))
}

// fillUp leaves no room on a file system.
func fillUp(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	for chunk := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(chunk)
	}
	if errors.Is(err, unix.ENOSPC) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// TestStartWithoutRoom: a start that cannot be written down counts all the same, is told, and is written down when there is room.
func TestStartWithoutRoom(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("needs root in the host's own name space, to mount a small file system: " + err.Error())
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	state, filler := filepath.Join(dir, "state"), filepath.Join(dir, "filler")
	must(t, os.Mkdir(state, 0o700))
	begin := func(want uint64, told bool) *Store {
		t.Helper()
		s := open(t, state)
		life := s.Life()
		life.Settled = true
		must(t, s.Started(life))
		if l := s.Life(); l.Starts != want || !l.Settled || (len(s.Troubles()) == 1) != told {
			t.Errorf("%+v, want start %d; told %v", l, want, s.Troubles())
		}
		return s
	}
	must(t, begin(1, false).Close())
	must(t, fillUp(filler))
	for want := uint64(2); want < 5; want++ {
		s := begin(want, true)
		if err := s.Flush(); !reason.Is(err, reason.StateUnwritable) {
			t.Errorf("flush: %v", err)
		}
		if err := s.Close(); !reason.Is(err, reason.StateUnwritable) {
			t.Errorf("close: %v", err)
		}
	}
	s := begin(5, true)
	must(t, os.Remove(filler))
	must(t, s.Flush())
	if len(s.Troubles()) > 0 {
		t.Errorf("it still says %v", s.Troubles())
	}
	must(t, s.Close())
	must(t, begin(6, false).Close())
}
