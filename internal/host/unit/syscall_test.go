package unit

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/kill"
)

const oldText = "[Service]\nEnvironment=A=old\n"

// drops are a file that replaces one, and a drop-in whose directory is missing.
func drops() []declare.Resource {
	return []declare.Resource{unitOf("t-one", "", sleeper), unitOf("t-two", "50-x", "[Service]\nEnvironment=A=b\n")}
}

func TestMain(m *testing.M) { kill.Main(m, openFiles) }

// openFiles starts an agent whose root and state are below one directory: with a root of its own, nothing is asked of systemd.
func openFiles(dir string) (hosttest.TypeOf, io.Closer, error) {
	root, err := disk.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	store, err := content.Open(filepath.Join(dir, "content"), content.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	typ := New(Options{Root: root, Content: store, StateDir: filepath.Join(dir, "state")})
	return func(declare.Resource) host.Type { return typ }, root, nil
}

// TestAgentCase13_KillAtAnySystemCall kills an agent at each system call that changes something, and converges afterwards.
func TestAgentCase13_KillAtAnySystemCall(t *testing.T) {
	c := casetest.Start(t)
	dir := t.TempDir()
	units := filepath.Join(dir, declare.UnitDir)
	one, two := filepath.Join(units, "t-one.service"), filepath.Join(units, "t-two.service.d/50-x.conf")
	kills := kill.Everywhere(t, kill.Row{
		Open: openFiles, Resources: drops(), State: dir,
		Arrange: func(testing.TB) {
			c.NoError(os.MkdirAll(units, 0o755), "make the directory")
			c.NoError(os.WriteFile(one, []byte(oldText), 0o644), "write the old file")
		},
		See: func(t testing.TB) (texts []string) {
			for _, p := range []string{one, two} {
				b, err := os.ReadFile(p)
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
				texts = append(texts, string(b))
			}
			return texts
		},
		Names:  []string{"mkdirat", "openat", "pwrite64", "renameat", "renameat2", "fsync", "unlinkat", "fchmod", "fchown,fchownat", "ftruncate,fallocate"},
		Killed: func(t testing.TB, _ string) { sweep(t, dir) },
		Dirs:   []string{units},
	})
	c.Check(kills > 10, "only %d kills", kills)
	t.Logf("%d kills", kills)
	var left []string
	err := filepath.WalkDir(units, func(p string, _ os.DirEntry, err error) error {
		left = append(left, strings.TrimPrefix(p, units))
		return err
	})
	c.NoError(err, "walk")
	c.Equal(left, []string{"", "/t-one.service", "/t-two.service.d", "/t-two.service.d/50-x.conf"}, "what is there in the end")
}

// sweep does what the agent does when it starts: it sweeps the directories of what is declared.
func sweep(t testing.TB, dir string) {
	t.Helper()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	dirs := []string{declare.UnitDir + "/t-two.service.d"}
	if _, err := os.Stat(filepath.Join(dir, declare.UnitDir, "t-one.service")); err == nil {
		dirs = append(dirs, declare.UnitDir)
	}
	if _, err := durable.SweepTemporaries(t.Context(), root, dirs, func(*os.File, disk.Stat) error { return nil }); err != nil {
		t.Fatal(err)
	}
}
