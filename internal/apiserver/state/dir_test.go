package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// nobody is a user that is not this one.
const nobody = 65534

// TestDirRefused: what is no data directory of this user's is refused, and left as it is.
func TestDirRefused(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, dir string)
		want reason.Code
	}{
		"of a later version": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, formatName), []byte("99\n"), 0o600))
			must(t, os.WriteFile(filepath.Join(dir, lockName), nil, 0o600))
			must(t, os.Chmod(dir, 0o700))
		}, reason.StateNewer},
		"somebody's files": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "passwd"), []byte("mine"), 0o644))
			must(t, os.Chmod(dir, 0o1777))
		}, reason.DirectoryNotEmpty},
		"a folder of somebody's": {func(t *testing.T, dir string) { must(t, os.Mkdir(filepath.Join(dir, "docs"), 0o755)) }, reason.DirectoryNotEmpty},
		"somebody's but empty": {func(t *testing.T, dir string) {
			needsRoot(t)
			must(t, os.Chown(dir, nobody, nobody))
		}, reason.StateUnwritable},
		"another user's server": {func(t *testing.T, dir string) {
			needsRoot(t)
			must(t, os.WriteFile(filepath.Join(dir, formatName), []byte("1\n"), 0o600))
			must(t, os.Chown(dir, nobody, nobody))
		}, reason.StateUnwritable},
		"a restore that was cut off": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, formatName), []byte("1\n"), 0o600))
			must(t, os.WriteFile(filepath.Join(dir, lockName), nil, 0o600))
			must(t, os.Mkdir(filepath.Join(dir, unfinishedName), 0o700))
			must(t, os.Chmod(dir, 0o700))
		}, reason.BackupUnusable},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, dir)
			mode, before := modeOf(t, dir), contents(t, dir)
			d, err := Open(dir)
			if !reason.Is(err, c.want) {
				t.Fatalf("%v, %v, want %v", d, err, c.want)
			}
			if hint := reason.Of(err).Hint; hint == "" || strings.Contains(hint, "chown") {
				t.Errorf("hint %q", hint)
			}
			delete(before, lockName) // who has it is written there
			after := contents(t, dir)
			delete(after, lockName)
			if got := modeOf(t, dir); got != mode || len(after) != len(before) {
				t.Errorf("mode %v, was %v; %v, was %v", got, mode, after, before)
			}
		})
	}
}

// TestDirOfAnotherUser: the words name the owner, and how to become him.
func TestDirOfAnotherUser(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	must(t, os.Chown(dir, nobody, nobody))
	_, err := Open(dir)
	if err == nil || !strings.Contains(err.Error(), trust.UserName(nobody)) || !strings.Contains(reason.Of(err).Hint, "runuser -u nobody --") {
		t.Errorf("%v; %s", err, reason.Of(err).Hint)
	}
}

// TestDirWithAComma: etcd would end with words about URLs.
func TestDirWithAComma(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a,b")
	if _, err := Open(dir); !reason.Is(err, reason.InvalidValue) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
}

func TestDirTaken(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"missing":             func(t *testing.T, dir string) { must(t, os.Remove(dir)) },
		"empty for all":       func(t *testing.T, dir string) { must(t, os.Chmod(dir, 0o755)) },
		"a new file system":   func(t *testing.T, dir string) { must(t, os.Mkdir(filepath.Join(dir, lostName), 0o700)) },
		"with keys":           func(t *testing.T, dir string) { must(t, os.Mkdir(filepath.Join(dir, trustDir), 0o700)) },
		"a start was cut off": func(t *testing.T, dir string) { must(t, os.WriteFile(filepath.Join(dir, lockName), nil, 0o600)) },
		"a mark half-written": func(t *testing.T, dir string) { must(t, os.WriteFile(filepath.Join(dir, ".tako-X"), nil, 0o600)) },
		"ours with notes": func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, formatName), []byte("1\n"), 0o600))
			must(t, os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			prepare(t, dir)
			d, err := Open(dir)
			must(t, err)
			defer d.Close()
			if mode := modeOf(t, dir); mode.Perm() != 0o700 {
				t.Errorf("mode %v", mode)
			}
			if b, err := os.ReadFile(d.Join(formatName)); err != nil || string(b) != "1\n" {
				t.Errorf("format %q, %v", b, err)
			}
		})
	}
}

// TestRestoreByRoot: what root restores into the directory of a server's user is that user's, from the outside to the inside; what root
// then does with the trust of the server too.
func TestRestoreByRoot(t *testing.T) {
	needsRoot(t)
	s := start(t, t.TempDir())
	file := filepath.Join(t.TempDir(), "backup")
	_, err := s.admin.Backup(t.Context(), file, time.Now())
	must(t, err)
	dir := t.TempDir()
	must(t, os.Chown(dir, nobody, nobody))
	r := Restore{From: file, Dir: dir, Secret: filepath.Join(s.dir, secretName), Roots: []string{filepath.Join(s.dir, trustDir, rootKeyName)}}
	_, err = r.Run(t.Context(), time.Now())
	must(t, err)
	wantOwner(t, dir, nobody)

	// The server of that user runs, as far as it matters here, and root works on it.
	member, err := etcd.Start(t.Context(), etcd.Options{Dir: filepath.Join(dir, databaseName)})
	must(t, err)
	defer member.Close()
	a, err := OpenAdmin(t.Context(), dir, etcd.Connection{})
	must(t, err)
	defer a.Close()
	now := time.Now()
	_, err = a.RotateRoot(t.Context(), now)
	must(t, err)
	offline := filepath.Join(t.TempDir(), "root-key")
	_, err = a.ExportRoot(t.Context(), offline, false)
	must(t, err)
	wantOwner(t, offline, 0)
	_, err = a.Backup(t.Context(), filepath.Join(t.TempDir(), "again"), now)
	must(t, err)
	wantOwner(t, filepath.Join(dir, trustDir), nobody)
	wantOwner(t, filepath.Join(dir, secretName), nobody)
	_, err = a.Change(t.Context(), now, trust.BumpEpoch())
	must(t, err)
}

// TestRestoreByRootThroughALink: the user of the server leads root nowhere.
func TestRestoreByRootThroughALink(t *testing.T) {
	needsRoot(t)
	s := start(t, t.TempDir())
	file := filepath.Join(t.TempDir(), "backup")
	_, err := s.admin.Backup(t.Context(), file, time.Now())
	must(t, err)
	dir, elsewhere := t.TempDir(), t.TempDir()
	must(t, errors.Join(os.Symlink(elsewhere, filepath.Join(dir, trustDir)), os.Chown(dir, nobody, nobody)))
	r := Restore{From: file, Dir: dir, Secret: filepath.Join(s.dir, secretName), Roots: []string{filepath.Join(s.dir, trustDir, rootKeyName)}}
	if _, err := r.Run(t.Context(), time.Now()); !reason.Is(err, reason.TypeInTheWay) {
		t.Errorf("%v", err)
	}
	if left := contents(t, elsewhere); len(left) != 0 {
		t.Errorf("elsewhere there is %v", left)
	}
	wantOwner(t, elsewhere, 0)
	wantOwner(t, dir, nobody)
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	st, err := os.Stat(path)
	must(t, err)
	return st.Mode()
}

// wantOwner wants everything in a tree to belong to one user.
func wantOwner(t *testing.T, tree string, user uint32) {
	t.Helper()
	must(t, filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if sys, ok := info.Sys().(*syscall.Stat_t); !ok || sys.Uid != user {
			t.Errorf("%s belongs to %d, want %d", path, sys.Uid, user)
		}
		return nil
	}))
}
