package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// cgroupPrefix begins the name of every control group of a lab.
	cgroupPrefix = "tako-lab-"
	// firstHostNumber is the last part of the first host's address; the bridge has 1.
	firstHostNumber = 10
	// hostsMax is what the subnet's last part has room for.
	hostsMax = 200
	// teardownTimeout bounds every step of taking a lab down that could hang; each is done in milliseconds.
	teardownTimeout = 30 * time.Second
	// claimTimeout bounds the wait for others that set up labs: each may need teardownTimeout for dead ones.
	claimTimeout = time.Minute
	lockSuffix   = ".lock"
)

// hostName is what a host may be called: a label for DNS, short enough for "vb-" and the name to be the name of a network
// link, which has at most 15 characters.
var hostName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,11}$`)

// Lab is a network with hosts and a package repository. It belongs to one test and ends with it.
type Lab struct {
	dir        string   // hosts' disks, the repository and its key
	lock       *os.File // held as long as the lab lives: tells a living lab from a left-over
	root       root
	network    *network
	repository *Repository
	hosts      []*Host
}

// NewLab sets up a lab and removes what killed runs have left. When the test ends, the lab ends; when it fails, the
// consoles and journals of the hosts are in its log. NewLab skips the test where hosts cannot boot (see Require). It raises the limit of
// inotify instances of the machine (see raiseLimits).
func NewLab(t testing.TB) *Lab {
	t.Helper()
	Require(t)
	if err := raiseLimits(); err != nil {
		t.Log(err) // the hosts of one test boot all the same
	}
	root, err := openRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := &Lab{dir: filepath.Join(cacheDir(), "labs", randomID(4)), root: root}
	t.Cleanup(func() { l.end(t) })
	if err := l.open(t); err != nil {
		t.Fatalf("set up lab: %v", err)
	}
	return l
}

// open makes the lab's parts; what it has made when it returns an error, end takes down.
func (l *Lab) open(t testing.TB) (err error) {
	ctx := t.Context()
	if l.lock, err = claim(t, l.dir); err != nil {
		return err
	}
	if err := os.Mkdir(l.dir, 0o755); err != nil {
		return err
	}
	if l.network, err = openNetwork(ctx); err != nil {
		return err
	}
	l.repository, err = openRepository(ctx, l.dir, l.root.packages(), l.network)
	return err
}

// end takes everything down, the hosts first.
func (l *Lab) end(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), teardownTimeout)
	defer cancel()
	for _, h := range l.hosts {
		if t.Failed() {
			h.dump(ctx, t)
		}
	}
	var errs []error
	for _, h := range l.hosts {
		errs = append(errs, h.kill(ctx))
	}
	if l.repository != nil {
		errs = append(errs, l.repository.close())
	}
	if l.network != nil {
		l.network.close()
	}
	if l.lock != nil {
		errs = append(errs, removeLab(ctx, l.dir), l.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		t.Errorf("take down lab: %v", err)
	}
}

// Repository returns the lab's package repository.
func (l *Lab) Repository() *Repository { return l.repository }

// Dial connects from the bridge to address ("10.77.0.10:80") inside the lab. It is the shape that http.Transport wants.
func (l *Lab) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	return l.network.dial(ctx, address)
}

// Boot makes a host with a fresh disk, boots it and waits until systemd has started everything. The name is the host's
// hostname: up to 12 lower-case letters, digits and dashes.
func (l *Lab) Boot(t testing.TB, name string) *Host {
	t.Helper()
	if !hostName.MatchString(name) {
		t.Fatalf("host name %q: want up to 12 lower-case letters, digits and dashes", name)
	}
	if len(l.hosts) == hostsMax {
		t.Fatalf("boot host %s: a lab has at most %d hosts", name, hostsMax)
	}
	h := &Host{
		name:    name,
		address: subnet + strconv.Itoa(firstHostNumber+len(l.hosts)),
		dir:     filepath.Join(l.dir, "host-"+name),
		lab:     l,
	}
	if err := h.createDisk(t.Context()); err != nil {
		t.Fatalf("make disk of host %s: %v", name, err)
	}
	l.hosts = append(l.hosts, h)
	h.Boot(t)
	return h
}

// lockOf returns the path of the file that the owner of a lab keeps locked. It is beside the lab's directory, so that it
// goes last.
func lockOf(labDir string) string { return labDir + lockSuffix }

// claim takes the lock of a new lab and, at this opportunity, removes dead ones. Of several processes one does so at a time:
// a lab whose lock file is there but not yet locked would look dead.
func claim(t testing.TB, labDir string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(t.Context(), claimTimeout)
	defer cancel()
	labs := filepath.Dir(labDir)
	// Hosts' disks hold programs with the set-user-ID bit, which are not for the users of this machine.
	if err := os.MkdirAll(labs, 0o700); err != nil {
		return nil, err
	}
	turn, err := lockFile(ctx, labs+lockSuffix)
	if err != nil {
		return nil, err
	}
	defer turn.Close()
	if err := removeDeadLabs(ctx, labs); err != nil {
		t.Logf("remove labs of killed runs: %v", err) // the next lab tries again
	}
	return tryLockFile(lockOf(labDir))
}

// removeDeadLabs removes the directories and control groups of labs that nobody owns any more.
func removeDeadLabs(ctx context.Context, labs string) error {
	ctx, cancel := context.WithTimeout(ctx, teardownTimeout)
	defer cancel()
	locks, err := filepath.Glob(lockOf(filepath.Join(labs, "*")))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range locks {
		lock, err := tryLockFile(path)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue // it lives
		}
		if err == nil {
			err = errors.Join(removeLab(ctx, strings.TrimSuffix(path, lockSuffix)), lock.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeLab removes a lab's control groups with what still runs in them, its directory and its lock file. The caller has
// the lab's lock.
func removeLab(ctx context.Context, dir string) error {
	if err := removeCgroups(ctx, cgroupPrefix+filepath.Base(dir)); err != nil {
		return fmt.Errorf("remove control groups: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Remove(lockOf(dir))
}

// randomID returns n random bytes as hexadecimal digits.
func randomID(n int) string {
	id := make([]byte, n)
	rand.Read(id)
	return hex.EncodeToString(id)
}

// Archive writes the Debian root that hosts begin with to a tar archive.
func (l *Lab) Archive(t testing.TB, file string) {
	t.Helper()
	for _, args := range [][]string{
		{"--create", "--directory", l.root.tree(), "--exclude=./usr"},
		{"--append", "--directory", l.root.usr(), `--transform=s,^\.,./usr,S`}, // the targets of symlinks stay as they are
	} {
		args = append(args, "--file="+file, "--sort=name", "--numeric-owner", ".")
		if out, err := exec.CommandContext(t.Context(), "tar", args...).CombinedOutput(); err != nil {
			t.Fatalf("tar %q: %v\n%s", args, err, out)
		}
	}
}
