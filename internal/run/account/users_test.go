package account

import (
	"os"
	"strconv"
	"testing"
)

// Two instances never have one user, and an instance has one for as long as it is there, also over a crash in between.
func TestUsers(t *testing.T) {
	u := &Users{dir: t.TempDir()}
	seen := map[uint32]string{}
	for i := range 300 {
		name := "instance-" + strconv.Itoa(i)
		n, err := u.Of(name)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[n]; ok || n < firstUser || n >= firstUser+userCount {
			t.Fatalf("%s has user %d, as %q", name, n, other)
		}
		seen[n] = name
		if again, err := u.Of(name); err != nil || again != n {
			t.Errorf("%s has user %d, and then %d (%v)", name, n, again, err)
		}
		if i%3 == 0 { // it was killed in between
			if err := os.Remove(u.file(name)); err != nil {
				t.Fatal(err)
			}
			if again, err := u.Of(name); err != nil || again != n {
				t.Errorf("after a crash %s has user %d, before it was %d (%v)", name, again, n, err)
			}
		}
	}
	for _, name := range seen {
		for _, needed := range []bool{true, false} {
			if err := u.Release(name, func(string) bool { return needed }); err != nil {
				t.Error(err)
			}
		}
	}
	if left, err := os.ReadDir(u.dir); err != nil || len(left) != 0 {
		t.Errorf("%d files are left (%v)", len(left), err)
	}
}

// A user is found by its name or its number; a number that nobody has is one, too.
func TestFind(t *testing.T) {
	for name, want := range map[string]uint32{"root": 0, "0": 0, "66001": 66001} {
		if a, err := Find(name); err != nil || a.UID != want || a.GID != want {
			t.Errorf("%s is %+v (%v)", name, a, err)
		}
	}
	if a, err := Find("nobody-has-this-name"); err == nil {
		t.Errorf("%+v", a)
	}
}
