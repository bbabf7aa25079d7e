package declare

import (
	"maps"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

const someHash = "$6$salt$abcdefghijklmnopqrstuvwxyz0123456789"

func TestFilled(t *testing.T) {
	secret := &ContentSource{Secret: &KeySelector{Name: "s", Key: "k"}}
	configMap := &ContentSource{ConfigMap: &KeySelector{Name: "c", Key: "k"}}

	f := Resource{File: &File{Path: "/f", ContentFrom: configMap}}
	filled, err := f.Filled("text")
	if err != nil || filled.File.Content != "text" || filled.Source() != nil || f.File.Content != "" {
		t.Errorf("%+v, %v: a ConfigMap is not its source any more, and what was filled stays as it was", filled.File, err)
	}
	u := Resource{User: &User{PasswordHashFrom: secret}}
	if filled, err = u.Filled(someHash + "\n"); err != nil || filled.User.PasswordHash != someHash || !filled.FromSecret() {
		t.Errorf("%+v, %v: a Secret stays its source", filled.User, err)
	}
	e := Resource{Exec: &Exec{Command: []string{"true"}, Environment: map[string]string{"A": "own"}, EnvironmentFrom: secret}}
	filled, err = e.Filled("# of the Secret\nA=its\n\nB=two=2\r\nC=\n")
	if want := map[string]string{"A": "own", "B": "two=2", "C": ""}; err != nil || !maps.Equal(filled.Exec.Environment, want) || len(e.Exec.Environment) != 1 {
		t.Errorf("%v, %v, want %v", filled.Exec, err, want)
	}
	p := Resource{Fragment: &Fragment{Path: "/f", Order: 3, ContentFrom: configMap}}
	if filled, err = p.Filled("text"); err != nil || *filled.Fragment != (Fragment{Path: "/f", Order: 3, Content: "text"}) || p.Fragment.ContentFrom == nil {
		t.Errorf("%+v, %v: a piece", filled.Fragment, err)
	}
	plain := Resource{File: &File{Path: "/f", Content: "own"}}
	if filled, err = plain.Filled("text"); err != nil || filled.File.Content != "own" {
		t.Errorf("%+v, %v: there is no source", filled.File, err)
	}
}

// What a Secret holds may be a password in the wrong place.
func TestFilledQuotesNothing(t *testing.T) {
	const password = "correct-horse"
	secret := &ContentSource{Secret: &KeySelector{Name: "s", Key: "k"}}
	for name, r := range map[string]Resource{
		"user": {Name: "u", User: &User{PasswordHashFrom: secret}},
		"exec": {Name: "e", Exec: &Exec{Command: []string{"true"}, EnvironmentFrom: secret}},
	} {
		_, err := r.Filled(password)
		if !reason.Is(err, reason.InvalidValue) || strings.Contains(err.Error(), password) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzFillEnvironment(f *testing.F) {
	f.Add("A=1\n# B\n\nC")
	f.Fuzz(func(t *testing.T, text string) {
		r := Resource{Exec: &Exec{Command: []string{"true"}, EnvironmentFrom: &ContentSource{Secret: &KeySelector{Name: "s", Key: "k"}}}}
		filled, err := r.Filled(text)
		if err != nil {
			return
		}
		for name, value := range filled.Exec.Environment {
			if !isVariableName(name) || strings.Contains(value, "\x00") {
				t.Errorf("%q=%q", name, value)
			}
		}
	})
}
