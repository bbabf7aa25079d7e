package enroll

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
)

func joinToken(j v1alpha1.JoinToken) *v1alpha1.Token {
	return &v1alpha1.Token{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Spec: v1alpha1.TokenSpec{Type: v1alpha1.TokenJoin, Join: &j}}
}

func TestDecide(t *testing.T) {
	h := host{name: "web-1", key: "sha256:mine", sealing: []byte("seal")}
	mine := &v1alpha1.NodeIdentity{Key: h.key, SealingKey: h.sealing}
	other := &v1alpha1.NodeIdentity{Key: "sha256:other", SealingKey: []byte("other")}
	node := func(identity *v1alpha1.NodeIdentity, change ...func(*v1alpha1.Node)) *v1alpha1.Node {
		n := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name}, Status: v1alpha1.NodeStatus{Identity: identity}}
		for _, c := range change {
			c(n)
		}
		return n
	}
	approved := func(key string) func(*v1alpha1.Node) { return func(n *v1alpha1.Node) { n.Spec.ApprovedKey = key } }
	rejected := func(key string) func(*v1alpha1.Node) { return func(n *v1alpha1.Node) { n.Spec.RejectedKey = key } }
	leaving := func(n *v1alpha1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	in := func(environment string) func(*v1alpha1.Node) {
		return func(n *v1alpha1.Node) { n.Spec.Environment = environment }
	}
	good, bad := shown{token: joinToken(v1alpha1.JoinToken{})}, shown{err: &reason.Error{Code: reason.TokenTime}}
	qa := shown{token: joinToken(v1alpha1.JoinToken{Environment: "qa"})}
	for name, c := range map[string]struct {
		node *v1alpha1.Node
		s    shown
		do   step
		code reason.Code
	}{
		"new":                            {nil, good, admit, 0},
		"new without a token":            {nil, shown{}, refuse, reason.TokenRefused},
		"new with a bad token":           {nil, bad, refuse, reason.TokenTime},
		"new with another's name":        {nil, shown{token: joinToken(v1alpha1.JoinToken{Name: "web-2"})}, refuse, reason.TokenRefused},
		"new with its name":              {nil, shown{token: joinToken(v1alpha1.JoinToken{Name: "web-1"})}, admit, 0},
		"new with another pattern":       {nil, shown{token: joinToken(v1alpha1.JoinToken{Pattern: "db-*"})}, refuse, reason.TokenRefused},
		"new with its pattern":           {nil, shown{token: joinToken(v1alpha1.JoinToken{Pattern: "web-*"})}, admit, 0},
		"known":                          {node(mine), good, give, 0},
		"known, and the token has ended": {node(mine), bad, give, 0},
		"known, without a token":         {node(mine), shown{}, give, 0},
		"known with another sealing key": {node(&v1alpha1.NodeIdentity{Key: h.key, SealingKey: []byte("x")}), good, note, reason.NameTaken},
		"of another":                     {node(other), good, note, reason.NameTaken},
		"of another, and approved, with another one rejected": {node(other, approved(h.key), rejected("sha256:x")), shown{}, replace, 0},
		"of another, and rejected":                            {node(other, rejected(h.key)), good, refuse, reason.NameTaken},
		"of another, and another is rejected":                 {node(other, rejected("sha256:x")), good, note, reason.NameTaken},
		"of another, with a bad token":                        {node(other), bad, refuse, reason.TokenTime},
		"of another, without a token":                         {node(other), shown{}, refuse, reason.TokenRefused},
		"of another, for which the token is":                  {node(other), shown{token: joinToken(v1alpha1.JoinToken{Name: "web-1"})}, note, reason.NameTaken},
		"of another, and not for the token":                   {node(other), shown{token: joinToken(v1alpha1.JoinToken{Name: "web-2"})}, refuse, reason.TokenRefused},
		"approved":                                            {node(other, approved(h.key)), shown{}, replace, 0},
		"approved, with a bad token":                          {node(other, approved(h.key)), bad, replace, 0},
		"approved before any host":                            {node(nil, approved(h.key)), shown{}, replace, 0},
		"approved with another sealing key":                   {node(&v1alpha1.NodeIdentity{Key: h.key}, approved(h.key)), shown{}, replace, 0},
		"another is approved":                                 {node(other, approved("sha256:third")), good, note, reason.NameTaken},
		"waiting":                                             {node(nil), good, admit, 0},
		"waiting in another environment":                      {node(nil, in("prod")), qa, refuse, reason.TokenRefused},
		"waiting in no environment":                           {node(nil), qa, refuse, reason.TokenRefused},
		"waiting in an environment, token not":                {node(nil, in("qa")), good, refuse, reason.TokenRefused},
		"waiting in the environment":                          {node(nil, in("qa")), qa, admit, 0},
		"leaving":                                             {node(mine, leaving), good, refuse, reason.NameTaken},
		"leaving and approved":                                {node(other, leaving, approved(h.key)), good, refuse, reason.NameTaken},
	} {
		do, err := decide(h, c.node, c.s)
		if do != c.do || (err == nil) != (c.code == 0) || err != nil && !reason.Is(err, c.code) {
			t.Errorf("%s: %d, %v", name, do, err)
		}
		if e := reason.Of(err); e != nil && e.Code != reason.TokenTime && (e.Hint == "" || e.Doing == "") {
			t.Errorf("%s: says no more than %v", name, err)
		}
	}
}

// TestFits compares with a regular expression.
func TestFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{1,6}`).Draw(t, "pattern")
		name := rapid.StringMatching(`[ab]{0,7}`).Draw(t, "name")
		want := regexp.MustCompile("^" + strings.ReplaceAll(pattern, "*", ".*") + "$").MatchString(name)
		if got := fits(pattern, name); got != want {
			t.Fatalf("%q fits %q: %v", name, pattern, got)
		}
	})
}

func TestFailures(t *testing.T) {
	f, now := newFailures[netip.Addr](), time.Unix(1000, 0)
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	fail := func(from netip.Addr, want time.Duration) {
		t.Helper()
		f.note(site(from), now)
		if got := f.wait(site(from), now); got != want {
			t.Errorf("%s waits %s, want %s", from, got, want)
		}
	}
	for range failuresAtOnce - 1 {
		fail(a, 0)
	}
	fail(a, failurePause)
	fail(netip.MustParseAddr("::ffff:192.0.2.1"), 2*failurePause)
	if got := f.wait(site(b), now); got != 0 {
		t.Errorf("somebody else waits %s", got)
	}
	for range failuresAtOnce {
		f.note(site(b), now)
	}
	for from, want := range map[string]time.Duration{"2001:db8::2": failurePause, "2001:db8:0:1::1": 0, "192.0.2.2": 0} {
		if got := f.wait(site(netip.MustParseAddr(from)), now); got != want {
			t.Errorf("%s waits %s, want %s", from, got, want)
		}
	}
	now = now.Add(2 * failurePause)
	if got := f.wait(site(a), now); got != 0 {
		t.Errorf("after its time it waits %s", got)
	}
	now = now.Add(time.Hour)
	fail(a, 0) // what is long ago does not count
	for i := range failuresMax {
		f.note(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), now)
	}
	if len(f.of) != failuresMax || f.recency.Len() != failuresMax {
		t.Errorf("%d addresses are kept, in %d", len(f.of), f.recency.Len())
	}
	if _, is := f.of[a]; is {
		t.Error("not the oldest was forgotten")
	}
}
