package account

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
)

const (
	// hash and otherHash are of the words "declared" and "other", as openssl passwd -6 makes them.
	hash      = "$6$saltsalt$qFmFH.bQmmtXzJVY0s9v7Z4D2momEPF81HgIG160.nGgRTxIbd8eTirlQ8EJ5ijUPMTrOIxWwDkDfGp1qVm8M1"
	otherHash = "$6$othersal$KEqjmBTcwTFG2WFRKZ5qBXqfAVlNsiOl5sYjbLBsbRCYWrVqdTOYqwQX2RkmvGdD9RKmRYjOKPkRZ0yKf1Z6n/"
)

// sightOf is an account as getent and the files tell it.
type sightOf map[string]string

// seeUser looks at an account by other means than the Type's.
func (g *ground) seeUser(t testing.TB, name string) sightOf {
	t.Helper()
	passwd := strings.Split(g.try(t, "getent", "passwd", name), ":")
	if len(passwd) < 7 {
		return sightOf{"state": "absent"}
	}
	shadow := strings.Split(g.run(t, "getent", "shadow", name), ":")
	group, _, _ := strings.Cut(g.try(t, "getent", "group", passwd[3]), ":")
	groups := strings.Fields(g.run(t, "sh", "-c", `awk -F: -v u="$1" '{n=split($4,m,","); for(i=1;i<=n;i++) if(m[i]==u) print $1}' /etc/group`, "sh", name))
	slices.Sort(groups)
	s := sightOf{"state": "present", "uid": passwd[2], "group": group, "groups": strings.Join(groups, ","), "comment": passwd[4], "home": passwd[5],
		"shell": passwd[6], "hash": shadow[1], "expires": shadow[7], "home directory": "missing"}
	if exists(passwd[5]) {
		s["home directory"] = "present"
	}
	return s
}

// seeGroup looks at a group by other means than the Type's.
func (g *ground) seeGroup(t testing.TB, name string) sightOf {
	t.Helper()
	f := strings.Split(g.try(t, "getent", "group", name), ":")
	if len(f) < 4 {
		return sightOf{"state": "absent"}
	}
	members := strings.Split(f[3], ",")
	slices.Sort(members)
	return sightOf{"state": "present", "gid": f[2], "members": strings.Join(members, ",")}
}

// userDifference says of the declared fields what lies between two sights.
func userDifference(fields ...string) func(int, any, any) []host.Change {
	return func(_ int, before, after any) []host.Change {
		b, a := before.(sightOf), after.(sightOf)
		var changes []host.Change
		if b["state"] != a["state"] {
			changes = append(changes, host.Change{Field: "state", From: b["state"], To: a["state"]})
		}
		if a["state"] == "absent" {
			return changes
		}
		for _, field := range fields {
			from, to := b[field], a[field]
			if from == to {
				continue
			}
			switch {
			case field == "hash":
				changes = append(changes, passwordChange(b["hash"], a["hash"]))
				continue
			case field == "home directory" && b["state"] == "absent":
				continue
			case field == "expires":
				from, to = day(from, b), day(to, a)
			}
			changes = append(changes, host.Change{Field: field, From: from, To: to})
		}
		return changes
	}
}

func passwordChange(from, to string) host.Change {
	c := host.Change{Field: "password", From: "another, not shown", To: "as declared, not shown"}
	if from == "" || from == "!" {
		c.From = "none"
	}
	if to == "!" {
		c.To = "none"
	}
	return c
}

func day(days string, s sightOf) string {
	switch {
	case s["state"] == "absent":
		return ""
	case days == "":
		return "never"
	case days == "20850":
		return "2027-02-01"
	case days == "20849":
		return "2027-01-31"
	}
	return days
}

func (g *ground) snapshot(t testing.TB) string {
	return hosttest.Tree(t, "/etc", "/home", "/srv", "/var/mail")
}

func TestUserConformance(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t)
	people := []declare.User{
		{User: "t-alice", UID: ptr(int64(61001)), Group: "t-staff", Groups: []string{"t-two", "t-one"}, Membership: declare.MembershipExact, Comment: ptr("Alice, of é"),
			Home: "/srv/t-alice", Shell: "/bin/sh", PasswordHash: hash, Expires: "2027-01-31", RemoveHome: true},
		{User: "t-daemon", System: true, Groups: []string{"t-one"}, PasswordHash: "!"},
	}
	arrange := func(commands string) func(testing.TB) {
		return func(t testing.TB) {
			g.reset(t)
			g.run(t, "sh", "-ec", "groupadd -g 61100 t-staff; groupadd t-one; groupadd t-two; groupadd t-three\n"+commands)
		}
	}
	subject := hosttest.Subject{
		Type: g.Type, Secrets: []string{hash, otherHash, "saltsalt", "othersal"},
		Observe:    func(t testing.TB, i int) any { return g.seeUser(t, people[i].User) },
		Difference: userDifference("uid", "group", "groups", "comment", "home", "shell", "hash", "expires", "home directory"),
		Gone:       []any{sightOf{"state": "absent"}, sightOf{"state": "absent"}},
		Snapshot:   g.snapshot,
	}
	each := func(people []declare.User) {
		subject.Declared = nil
		for i := range people {
			subject.Declared = append(subject.Declared, hosttest.Declared(declare.Resource{User: &people[i]}))
		}
	}
	each(people)
	// What Difference sees of a new account includes what was left to chance; so it is told by its plan's fields.
	subject.Difference = func(i int, before, after any) []host.Change {
		changes := userDifference("uid", "group", "groups", "comment", "home", "shell", "hash", "expires", "home directory")(i, before, after)
		managed := []string{"state", "home", "shell", "groups", "password", "home directory"}
		if i == 0 {
			managed = append(managed, "uid", "group", "comment", "expires")
		}
		changes = slices.DeleteFunc(changes, func(c host.Change) bool { return !slices.Contains(managed, c.Field) })
		if i == 1 { // "!" is what a new account has
			changes = slices.DeleteFunc(changes, func(c host.Change) bool {
				return c.Field == "home directory" || c.Field == "password" && before.(sightOf)["state"] == "absent"
			})
		}
		return changes
	}
	const wrong = `useradd -u 61002 -U -G t-three -c other -d /home/t-alice -m -s /bin/bash -e 2027-02-01 t-alice
useradd -r -d /nonexistent -s /usr/sbin/nologin t-daemon
chpasswd -e <<'END'
t-alice:` + otherHash + `
t-daemon:` + otherHash + `
END
`
	subject.Situations = []hosttest.Situation{
		{Name: "nothing there", Arrange: arrange("")},
		{Name: "wrong there", Arrange: arrange(wrong)},
		{Name: "groups there", Arrange: arrange("groupadd t-alice; groupadd t-daemon")},
	}
	subject.Disturb = func(t testing.TB) {
		g.run(t, "sh", "-ec", "for u in t-alice t-daemon; do id $u >/dev/null 2>&1 || useradd -M $u || useradd -M -g $u $u; usermod -s /bin/false $u; gpasswd -a $u t-three; done")
	}
	t.Run("present", func(t *testing.T) { hosttest.Run(t, subject) })

	gone := []declare.User{{User: "t-alice", State: declare.AccountAbsent}, {User: "t-daemon", State: declare.AccountAbsent}}
	each(gone)
	subject.Difference = userDifference()
	subject.Situations = []hosttest.Situation{{Name: "there", Arrange: arrange(wrong)}}
	t.Run("absent", func(t *testing.T) { hosttest.Run(t, subject) })
}

func TestGroupConformance(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t)
	all := []declare.Group{
		{Group: "t-exact", GID: ptr(int64(61201)), Members: []string{"t-b", "t-a"}, Membership: declare.MembershipExact},
		{Group: "t-least", System: true, Members: []string{"t-a"}},
	}
	arrange := func(commands string) func(testing.TB) {
		return func(t testing.TB) {
			g.reset(t)
			g.run(t, "sh", "-ec", "for u in t-a t-b t-c; do useradd -M $u; done\n"+commands)
		}
	}
	each := func(all []declare.Group) (list []host.Declared) {
		for i := range all {
			list = append(list, hosttest.Declared(declare.Resource{Group: &all[i]}))
		}
		return list
	}
	subject := hosttest.Subject{
		Type: g.Type, Declared: each(all),
		Observe: func(t testing.TB, i int) any { return g.seeGroup(t, all[i].Group) },
		Difference: func(i int, before, after any) []host.Change {
			if i == 0 {
				return userDifference("gid", "members")(i, before, after)
			}
			return userDifference("members")(i, before, after)
		},
		Gone:     []any{sightOf{"state": "absent"}, sightOf{"state": "absent"}},
		Snapshot: g.snapshot,
		Situations: []hosttest.Situation{
			{Name: "nothing there", Arrange: arrange("")},
			{Name: "wrong there", Arrange: arrange("groupadd -g 61202 t-exact; gpasswd -M t-c t-exact; groupadd t-least; gpasswd -M t-b,t-c t-least")},
		},
		Disturb: func(t testing.TB) {
			g.run(t, "sh", "-ec", "for g in t-exact t-least; do getent group $g >/dev/null || groupadd $g; gpasswd -M '' $g; gpasswd -a t-c $g; done; groupmod -g 61203 t-exact; gpasswd -a t-b t-least; gpasswd -d t-c t-least")
		},
	}
	t.Run("present", func(t *testing.T) { hosttest.Run(t, subject) })
	subject.Declared = each([]declare.Group{{Group: "t-exact", State: declare.AccountAbsent}, {Group: "t-least", State: declare.AccountAbsent}})
	subject.Difference = userDifference()
	subject.Situations = subject.Situations[1:]
	t.Run("absent", func(t *testing.T) { hosttest.Run(t, subject) })
}

// Keys that were made for these tests.
const (
	keyA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g alice@laptop"
	keyB = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g bob"
	keyC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g carol"
)

func TestKeysConformance(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t)
	all := []declare.AuthorizedKeys{
		{User: "t-a", Keys: []string{`from="10.0.0.0/8",command="/bin/echo a b" ` + keyA, keyB}},
		{User: "t-b", Keys: []string{keyA, keyB}, Membership: declare.MembershipMinimal},
	}
	file := func(i int) string { return "/home/" + all[i].User + "/.ssh/authorized_keys" }
	arrange := func(write func(t testing.TB, p string)) func(testing.TB) {
		return func(t testing.TB) {
			g.reset(t)
			for i := range all {
				g.run(t, "useradd", "-m", all[i].User)
				write(t, file(i))
				g.run(t, "chown", "-R", all[i].User+":"+all[i].User, "/home/"+all[i].User)
			}
		}
	}
	put := func(text string, mode os.FileMode) func(testing.TB, string) {
		return func(t testing.TB, p string) {
			if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte(text), mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(p, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	type sight struct{ text, stat string }
	subject := hosttest.Subject{
		Type: g.keys, Remembers: true, Secrets: []string{"/bin/echo a b"},
		Observe: func(t testing.TB, i int) any {
			b, err := os.ReadFile(file(i))
			if err != nil {
				return sight{}
			}
			return sight{string(b), g.run(t, "stat", "-c", "%u:%g %04a", file(i))}
		},
		Difference: func(_ int, before, after any) []host.Change {
			b, a := before.(sight), after.(sight)
			var changes []host.Change
			if b.stat == "" {
				changes = append(changes, host.Change{Field: "file", From: "absent", To: "present"})
			} else if b.stat != a.stat {
				changes = append(changes, host.Change{Field: "mode", From: b.stat[len(b.stat)-4:], To: a.stat[len(a.stat)-4:]})
			}
			for _, k := range []string{keyC, keyA, keyB} { // keyC only ever goes, and that is told first
				key, err := declare.ParseSSHKey(k)
				if err != nil {
					t.Fatal(err)
				}
				text := "ssh-ed25519 " + key.Fingerprint() + " " + key.Comment
				switch had, has := strings.Contains(b.text, key.Blob), strings.Contains(a.text, key.Blob); {
				case had && !has:
					changes = append(changes, host.Change{Field: "key", From: text})
				case !had && has:
					changes = append(changes, host.Change{Field: "key", To: text})
				}
			}
			return changes
		},
		Snapshot: g.snapshot,
		Situations: []hosttest.Situation{
			{Name: "nothing there", Arrange: arrange(func(testing.TB, string) {})},
			{Name: "an empty file", Arrange: arrange(put("", 0o644))},
		},
		Gone: []any{sight{}, sight{}},
		Disturb: func(t testing.TB) {
			for i := range all {
				put(keyC+"\n", 0o600)(t, file(i))
			}
		},
	}
	for i := range all {
		subject.Declared = append(subject.Declared, hosttest.Declared(declare.Resource{AuthorizedKeys: &all[i]}))
	}
	t.Run("both", func(t *testing.T) { hosttest.Run(t, subject) })

	// What else is in the file goes with exact, and stays with minimal.
	const rest = "# by hand\n\n" + keyC + "\n"
	subject.Situations = []hosttest.Situation{{Name: "others there", Arrange: arrange(put(rest, 0o600))}}
	subject.Declared, all = subject.Declared[:1], all[:1]
	subject.Gone = subject.Gone[:1]
	t.Run("exact", func(t *testing.T) { hosttest.Run(t, subject) })
	all = []declare.AuthorizedKeys{{User: "t-b", Keys: []string{keyA}, Membership: declare.MembershipMinimal}}
	subject.Declared = []host.Declared{hosttest.Declared(declare.Resource{AuthorizedKeys: &all[0]})}
	t.Run("minimal", func(t *testing.T) {
		arrange(put(rest, 0o600))(t)
		subject.Gone = []any{subject.Observe(t, 0)}
		hosttest.Run(t, subject)
	})
}
