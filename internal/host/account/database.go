package account

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	databaseDir = "/etc"
	// tableBytesMax bounds what is read of one file: a million users.
	tableBytesMax = 64 << 20
	// pwdLock is the file that lckpwdf(3) locks.
	pwdLock = "/etc/.pwd.lock"
	// lockFileMax bounds the number of a process in a lock file.
	lockFileMax = 32
)

// databaseFiles are the files of accounts. The last two need not exist.
var databaseFiles = [...]string{"passwd", "group", "shadow", "gshadow"}

// lockFiles are those that shadow-utils make beside the databases, with the number of their process in it.
var lockFiles = [...]string{"/etc/passwd.lock", "/etc/group.lock", "/etc/shadow.lock", "/etc/gshadow.lock"}

// stamp is what tells one state of the databases from another.
type stamp [len(databaseFiles)]disk.Signature

// snapshot is what the databases say at one moment.
type snapshot struct {
	passwd, group, shadow table
}

// databases are the files of accounts below a root. Their methods may be called from several goroutines.
type databases struct {
	root *disk.Root

	mu    sync.Mutex // guards what follows
	at    stamp
	state uint64 // counts the states that were seen; the first is 1
}

// look returns the number of the state that the databases are in now, without reading them. settled says that every later change gets
// another number: within one tick of the kernel's clock two changes may look the same.
func (d *databases) look() (state uint64, settled bool, err error) {
	now := disk.Tick()
	dir, err := d.root.Dir(databaseDir)
	if err != nil {
		return 0, false, err
	}
	defer dir.Close()
	var at stamp
	settled = true
	for i, name := range databaseFiles {
		st, err := dir.Stat(name)
		if err != nil {
			return 0, false, err
		}
		at[i] = st.Signature
		settled = settled && st.Ctime < now
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if at != d.at || d.state == 0 {
		d.at = at
		d.state++
	}
	return d.state, settled, nil
}

// read reads the databases, hashes only where they are wanted: they are for root. A host without shadow passwords has no shadow file, and
// gshadow says nothing that group does not.
func (d *databases) read(hashes bool) (*snapshot, error) {
	dir, err := d.root.Dir(databaseDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var s snapshot
	for i, to := range []*table{&s.passwd, &s.group, &s.shadow} {
		name := databaseFiles[i]
		if to == &s.shadow && !hashes {
			continue
		}
		st, err := dir.Stat(name)
		if err == nil && !st.Exists() {
			continue
		}
		if err == nil {
			*to, _, err = dir.ReadFile(name, tableBytesMax)
		}
		if err != nil {
			return nil, err
		}
	}
	return &s, nil
}

// lockHolder says who keeps us from changing the databases of the host, "" for nobody.
func lockHolder() (string, error) {
	if holder, err := disk.LockHolder(pwdLock); holder != "" || err != nil {
		return holder, err
	}
	for _, file := range lockFiles {
		if pid, ok := lockedBy(file); ok {
			return disk.ProcessName(pid), nil
		}
	}
	return "", nil
}

// lockedBy reads a lock file. One whose process is gone holds nobody: shadow-utils take it away themselves.
func lockedBy(file string) (pid int, ok bool) {
	f, err := os.Open(file)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	b := make([]byte, lockFileMax)
	n, _ := f.Read(b)
	pid, err = strconv.Atoi(strings.Trim(string(b[:n]), "\x00\n "))
	return pid, err == nil && pid > 0 && !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// unknownUser is the error for a user that nobody knows.
func unknownUser(doing, name string) error {
	return &reason.Error{Code: reason.UnknownOwner, Doing: doing, Cause: errors.New("there is no user " + name + " in /etc/passwd"),
		Hint: "declare the user, or require the package that makes it"}
}
