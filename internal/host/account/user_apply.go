package account

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
)

// next is the next program on the way of an account.
func (u *user) next(t *Type, first, now any, s *snapshot) (*call, error) {
	p := now.(person)
	u = u.beside(first.(person))
	switch {
	case u.Absent() && p.there:
		return u.userdel(t, p, s), nil
	case u.Absent():
		return u.groupdel(first.(person), s), nil
	case !p.there:
		return u.useradd(t, p, s)
	}
	if c := u.usermod(p, s); c != nil {
		return c, nil
	}
	if u.expires != nil && p.expires != *u.expires {
		return tool("/usr/bin/chage", "-E", strconv.FormatInt(*u.expires, 10), u.name()), nil
	}
	if field, err := u.field(p.hash); err != nil || u.hashes() && field != p.hash {
		return u.chpasswd(field), err
	}
	return u.move(t, p)
}

func tool(args ...string) *call { return &call{args: args} }

// useradd makes the account, and its home.
func (u *user) useradd(t *Type, p person, s *snapshot) (*call, error) {
	args := []string{useraddPath, "-d", u.homeOf(p), "-s", u.shellOf(p)}
	if home := u.neededHome(p); home != "" {
		if err := t.mayMakeHome(u.doing(), home); err != nil {
			return nil, err
		}
		args = append(args, "-m", "-K", "HOME_MODE=0700")
	} else {
		args = append(args, "-M")
	}
	if u.System {
		args = append(args, "-r")
	}
	if u.UID != nil {
		args = append(args, "-u", strconv.FormatInt(*u.UID, 10))
	}
	switch {
	case u.Group != "":
		args = append(args, "-g", u.Group)
	case s.group.has(u.name()):
		args = append(args, "-g", u.name())
	default:
		args = append(args, "-U")
	}
	if groups := u.groupsOf(p); groups != "" {
		args = append(args, "-G", groups)
	}
	if u.Comment != nil {
		args = append(args, "-c", *u.Comment)
	}
	return tool(append(args, u.name())...), nil
}

// usermod changes what may be changed while the account is in use.
func (u *user) usermod(p person, s *snapshot) *call {
	args := []string{"/usr/sbin/usermod"}
	if gid, err := u.groupNumber(p, s); err == nil && gid != p.gid {
		args = append(args, "-g", u.Group)
	}
	switch groups := u.groupsOf(p); {
	case groups == p.groups:
	case u.Membership == declare.MembershipExact:
		args = append(args, "-G", groups)
	default:
		args = append(args, "-a", "-G", strings.Join(missing(groups, p.groups), ","))
	}
	if u.Comment != nil && *u.Comment != p.comment {
		args = append(args, "-c", *u.Comment)
	}
	if shell := u.shellOf(p); shell != p.shell {
		args = append(args, "-s", shell)
	}
	if len(args) == 1 {
		return nil
	}
	return tool(append(args, u.name())...)
}

// missing are the names of one list that are not in another.
func missing(want, have string) []string {
	there := splitMembers(have)
	return slices.DeleteFunc(splitMembers(want), func(name string) bool { return slices.Contains(there, name) })
}

// chpasswd sets the field of the password. The hash is on standard input, because everybody may read arguments.
func (u *user) chpasswd(field string) *call {
	c := tool("/usr/sbin/chpasswd", "-e")
	c.secret = []byte(u.name() + ":" + field + "\n")
	return c
}

// move changes what usermod refuses to change while processes of the account run: the number first, which takes along what is in the
// home, and then the home; and makes a home that is missing.
func (u *user) move(t *Type, p person) (*call, error) {
	if u.UID != nil && uint32(*u.UID) != p.uid {
		return tool("/usr/sbin/usermod", "-u", strconv.FormatInt(*u.UID, 10), u.name()), nil
	}
	if home := u.homeOf(p); home != p.home {
		return tool("/usr/sbin/usermod", "-d", home, u.name()), nil
	}
	if !p.homeless {
		return nil, nil
	}
	if err := t.mayMakeHome(u.doing(), p.home); err != nil {
		return nil, err
	}
	return tool("/usr/sbin/mkhomedir_helper", u.name(), "0077"), nil
}

// userdel removes the account, and its home where that is its own.
func (u *user) userdel(t *Type, p person, s *snapshot) *call {
	args := []string{"/usr/sbin/userdel"}
	if u.RemoveHome && t.homeKept(u.name(), p, s) == "" {
		args = append(args, "-r")
	}
	return tool(append(args, u.name())...)
}

// homeKept says why the home of an account does not go with it, "" where it does.
func (t *Type) homeKept(name string, p person, s *snapshot) string {
	if path.Dir(p.home) == "/" || !path.IsAbs(p.home) || path.Clean(p.home) != p.home {
		return "it is no directory of one account"
	}
	if other := s.passwd.othersAt(p.home, name); other != "" {
		return "it is " + shown(other) + "'s too"
	}
	st, err := t.root.Stat(p.home)
	switch {
	case err != nil || st.Type() != unix.S_IFDIR:
		return "it is no directory"
	case st.UID != p.uid:
		return "it is not the account's own"
	case st.MountRoot:
		return "it is a mount point"
	}
	return ""
}

// groupdel removes the account's own group after it, where userdel has left it: its number and name were the account's, and nobody is in
// it.
func (u *user) groupdel(first person, s *snapshot) *call {
	gid, members, ok := s.group.group(u.name())
	members = slices.DeleteFunc(members, func(m string) bool { return m == u.name() })
	if !ok || !first.there || gid != first.gid || len(members) > 0 || len(s.passwd.usersOf(gid, 1)) > 0 {
		return nil
	}
	return tool("/usr/sbin/groupdel", u.name())
}

// note tells what a change of the account has left behind.
func (u *user) note(t *Type, first any, s *snapshot) string {
	p := first.(person)
	if !p.there {
		return ""
	}
	var notes []string
	st, err := t.root.Stat(p.home)
	isThere := err == nil && st.Exists() && p.home != "/"
	if u.Absent() {
		if isThere && !u.RemoveHome {
			return "its home " + shown(p.home) + " stays"
		}
		if isThere {
			return "its home " + shown(p.home) + " stays: " + t.homeKept(u.name(), p, s)
		}
		return ""
	}
	if u.UID != nil && uint32(*u.UID) != p.uid {
		notes = append(notes, "files outside of its home that were uid "+numberText(p.uid)+"'s still are: find / -xdev -uid "+numberText(p.uid))
	}
	if home := u.homeOf(p); home != p.home && isThere {
		notes = append(notes, "what is in its old home "+shown(p.home)+" stays there")
	}
	return strings.Join(notes, "; ")
}
