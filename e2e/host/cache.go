package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// debianSuite is the Debian release that the hosts run.
	debianSuite = "bookworm"
	// recipeVersion goes up when buildRoot itself changes what it makes.
	recipeVersion = "2"
	// buildTimeout bounds making the root: 15 s on a fast line, and the same again for the packages; the rest is for slow mirrors.
	buildTimeout = 10 * time.Minute
)

// rootPackages are in every host from the start: what boots, and ping for the tests of the network.
var rootPackages = []string{"systemd", "systemd-sysv", "dbus", "iproute2", "iputils-ping"}

// repositoryPackages are, with everything they need beyond the root, what hosts can install: nginx for the scenarios,
// small ones without a service to install and remove, strace for tests that stop a program at a system call, what a server needs for
// Sources, PostgreSQL with its time zones for the web server and its database, sudo for what checks its files, runc for containers and plugins
// for their networks.
var repositoryPackages = []string{"nginx", "hello", "tree", "sl", "strace", "git", "openssh-client", "postgresql", "postgresql-client", "sudo", "tzdata", "runc", "containernetworking-plugins"}

// idleGenerators are run at each boot and each daemon-reload, and have nothing to generate in a host: no encrypted disk, no boot loader, no
// console. A run of all tests has hundreds of both.
var idleGenerators = []string{
	"bless-boot", "cryptsetup", "debug", "getty", "gpt-auto", "hibernate-resume", "integritysetup", "rc-local", "run", "system-update", "veritysetup",
}

// root is a built recipe in the cache: nobody writes to it any more.
type root struct {
	dir string
}

// tree is the root file system that every host's disk is a copy of; its /usr is empty.
func (r root) tree() string { return filepath.Join(r.dir, "tree") }

// usr is the content of /usr, which hosts share: each lays an overlay over it.
func (r root) usr() string { return filepath.Join(r.dir, "usr") }

// packages is the folder with the .deb files that are not in the tree.
func (r root) packages() string { return filepath.Join(r.dir, "packages") }

// cacheDir returns the absolute path where roots and labs, with the disks of their hosts, are kept. It must not be on an overlay file system
// (the root of most containers is one), because the upper layer of each host's /usr is in it.
func cacheDir() string {
	if dir := os.Getenv("TAKO_TEST_CACHE"); dir != "" {
		return dir
	}
	return "/var/cache/tako-test"
}

// recipe names what a root is made from: a root is usable as long as its recipe is.
func recipe() string {
	parts := []string{recipeVersion, debianSuite, runtime.GOARCH, strings.Join(rootPackages, " "), strings.Join(repositoryPackages, " ")}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:8])
}

// openRoot returns the root of the present recipe, and builds it first when the cache lacks it. Of several processes that
// want it at once one builds and the others wait.
func openRoot(ctx context.Context) (root, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	r := root{dir: filepath.Join(cacheDir(), "root-"+recipe())}
	if err := os.MkdirAll(cacheDir(), 0o755); err != nil {
		return root{}, err
	}
	lock, err := lockFile(ctx, filepath.Join(cacheDir(), "root.lock"))
	if err != nil {
		return root{}, err
	}
	defer lock.Close()
	if _, err := os.Stat(r.dir); err == nil {
		return r, nil
	}
	building := root{dir: r.dir + ".building"}
	if err := os.RemoveAll(building.dir); err != nil {
		return root{}, err
	}
	if err := buildRoot(ctx, building); err != nil {
		return root{}, fmt.Errorf("build the root of the hosts: %w", err)
	}
	return r, os.Rename(building.dir, r.dir)
}

// buildRoot fills the directory with the tree and the packages, in one run of mmdebstrap: its package manager knows what
// the tree has, so it downloads just what the packages need beyond that.
func buildRoot(ctx context.Context, r root) error {
	if err := os.MkdirAll(r.packages(), 0o755); err != nil {
		return err
	}
	settings, err := aptSettings(ctx, r.dir)
	if err != nil {
		return err
	}
	download := fmt.Sprintf("rm \"$1\"/var/cache/apt/archives/*.deb && APT_CONFIG=\"$MMDEBSTRAP_APT_CONFIG\" apt-get --yes --download-only --no-install-recommends install %s"+
		" && mv \"$1\"/var/cache/apt/archives/*.deb '%s'", strings.Join(repositoryPackages, " "), r.packages())
	args := []string{
		"--variant=minbase", "--include=" + strings.Join(rootPackages, ","), "--aptopt=" + settings,
		// Documents and translations are two fifths of the root and serve no test.
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--customize-hook=" + download, debianSuite, r.tree(),
	}
	mirror, err := aptMirror(ctx)
	if err != nil {
		return err
	}
	if mirror != "" {
		args = append(args, mirror)
	}
	if out, err := exec.CommandContext(ctx, "mmdebstrap", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("mmdebstrap: %w: %s", err, lastLines(string(out), 20))
	}
	// The settings are for this machine's way to its mirror; hosts have another.
	for _, file := range []string{settings, filepath.Join(r.tree(), "etc/apt/apt.conf.d/99mmdebstrap")} {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	generators := filepath.Join(r.tree(), "etc/systemd/system-generators")
	if err := os.MkdirAll(generators, 0o755); err != nil {
		return err
	}
	for _, name := range idleGenerators {
		if err := os.Symlink(os.DevNull, filepath.Join(generators, "systemd-"+name+"-generator")); err != nil {
			return err
		}
	}
	usr := filepath.Join(r.tree(), "usr")
	if err := os.Rename(usr, r.usr()); err != nil {
		return err
	}
	return os.Mkdir(usr, 0o755)
}

// aptSettings writes how this machine's apt reaches its mirrors (proxies, time-outs, checks) to a file and returns its path.
// Passwords stay where they are: the file points to the machine's.
func aptSettings(ctx context.Context, dir string) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "--format", "%F \"%v\";%n").Output()
	if err != nil {
		return "", fmt.Errorf("apt-config dump: %w", err)
	}
	var settings strings.Builder
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Acquire::") {
			settings.WriteString(line)
		}
	}
	settings.WriteString("Dir::Etc::netrc \"/etc/apt/auth.conf\";\nDir::Etc::netrcparts \"/etc/apt/auth.conf.d\";\n")
	path := filepath.Join(dir, "apt.conf")
	return path, os.WriteFile(path, []byte(settings.String()), 0o600)
}

// aptMirror returns the address from which this machine itself takes the suite, or "" for mmdebstrap's own choice.
func aptMirror(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)",
		"Created-By: Packages", "Origin: Debian", "Codename: "+debianSuite, "Component: main").Output()
	if err != nil {
		return "", fmt.Errorf("apt-get indextargets: %w", err)
	}
	mirror, _, _ := strings.Cut(string(out), "\n")
	return mirror, nil
}

// lockFile opens the file and waits until no other process has it locked. Closing it, or the end of the process in
// whatever way, unlocks it.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		file, err := tryLockFile(path)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return file, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the lock %s: %w", path, ctx.Err())
		}
	}
}

// tryLockFile is lockFile that does not wait: unix.EWOULDBLOCK says that somebody else has the lock.
func tryLockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return file, nil
}

// lastLines returns the last n lines of a text, for messages.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
