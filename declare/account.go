package declare

import (
	"cmp"
	"errors"
	"strings"
)

// User is an account of the host's own passwd and shadow files.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type User struct {
	// User is the login name. Default the resource's name.
	User string `json:"user,omitempty"`
	// State is present (the default) or absent.
	State AccountState `json:"state,omitempty"`
	// UID is the account's number, 0 to 4294967294; 0 is root's alone. Left out, a new account gets a free one, and that of one that is
	// there is not managed.
	UID *int64 `json:"uid,omitempty"`
	// Group is the primary group, a name or a number in quotes. Left out, a new account gets a group of its own name, and that of one
	// that is there is not managed.
	Group string `json:"group,omitempty"`
	// Groups are the supplementary groups, by name. Left out, none are managed; with membership exact, the account is in none.
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`
	// Membership says whether groups are all that the account is in (exact), or the least (minimal, the default).
	Membership Membership `json:"membership,omitempty"`
	// Comment is the GECOS field. Left out, that of an account that is there is not managed.
	Comment *string `json:"comment,omitempty"`
	// Home is the home directory, absolute. Left out, a new account gets /home/USER, a system account /nonexistent, and that of one
	// that is there is not managed. When it changes, what is in the old one stays there.
	Home string `json:"home,omitempty"`
	// CreateHome says whether a home directory that is missing is made, from /etc/skel, mode 0700, whenever it is missing. Default true;
	// false of a system account: one with system, or with a number below 1000.
	CreateHome *bool `json:"createHome,omitempty"`
	// Shell is the login shell, absolute. Left out, a new account gets /bin/bash, a system account /usr/sbin/nologin, and that of one
	// that is there is not managed.
	Shell string `json:"shell,omitempty"`
	// System makes a new account one of the system: a number of its range, no home directory, no shell, no ageing.
	System bool `json:"system,omitempty"`
	// PasswordHash is what stands in the shadow file: a crypt(5) hash that begins with $, or "!" or "*" for no password. Left out, a
	// new account has no password, and that of one that is there is not managed. It is shown nowhere.
	PasswordHash string `json:"passwordHash,omitempty"`
	// PasswordHashFrom takes the hash from a Secret or a ConfigMap instead. Alone, without a server, there is nothing to take it from.
	PasswordHashFrom *ContentSource `json:"passwordHashFrom,omitempty"`
	// Locked says whether the password is locked, with an exclamation mark in front of its hash. Left out, that is not managed.
	Locked *bool `json:"locked,omitempty"`
	// Expires is the day on which the account ends, as "2027-01-31", or "never". Left out, that is not managed.
	Expires string `json:"expires,omitempty"`
	// RemoveHome says that with state absent, or onRemove: delete, the home directory goes too, if it is the account's own. Default
	// false.
	RemoveHome bool `json:"removeHome,omitempty"`
}

// AccountState is whether a user or a group is wanted.
//
// +enum
type AccountState string

// The account states.
const (
	AccountPresent AccountState = "present"
	AccountAbsent  AccountState = "absent"
)

// Membership says what a list of members means.
//
// +enum
type Membership string

// The meanings of a list of members.
const (
	// MembershipMinimal means at least these.
	MembershipMinimal Membership = "minimal"
	// MembershipExact means these and no others.
	MembershipExact Membership = "exact"
)

// Group is a group of the host's own group file.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Group struct {
	// Group is its name. Default the resource's name.
	Group string `json:"group,omitempty"`
	// State is present (the default) or absent.
	State AccountState `json:"state,omitempty"`
	// GID is the group's number, 0 to 4294967294; 0 is root's alone. Left out, a new group gets a free one, and that of one that is
	// there is not managed.
	GID *int64 `json:"gid,omitempty"`
	// System gives a new group a number of the system's range.
	System bool `json:"system,omitempty"`
	// Members are the users in the group, by name. Left out, they are not managed here; with membership exact, there are none.
	// +listType=atomic
	Members []string `json:"members,omitempty"`
	// Membership says whether members are all that are in the group (exact), or the least (minimal, the default).
	Membership Membership `json:"membership,omitempty"`
}

// AuthorizedKeys is the file of the ssh keys with which a user may log in.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type AuthorizedKeys struct {
	// User is whose keys they are. Default the resource's name.
	User string `json:"user,omitempty"`
	// Keys are lines as in sshd(8), AUTHORIZED_KEYS FILE FORMAT: options, type, key, comment.
	// +listType=atomic
	Keys []string `json:"keys,omitempty"`
	// Membership says whether keys are all that are in the file (exact, the default), or the least (minimal).
	Membership Membership `json:"membership,omitempty"`
	// Path is the file, absolute. Default .ssh/authorized_keys in the user's home directory, which sshd looks at unless it is told
	// otherwise; only there the directory is made where it is missing.
	Path string `json:"path,omitempty"`
}

// NameOr returns the declared login name; when none is it is the resource's.
func (u *User) NameOr(resource string) string { return cmp.Or(u.User, resource) }

// Absent reports whether the account must not be there.
func (u *User) Absent() bool { return u.State == AccountAbsent }

// ManagesGroups reports whether anything is declared about supplementary groups.
func (u *User) ManagesGroups() bool { return len(u.Groups) > 0 || u.Membership == MembershipExact }

// ExpiryDay returns the day on which the account ends, counted from 1970-01-01, and -1 for never. ok is false where none is declared.
func (u *User) ExpiryDay() (day int64, ok bool) {
	if u.Expires == "" {
		return 0, false
	}
	return parseDay(u.Expires)
}

func (u *User) claim(name string) Claim { return Claim{ClaimUser, u.NameOr(name)} }

func (u *User) claimField() string { return "user.user" }

func (u *User) texts() []expandableText {
	return []expandableText{{"user.home", &u.Home}, {"user.shell", &u.Shell}}
}

// autoEdges: an account needs its groups, and goes before the group of its own name does.
func (u *User) autoEdges(claim Claim) []AutoEdge {
	if u.Absent() {
		return []AutoEdge{{Other: Claim{ClaimGroup, claim.ID}, Before: true, Why: "own group of a user"}}
	}
	edges := accountEdges("primary group of a user", "", cmp.Or(u.Group, claim.ID))
	for _, g := range u.Groups {
		edges = append(edges, accountEdges("group of a user", "", g)...)
	}
	return edges
}

// permanent says why an account cannot be deleted.
func (u *User) permanent() (message, hint string) {
	if u.Absent() {
		return "an account that is absent cannot be deleted", "leave it out, or write onRemove: restore"
	}
	return "", ""
}

// NameOr returns the declared name of the group; when none is it is the resource's.
func (g *Group) NameOr(resource string) string { return cmp.Or(g.Group, resource) }

// Absent reports whether the group must not be there.
func (g *Group) Absent() bool { return g.State == AccountAbsent }

// ManagesMembers reports whether anything is declared about members.
func (g *Group) ManagesMembers() bool { return len(g.Members) > 0 || g.Membership == MembershipExact }

func (u *User) source() *ContentSource { return u.PasswordHashFrom }

func (u *User) fill(text string, from *ContentSource) (body, error) {
	out := *u
	out.PasswordHash, out.PasswordHashFrom = strings.TrimRight(text, "\r\n"), from
	if message, _ := hashMistake(out.PasswordHash); message != "" {
		return nil, errors.New(message)
	}
	return &out, nil
}

func (g *Group) claim(name string) Claim { return Claim{ClaimGroup, g.NameOr(name)} }

func (g *Group) claimField() string { return "group.group" }

func (g *Group) texts() []expandableText { return nil }

// autoEdges: a group needs its members.
func (g *Group) autoEdges(Claim) []AutoEdge {
	var edges []AutoEdge
	for _, m := range g.Members {
		edges = append(edges, accountEdges("member of a group", m, "")...)
	}
	return edges
}

// permanent says why a group cannot be deleted.
func (g *Group) permanent() (message, hint string) {
	if g.Absent() {
		return "a group that is absent cannot be deleted", "leave it out, or write onRemove: restore"
	}
	return "", ""
}

// NameOr returns the declared user; when none is it is the resource's name.
func (k *AuthorizedKeys) NameOr(resource string) string { return cmp.Or(k.User, resource) }

// MembershipOrDefault returns what the keys mean, exact when nothing is declared.
func (k *AuthorizedKeys) MembershipOrDefault() Membership {
	return cmp.Or(k.Membership, MembershipExact)
}

func (k *AuthorizedKeys) claim(name string) Claim {
	return Claim{ClaimAuthorizedKeys, k.NameOr(name)}
}

func (k *AuthorizedKeys) claimField() string { return "authorizedKeys.user" }

func (k *AuthorizedKeys) texts() []expandableText {
	texts := []expandableText{{"authorizedKeys.path", &k.Path}}
	for i := range k.Keys {
		texts = append(texts, expandableText{indexPath("authorizedKeys.keys", i), &k.Keys[i]})
	}
	return texts
}

func (k *AuthorizedKeys) autoEdges(claim Claim) []AutoEdge {
	return append(accountEdges("user of ssh keys", claim.ID, ""), pathEdgesOf(k.Path)...)
}

// pathEdgesOf are the edges of a path where one is given.
func pathEdgesOf(p string) []AutoEdge {
	if p == "" {
		return nil
	}
	return pathAutoEdges(p)
}
