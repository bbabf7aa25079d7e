package account

import (
	"context"
	"encoding/json"
	"errors"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// originalUser is the stored form of what an account was before tako changed it. Later versions read it too: fields may be added, and none
// ever gets another meaning. Shadow and Expires are there only where these are declared: a hash is kept where it must be.
type originalUser struct {
	There   bool    `json:"there"`
	UID     int64   `json:"uid"`
	GID     int64   `json:"gid"`
	Own     bool    `json:"own,omitempty"` // the primary group has the account's name
	Comment string  `json:"comment,omitempty"`
	Home    string  `json:"home,omitempty"`
	Shell   string  `json:"shell,omitempty"`
	Groups  string  `json:"groups,omitempty"`
	Shadow  *string `json:"shadow,omitempty"`
	Expires *int64  `json:"expires,omitempty"`
}

// originalGroup is the same of a group.
type originalGroup struct {
	There   bool   `json:"there"`
	GID     int64  `json:"gid"`
	Members string `json:"members,omitempty"`
}

// Original describes the account. Of one that will be absent everything is kept, so that it can come back whole.
func (t *Type) Original(_ context.Context, res host.Resource) ([]byte, error) {
	switch r := res.(type) {
	case *user:
		s, err := t.databases.read(r.hashes() || r.Absent())
		if err != nil {
			return nil, err
		}
		whole := *r
		if r.Absent() {
			whole.expires = new(int64) // so that look looks at the shadow file too
		}
		p := whole.look(t, s).(person)
		o := originalUser{There: p.there, UID: int64(p.uid), GID: int64(p.gid), Comment: p.comment, Home: p.home, Shell: p.shell, Groups: p.groups}
		own, _, ok := s.group.group(r.name())
		o.Own = ok && own == p.gid
		if p.there && (r.Absent() || r.PasswordHash != "" || r.Locked != nil) {
			o.Shadow = &p.hash
		}
		if p.there && (r.Absent() || r.expires != nil) {
			o.Expires = &p.expires
		}
		return json.Marshal(o)
	case *group:
		s, err := t.databases.read(false)
		if err != nil {
			return nil, err
		}
		c := r.look(t, s).(circle)
		return json.Marshal(originalGroup{There: c.there, GID: int64(c.gid), Members: c.members})
	}
	return nil, &reason.Error{Code: reason.InternalFault, Doing: "look at an account", Cause: errors.New("neither a user nor a group")}
}

// Remove removes the account, or makes of it what it was, as far as it was declared.
func (t *Type) Remove(ctx context.Context, res host.Resource, how declare.OnRemove, original []byte) error {
	back, err := before(res.(record), how, original)
	if err != nil {
		return err
	}
	plan := t.Check(ctx, []host.Resource{back}, host.Deep)[0]
	if plan.Err != nil || plan.Empty() {
		return plan.Err
	}
	return t.Apply(ctx, []host.Plan{plan})[0].Err
}

// before is what a record is to be after its removal.
func before(r record, how declare.OnRemove, original []byte) (record, error) {
	fault := func(err error) error {
		return &reason.Error{Code: reason.RestoreLost, Doing: r.doing(), Cause: err}
	}
	if how == declare.OnRemoveKeep {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: r.doing(), Cause: errors.New("onRemove is neither delete nor restore")}
	}
	switch r := r.(type) {
	case *user:
		var o originalUser
		if how == declare.OnRemoveRestore {
			if err := json.Unmarshal(original, &o); err != nil {
				return nil, fault(err)
			}
		}
		return r.before(&o), nil
	case *group:
		var o originalGroup
		if how == declare.OnRemoveRestore {
			if err := json.Unmarshal(original, &o); err != nil {
				return nil, fault(err)
			}
		}
		return r.before(&o), nil
	}
	return r, nil
}

// before is the account as it was, as far as it was declared.
func (u *user) before(o *originalUser) *user {
	back := &user{}
	back.User.User, back.RemoveHome = u.name(), u.RemoveHome
	if !o.There {
		back.State = declare.AccountAbsent
		return back
	}
	none := false
	back.CreateHome = &none // a home that has gone does not come back, and an empty one would hide that
	whole := u.Absent()
	if whole || u.UID != nil {
		back.UID = &o.UID
	}
	// The group of its own went with the account, and comes back with it.
	if u.Group != "" || whole && !o.Own {
		back.Group = numberText(uint32(o.GID))
	}
	if whole || u.ManagesGroups() {
		back.Groups, back.Membership = splitMembers(o.Groups), declare.MembershipExact
	}
	if whole || u.Comment != nil {
		back.Comment = &o.Comment
	}
	if whole || u.Home != "" {
		back.Home = o.Home
	}
	if whole || u.Shell != "" {
		back.Shell = o.Shell
	}
	back.shadow, back.expires = o.Shadow, o.Expires
	return back
}

// before is the group as it was, as far as it was declared.
func (g *group) before(o *originalGroup) *group {
	back := &group{}
	back.Group.Group = g.name()
	if !o.There {
		back.State = declare.AccountAbsent
		return back
	}
	if g.Absent() || g.GID != nil {
		back.GID = &o.GID
	}
	if g.Absent() || g.ManagesMembers() {
		back.Members, back.Membership = splitMembers(o.Members), declare.MembershipExact
	}
	return back
}
