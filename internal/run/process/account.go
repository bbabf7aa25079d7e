package process

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

// account is whom a task runs as; nil: the agent's own user, which is not root.
func (r *Runtime) account(t *run.Task) (*account, error) {
	if t.User == "" && os.Geteuid() == 0 {
		uid, err := r.users.of(t.ID.Instance)
		return &account{UID: uid, GID: uid}, err
	}
	if t.User == "" {
		return nil, nil
	}
	refuse := func(code reason.Code, why error) (*account, error) {
		return nil, &reason.Error{Code: code, Doing: fmt.Sprintf("run %s as %q", t.ID, t.User), Cause: why}
	}
	u, err := user.Lookup(t.User)
	if err != nil {
		u, err = user.LookupId(t.User)
	}
	number, errNumber := strconv.ParseUint(t.User, 10, 32)
	var a account
	switch {
	case err == nil:
		a, err = accountOf(u)
		if err != nil {
			return refuse(reason.TaskRefused, err)
		}
	case errNumber == nil: // a number that has no name, and so no other groups
		a = account{UID: uint32(number), GID: uint32(number)}
	default:
		return refuse(reason.TaskRefused, errors.New("there is no such user on this host"))
	}
	if why, lacks := r.can.Lacks[run.OtherUsers]; lacks {
		if int(a.UID) == os.Geteuid() {
			return nil, nil
		}
		return refuse(reason.RuntimeUnfit, errors.New(why))
	}
	return &a, nil
}

func accountOf(u *user.User) (account, error) {
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	names, err3 := u.GroupIds()
	a := account{UID: uint32(uid), GID: uint32(gid)}
	for _, name := range names {
		g, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			return a, err
		}
		a.Groups = append(a.Groups, uint32(g))
	}
	return a, errors.Join(err1, err2, err3)
}
