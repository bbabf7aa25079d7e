package apt

import (
	"os/exec"
	"testing"

	"pgregory.net/rapid"
)

func TestCompareVersions(t *testing.T) {
	// In order, as deb-version(7) and its examples say.
	ordered := []string{"~~", "~~a", "~", "0", "1.0~beta1~svn1245", "1.0~beta1", "1.0", "1.0-1", "1.0-1+b1", "1.0-1.1", "1.0-10", "1.0a", "1.0+dfsg", "1.0.1", "1.9", "1.10", "2:0.1"}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := compareVersions(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%q and %q: %d", a, b, got)
			}
		}
	}
	for _, same := range [][2]string{{"1.0", "0:1.0"}, {"1.0", "1.0-0"}, {"1.01", "1.1"}, {"1.0-00", "1.0"}} {
		if got := compareVersions(same[0], same[1]); got != 0 {
			t.Errorf("%q and %q: %d", same[0], same[1], got)
		}
	}
}

var anyVersion = rapid.StringMatching(`([0-9]{1,2}:)?[0-9][0-9a-cA-C.+~-]{0,6}(-[0-9a-c.+~]{1,4})?`)

// TestCompareVersionsLikeDpkg asks dpkg itself.
func TestCompareVersionsLikeDpkg(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("needs dpkg: this is no Debian")
	}
	holds := func(t *rapid.T, a, op, b string) bool {
		err := exec.Command("dpkg", "--compare-versions", a, op, b).Run()
		const no, malformed = 1, 2
		exit, ended := err.(*exec.ExitError)
		switch {
		case ended && exit.ExitCode() == malformed:
			t.Skip("dpkg takes one of them for no version")
		case err != nil && (!ended || exit.ExitCode() != no):
			t.Fatalf("dpkg --compare-versions %s %s %s: %v", a, op, b, err)
		}
		return err == nil
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyVersion.Draw(t, "a"), anyVersion.Draw(t, "b")
		if rapid.Bool().Draw(t, "alike") {
			b = a[:rapid.IntRange(1, len(a)).Draw(t, "cut")] + rapid.StringMatching(`[0-9a.~+]{0,2}`).Draw(t, "end")
		}
		want := 0
		switch {
		case holds(t, a, "lt", b):
			want = -1
		case holds(t, a, "gt", b):
			want = 1
		}
		if got := compareVersions(a, b); got != want {
			t.Fatalf("%q and %q: %d, and dpkg says %d", a, b, got, want)
		}
	})
}

func FuzzCompareVersions(f *testing.F) {
	f.Add("1:1.0-1", "1.0~rc1")
	f.Add("", "~")
	f.Fuzz(func(t *testing.T, a, b string) {
		if compareVersions(a, b) != -compareVersions(b, a) || compareVersions(a, a) != 0 {
			t.Errorf("%q and %q", a, b)
		}
	})
}
