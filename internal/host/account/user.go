package account

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	// regularFrom is the first number of a person's account, UID_MIN of login.defs(5) in Debian and in Fedora.
	regularFrom = 1000
	// nowhere is the home of who has none.
	nowhere      = "/nonexistent"
	regularShell = "/bin/bash"
	systemShell  = "/usr/sbin/nologin"
	// namesShown bounds how many users an error lists.
	namesShown = 5
)

// The words for what is there and what is wanted.
const (
	wordPresent  = "present"
	wordAbsent   = "absent"
	wordDeclared = "as declared, not shown"
)

// user is one declared account.
type user struct {
	declare.User // its name is filled in
	expires      *int64
	ignored      []string // fields that are others' once the account is there
	// shadow is what the field of the password must be, sign for sign: in an account that is put back.
	shadow  *string
	mem     memory
	watched string // the home that tells of it: as it was at the last Follow
}

// person is an account as it is found. It is comparable.
type person struct {
	there                bool
	uid, gid             uint32
	comment, home, shell string
	groups               string // with commas
	hash                 string
	expires              int64
	homeless             bool // there is nothing where the home should be
}

func newUser(u *declare.User, name string) *user {
	r := &user{User: *u}
	r.User.User = name
	if day, ok := u.ExpiryDay(); ok {
		r.expires = &day
	}
	return r
}

// beside is what is declared of an account that is found: without the fields that are others' then.
func (u *user) beside(found person) *user {
	if !found.there || len(u.ignored) == 0 {
		return u
	}
	out := *u
	for _, field := range u.ignored {
		switch field {
		case "comment":
			out.Comment = nil
		case "home":
			out.Home = ""
		case "shell":
			out.Shell = ""
		case "group":
			out.Group = ""
		case "groups":
			out.Groups, out.Membership = nil, ""
		case "password":
			out.PasswordHash = ""
		case "locked":
			out.Locked = nil
		case "expires":
			out.expires = nil
		}
	}
	return &out
}

func (u *user) name() string { return u.User.User }

func (u *user) memory() *memory { return &u.mem }

func (u *user) hashes() bool {
	return u.PasswordHash != "" || u.Locked != nil || u.expires != nil || u.shadow != nil
}

// Watches names the files that say how the account is, and its home where that must be there.
func (u *user) Watches() []host.Watch {
	list := watches("passwd", "group")
	if u.hashes() {
		list = append(list, watches("shadow")...)
	}
	return append(list, watchOf(u.watched)...)
}

var _ host.Following = (*user)(nil)

// Follow takes over what home the last check has found that must be there: passwd may name another one.
func (u *user) Follow() (drop, add []host.Watch) {
	home := u.watchable()
	if home == u.watched {
		return nil, nil
	}
	drop, add = watchOf(u.watched), watchOf(home)
	u.watched = home
	return drop, add
}

// watchable is the home that tells of the account. Until it is there, it is taken for a new one.
func (u *user) watchable() string { return cmp.Or(u.mem.home, u.neededHome(person{})) }

// watchOf watches a path; none of an empty one.
func watchOf(path string) []host.Watch {
	if path == "" {
		return nil
	}
	return []host.Watch{{Kind: host.WatchPath, Name: path}}
}

func (u *user) doing() string {
	if u.Absent() {
		return "remove user " + u.name()
	}
	return "make user " + u.name()
}

// look finds the account.
func (u *user) look(t *Type, s *snapshot) any {
	e, ok := s.passwd.user(u.name())
	p := person{there: ok, expires: never}
	if !ok {
		u.mem.home = ""
		return p
	}
	p.uid, p.gid, p.comment, p.home, p.shell = e.uid, e.gid, e.comment, e.home, e.shell
	p.groups = strings.Join(s.group.groupsOf(u.name()), ",")
	if u.hashes() {
		if p.hash, p.expires, ok = s.shadow.shadow(u.name()); !ok && e.password != "x" {
			p.hash = e.password
		}
	}
	u.mem.home = u.beside(p).neededHome(p)
	p.homeless = !t.homeIsThere(u)
	return p
}

// neededHome is the home that must be there, "" for none.
func (u *user) neededHome(p person) string {
	home := u.homeOf(p)
	isSystem := u.System || p.there && p.uid < regularFrom || !p.there && u.UID != nil && *u.UID < regularFrom
	switch {
	case u.Absent(), home == "/", home == nowhere, !path.IsAbs(home):
		return ""
	case u.CreateHome == nil && isSystem, u.CreateHome != nil && !*u.CreateHome:
		return ""
	}
	return path.Clean(home) // passwd may have another form of it
}

// homeOf is the home that the account shall have.
func (u *user) homeOf(p person) string {
	switch {
	case u.Home != "":
		return u.Home
	case p.there:
		return p.home
	case u.System:
		return nowhere
	}
	return "/home/" + u.name()
}

// shellOf is the shell that the account shall have.
func (u *user) shellOf(p person) string {
	switch {
	case u.Shell != "":
		return u.Shell
	case p.there:
		return p.shell
	case u.System:
		return systemShell
	}
	return regularShell
}

// groupsOf is the list of groups that the account shall be in, with commas.
func (u *user) groupsOf(p person) string {
	if !u.ManagesGroups() {
		return p.groups
	}
	want := slices.Clone(u.Groups)
	if u.Membership != declare.MembershipExact {
		want = append(want, splitMembers(p.groups)...)
	}
	return strings.Join(splitMembers(strings.Join(want, ",")), ",")
}

// compare says what has to change for the account to be as declared, or why that cannot be. It is pure.
func (u *user) compare(sight any, s *snapshot) ([]host.Change, error) {
	p := sight.(person)
	u = u.beside(p)
	if u.Absent() {
		if !p.there {
			return nil, nil
		}
		return []host.Change{{Field: "state", From: wordPresent, To: wordAbsent}}, nil
	}
	gid, err := u.groupNumber(p, s)
	if err != nil {
		return nil, err
	}
	if err := u.possible(s); err != nil {
		return nil, err
	}
	var changes []host.Change
	add := func(field, from, to string) {
		if !p.there {
			from = ""
		}
		if from != to {
			changes = append(changes, host.Change{Field: field, From: from, To: to})
		}
	}
	if !p.there {
		changes = append(changes, host.Change{Field: "state", From: wordAbsent, To: wordPresent})
	}
	if u.UID != nil {
		add("uid", numberText(p.uid), numberText(uint32(*u.UID)))
	}
	if u.Group != "" {
		add("group", groupText(p.gid, s), groupText(gid, s))
	}
	add("groups", p.groups, u.groupsOf(p))
	if u.Comment != nil {
		add("comment", shown(p.comment), shown(*u.Comment))
	}
	add("home", shown(p.home), shown(u.homeOf(p)))
	add("shell", shown(p.shell), shown(u.shellOf(p)))
	if u.expires != nil && (!p.there || p.expires != *u.expires) {
		add("expires", dayText(p.expires), dayText(*u.expires))
	}
	if p.there && p.homeless && u.homeOf(p) == p.home {
		changes = append(changes, host.Change{Field: "home directory", From: "missing", To: wordPresent})
	}
	return u.comparePassword(p, changes)
}

// possible says why an account cannot be as declared beside others.
func (u *user) possible(s *snapshot) error {
	if u.UID != nil {
		if other, taken := s.passwd.withNumber(passwdUID, passwdFields, uint32(*u.UID)); taken && other != u.name() {
			return &reason.Error{Code: reason.AccountTaken, Doing: u.doing(), Cause: errors.New("uid " + numberText(uint32(*u.UID)) + " is " + shown(other) + "'s"),
				Hint: "choose another number, or give " + shown(other) + " one"}
		}
	}
	for _, g := range u.Groups {
		if !s.group.has(g) {
			return unknownGroup(u.doing(), g)
		}
	}
	return nil
}

func unknownGroup(doing, name string) error {
	return &reason.Error{Code: reason.UnknownOwner, Doing: doing, Cause: errors.New("there is no group " + name + " in /etc/group"),
		Hint: "declare the group, or require the package that makes it"}
}

// groupNumber is the number of the primary group that the account shall have.
func (u *user) groupNumber(p person, s *snapshot) (uint32, error) {
	if u.Group == "" {
		return p.gid, nil
	}
	if gid, _, ok := s.group.group(u.Group); ok {
		return gid, nil
	}
	if n, err := number(u.Group); err == nil {
		if _, ok := s.group.withNumber(groupGID, groupFields, n); ok {
			return n, nil
		}
	}
	return 0, unknownGroup(u.doing(), u.Group)
}

// comparePassword adds what has to change about the password.
func (u *user) comparePassword(p person, changes []host.Change) ([]host.Change, error) {
	have := p.hash
	if !p.there {
		have = "!" // which useradd leaves
	}
	want, err := u.field(have)
	if err != nil || want == have {
		return changes, err
	}
	if strings.TrimLeft(want, "!") != strings.TrimLeft(have, "!") || u.shadow != nil {
		to := wordDeclared
		if hasNone(want) {
			to = "none"
		}
		changes = append(changes, host.Change{Field: "password", From: passwordText(have), To: to})
	}
	if from, to := isLocked(have), isLocked(want); from != to && u.Locked != nil {
		changes = append(changes, host.Change{Field: "locked", From: strconv.FormatBool(from), To: strconv.FormatBool(to)})
	}
	return changes, nil
}

// field is what must stand in the field of the password, shadow(5), where have does. It is pure.
func (u *user) field(have string) (string, error) {
	if u.shadow != nil {
		return *u.shadow, nil
	}
	want := have
	switch none := u.PasswordHash == "!" || u.PasswordHash == "*"; {
	case u.PasswordHash == "":
	case none && !hasNone(have):
		want = u.PasswordHash
	case !none && strings.TrimLeft(have, "!") != u.PasswordHash:
		want = u.PasswordHash
		if isLocked(have) {
			want = "!" + want // who has locked it has not asked for another password to open it
		}
	}
	switch {
	case u.Locked == nil:
	case *u.Locked:
		if !hasNone(want) && !isLocked(want) {
			want = "!" + want
		}
	case hasNone(want):
		return "", &reason.Error{Code: reason.AccountTaken, Doing: "unlock user " + u.name(), Cause: errors.New("it has no password"),
			Hint: "declare a passwordHash, or leave locked out"}
	default:
		want = strings.TrimLeft(want, "!")
	}
	return want, nil
}

// hasNone reports whether a field lets nobody in by password, and holds no hash behind a lock either.
func hasNone(field string) bool {
	rest := strings.TrimLeft(field, "!")
	return field != "" && (rest == "" || rest == "*")
}

// isLocked reports whether a field holds a hash behind a lock.
func isLocked(field string) bool { return strings.HasPrefix(field, "!") && !hasNone(field) }

// passwordText says of a field what may be said.
func passwordText(field string) string {
	switch {
	case field == "":
		return "empty: no password is asked for"
	case hasNone(field):
		return "none"
	}
	return "another, not shown"
}

func numberText(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// groupText is a group's name, or its number where it has none.
func groupText(gid uint32, s *snapshot) string {
	if name, ok := s.group.withNumber(groupGID, groupFields, gid); ok {
		return shown(name)
	}
	return numberText(gid)
}

// dayText is a day as people declare it.
func dayText(day int64) string {
	if day < 0 {
		return "never"
	}
	return time.Unix(0, 0).UTC().AddDate(0, 0, int(day)).Format(time.DateOnly)
}

// shown is a text of a database for a person, and nothing for the empty one.
func shown(s string) string {
	if s == "" {
		return ""
	}
	return disk.Shown(s)
}

// mayMakeHome says why a home is not made: where others may write beside it, or above it, they could have it made elsewhere.
func (t *Type) mayMakeHome(doing, home string) error {
	for dir := path.Dir(home); ; dir = path.Dir(dir) {
		d, err := t.root.Dir(dir)
		if err != nil {
			return err
		}
		st, err := d.Stat("")
		if err = errors.Join(err, d.Close()); err != nil {
			return err
		}
		if st.UID != 0 || st.Perm()&(unix.S_IWGRP|unix.S_IWOTH) != 0 {
			return &reason.Error{Code: reason.PermissionDenied, Doing: doing, Cause: errors.New("others than root may write to " + shown(dir) + ", where the home " + shown(home) + " is to be made"),
				Hint: "make the home by a resource directory, and declare createHome: false"}
		}
		if dir == "/" {
			return nil
		}
	}
}
