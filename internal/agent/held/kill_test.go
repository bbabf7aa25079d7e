package held

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/client/clienttest"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// againEnv tells the test's own process that it is the one to be killed.
const againEnv = "TAKO_TEST_HELD_DIR"

// step is what a host does with a new state, from its head to its layer.
func step(t *testing.T, s *Store, version uint64, text string) {
	t.Helper()
	changes, trie := clienttest.Rows(5, text)
	rows, large := clienttest.Rows(900, strings.Repeat("x", 100)) // so many that a change of them is a file that builds upon another one
	fetch := core.Fetch{Layer: "b", Target: large.Root()}
	if version > 1 {
		fetch.Base, rows = fetch.Target, []wire.Change{{Key: rows[7].Key, Deleted: true}}
		var err error
		large, err = large.Apply(catalog.Changes(catalog.Change{Key: rows[0].Key, Deleted: true}))
		must(t, err)
		fetch.Target = large.Root()
	}
	list, err := catalog.NewList(catalog.Layer{Priority: 2, ID: "a", Root: trie.Root()}, catalog.Layer{Priority: 1, ID: "b", Root: large.Root()})
	must(t, err)
	encoded, err := list.Encode()
	must(t, err)
	must(t, s.Accept(mark(version, catalog.ListRoot(encoded)), []byte(text)))
	must(t, s.PutList(encoded))
	have, err := s.Begin(core.Fetch{Layer: "a", Target: trie.Root()})
	must(t, err)
	must(t, s.Append(changes[have.Count:]))
	must(t, s.Commit(trie))
	have, err = s.Begin(fetch)
	must(t, err)
	must(t, s.Append(rows[have.Count:]))
	must(t, s.Commit(large))
	must(t, s.SetLife(Life{Starts: version, Enforced: mark(version, catalog.ListRoot(encoded))}))
}

// TestKilledAtEverySystemCall kills a process as it enters each of the system calls with which it takes a new state on: the old mark or
// the new one is there, never half a layer, and what is there goes on from where it was.
func TestKilledAtEverySystemCall(t *testing.T) {
	if dir := os.Getenv(againEnv); dir != "" {
		step(t, open(t, dir), 2, "new")
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace")
	}
	marks, kills := map[uint64]int{}, 0
	for _, call := range []string{"openat", "write", "pwrite64", "fsync", "renameat", "renameat2", "unlinkat", "ftruncate"} {
		for n := 1; ; n++ {
			if n > 200 {
				t.Fatalf("%s is called without end", call)
			}
			dir := t.TempDir()
			s := open(t, dir)
			step(t, s, 1, "old")
			must(t, s.Close())
			cmd := exec.Command(strace, "-f", "-qq", "-o", os.DevNull, "-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, n),
				os.Args[0], "-test.run=^TestKilledAtEverySystemCall$")
			cmd.Env = append(os.Environ(), againEnv+"="+dir)
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), "strace:") {
				t.Skipf("needs strace: %s", out)
			}
			s = open(t, dir)
			marks[whole(t, s)]++
			if s.Troubles() != nil {
				t.Errorf("killed at %s %d: damaged: %v", call, n, s.Troubles())
			}
			step(t, s, 2, "new")
			if version := whole(t, s); version != 2 {
				t.Errorf("killed at %s %d: it does not go on", call, n)
			}
			must(t, s.Close())
			if err == nil {
				break
			}
			kills++
		}
	}
	if marks[1] == 0 || marks[2] == 0 {
		t.Errorf("the kills did not reach the change: %v", marks)
	}
	t.Logf("%d kills: the old mark %d times, the new one %d times", kills, marks[1], marks[2])
}

// whole checks that what is there is whole, and returns the version of the mark.
func whole(t *testing.T, s *Store) uint64 {
	t.Helper()
	k, err := s.Kept()
	must(t, err)
	life := s.Life()
	if k.Mark.Version < life.Enforced.Version || k.Mark.Version == 0 || k.Mark.Version > 2 || life.Starts == 0 {
		t.Errorf("mark %d, enforced %d", k.Mark.Version, life.Enforced.Version)
	}
	if want := map[uint64]string{1: "old", 2: "new"}[k.Mark.Version]; string(k.Head) != want {
		t.Errorf("mark %d with the head %q", k.Mark.Version, k.Head)
	}
	if _, err := s.Catalog(life.Enforced.Root); err != nil {
		t.Errorf("what is enforced is not there: %v", err)
	}
	return k.Mark.Version
}
