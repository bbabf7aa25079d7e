package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	// programsDir is where programs are built, below the top of the tree. Git and tidy do not look there.
	programsDir = ".scratch/programs"
	// programTimeout bounds a build, of a cold cache too, and the wait for that of another process.
	programTimeout = 10 * time.Minute
)

// Each process asks once for these: that they are up to date costs the go command half a second.
var (
	takoBinary  = sync.OnceValues(func() (string, error) { return buildProgram("tako", "tako.dev/tako/cmd/tako") })
	agentBinary = sync.OnceValues(func() (string, error) { return buildProgram("tako-agent", "tako.dev/tako/cmd/tako-agent") })
	etcdBinary  = sync.OnceValues(func() (string, error) { return buildProgram("etcd", "go.etcd.io/etcd/server/v3") })
)

// TakoBinary builds cmd/tako and returns the path of the program.
func TakoBinary(t testing.TB) string { t.Helper(); return must(t, takoBinary) }

// AgentBinary builds cmd/tako-agent and returns the path of the program, which is beside that of TakoBinary.
func AgentBinary(t testing.TB) string { t.Helper(); return must(t, agentBinary) }

// EtcdBinary builds etcd and returns the path of the program.
func EtcdBinary(t testing.TB) string { t.Helper(); return must(t, etcdBinary) }

// Program builds any main package and returns the path of the program, which is called name.
func Program(t testing.TB, name, importPath string) string {
	t.Helper()
	return must(t, func() (string, error) { return buildProgram(name, importPath) })
}

func must(t testing.TB, build func() (string, error)) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// buildProgram builds a main package as it is shipped. All test processes of a tree have one file of it, which the go command leaves as it
// is while it is up to date: linking takes seconds, and some twenty processes of a run want the same programs.
func buildProgram(name, importPath string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), programTimeout)
	defer cancel()
	top, err := treeTop()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(top, programsDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := lockFile(ctx, filepath.Join(dir, name+lockSuffix))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	path := filepath.Join(dir, name)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, importPath)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", importPath, err, out)
	}
	return path, nil
}

// treeTop is the folder of go.mod: go test runs each test in the folder of its package.
func treeTop() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if !errors.Is(err, fs.ErrNotExist) {
			return dir, err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("there is no go.mod above the working directory: programs are built from the source tree")
		}
		dir = up
	}
}
