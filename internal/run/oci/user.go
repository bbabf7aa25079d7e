package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/account"
	"tako.dev/tako/internal/run/oci/image"
)

const (
	// usersMax bounds passwd(5) and group(5) of an image.
	usersMax = 1 << 20
	// groupsMax is NGROUPS_MAX of the kernel.
	groupsMax = 65536
)

// account is whom a task runs as: the user that it names, or the image, or one of its instance.
func (r *Runtime) account(t *run.Task, i image.Image) (*account.Account, error) {
	name := t.User
	if name == "" {
		name = i.Config.User
	}
	if name == "" {
		uid, err := r.OwnUser(t.ID.Instance)
		return &account.Account{UID: uid, GID: uid}, err
	}
	var texts [2]string
	for k, file := range []string{"etc/passwd", "etc/group"} {
		text, err := i.ReadFile(file, usersMax)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, &reason.Error{Code: reason.TaskRefused, Doing: "read /" + file + " of the image of " + t.ID.String(), Cause: err}
		}
		texts[k] = string(text)
	}
	as, err := lookup(name, texts[0], texts[1])
	if err != nil {
		return nil, &reason.Error{Code: reason.TaskRefused, Doing: fmt.Sprintf("run %s as %q", t.ID, reason.Clip([]byte(name))), Cause: err}
	}
	return as, nil
}

// lookup finds USER or USER:GROUP, names or numbers, in the text of passwd(5) and group(5).
func lookup(name, passwd, group string) (*account.Account, error) {
	user, wanted, grouped := strings.Cut(name, ":")
	as, known, err := userOf(user, passwd)
	if err != nil {
		return nil, err
	}
	if grouped {
		gid, err := groupOf(wanted, group)
		if err != nil {
			return nil, err
		}
		as.GID = gid
		return as, nil
	}
	for line := range strings.Lines(group) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 4 || known == "" || !slices.Contains(strings.Split(f[3], ","), known) {
			continue
		}
		gid, ok := number(f[2])
		if ok && gid != as.GID && !slices.Contains(as.Groups, gid) && len(as.Groups) < groupsMax {
			as.Groups = append(as.Groups, gid)
		}
	}
	return as, nil
}

// userOf finds a user, and its name where it has one.
func userOf(user, passwd string) (as *account.Account, known string, err error) {
	wanted, numeric := number(user)
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 4 || f[0] == "" {
			continue
		}
		uid, ok1 := number(f[2])
		gid, ok2 := number(f[3])
		if ok1 && ok2 && (f[0] == user || numeric && uid == wanted) {
			return &account.Account{UID: uid, GID: gid}, f[0], nil
		}
	}
	if !numeric {
		return nil, "", errors.New("the image has no such user")
	}
	return &account.Account{UID: wanted, GID: wanted}, "", nil // a number that has no name, and so no other groups
}

func groupOf(wanted, group string) (uint32, error) {
	if gid, ok := number(wanted); ok {
		return gid, nil
	}
	for line := range strings.Lines(group) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 3 || f[0] == "" || f[0] != wanted {
			continue
		}
		if gid, ok := number(f[2]); ok {
			return gid, nil
		}
	}
	return 0, errors.New("the image has no such group")
}

// number is that of a user or group. The largest one means nobody to the kernel.
func number(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n != 1<<32-1
}
