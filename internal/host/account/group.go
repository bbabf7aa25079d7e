package account

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// group is one declared group.
type group struct {
	declare.Group // its name is filled in
	mem           memory
}

// circle is a group as it is found. It is comparable.
type circle struct {
	there   bool
	gid     uint32
	members string // with commas
}

func newGroup(g *declare.Group, name string) *group {
	r := &group{Group: *g}
	r.Group.Group = name
	return r
}

func (g *group) name() string { return g.Group.Group }

func (g *group) memory() *memory { return &g.mem }

func (g *group) hashes() bool { return false }

// Watches names the file of groups, and that of users, who may appear and be members then.
func (g *group) Watches() []host.Watch { return watches("group", "passwd") }

func (g *group) doing() string {
	if g.Absent() {
		return "remove group " + g.name()
	}
	return "make group " + g.name()
}

// look finds the group.
func (g *group) look(_ *Type, s *snapshot) any {
	gid, members, ok := s.group.group(g.name())
	if !ok {
		return circle{}
	}
	return circle{there: true, gid: gid, members: strings.Join(members, ",")}
}

// membersOf is the list of members that the group shall have, with commas.
func (g *group) membersOf(c circle) string {
	if !g.ManagesMembers() {
		return c.members
	}
	want := slices.Clone(g.Members)
	if g.Membership != declare.MembershipExact {
		want = append(want, splitMembers(c.members)...)
	}
	return strings.Join(splitMembers(strings.Join(want, ",")), ",")
}

// compare says what has to change for the group to be as declared, or why that cannot be. It is pure.
func (g *group) compare(sight any, s *snapshot) ([]host.Change, error) {
	c := sight.(circle)
	if g.Absent() {
		return g.compareAbsent(c, s)
	}
	var changes []host.Change
	add := func(field, from, to string) {
		if !c.there {
			from = ""
		}
		if from != to {
			changes = append(changes, host.Change{Field: field, From: from, To: to})
		}
	}
	if !c.there {
		changes = append(changes, host.Change{Field: "state", From: wordAbsent, To: wordPresent})
	}
	if g.GID != nil {
		want := uint32(*g.GID)
		if other, taken := s.group.withNumber(groupGID, groupFields, want); taken && other != g.name() {
			return nil, &reason.Error{Code: reason.AccountTaken, Doing: g.doing(), Cause: errors.New("gid " + numberText(want) + " is that of " + shown(other)),
				Hint: "choose another number, or give " + shown(other) + " one"}
		}
		add("gid", numberText(c.gid), numberText(want))
	}
	add("members", shown(c.members), g.membersOf(c))
	return changes, nil
}

// compareAbsent: a group that is somebody's primary one cannot go.
func (g *group) compareAbsent(c circle, s *snapshot) ([]host.Change, error) {
	if !c.there {
		return nil, nil
	}
	if users := s.passwd.usersOf(c.gid, namesShown); len(users) > 0 {
		return nil, &reason.Error{Code: reason.AccountBusy, Doing: g.doing(), Cause: errors.New("it is the primary group of " + shown(strings.Join(users, ", "))),
			Hint: "give these users another primary group first, or have them absent too"}
	}
	return []host.Change{{Field: "state", From: wordPresent, To: wordAbsent}}, nil
}

// next is the next program on the way of a group.
func (g *group) next(_ *Type, _, now any, _ *snapshot) (*call, error) {
	c := now.(circle)
	switch {
	case g.Absent() && c.there:
		return tool("/usr/sbin/groupdel", g.name()), nil
	case g.Absent():
		return nil, nil
	case !c.there:
		args := []string{"/usr/sbin/groupadd"}
		if g.System {
			args = append(args, "-r")
		}
		if g.GID != nil {
			args = append(args, "-g", strconv.FormatInt(*g.GID, 10))
		}
		return tool(append(args, g.name())...), nil
	case g.GID != nil && uint32(*g.GID) != c.gid:
		return tool("/usr/sbin/groupmod", "-g", strconv.FormatInt(*g.GID, 10), g.name()), nil
	case g.membersOf(c) == c.members:
		return nil, nil
	case g.Membership == declare.MembershipExact:
		return tool("/usr/bin/gpasswd", "-M", g.membersOf(c), g.name()), nil
	}
	// One by one, so that whom somebody else adds meanwhile stays.
	return tool("/usr/bin/gpasswd", "-a", missing(g.membersOf(c), c.members)[0], g.name()), nil
}

// note tells what a change of the number has left behind.
func (g *group) note(_ *Type, first any, _ *snapshot) string {
	c := first.(circle)
	if g.Absent() || !c.there || g.GID == nil || uint32(*g.GID) == c.gid {
		return ""
	}
	return "files that were gid " + numberText(c.gid) + "'s still are: find / -xdev -gid " + numberText(c.gid)
}
