package auth

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// people are tokens that were made, by the name of their user.
type people struct {
	tokens *Tokens
	shelf  *shelf
	keys   *trust.Keys
	stored map[string]*v1alpha1.Token
	shown  map[string]string
}

// newPeople makes the tokens, and follows them. now is the clock that they are checked by.
func newPeople(t *testing.T, now time.Time, all map[string]v1alpha1.TokenSpec, created map[string]time.Time) *people {
	t.Helper()
	keys, err := trust.NewKeys(trust.NewClusterID(), now.AddDate(-2, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	p := &people{keys: keys, stored: map[string]*v1alpha1.Token{}, shown: map[string]string{}}
	minter := NewTokens(newShelf[v1alpha1.Token, v1alpha1.TokenList](), keys.Pepper(), nil)
	p.shelf = newShelf[v1alpha1.Token, v1alpha1.TokenList]()
	for name, spec := range all {
		token := &v1alpha1.Token{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-token", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}, Spec: spec}
		if at, is := created[name]; is {
			token.CreationTimestamp = metav1.NewTime(at)
		}
		made, err := minter.Mint(token)
		if err != nil {
			t.Fatal(err)
		}
		p.shown[name], token.Status.Hash = made.Token, made.Hash
		p.stored[name] = token
		p.shelf.objects = append(p.shelf.objects, token)
	}
	p.tokens = NewTokens(p.shelf, keys.Pepper(), func() time.Time { return now })
	run(t, p.tokens.Run)
	eventually(t, "the tokens are known", p.tokens.Ready)
	return p
}

func person(name string, groups ...string) v1alpha1.TokenSpec {
	return v1alpha1.TokenSpec{Type: v1alpha1.TokenUser, User: &v1alpha1.UserToken{Name: name, Groups: groups}}
}

func until(spec v1alpha1.TokenSpec, t time.Time) v1alpha1.TokenSpec {
	expires := metav1.NewTime(t)
	spec.Expires = &expires
	return spec
}

func TestTokens(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	p := newPeople(t, now, map[string]v1alpha1.TokenSpec{
		"ann": person("ann", "web", "db"), "bob": until(person("bob"), now.Add(time.Second)), "old": until(person("old"), now),
		"early": person("early"), "skewed": person("skewed"), "host": {Type: v1alpha1.TokenJoin, Join: &v1alpha1.JoinToken{}},
	}, map[string]time.Time{"early": now.Add(trust.ClockSkew + time.Second), "skewed": now.Add(trust.ClockSkew)})
	whole := p.shown["ann"]
	for _, c := range []struct {
		name, text string
		user       string      // "" for nobody
		code       reason.Code // of the error, if there is one
	}{
		{"good", p.shown["ann"], "ann", 0},
		{"in its last second", p.shown["bob"], "bob", 0},
		{"in the second that it ends", p.shown["old"], "", reason.TokenTime},
		{"made by a clock that is ahead", p.shown["early"], "", reason.TokenTime},
		{"made by a clock that is a little ahead", p.shown["skewed"], "skewed", 0},
		{"for hosts", p.shown["host"], "", reason.TokenMalformed},
		{"that nobody made", trust.NewToken(trust.TokenUser).Reveal(), "", 0},
		{"cut", whole[:len(whole)-1], "", reason.TokenMalformed},
		{"of another system", "eyJhbGciOiJub25lIn0.e30.", "", reason.TokenMalformed},
		{"empty", "", "", reason.TokenMalformed},
	} {
		got, ok, err := p.tokens.AuthenticateToken(t.Context(), c.text)
		if ok != (c.user != "") || ok && got.User.GetName() != c.user {
			t.Errorf("%s: %v, %+v", c.name, ok, got)
		}
		if (err != nil) != (c.code != 0) || err != nil && !reason.Is(err, c.code) {
			t.Errorf("%s: %v, want %v", c.name, err, c.code)
		}
		if err != nil && len(c.text) > 30 && strings.Contains(err.Error(), c.text[len(c.text)-20:]) {
			t.Errorf("%s: the error has the token in it: %v", c.name, err)
		}
	}
	got, _, _ := p.tokens.AuthenticateToken(t.Context(), p.shown["ann"])
	if !slices.Equal(got.User.GetGroups(), []string{"web", "db"}) || got.User.GetUID() != "uid-of-token" {
		t.Errorf("ann is %+v", got.User)
	}
}

func TestRevokedToken(t *testing.T) {
	now := time.Now()
	p := newPeople(t, now, map[string]v1alpha1.TokenSpec{"ann": person("ann"), "bob": person("bob")}, nil)
	known := func(name string) bool {
		_, ok, err := p.tokens.AuthenticateToken(t.Context(), p.shown[name])
		return ok && err == nil
	}
	if !known("ann") || !known("bob") {
		t.Fatal("they are not known from the start")
	}
	eventually(t, "somebody watches", p.shelf.isWatched)
	p.shelf.remove(p.stored["ann"])
	eventually(t, "ann's token is revoked", func() bool { return !known("ann") })
	if !known("bob") {
		t.Error("bob's is revoked too")
	}
}

// TestMintKinds: the text of a token says what it is for.
func TestMintKinds(t *testing.T) {
	p := newPeople(t, time.Now(), map[string]v1alpha1.TokenSpec{"ann": person("ann"), "host": {Type: v1alpha1.TokenJoin}}, nil)
	for name, prefix := range map[string]string{"ann": "tako_user_", "host": "tako_join_"} {
		if !strings.HasPrefix(p.shown[name], prefix) {
			t.Errorf("%s has a token that does not begin with %s", name, prefix)
		}
		if hash := p.stored[name].Status.Hash; !strings.HasPrefix(hash, hashPrefix) || strings.Contains(hash, p.shown[name]) {
			t.Errorf("stored of %s is %q", name, hash)
		}
	}
}

// TestTokensOfHosts: a host is let in by what somebody has made for hosts, also when the watch has not told of it yet.
func TestTokensOfHosts(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	join := v1alpha1.TokenSpec{Type: v1alpha1.TokenJoin, Join: &v1alpha1.JoinToken{Environment: "qa"}}
	p := newPeople(t, now, map[string]v1alpha1.TokenSpec{"host": join, "old": until(join, now), "late": join, "ann": person("ann")}, nil)
	whole := p.shown["host"]
	for _, c := range []struct {
		name, text, token string
		code              reason.Code
	}{
		{"good", whole, "host", 0},
		{"ended", p.shown["old"], "old", reason.TokenTime},
		{"for people", p.shown["ann"], "", reason.TokenRefused},
		{"that nobody made", trust.NewToken(trust.TokenJoin).Reveal(), "", reason.TokenRefused},
		{"cut off", whole[:len(whole)-1], "", reason.TokenMalformed},
		{"nothing", "", "", reason.TokenMalformed},
	} {
		got, err := p.tokens.OfHost(t.Context(), c.text)
		if c.code != 0 && !reason.Is(err, c.code) || c.code == 0 && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if (got != nil) != (c.token != "") || got != nil && got.Name != c.token {
			t.Errorf("%s: %+v", c.name, got)
		}
		if err != nil && c.text != "" && strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: the token is in %q", c.name, err)
		}
	}
	// It is in the store, and the watch is behind.
	if err := p.tokens.all.GetIndexer().Delete(p.stored["late"]); err != nil {
		t.Fatal(err)
	}
	if got, err := p.tokens.OfHost(t.Context(), p.shown["late"]); err != nil || got.Name != "late" {
		t.Errorf("made a moment ago: %+v, %v", got, err)
	}
	p.tokens.TellLines(func(token trust.Token) string { return "line of " + token.Reveal() })
	for kind, spec := range map[string]v1alpha1.TokenSpec{"line of ": join, "": person("ann")} {
		made, err := p.tokens.Mint(&v1alpha1.Token{Spec: spec})
		if want := kind + made.Token; err != nil || made.Token == "" || kind == "" && made.JoinLine != "" || kind != "" && made.JoinLine != want {
			t.Errorf("%s: the line is %q, %v", spec.Type, made.JoinLine, err)
		}
	}
}
