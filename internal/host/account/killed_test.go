package account

import (
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host/hosttest"
)

// TestKilledBetweenPrograms stops a way after each of its programs; another agent goes on.
func TestKilledBetweenPrograms(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t)
	all := declare.Resource{User: &declare.User{User: "t-alice", UID: ptr(int64(61001)), Groups: []string{"t-one"}, Comment: ptr("Alice"), Home: "/srv/t-alice", PasswordHash: hash,
		Expires: "2027-01-31"}}
	group := declare.Resource{Group: &declare.Group{Group: "t-team", GID: ptr(int64(61201)), Members: []string{"root", "daemon"}}}
	gone := declare.Resource{User: &declare.User{User: "t-alice", State: declare.AccountAbsent, RemoveHome: true}}
	for _, row := range []struct {
		name     string
		arrange  string
		resource declare.Resource
		least    int // programs on the way
	}{
		{"new", "", all, 3},
		{"changed", "useradd -u 61002 -m -d /home/t-alice t-alice; usermod -L -e 2027-02-01 t-alice", all, 6},
		{"home missing", "useradd -u 61001 -M -d /srv/t-alice t-alice", all, 4},
		{"gone", "useradd -U -u 61002 -m -d /home/t-alice t-alice; sed -i s/^USERGROUPS_ENAB.*/USERGROUPS_ENAB\\ no/ /etc/login.defs", gone, 2},
		{"new group", "", group, 3},
		{"changed group", "groupadd t-team; gpasswd -a games t-team", group, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			see := func() any {
				if row.resource.Group != nil {
					return g.seeGroup(t, "t-team")
				}
				return g.seeUser(t, "t-alice")
			}
			arrange := func() {
				g.reset(t)
				g.run(t, "sh", "-ec", "groupadd t-one\n"+row.arrange)
			}
			arrange()
			g.Made(row.resource)
			want := see()
			for k := 0; ; k++ {
				arrange()
				ended := g.begin(t, row.resource, k)
				g.Made(row.resource)
				if got := see(); !equal(got, want) {
					t.Errorf("after %d programs:\n got %v\nwant %v", k, got, want)
				}
				if ended {
					if k < row.least {
						t.Errorf("only %d programs", k)
					}
					break
				}
			}
		})
	}
}

func equal(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// begin runs the first n programs of the way of a resource, and reports whether there were no more. None may show the hash.
func (g *ground) begin(t *testing.T, r declare.Resource, n int) (ended bool) {
	t.Helper()
	bound, err := g.Bind(t.Context(), hosttest.Declared(r))
	if err != nil {
		t.Fatal(err)
	}
	w := way{Type: g.Type, record: bound.(record)}
	s, now, err := w.see()
	w.first = now
	for i := 0; err == nil; i++ {
		c, nextErr := w.next(w.Type, w.first, now, s)
		if nextErr != nil {
			t.Fatal(nextErr)
		}
		if c == nil {
			return true
		}
		if i == n {
			return false
		}
		if strings.Contains(strings.Join(c.args, " "), "$6$") {
			t.Errorf("a hash in an argument: %v", c.args)
		}
		if out, err := run(t.Context(), c); err != nil {
			t.Fatalf("%v: %v: %s", c.args, err, out)
		}
		s, now, err = w.see()
	}
	t.Fatal(err)
	return false
}
