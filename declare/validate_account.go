package declare

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// Bounds of accounts.
const (
	accountNameMax  = 32        // useradd(8), groupadd(8): what utmp(5) has room for
	accountIDMax    = 1<<32 - 2 // 4294967295 is "leave as it is" for chown(2)
	groupsMax       = 1000      // supplementary groups of one account: ours, far above any real one
	commentBytesMax = 1024      // ours: what finger and mail programs show is a line
	hashBytesMax    = 384       // CRYPT_OUTPUT_SIZE, crypt(3)
	accountNameRule = "up to 32 letters, digits and any of _ . -, with a letter, digit or _ first and not digits alone; a $ may stand last"
)

// rootName is the account and the group with the number 0.
const rootName = "root"

// isAccountName accepts what useradd(8) and groupadd(8) of Debian and of Fedora both take.
func isAccountName(s string) bool {
	stem := strings.TrimSuffix(s, "$")
	return len(s) <= accountNameMax && isMadeOf(stem, "_.-") && (isAlphanum(stem[0]) || stem[0] == '_') && strings.Trim(stem, "0123456789") != ""
}

// written is one field that somebody has written.
type written struct {
	field string
	set   bool
}

func (u *User) validate(v *validator) {
	name := u.NameOr(v.resource.Name)
	v.accountName("user.user", "user", name)
	v.accountState("user.state", "account", u.State)
	if u.Absent() {
		v.absentUser(u, name)
		return
	}
	if name == rootName && v.resource.OnRemove == OnRemoveDelete {
		v.fault(v.path("onRemove"), reason.FieldNotAllowed, "root cannot be deleted", "write onRemove: restore, or leave it out")
	}
	v.accountID("user.uid", "uid", name, u.UID)
	if u.Group != "" && !isAccountName(u.Group) && !isAccountNumber(u.Group) {
		v.invalid(v.path("user.group"), fmt.Sprintf("%q is neither a name nor a number of a group", clipText(u.Group)), accountNameRule)
	}
	v.accountNames("user.groups", "group", u.Groups, groupsMax)
	v.membership("user.membership", u.Membership)
	if u.Comment != nil {
		v.comment(*u.Comment)
	}
	v.accountPath("user.home", u.Home)
	v.accountPath("user.shell", u.Shell)
	v.password(u)
	if _, ok := u.ExpiryDay(); u.Expires != "" && !ok {
		v.invalid(v.path("user.expires"), fmt.Sprintf("%q is no day", clipText(u.Expires)), `write a day from 1970-01-02 on as "2027-01-31", or "never"`)
	}
	v.opposites()
}

// absentUser refuses what says how an account is that must not be there.
func (v *validator) absentUser(u *User, name string) {
	if name == rootName {
		v.fault(v.path("user.state"), reason.FieldNotAllowed, "root cannot be absent", "lock it: locked: true")
	}
	v.notOfAbsent("an account", []written{
		{"user.uid", u.UID != nil}, {"user.group", u.Group != ""}, {"user.groups", len(u.Groups) > 0}, {"user.membership", u.Membership != ""},
		{"user.comment", u.Comment != nil}, {"user.home", u.Home != ""}, {"user.createHome", u.CreateHome != nil}, {"user.shell", u.Shell != ""},
		{"user.system", u.System}, {"user.passwordHash", u.PasswordHash != ""}, {"user.passwordHashFrom", u.PasswordHashFrom != nil}, {"user.locked", u.Locked != nil}, {"user.expires", u.Expires != ""},
	})
	v.opposites()
}

func (v *validator) notOfAbsent(what string, fields []written) {
	for _, f := range fields {
		if f.set {
			_, name, _ := strings.Cut(f.field, ".")
			v.fault(v.path(f.field), reason.FieldNotAllowed, what+" that must be absent has no "+name, "leave it out")
		}
	}
}

func (g *Group) validate(v *validator) {
	name := g.NameOr(v.resource.Name)
	v.accountName("group.group", "group", name)
	v.accountState("group.state", "group", g.State)
	if g.Absent() {
		if name == rootName {
			v.fault(v.path("group.state"), reason.FieldNotAllowed, "the group root cannot be absent", "leave it out")
		}
		v.notOfAbsent("a group", []written{
			{"group.gid", g.GID != nil}, {"group.system", g.System}, {"group.members", len(g.Members) > 0}, {"group.membership", g.Membership != ""},
		})
		v.opposites()
		return
	}
	if name == rootName && v.resource.OnRemove == OnRemoveDelete {
		v.fault(v.path("onRemove"), reason.FieldNotAllowed, "the group root cannot be deleted", "write onRemove: restore, or leave it out")
	}
	v.accountID("group.gid", "gid", name, g.GID)
	v.accountNames("group.members", "user", g.Members, ReferencesMax)
	v.membership("group.membership", g.Membership)
	v.opposites()
}

func (k *AuthorizedKeys) validate(v *validator) {
	v.accountName("authorizedKeys.user", "user", k.NameOr(v.resource.Name))
	v.membership("authorizedKeys.membership", k.Membership)
	if k.Path != "" && !(v.resource.Expand && strings.Contains(k.Path, "$(")) {
		v.fsPath("authorizedKeys.path", k.Path)
	}
	if len(k.Keys) == 0 && k.MembershipOrDefault() == MembershipMinimal {
		v.fault(v.path("authorizedKeys.keys"), reason.MissingField, v.path("authorizedKeys")+` has no "keys"`, "write them, or membership: exact for none at all")
	}
	if !v.atMost(v.path("authorizedKeys.keys"), len(k.Keys), ReferencesMax, "keys", "give the people accounts of their own, or sign their keys (cert-authority)") {
		return
	}
	seen := make(map[string]int, len(k.Keys))
	for i, line := range k.Keys {
		if v.resource.Expand && strings.Contains(line, "$(") {
			continue // what it will be is seen on the host
		}
		v.sshKey(v.path(indexPath("authorizedKeys.keys", i)), line, i, seen)
	}
	v.opposites()
}

// sshKey checks one key. No message quotes it: it may be a secret in the wrong place.
func (v *validator) sshKey(at, line string, i int, seen map[string]int) {
	key, err := ParseSSHKey(line)
	switch {
	case errors.Is(err, ErrPrivateKey):
		v.invalid(at, "this is a private key, which is not to leave the machine that it was made on", "take it out, make a new one in its place, and write the line of its .pub file here")
		return
	case err != nil:
		v.invalid(at, "this is no line of authorized keys: "+err.Error(), "write one line as in a .pub file, for example \"ssh-ed25519 AAAA... alice@laptop\"; options may stand before it")
		return
	}
	if first, twice := seen[key.Blob]; twice {
		v.invalid(at, fmt.Sprintf("this is the key of keys[%d]", first), "keep one of them: sshd looks at the first only")
		return
	}
	seen[key.Blob] = i
}

func (v *validator) accountName(field, what, name string) {
	if name != "" && !isAccountName(name) {
		_, own, _ := strings.Cut(field, ".")
		v.invalid(v.path(field), fmt.Sprintf("%q is not a name of a %s", clipText(name), what), accountNameRule+"; give its own name in `"+own+"`")
	}
}

func (v *validator) accountState(field, what string, s AccountState) {
	switch s {
	case "", AccountPresent, AccountAbsent:
	default:
		v.unknownWord(v.path(field), what+" state", string(s), []string{string(AccountPresent), string(AccountAbsent)})
	}
}

func (v *validator) membership(field string, m Membership) {
	switch m {
	case "", MembershipMinimal, MembershipExact:
	default:
		v.unknownWord(v.path(field), "membership", string(m), []string{string(MembershipMinimal), string(MembershipExact)})
	}
}

// accountID checks a number. Another account with the number 0 would be root under another name.
func (v *validator) accountID(field, what, name string, id *int64) {
	switch {
	case id == nil:
	case *id < 0 || *id > accountIDMax:
		v.invalid(v.path(field), fmt.Sprintf("%s %d is outside 0 to %d", what, *id, int64(accountIDMax)), "")
	case (*id == 0) != (name == rootName):
		v.fault(v.path(field), reason.FieldNotAllowed, fmt.Sprintf("%s 0 is root's, and root's alone", what), "to give somebody root's rights, use sudo")
	}
}

func isAccountNumber(s string) bool {
	return strings.Trim(s, "0123456789") == "" && isOwner(s)
}

// accountNames checks a list of names.
func (v *validator) accountNames(field, what string, names []string, limit int) {
	if !v.atMost(v.path(field), len(names), limit, "names", "") {
		return
	}
	seen := make(map[string]bool, len(names))
	for i, name := range names {
		at := v.path(indexPath(field, i))
		switch {
		case !isAccountName(name):
			v.invalid(at, fmt.Sprintf("%q is not a name of a %s", clipText(name), what), accountNameRule)
		case seen[name]:
			v.invalid(at, fmt.Sprintf("%q stands in the list already", name), "remove one of them")
		}
		seen[name] = true
	}
}

// comment checks the GECOS field: a colon or a line's end would begin another field or account.
func (v *validator) comment(s string) {
	switch at := v.path("user.comment"); {
	case strings.ContainsRune(s, ':') || strings.IndexFunc(s, isControl) >= 0:
		v.invalid(at, "the comment holds a colon, a line's end or another control character, which passwd(5) has no room for", "write something else in its place")
	case len(s) > commentBytesMax:
		v.invalid(at, fmt.Sprintf("the comment has %d bytes, at most %d are allowed", len(s), commentBytesMax), "")
	}
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// accountPath checks a home or a shell: a path that can stand in passwd(5). A home may be /.
func (v *validator) accountPath(field, p string) {
	if p == "" || v.resource.Expand && strings.Contains(p, "$(") {
		return
	}
	at := v.path(field)
	if strings.ContainsRune(p, ':') || strings.IndexFunc(p, isControl) >= 0 {
		v.invalid(at, "the path holds a colon or a control character, which passwd(5) has no room for", "choose another one")
		return
	}
	if message, hint := pathMistake(p); message != "" && (p != "/" || field != "user.home") {
		v.invalid(at, message, hint)
	}
}

// password checks what is declared about the password. No message quotes a hash, which may be a password in the wrong place.
func (v *validator) password(u *User) {
	v.contentSource("user.passwordHashFrom", u.PasswordHashFrom, u.PasswordHash != "")
	if u.PasswordHash == "" {
		return
	}
	if isNoPassword(u.PasswordHash) && u.Locked != nil && !*u.Locked {
		v.fault(v.path("user.locked"), reason.FieldNotAllowed, "there is no password that could be unlocked", "leave one of locked and passwordHash out")
	}
	if message, hint := hashMistake(u.PasswordHash); message != "" {
		v.invalid(v.path("user.passwordHash"), message, hint)
	}
}

func isNoPassword(hash string) bool { return hash == "!" || hash == "*" }

// hashMistake returns what is wrong with the hash of a password, or "".
func hashMistake(hash string) (message, hint string) {
	switch {
	case isNoPassword(hash):
		return "", ""
	case strings.HasPrefix(hash, "!"):
		return "the hash begins with an exclamation mark", "write the hash alone, and locked: true beside it"
	case len(hash) > hashBytesMax || !strings.HasPrefix(hash, "$") || strings.Count(hash, "$") < 3 || strings.IndexFunc(hash, notInHash) >= 0:
		return "this is no hash of a password as crypt(5) has it", "a password itself is never written here: `mkpasswd` or `openssl passwd -6` makes a hash, which begins with $"
	}
	return "", ""
}

// notInHash reports whether a character can be in no hash, crypt(5).
func notInHash(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`:;*!\`, r)
}

// parseDay reads a day as days since 1970-01-01, and "never" as -1, as chage(1) counts them. Day 0 is refused: some programs take it
// for never, shadow(5).
func parseDay(s string) (int64, bool) {
	if s == "never" {
		return -1, true
	}
	t, err := time.Parse(time.DateOnly, s)
	const day = 24 * 60 * 60
	if err != nil || t.Unix() < day {
		return 0, false
	}
	return t.Unix() / day, true
}

// accounts are the resources of a config that are about accounts, by name, without those that have a condition: they may be for
// different hosts.
type accounts struct {
	v             *validator
	users, groups map[string]int
	members       map[int]map[string]int // by group: where in its list a user stands
}

// opposites looks, once for the config, for resources that want opposite things of one account: then each would undo what the other
// does, for ever. The first resource about an account does it for all.
func (v *validator) opposites() {
	all := v.config.Spec.Resources
	for i := v.index - 1; i >= 0; i-- {
		if r := &all[i]; r.User != nil || r.Group != nil || r.AuthorizedKeys != nil {
			return
		}
	}
	a := accounts{v: v, users: map[string]int{}, groups: map[string]int{}, members: map[int]map[string]int{}}
	for i := v.index; i < len(all); i++ {
		switch r := &all[i]; {
		case r.When != "":
		case r.User != nil:
			a.users[r.User.NameOr(r.Name)] = i
		case r.Group != nil:
			a.groups[r.Group.NameOr(r.Name)] = i
		}
	}
	uids, gids := map[int64]int{}, map[int64]int{}
	for i := v.index; i < len(all); i++ {
		switch r := &all[i]; {
		case r.When != "":
		case r.User != nil && !r.User.Absent():
			a.user(i, r.User, r.User.NameOr(r.Name))
			a.number(i, "user.uid", r.User.UID, uids)
		case r.Group != nil && !r.Group.Absent():
			a.group(i, r.Group)
			a.number(i, "group.gid", r.Group.GID, gids)
		case r.AuthorizedKeys != nil:
			if other, u := a.userOf(r.AuthorizedKeys.NameOr(r.Name)); u != nil && u.Absent() {
				a.against(i, "authorizedKeys.user", other, "the user must be absent")
			}
		}
	}
}

func (a *accounts) userOf(name string) (int, *User) {
	i, ok := a.users[name]
	if !ok {
		return 0, nil
	}
	return i, a.v.config.Spec.Resources[i].User
}

func (a *accounts) groupOf(name string) (int, *Group) {
	i, ok := a.groups[name]
	if !ok {
		return 0, nil
	}
	return i, a.v.config.Spec.Resources[i].Group
}

// against records that two resources want opposite things.
func (a *accounts) against(index int, field string, other int, message string) {
	r := &a.v.config.Spec.Resources[other]
	f := a.v.fault(ResourcePath(index)+"."+field, reason.FieldNotAllowed, message+", says "+r.Title(), "say it in one of the two resources only")
	f.Related = []Place{{Path: ResourcePath(other), Note: "said here"}}
}

// user compares an account that must be there with the groups that it names.
func (a *accounts) user(index int, u *User, name string) {
	check := func(field, group string) {
		other, g := a.groupOf(group)
		if g == nil {
			return
		}
		_, named := a.membersOf(other, g)[name]
		switch {
		case g.Absent():
			a.against(index, field, other, "the group must be absent")
		case field == "user.group":
		case named:
			a.against(index, field, other, "the account is a member already")
		case g.Membership == MembershipExact:
			a.against(index, field, other, "the account is no member")
		}
	}
	check("user.group", cmp.Or(u.Group, name))
	for j, group := range u.Groups {
		check(indexPath("user.groups", j), group)
	}
}

// group compares a group that must be there with the accounts that it names.
func (a *accounts) group(index int, g *Group) {
	name := g.NameOr(a.v.config.Spec.Resources[index].Name)
	for j, member := range g.Members {
		other, u := a.userOf(member)
		if u == nil {
			continue
		}
		field := indexPath("group.members", j)
		switch {
		case u.Absent():
			a.against(index, field, other, "the user must be absent")
		case cmp.Or(u.Group, member) == name:
			a.against(index, field, other, "the group is the user's primary one already")
		case u.Membership == MembershipExact && !slices.Contains(u.Groups, name):
			a.against(index, field, other, "the user is not in the group")
		}
	}
}

func (a *accounts) membersOf(index int, g *Group) map[string]int {
	at, ok := a.members[index]
	if !ok {
		at = make(map[string]int, len(g.Members))
		for j, m := range g.Members {
			at[m] = j
		}
		a.members[index] = at
	}
	return at
}

// number refuses a number that two accounts would have.
func (a *accounts) number(index int, field string, id *int64, seen map[int64]int) {
	if id == nil {
		return
	}
	if other, twice := seen[*id]; twice {
		a.against(index, field, other, "the number is another one's")
		return
	}
	seen[*id] = index
}
