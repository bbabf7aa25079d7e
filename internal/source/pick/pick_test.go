package pick

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

func id(c byte) string { return strings.Repeat(string(c), 40) }

func repository() []Ref {
	return []Ref{
		{Name: "HEAD", ID: id('a'), Target: "refs/heads/main"},
		{Name: "refs/heads/main", ID: id('a')},
		{Name: "refs/heads/release/1.x", ID: id('b')},
		{Name: "refs/tags/v1.0.0", ID: id('c'), Peeled: id('1')},
		{Name: "refs/tags/1.2.0", ID: id('2')},
		{Name: "refs/tags/v1.10.0", ID: id('3')},
		{Name: "refs/tags/v2.0.0-rc.1", ID: id('4')},
		{Name: "refs/tags/v2.0.0-rc.2", ID: id('5')},
		{Name: "refs/tags/nightly", ID: id('6')},
		{Name: "refs/tags/v1.11", ID: id('7')},
		{Name: "refs/tags/main", ID: id('8')},
	}
}

func TestPick(t *testing.T) {
	tests := []struct {
		want    Want
		name    string
		commit  string
		version string
	}{
		{Want{}, "refs/heads/main", id('a'), ""},
		{Want{Branch: "main"}, "refs/heads/main", id('a'), ""},
		{Want{Branch: "release/1.x"}, "refs/heads/release/1.x", id('b'), ""},
		{Want{Tag: "main"}, "refs/tags/main", id('8'), ""},
		{Want{Tag: "v1.0.0"}, "refs/tags/v1.0.0", id('1'), ""},
		{Want{Semver: "1.x"}, "refs/tags/v1.10.0", id('3'), "v1.10.0"},
		{Want{Semver: ">=1.0.0 <1.10"}, "refs/tags/1.2.0", id('2'), "1.2.0"},
		{Want{Semver: "*"}, "refs/tags/v1.10.0", id('3'), "v1.10.0"},
		{Want{Semver: ">=1.0.0-0"}, "refs/tags/v2.0.0-rc.2", id('5'), "v2.0.0-rc.2"},
		{Want{Semver: "v1.0.0"}, "refs/tags/v1.0.0", id('1'), "v1.0.0"},
		{Want{Commit: id('9')}, "", id('9'), ""},
		{Want{Commit: id('9'), Branch: "main"}, "refs/heads/main", id('9'), ""},
	}
	for _, tt := range tests {
		refs := repository()
		for range 5 {
			got, err := Pick(tt.want, refs)
			if err != nil || got.Ref.Name != tt.name || got.Commit != tt.commit || got.Version != tt.version {
				t.Errorf("%s: %+v, %v", tt.want, got, err)
			}
			rand.Shuffle(len(refs), func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
		}
	}
}

func TestErrors(t *testing.T) {
	tests := []struct {
		want  Want
		refs  []Ref
		code  reason.Code
		words string // in the error or its hint
	}{
		{Want{}, nil, reason.RefUnknown, "empty"},
		{Want{Branch: "mian"}, repository(), reason.RefUnknown, `did you mean "main"?`},
		{Want{Branch: "nothing-like-it"}, repository(), reason.RefUnknown, `"release/1.x"`},
		{Want{Tag: "v1.0.1"}, repository(), reason.RefUnknown, `did you mean "v1.0.0"?`},
		{Want{Tag: "x"}, nil, reason.RefUnknown, "there are no tags"},
		{Want{Tag: "zzz"}, repository(), reason.RefUnknown, "and 3 more"},
		{Want{Semver: "3.x"}, repository(), reason.RefUnknown, "name one in the range"},
		{Want{Semver: "1.x"}, repository()[:3], reason.RefUnknown, "no tag is a version"},
		{Want{Semver: "not a range"}, repository(), reason.InvalidValue, "not a range"},
		{Want{Semver: strings.Repeat(">=1,", 1000)}, repository(), reason.InvalidValue, "not a range"},
		{Want{Branch: "a", Tag: "b"}, repository(), reason.InvalidValue, "several"},
		{Want{Commit: id('a'), Semver: "1"}, repository(), reason.InvalidValue, "several"},
		{Want{Commit: "abc"}, repository(), reason.InvalidValue, "40"},
		{Want{Commit: strings.ToUpper(id('a'))}, repository(), reason.InvalidValue, "lower-case"},
		{Want{Branch: "refs/heads/main"}, repository(), reason.InvalidValue, "without refs/"},
	}
	for _, tt := range tests {
		_, err := Pick(tt.want, tt.refs)
		e := reason.Of(err)
		if e == nil || e.Code != tt.code || e.Hint == "" || !strings.Contains(e.Error()+" "+e.Hint, tt.words) {
			t.Errorf("%s: %v (%+v), want %s with %q", tt.want, err, e, tt.code, tt.words)
		}
	}
}

// A range gives a version that is in it, and none that is in it is higher, in whatever order the tags are.
func TestRangeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.IntRange(0, 3)
		tag := rapid.Custom(func(t *rapid.T) string {
			v := rapid.SampledFrom([]string{"", "v"}).Draw(t, "v")
			for i := range 3 {
				if i > 0 {
					v += "."
				}
				v += string(rune('0' + number.Draw(t, "n")))
			}
			return v + rapid.SampledFrom([]string{"", "", "-rc.1", "-rc.2", "+b1", "+b2", ".4", "x"}).Draw(t, "end")
		})
		var refs []Ref
		for i, name := range rapid.SliceOfDistinct(tag, rapid.ID).Draw(t, "tags") {
			refs = append(refs, Ref{Name: tags + name, ID: id("0123456789abcdef"[i%16])})
		}
		text := rapid.SampledFrom([]string{"*", "1.x", ">=1.1.0", "<2", "~1.2.0", "^2.0.0", ">=1.0.0-0", "1.1.1 - 2.2.2", "<1 || >2"}).Draw(t, "range")
		inRange, err := semver.NewConstraint(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Pick(Want{Semver: text}, refs)
		some := false
		for _, r := range refs {
			v, parse := semver.StrictNewVersion(strings.TrimPrefix(strings.TrimPrefix(r.Name, tags), "v"))
			if parse != nil || !inRange.Check(v) {
				if err == nil && got.Ref.Name == r.Name {
					t.Errorf("%s: chose %s", text, r.Name)
				}
				continue
			}
			some = true
			if err == nil && v.GreaterThan(version(got.Version)) {
				t.Errorf("%s: chose %s, and %s is higher", text, got.Version, r.Name)
			}
		}
		if some != (err == nil) {
			t.Errorf("%s in %v: %v", text, refs, err)
		}
		slices.Reverse(refs)
		if again, _ := Pick(Want{Semver: text}, refs); again != got {
			t.Errorf("%s: chose %v, and in another order %v", text, got, again)
		}
	})
}

func FuzzPick(f *testing.F) {
	f.Add("main", "", "", "refs/heads/main")
	f.Add("", "", ">=1 <2", "refs/tags/v1.2.3")
	f.Add("", "v1", "", "refs/tags/\xff")
	f.Fuzz(func(t *testing.T, branch, tag, rng, name string) {
		got, err := Pick(Want{Branch: branch, Tag: tag, Semver: rng}, []Ref{{Name: name, ID: id('a')}})
		if err == nil && got.Ref.Name != name {
			t.Errorf("chose %q", got.Ref.Name)
		}
		if e := reason.Of(err); e != nil && (e.Code != reason.RefUnknown && e.Code != reason.InvalidValue || e.Hint == "") {
			t.Errorf("%v", err)
		}
	})
}
