package account

import (
	"errors"
	"os/user"
	"strconv"
)

// Account is whom a task runs as.
type Account struct {
	UID, GID uint32
	Groups   []uint32
}

// Find is the account of a name or a number. A number that has no name has no groups but that of the same number.
func Find(name string) (Account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.LookupId(name)
	}
	if err == nil {
		return of(u)
	}
	number, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return Account{}, errors.New("there is no such user on this host")
	}
	return Account{UID: uint32(number), GID: uint32(number)}, nil
}

func of(u *user.User) (Account, error) {
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	names, err3 := u.GroupIds()
	a := Account{UID: uint32(uid), GID: uint32(gid)}
	for _, name := range names {
		g, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			return a, err
		}
		a.Groups = append(a.Groups, uint32(g))
	}
	return a, errors.Join(err1, err2, err3)
}
