package account

import (
	"slices"
	"testing"

	"tako.dev/tako/declare"
)

// TestIgnore: each field that can be ignored is compared of an account that is not there, and not of one that is.
func TestIgnore(t *testing.T) {
	comment, locked := "declared", true
	declared := declare.User{Comment: &comment, Home: "/home/d", Shell: "/bin/declared", Group: "staff", Groups: []string{"adm"}, Membership: declare.MembershipExact,
		PasswordHash: "$6$declared$x", Locked: &locked, Expires: "2030-01-01"}
	s := &snapshot{group: table("staff:x:50:\nadm:x:4:\nother:x:99:t-alice\n")}
	found := person{there: true, uid: 1000, gid: 99, comment: "theirs", home: "/home/t", shell: "/bin/theirs", groups: "other", hash: "$6$theirs$x", expires: 1}
	fields := func(u *user, p person) (names []string) {
		changes, err := u.compare(p, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			names = append(names, c.Field)
		}
		slices.Sort(names)
		return names
	}
	all := newUser(&declared, "t-alice")
	differing := fields(all, found)
	for _, field := range []string{"comment", "home", "shell", "group", "groups", "password", "locked", "expires"} {
		u := newUser(&declared, "t-alice")
		u.ignored = []string{field}
		want := slices.DeleteFunc(slices.Clone(differing), func(f string) bool { return f == field })
		if got := fields(u, found); !slices.Equal(got, want) {
			t.Errorf("%s is ignored: %v differ, want %v", field, got, want)
		}
		if len(want) == len(differing) {
			t.Errorf("%s did not differ: %v", field, differing)
		}
		if got, want := fields(u, person{expires: never}), fields(all, person{expires: never}); !slices.Equal(got, want) {
			t.Errorf("%s is ignored, and the account not there: %v, want %v", field, got, want)
		}
		first, err := u.next(nil, found, found, s)
		if err != nil {
			t.Fatal(err)
		}
		if field == "shell" && slices.Contains(first.args, "/bin/declared") || field != "shell" && !slices.Contains(first.args, "/bin/declared") {
			t.Errorf("%s is ignored: %q", field, first.args)
		}
	}
}
