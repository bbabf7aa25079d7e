package account

import (
	"errors"
	"hash/fnv"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// The users of instances: above those that systemd gives to services (61184 to 65519) and what 16 bits can mean, and below those that
// useradd gives to users for their containers (from 100000).
const (
	firstUser = 66_000
	userCount = 33_000
)

// Users gives each instance a user that nobody else has. A file named after the number holds who has it, and a file named after the
// instance the number; the first is made by one only, and comes first and goes last. Runtimes of one host share the directory.
type Users struct {
	dir string
	mu  sync.Mutex // held while a user is given or taken back
}

// fileMode is that of the files: who has which number is nobody else's concern.
const fileMode = 0o600

// NewUsers keeps users in a directory, which is made where it is missing.
func NewUsers(dir string) (*Users, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, disk.Fault("make", dir, err)
	}
	return &Users{dir: dir}, nil
}

func (u *Users) file(name string) string { return filepath.Join(u.dir, name) }

// Of is the user of an instance, which it has until it is released.
func (u *Users) Of(instance string) (uint32, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if text, err := os.ReadFile(u.file(instance)); err == nil {
		if n, err := strconv.ParseUint(string(text), 10, 32); err == nil && n >= firstUser && n < firstUser+userCount {
			return uint32(n), nil
		}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(instance)) // it cannot fail
	for try := range uint32(userCount) {
		n := firstUser + (h.Sum32()%userCount+try)%userCount
		mine, err := u.claim(n, instance)
		if err != nil {
			return 0, disk.Fault("write", u.file(strconv.Itoa(int(n))), err)
		}
		if mine {
			return n, nil
		}
	}
	return 0, &reason.Error{Code: reason.TaskNotStarted, Doing: "find a user for instance " + instance, Cause: errors.New("all are taken")}
}

// claim takes a number for an instance; false: somebody else has it.
func (u *Users) claim(n uint32, instance string) (bool, error) {
	text := strconv.Itoa(int(n))
	if _, err := user.LookupId(text); err == nil {
		return false, nil // the host has a user of that number
	}
	f, err := os.OpenFile(u.file(text), os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if errors.Is(err, fs.ErrExist) {
		// Of one that was cut short nothing is in it, and nobody has it: an instance's own file was not written yet.
		if who, err := os.ReadFile(u.file(text)); err != nil || len(who) > 0 && string(who) != instance {
			return false, err
		}
		f, err = os.OpenFile(u.file(text), os.O_WRONLY, 0)
	}
	if err != nil {
		return false, err
	}
	_, err = f.WriteString(instance)
	if err = errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	return true, os.WriteFile(u.file(instance), []byte(text), fileMode)
}

// Release takes the user of an instance back, unless that still needs it.
func (u *Users) Release(instance string, needs func(instance string) bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	text, err := os.ReadFile(u.file(instance))
	if err != nil || needs(instance) {
		return nil // it has none, or keeps it
	}
	errs := []error{os.Remove(u.file(instance))}
	if n, err := strconv.ParseUint(string(text), 10, 32); err == nil && n >= firstUser {
		errs = append(errs, os.Remove(u.file(string(text))))
	}
	if err := errors.Join(errs...); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return disk.Fault("give back the user of", instance, err)
	}
	return nil
}
