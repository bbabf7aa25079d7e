package enroll

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// TestEnroll opens one storage for all that follows.
func TestEnroll(t *testing.T) {
	s := openStore(t)
	for name, test := range map[string]func(*testing.T, *fleet){
		"join": testJoin, "refused": testRefused, "replaced": testReplaced, "waiting": testWaiting, "renew": testRenew, "deleted": testDeleted,
		"trust": testTrust, "rate": testRate, "relay": testRelay,
	} {
		t.Run(name, func(t *testing.T) { test(t, newFleet(t, s, s.local)) })
	}
	t.Run("count", func(t *testing.T) { testCount(t, s) })
	t.Run("cut off", func(t *testing.T) { testCutOff(t, s) })
}

func testJoin(t *testing.T, f *fleet) {
	shown := f.token("j-one", v1alpha1.JoinToken{Environment: "qa", Labels: map[string]string{"role": "web"}, Pattern: "j-*", Count: new(int32(2))})
	line, err := trust.ParseJoinLine(shown.JoinLine)
	if err != nil || line.Address != "tako.example:6444" || line.Trust != f.chain.Pin() || line.Token.Reveal() != shown.Token {
		t.Fatalf("the line: %v, %v", line, err)
	}
	a := newArm()
	cert, c := f.joins(a, "j-1", shown.Token)
	n := f.node("j-1")
	if n.Spec.Environment != "qa" || n.Labels["role"] != "web" || string(n.UID) != c.UID || c.Name != "j-1" {
		t.Errorf("the node is %+v", n)
	}
	if i := n.Status.Identity; i == nil || i.Key != a.key.Digest() || !bytes.Equal(i.SealingKey, a.sealing.Public()) || i.Token != "j-one" || i.Joined.IsZero() {
		t.Errorf("the identity is %+v", i)
	}
	if got := f.last(); got.Outcome != OutcomeJoined || got.Node != "j-1" || got.Token != "j-one" || got.UID != c.UID || got.Key != a.key.Digest() || got.From != home || got.At.IsZero() {
		t.Errorf("the audit log has %+v", got)
	}
	who, err := f.Identify(cert)
	if want := (server.Identity{Name: "j-1", UID: c.UID, Key: a.key.Digest()}); err != nil || who != want {
		t.Errorf("the certificate is of %+v, %v", who, err)
	}
	if documents, err := trust.DecodeDocuments(c.Trust); err != nil || len(documents) != 1 {
		t.Errorf("%d trust documents, %v", len(documents), err)
	}
	// The host has hung up.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Join(ctx, home, a.request(t, "j-1", "")); err != nil {
		t.Errorf("a host that hangs up: %v", err)
	}
	// The answer was lost; the token is used up, or has ended, by now.
	f.joins(newArm(), "j-2", shown.Token)
	if got := f.uses("j-one"); got != 2 {
		t.Errorf("used %d times", got)
	}
	f.refuses("a third", newArm().request(t, "j-3", shown.Token), reason.TokenRefused, "it is for 2")
	for _, token := range []string{shown.Token, "", "nonsense"} {
		if again, _ := f.joins(a, "j-1", token); !again.NotAfter.After(time.Now()) || f.last().Outcome != OutcomeAgain {
			t.Errorf("again: %+v", f.last())
		}
	}
	if got := f.uses("j-one"); got != 2 {
		t.Errorf("after a third that was refused and one again it was used %d times", got)
	}
	if f.node("j-3") != nil {
		t.Error("the third has a node")
	}
}

func testRefused(t *testing.T, f *fleet) {
	good := f.token("r-good", v1alpha1.JoinToken{Pattern: "r-*", Count: new(int32(100))}).Token
	short := f.token("r-short", v1alpha1.JoinToken{}, time.Now().Add(time.Minute)).Token
	revoked := f.token("r-revoked", v1alpha1.JoinToken{}).Token
	f.must(f.store.local.Delete(t.Context(), &v1alpha1.Token{ObjectMeta: metav1.ObjectMeta{Name: "r-revoked"}}, nil))
	owner := newArm()
	f.joins(owner, "r-taken", good)
	a := newArm()
	change := func(change func(*wire.JoinRequest)) wire.JoinRequest {
		r := a.request(t, "r-new", good)
		change(&r)
		return r
	}
	f.refuses("no request", change(func(r *wire.JoinRequest) { r.Request = nil }), reason.JoinRequestInvalid)
	f.refuses("another's sealing key", change(func(r *wire.JoinRequest) { r.SealingKey = owner.sealing.Public() }), reason.JoinRequestInvalid, "sealing key")
	f.refuses("no name", change(func(r *wire.JoinRequest) { r.Name = "" }), reason.JoinRequestInvalid, "--name")
	f.refuses("no good name", change(func(r *wire.JoinRequest) { r.Name = "Web_1" }), reason.JoinRequestInvalid, "small letters")
	f.refuses("a name for a path", change(func(r *wire.JoinRequest) { r.Name = "../a" }), reason.JoinRequestInvalid)
	f.refuses("another pattern", change(func(r *wire.JoinRequest) { r.Name = "web-1" }), reason.TokenRefused, "r-*", "web-1")
	f.refuses("no token", change(func(r *wire.JoinRequest) { r.Token = "" }), reason.TokenRefused, a.key.Digest(), "tako node approve")
	f.refuses("nonsense", change(func(r *wire.JoinRequest) { r.Token = "nonsense" }), reason.TokenMalformed)
	f.refuses("a token that nobody made", change(func(r *wire.JoinRequest) { r.Token = trust.NewToken(trust.TokenJoin).Reveal() }), reason.TokenRefused)
	f.refuses("a token for people", change(func(r *wire.JoinRequest) { r.Token = trust.NewToken(trust.TokenUser).Reveal() }), reason.TokenRefused, "person")
	f.refuses("a revoked token", change(func(r *wire.JoinRequest) { r.Token = revoked }), reason.TokenRefused, "revoked")
	f.shift = time.Hour
	f.refuses("a token that has ended", change(func(r *wire.JoinRequest) { r.Token = short }), reason.TokenTime, "was valid until", "the server's clock")
	f.shift = -time.Hour
	f.refuses("a token of the future", change(func(r *wire.JoinRequest) { r.Token = short }), reason.TokenTime, "is valid from")
	f.shift = 0
	f.refuses("another's name", a.request(t, "r-taken", good), reason.NameTaken, owner.key.Digest(), a.key.Digest(), "tako node approve r-taken")
	for _, token := range []string{good, short, revoked} {
		id, _, _ := strings.Cut(strings.TrimPrefix(token, "tako_join_"), "_")
		secret := strings.TrimPrefix(token, "tako_join_"+id+"_")
		if heard := f.log.String() + fmt.Sprintf("%+v", f.attempts); strings.Contains(heard, secret) || !strings.Contains(heard, "r-good") {
			t.Errorf("what is heard of the hosts has a secret, or is nothing: %s", heard)
		}
	}
	if got := f.uses("r-good"); got != 1 {
		t.Errorf("the token was used %d times", got)
	}
	if f.node("r-new") != nil {
		t.Error("a node is there")
	}
}

// A machine that was installed anew: refused, approved by a person, and then it is the node, and the old one is not.
func testReplaced(t *testing.T, f *fleet) {
	token := f.token("p-one", v1alpha1.JoinToken{Name: "p-1"}).Token
	old, fresh := newArm(), newArm()
	oldCert, before := f.joins(old, "p-1", token)
	f.refuses("the new one", fresh.request(t, "p-1", token), reason.NameTaken) // though the token is used up
	asked := f.node("p-1").Status.JoinRequest
	if asked == nil || asked.Key != fresh.key.Digest() || asked.From != home.String() || asked.At.IsZero() {
		t.Fatalf("a person sees %+v", asked)
	}
	version := f.node("p-1").ResourceVersion
	f.shift = noteEvery / 2
	f.refuses("the new one again", fresh.request(t, "p-1", token), reason.NameTaken)
	if f.node("p-1").ResourceVersion != version {
		t.Error("each attempt is a write")
	}
	f.shift = 2 * noteEvery
	f.refuses("the new one later", fresh.request(t, "p-1", token), reason.NameTaken)
	if later := f.node("p-1").Status.JoinRequest; !later.At.After(asked.At.Time) {
		t.Errorf("that it goes on trying is not seen: %+v", later)
	}
	f.shift = 0
	n := f.node("p-1")
	n.Spec.RejectedKey = asked.Key
	f.must(f.store.local.Update(t.Context(), n))
	if n = f.node("p-1"); n.Status.JoinRequest != nil || n.Status.Identity == nil {
		t.Errorf("after it was rejected a person sees %+v, and the node is %+v", n.Status.JoinRequest, n.Status.Identity)
	}
	f.refuses("the rejected one", fresh.request(t, "p-1", token), reason.NameTaken, "rejected")
	if n = f.node("p-1"); n.Status.JoinRequest != nil {
		t.Errorf("it was rejected, and is shown again: %+v", n.Status.JoinRequest)
	}
	f.refuses("a third one", newArm().request(t, "p-1", token), reason.NameTaken)
	if n = f.node("p-1"); n.Status.JoinRequest == nil || n.Status.JoinRequest.Key == asked.Key {
		t.Errorf("a third one is not shown: %+v", n.Status.JoinRequest)
	}
	n.Status.AppliedHead, n.Status.Agent = &v1alpha1.AppliedHead{Epoch: 1, Version: 1 << 60}, &v1alpha1.NodeAgent{Session: "old"}
	f.must(f.store.local.UpdateStatus(t.Context(), n))
	n.Spec.ApprovedKey, n.Spec.RejectedKey = asked.Key, ""
	f.must(f.store.local.Update(t.Context(), n))
	cert, after := f.joins(fresh, "p-1", "")
	if after.UID != before.UID || f.last().Outcome != OutcomeReplaced {
		t.Errorf("the node is another one: %+v", f.last())
	}
	if s := f.node("p-1").Status; s.JoinRequest != nil || s.Identity.Key != fresh.key.Digest() || !bytes.Equal(s.Identity.SealingKey, fresh.sealing.Public()) || s.Identity.Token != "" {
		t.Errorf("the node's status is %+v, %+v", s.JoinRequest, s.Identity)
	}
	if s := f.node("p-1").Status; s.AppliedHead != nil || s.Agent != nil {
		t.Errorf("what the old one has said is taken for what the new one says: %+v %+v", s.AppliedHead, s.Agent)
	}
	if _, err := f.Identify(cert); err != nil {
		t.Errorf("the new one: %v", err)
	}
	f.eventually("the old one is refused", func() bool {
		_, err := f.Identify(oldCert)
		return reason.Is(err, reason.IdentityGone)
	})
	f.refuses("the old one with the token", old.request(t, "p-1", token), reason.NameTaken)
	if got := f.uses("p-one"); got != 1 {
		t.Errorf("the token was used %d times", got)
	}
}

// A Node that somebody has made before its host was there.
func testWaiting(t *testing.T, f *fleet) {
	f.must(f.store.local.Create(t.Context(), &v1alpha1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "w-1", Labels: map[string]string{"role": "db"}}, Spec: v1alpha1.NodeSpec{Environment: "prod"},
	}))
	qa := f.token("w-qa", v1alpha1.JoinToken{Environment: "qa"}).Token
	prod := f.token("w-prod", v1alpha1.JoinToken{Environment: "prod", Labels: map[string]string{"role": "web"}}).Token
	f.refuses("from another environment", newArm().request(t, "w-1", qa), reason.TokenRefused, "environment prod", "environment qa")
	f.joins(newArm(), "w-1", prod)
	if n := f.node("w-1"); n.Labels["role"] != "db" || n.Spec.Environment != "prod" || n.Status.Identity == nil {
		t.Errorf("the node is %+v", n)
	}
	if qa, prod := f.uses("w-qa"), f.uses("w-prod"); qa != 0 || prod != 1 {
		t.Errorf("used %d and %d times", qa, prod)
	}
}

func testRenew(t *testing.T, f *fleet) {
	token := f.token("n-one", v1alpha1.JoinToken{Count: new(int32(2))}).Token
	a, b := newArm(), newArm()
	cert, c := f.joins(a, "n-1", token)
	f.joins(b, "n-2", token)
	who, err := f.Identify(cert)
	f.must(err)
	renew := func(a *arm) (wire.Credentials, error) {
		return f.Renew(t.Context(), who, wire.RenewRequest{Protocol: wire.Protocol, Request: a.request(t, "", "").Request})
	}
	f.shift = 30 * 24 * time.Hour // it was away for long
	again, err := renew(a)
	f.must(err)
	if next := f.read(a, again); again.UID != c.UID || !next.NotAfter.After(f.now()) || !next.NotAfter.After(cert.NotAfter) {
		t.Errorf("until %s", next.NotAfter)
	}
	if _, err := renew(&arm{b.key, a.sealing}); !reason.Is(err, reason.JoinRequestInvalid) {
		t.Errorf("with another's key: %v", err)
	}
	if _, err := renew(&arm{a.key, trust.NewSealingKey()}); !reason.Is(err, reason.JoinRequestInvalid) {
		t.Errorf("with another sealing key: %v", err)
	}
	if _, err := f.Renew(t.Context(), who, wire.RenewRequest{}); !reason.Is(err, reason.JoinRequestInvalid) {
		t.Errorf("without a request: %v", err)
	}
	f.must(f.store.local.Delete(t.Context(), f.node("n-1"), nil))
	if _, err := renew(a); !reason.Is(err, reason.IdentityGone) {
		t.Errorf("when the node is gone: %v", err)
	}
	f.shift = 0
	f.joins(newArm(), "n-1", f.token("n-two", v1alpha1.JoinToken{}).Token)
	if _, err := renew(a); !reason.Is(err, reason.IdentityGone) {
		t.Errorf("when another has the name: %v", err)
	}
}

func testDeleted(t *testing.T, f *fleet) {
	token := f.token("d-one", v1alpha1.JoinToken{Count: new(int32(2))}).Token
	a := newArm()
	cert, _ := f.joins(a, "d-1", token)
	f.eventually("the index has it", func() bool {
		known, _ := f.index.get(f.node("d-1").UID)
		return known == member{"d-1", a.key.Digest()}
	})
	uid := f.node("d-1").UID
	f.must(f.store.local.Delete(t.Context(), f.node("d-1"), nil))
	f.eventually("it is refused", func() bool {
		_, err := f.Identify(cert)
		return reason.Is(err, reason.IdentityGone)
	})
	f.opts.Objects = nil
	if who, err := f.Identify(cert); !reason.Is(err, reason.IdentityGone) || who.Name != "d-1" || who.UID != string(uid) {
		t.Errorf("without the store: %+v, %v", who, err)
	}
	f.opts.Objects = f.store.local
	// The same machine with the same key joins again, as another node.
	again, c := f.joins(a, "d-1", token)
	if c.UID == string(uid) {
		t.Error("the node has come back")
	}
	if _, err := f.Identify(again); err != nil {
		t.Errorf("joined again: %v", err)
	}
	if _, err := f.Identify(cert); !reason.Is(err, reason.IdentityGone) {
		t.Errorf("with the old certificate: %v", err)
	}
	elsewhere := newFleet(t, f.store, f.store.local)
	if _, err := elsewhere.Identify(again); !reason.Is(err, reason.CertificateRefused) {
		t.Errorf("in another cluster: %v", err)
	}
	person, err := f.opts.Keys.CA().IssueClient(trust.ClientRequest{User: "ann"}, f.now())
	f.must(err)
	if _, err := f.Identify(person.Certificate()); !reason.Is(err, reason.CertificateRefused) {
		t.Errorf("a person: %v", err)
	}
}

func testTrust(t *testing.T, f *fleet) {
	if documents, highest, err := f.Trust(1); documents != nil || highest != 1 || err != nil {
		t.Errorf("nothing new: %d bytes, %d, %v", len(documents), highest, err)
	}
	b, highest, err := f.Trust(0)
	documents, decodeErr := trust.DecodeDocuments(b)
	if err != nil || decodeErr != nil || highest != 1 || len(documents) != 1 {
		t.Errorf("%d documents, %d, %v, %v", len(documents), highest, err, decodeErr)
	}
	none, err := New(Options{Objects: f.opts.Objects, Tokens: f.tokens, Keys: f.opts.Keys, Chain: f.opts.Chain})
	if err != nil || none.JoinLine(trust.NewToken(trust.TokenJoin)) != "" {
		t.Errorf("a line to nowhere: %v", err)
	}
	if _, err := New(Options{}); !reason.Is(err, reason.InternalFault) {
		t.Errorf("without anything: %v", err)
	}
}

func testRate(t *testing.T, f *fleet) {
	good := f.token("q-one", v1alpha1.JoinToken{}).Token
	r := newArm().request(t, "q-1", trust.NewToken(trust.TokenJoin).Reveal())
	for range failuresAtOnce {
		if _, err := f.Join(t.Context(), home, r); !reason.Is(err, reason.TokenRefused) {
			t.Fatal(err)
		}
	}
	heard := len(f.attempts)
	r.Token = good
	_, err := f.Join(t.Context(), home, r)
	if e := reason.Of(err); e == nil || e.Code != reason.RateLimited || e.After <= 0 || e.After > failurePause {
		t.Errorf("after %d: %v", failuresAtOnce, err)
	}
	if len(f.attempts) != heard {
		t.Error("who is not heard is in the audit log")
	}
	if _, err := f.Join(t.Context(), netip.MustParseAddr("192.0.2.8"), r); err != nil {
		t.Errorf("from elsewhere: %v", err)
	}
	// A host that has joined, and joins again in a loop, from wherever it likes: each time would be a certificate, and a line in the audit log.
	again := 0
	for i := range 2 * failuresAtOnce {
		from := netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
		if _, err = f.Join(t.Context(), from, r); err == nil {
			again++
		} else if e := reason.Of(err); e.Code != reason.RateLimited || e.After <= 0 {
			t.Error(err)
		}
	}
	if again < failuresAtOnce || again == 2*failuresAtOnce {
		t.Errorf("%d certificates are given again, the last time with %v", again, err)
	}
	other := newArm().request(t, "q-2", f.token("q-two", v1alpha1.JoinToken{}).Token)
	if _, err := f.Join(t.Context(), netip.MustParseAddr("192.0.2.9"), other); err != nil {
		t.Errorf("another host: %v", err)
	}
}
