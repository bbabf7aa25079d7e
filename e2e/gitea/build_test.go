package gitea

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The Gitea that the recording is of. That of 1.27 needs modules that not every proxy has.
const (
	module        = "code.gitea.io/gitea"
	moduleVersion = "v1.26.4"
	moduleSum     = "h1:VDA00oYg16VrQf3sES0NuS/oiDLAIVng/7jKHsBMP/w=" // its go.sum pins all that it needs
	// buildTime bounds the download of its modules and the build, which takes some five minutes of one processor; the rest is for busy
	// machines.
	buildTime = 30 * time.Minute
)

// builtAt is where the program and the folders that it reads are: in the user's cache, by version. They may not be there.
func builtAt(t *testing.T) (dir string, there bool) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(cache, "tako-test", "gitea-"+moduleVersion)
	_, err = os.Stat(dir)
	return dir, err == nil
}

// program is where they are. The first call on a machine builds them.
func program(t *testing.T) string {
	t.Helper()
	dir, there := builtAt(t)
	if there {
		return dir
	}
	started := time.Now()
	if err := build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	t.Logf("Gitea %s was built in %v", moduleVersion, time.Since(started).Round(time.Second))
	return dir
}

// build builds it into a directory, which is there only when it is complete.
func build(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	building, err := os.MkdirTemp(filepath.Dir(dir), "gitea-building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(building)
	source, done := filepath.Join(building, "source"), filepath.Join(building, "done")
	out, err := run(ctx, building, "go", "mod", "download", "-json", module+"@"+moduleVersion)
	if err != nil {
		return err
	}
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		return err
	}
	if got.Sum != moduleSum {
		return fmt.Errorf("module %s %s has the sum %s, and not %s", module, moduleVersion, got.Sum, moduleSum)
	}
	// What it replaces counts only in the main module, and the cache of modules is no place to build one.
	if err := os.CopyFS(source, os.DirFS(got.Dir)); err != nil {
		return err
	}
	if _, err := run(ctx, source, "go", "build", "-trimpath", "-tags", "sqlite,sqlite_unlock_notify", "-ldflags", "-s -w -X main.Version="+strings.TrimPrefix(moduleVersion, "v"),
		"-o", filepath.Join(done, "gitea"), "."); err != nil {
		return err
	}
	for _, folder := range []string{"options", "templates", "public"} {
		if err := os.Rename(filepath.Join(source, folder), filepath.Join(done, folder)); err != nil {
			return err
		}
	}
	if err := os.Rename(done, dir); err != nil && !errors.Is(err, os.ErrExist) { // another run was first
		return err
	}
	return nil
}

// run runs a command and returns what it prints.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	// Our own flags are none of its business. Its SQLite is C.
	c.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=1")
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, errs.Bytes()[max(0, errs.Len()-4<<10):])
	}
	return string(out), nil
}
