package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// known is what furnish leaves, in one line.
func known(s *Store) string {
	original, _ := s.Original(motd)
	return fmt.Sprintf("root %02x, %d active, pending %v, original %q", s.Active().Root()[0], s.Active().Len(), pendingSeqs(s), original)
}

const (
	everything = `root 01, 5 active, pending [7], original "as it was"`
	noActive   = `root 00, 0 active, pending [7], original "as it was"`
	noJournal  = `root 01, 5 active, pending [], original ""`
	nothing    = `root 00, 0 active, pending [], original ""`
)

// troubled is what the store complains of, by the last names of the files.
func troubled(s *Store) string {
	var names []string
	for _, e := range s.Troubles() {
		names = append(names, e.Code.String()+" "+filepath.Base(e.Doing))
	}
	return strings.Join(names, ", ")
}

// aside lists what was set aside, without its time.
func aside(t *testing.T, s *Store) string {
	t.Helper()
	list, err := os.ReadDir(s.path(corruptName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		name, _, _ := strings.Cut(e.Name(), ".")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestAgentCase35_StateCorrupted(t *testing.T) {
	c := casetest.Start(t)
	flip := func(t *testing.T, path string) {
		b, err := os.ReadFile(path)
		must(t, err)
		b[len(b)/2] ^= 0x10
		must(t, os.WriteFile(path, b, 0o600))
	}
	cut := func(n int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { must(t, os.Truncate(path, n)) }
	}
	garbage := func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("<html>\n"), 0o600)) }
	for _, row := range []struct {
		what, file string
		damage     func(t *testing.T, path string)
		want       string
	}{
		{"a flipped bit in the active state", activeName, flip, noActive},
		{"half an active state", activeName, cut(200), noActive},
		{"an active state that ends between two entries", activeName, cutBetweenFrames, noActive},
		{"an empty active state", activeName, cut(0), noActive},
		{"a directory for an active state", activeName, func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, os.MkdirAll(filepath.Join(path, "in", "it"), 0o700))
		}, noActive},
		{"a symlink to another file", activeName, func(t *testing.T, path string) {
			must(t, os.Rename(path, path+".real"))
			must(t, os.Symlink("active.real", path))
		}, noActive},
		{"a FIFO for a journal", journalName, func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, unix.Mkfifo(path, 0o600))
		}, noJournal},
		{"another file for a journal", journalName, garbage, noJournal},
		{"a torn journal", journalName, func(t *testing.T, path string) {
			info, err := os.Stat(path)
			must(t, err)
			must(t, os.Truncate(path, info.Size()-1)) // in the original
		}, `root 01, 5 active, pending [7], original ""`},
		{"zeros behind the journal", journalName, func(t *testing.T, path string) {
			info, err := os.Stat(path)
			must(t, err)
			must(t, os.Truncate(path, info.Size()+4096))
		}, everything},
		{"a flipped bit in what was converged", convergedName, flip, everything},
		{"another file for a report", reportName, garbage, everything},
	} {
		t.Run(row.what, func(t *testing.T) {
			c := c.Sub(t)
			s := open(t, t.TempDir())
			furnish(t, s)
			c.NoError(s.Close(), "close")
			row.damage(t, s.path(row.file))
			s = open(t, s.dir)
			c.Equal(known(s), row.want, "what is left")
			c.Equal(troubled(s), "TK0802 "+row.file, "troubles")
			c.Equal(aside(t, s), row.file, "set aside")
			furnish(t, s)
			c.Equal(known(s), everything, "after it was rebuilt")
			s = reopen(t, s)
			c.Equal(known(s), everything, "after a restart")
			c.Equal(troubled(s), "", "troubles after a restart")
		})
	}
}

// cutBetweenFrames leaves whole frames only, and not all.
func cutBetweenFrames(t *testing.T, path string) {
	b, err := os.ReadFile(path)
	must(t, err)
	var starts []int64
	must(t, scanFile(bytes.NewReader(b), int64(len(b)), activeName, func(_ []byte, at int64) error {
		starts = append(starts, at)
		return nil
	}))
	must(t, os.Truncate(path, starts[5]))
}

func TestAgentCase35_CorruptFilesAreBounded(t *testing.T) {
	c := casetest.Start(t)
	dir := t.TempDir()
	for i := range corruptKept + 5 {
		must(t, os.WriteFile(filepath.Join(dir, activeName), fmt.Appendf(nil, "garbage %d", i), 0o600))
		s, err := openAt(dir, noon.Add(time.Duration(i)*time.Second), moment(1))
		c.NoError(err, "open")
		c.NoError(s.Close(), "close")
	}
	kept, err := filepath.Glob(filepath.Join(dir, corruptName, "*"))
	c.NoError(err, "list")
	c.Equal(len(kept), corruptKept, "files kept")
	first, err := os.ReadFile(kept[0])
	c.NoError(err, "read")
	c.Equal(string(first), "garbage 5", "the oldest kept")
}

func TestAgentCase35_StateDeletedWhileRunning(t *testing.T) {
	c := casetest.Start(t)
	for what, remove := range map[string]func(dir string) error{
		"the directory":           os.RemoveAll,
		"what is in it":           emptyDir,
		"the journal":             func(dir string) error { return os.Remove(filepath.Join(dir, journalName)) },
		"the lock":                func(dir string) error { return os.Remove(filepath.Join(dir, lockName)) },
		"the directory by a move": func(dir string) error { return os.Rename(dir, dir+".moved") },
	} {
		t.Run(what, func(t *testing.T) {
			c := c.Sub(t)
			s := open(t, filepath.Join(t.TempDir(), "state"))
			furnish(t, s)
			c.NoError(remove(s.dir), "remove")
			c.NoError(s.Record([]converge.Record{added(8, nginx, nginxCfg)}, noon, moment(60)), "record")
			c.NoError(s.Append(Happening{At: noon, Title: "file/later"}), "append")
			c.Equal(troubled(s), "TK0802 state", "troubles")
			first, err := s.Active().Entry(0)
			c.Check(err == nil && len(first.Body) > 0, "body: %q, %v", first.Body, err)
			_, err = Open(s.dir, noon)
			c.Check(reason.Is(err, reason.AnotherAgent), "it is locked again: %v", err)
			s = reopen(t, s)
			c.Equal(known(s), `root 01, 5 active, pending [7 8], original "as it was"`, "after a restart")
			first, err = s.Active().Entry(0)
			c.Check(err == nil && len(first.Body) > 0, "body: %q, %v", first.Body, err)
			history, err := s.History(Asked{Subject: "later"})
			c.Check(err == nil && len(history) == 1, "history: %v, %v", history, err)
		})
	}
}

func emptyDir(dir string) error {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

func TestAgentCase35_DeletedAndTakenByAnother(t *testing.T) {
	c := casetest.Start(t)
	s := open(t, filepath.Join(t.TempDir(), "state"))
	furnish(t, s)
	c.NoError(os.RemoveAll(s.dir), "remove")
	other := open(t, s.dir)
	c.Equal(known(other), nothing, "the other agent's state")
	err := s.Record([]converge.Record{added(8, nginx, nginxCfg)}, noon, moment(60))
	c.Check(reason.Is(err, reason.AnotherAgent), "record: %v", err)
	err = s.SetActive(converge.Digest{9}, nil)
	c.Check(reason.Is(err, reason.AnotherAgent), "set: %v", err)
	other = reopen(t, other)
	c.Equal(known(other), nothing, "the other agent's state")
}

func TestAgentCase35_StateDeletedWhileStopped(t *testing.T) {
	c := casetest.Start(t)
	for _, name := range []string{activeName, journalName, convergedName, reportName, historyName, lockName} {
		s := open(t, t.TempDir())
		furnish(t, s)
		c.NoError(s.Close(), "close")
		c.NoError(os.RemoveAll(s.path(name)), "remove")
		s = open(t, s.dir)
		c.Equal(troubled(s), "", "troubles without "+name)
		furnish(t, s)
		s = reopen(t, s)
		c.Equal(known(s), everything, "after "+name+" was deleted and made again")
	}
}

func TestAgentCase35_StateFromANewerVersion(t *testing.T) {
	c := casetest.Start(t)
	for _, name := range []string{activeName, journalName, convergedName, reportName, filepath.Join(historyName, segmentName(1))} {
		t.Run(strings.ReplaceAll(name, "/", " "), func(t *testing.T) {
			c := c.Sub(t)
			s := open(t, t.TempDir())
			furnish(t, s)
			c.NoError(s.Close(), "close")
			// Garbage beside it must not be set aside either.
			must(t, os.WriteFile(s.path(activeName), []byte("garbage"), 0o600))
			kind, _, _ := strings.Cut(name, "/")
			must(t, os.WriteFile(s.path(name), []byte("tako "+kind+" 2\nwhat nobody here knows"), 0o600))
			before := listing(t, s.dir)
			_, err := Open(s.dir, noon)
			if !c.Check(reason.Is(err, reason.StateNewer), "open: %v", err) {
				return
			}
			c.Check(reason.Of(err).Hint != "" && strings.Contains(err.Error(), name), "it names file and cure: %v; %s", err, reason.Of(err).Hint)
			c.Equal(listing(t, s.dir), before, "the directory")
		})
	}
}

func TestAgentCase35_DiskFull(t *testing.T) {
	c := casetest.Start(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir := t.TempDir()
	c.NoError(unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128k,nr_inodes=64"), "mount")
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := open(t, filepath.Join(dir, "state"))
	furnish(t, s)
	filler := filepath.Join(dir, "filler")
	fill(t, filler)

	// The last page of the journal still takes some, so write until it does not.
	var err error
	seq := uint64(100)
	for ; err == nil && seq < 1000; seq++ {
		err = s.Record([]converge.Record{added(seq, nginx, nginxCfg)}, noon, moment(seq))
	}
	c.Check(reason.Is(err, reason.StateUnwritable) && errors.Is(err, unix.ENOSPC), "record: %v", err)
	lost := seq - 1
	err = s.Record([]converge.Record{cleared(7, nginx), added(lost+1, nginx, nginxCfg)}, noon, moment(5))
	c.Check(reason.Is(err, reason.StateUnwritable), "record: %v", err)
	err = s.SetOriginal("path:/later", []byte("x"))
	c.Check(reason.Is(err, reason.StateUnwritable), "original: %v", err)
	err = s.SetActive(converge.Digest{2}, entries(5, "two"))
	c.Check(reason.Is(err, reason.StateUnwritable) && errors.Is(err, unix.ENOSPC), "set: %v", err)
	err = s.SaveReport(make([]byte, 64<<10))
	c.Check(reason.Is(err, reason.StateUnwritable), "report: %v", err)
	for err = nil; err == nil; {
		err = s.Append(Happening{At: noon, Evidence: strings.Repeat("x", 1000)})
	}
	c.Check(reason.Is(err, reason.StateUnwritable) && errors.Is(err, unix.ENOSPC), "append: %v", err)

	checkState := func(s *Store, when string) {
		_, ok := s.Original("path:/later")
		c.Check(!ok, "%s: what is not durable is not promised", when)
		c.Equal(s.Active().Root(), converge.Digest{1}, when+": root")
		seqs := pendingSeqs(s)
		c.Check(len(seqs) > 0 && seqs[0] == 100 && seqs[len(seqs)-1] == lost-1, "%s: pending %v, want 100 to %d", when, seqs, lost-1)
	}
	checkState(s, "full")
	crashed, err := Inspect(s.dir)
	c.NoError(err, "inspect")
	c.Equal(len(crashed.Troubles()), 0, "troubles of what is on the disk")
	c.Check(pendingSeqs(crashed)[0] == 7, "the file ends where it was good: %v", pendingSeqs(crashed))
	c.NoError(crashed.Close(), "close")
	_, err = s.readFrames(journalName, func([]byte, int64) error { return nil })
	c.Check(err == nil, "nothing is left of the write that failed: %v", err)

	c.NoError(os.Remove(filler), "make room")
	c.NoError(s.Confirm(nginxCfg, moment(9999)), "confirm")
	checkState(s, "room again")
	s = reopen(t, s)
	c.Equal(troubled(s), "", "troubles after a restart")
	checkState(s, "after a restart")
	c.Equal(s.Since(nginx, lost), moment(9999), "the confirmation")
	c.NoError(s.Append(Happening{At: noon, Title: "file/after"}), "append")
	history, err := s.History(Asked{Limit: 2})
	c.Check(err == nil && len(history) == 2 && history[0].Title == "file/after" && len(history[1].Evidence) == 1000, "history: %v, %v", history, err)
}

// fill leaves no room on the file system.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	must(t, err)
	defer f.Close()
	for chunk := make([]byte, 512); err == nil; {
		_, err = f.Write(chunk)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

func TestAgentCase35_StateUnwritable(t *testing.T) {
	c := casetest.Start(t)
	file := filepath.Join(t.TempDir(), "file")
	c.NoError(os.WriteFile(file, nil, 0o600), "make a file")
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/none/state"} {
		_, err := Open(dir, noon)
		c.Check(reason.Is(err, reason.StateUnwritable), "open %s: %v", dir, err)
	}
}
