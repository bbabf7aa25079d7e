package dnf

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// texts draws versions of few characters, so that they meet.
func texts() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"0", "1", "9", "10", "01", "a", "b", "Z", ".", "~", "^", "_", "+", "rc"}), 1, 7).Draw(t, "parts"), "")
	})
}

// TestCompareReal compares with rpm itself, many at once.
func TestCompareReal(t *testing.T) {
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Skip("needs rpm")
	}
	const pairs = 400
	rapid.Check(t, func(t *rapid.T) {
		var script strings.Builder
		var want []string
		var drawn [][2]string
		for range rapid.IntRange(1, pairs).Draw(t, "pairs") {
			a, b := texts().Draw(t, "a"), texts().Draw(t, "b")
			if rapid.Bool().Draw(t, "near") {
				b = a + texts().Draw(t, "more")
			}
			drawn = append(drawn, [2]string{a, b})
			fmt.Fprintf(&script, "io.write(rpm.vercmp('%s','%s')..' ') ", a, b)
			want = append(want, fmt.Sprint(compareText(a, b)))
		}
		out, err := exec.Command("rpm", "--eval", "%{lua:"+script.String()+"}").Output()
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Fields(string(out))
		if len(got) != len(want) {
			t.Fatalf("rpm answers %d of %d", len(got), len(want))
		}
		for i, d := range drawn {
			if got[i] != want[i] {
				t.Fatalf("%q and %q: rpm says %s, we say %s", d[0], d[1], got[i], want[i])
			}
		}
	})
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"1.0-1", "1.0-1", 0}, {"1.0-1", "1.0-2", -1}, {"1:1.0-1", "2.0-1", 1}, {"0:1.0-1", "1.0-1", 0}, {"1.0", "1.0-5", 0}, {"1.0-1.el9", "1.0-1.el9_2", -1},
		{"1.0~rc1-1", "1.0-1", -1}, {"1.0^git1-1", "1.0-1", 1}, {"1.0^git1-1", "1.0.1-1", -1}, {"2.0", "10.0", -1}, {"1a", "1.1", -1}, {":1", "1", 0},
	} {
		if got := compare(c.a, c.b); got != c.want || compare(c.b, c.a) != -c.want {
			t.Errorf("%s and %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// TestCompareOrders checks that it is an order.
func TestCompareOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := texts().Draw(t, "a"), texts().Draw(t, "b")
		if compareText(a, a) != 0 || compareText(a, b) != -compareText(b, a) {
			t.Fatalf("%q and %q: %d, %d", a, b, compareText(a, b), compareText(b, a))
		}
	})
}
