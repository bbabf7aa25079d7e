package enroll

import (
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// relayRequest is what a relay shows to join.
func relayRequest(t testing.TB, key *trust.HostKey, token string) wire.JoinRequest {
	t.Helper()
	der, err := trust.RelayRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	return wire.JoinRequest{Protocol: wire.Protocol, Token: token, Request: der, Relay: true}
}

// testRelay: a token for a relay admits one relay and no host, and a token for hosts no relay; the relay is its token until that is deleted.
func testRelay(t *testing.T, f *fleet) {
	ofRelay, ofHosts := f.token("edge-1", v1alpha1.JoinToken{Relay: true}), f.token("relay-hosts", v1alpha1.JoinToken{Count: new(int32(2))})
	f.refuses("a host with the token of a relay", newArm().request(t, "edge-host", ofRelay.Token), reason.TokenRefused, "for a relay")
	key := trust.NewHostKey()
	f.refuses("a relay with the token of hosts", relayRequest(t, key, ofHosts.Token), reason.TokenRefused, "for hosts")
	forged := relayRequest(t, key, ofRelay.Token)
	forged.Request = newArm().request(t, "", "").Request
	f.refuses("a relay with the request of a host", forged, reason.JoinRequestInvalid, "sealing key")
	if f.uses("edge-1") != 0 || f.node("edge-1") != nil {
		t.Fatal("something was made of what was refused")
	}
	c, err := f.Join(t.Context(), home, relayRequest(t, key, ofRelay.Token))
	if err != nil || c.Name != "edge-1" {
		t.Fatalf("%+v, %v", c, err)
	}
	if a := f.last(); !a.Relay || a.Outcome != OutcomeJoined || a.Node != "edge-1" || a.UID != c.UID || a.Token != "edge-1" || a.Key != key.Digest() {
		t.Errorf("the audit log has %+v", a)
	}
	token := &v1alpha1.Token{}
	f.must(f.store.local.Get(t.Context(), named("edge-1"), token))
	if r := token.Status.Relay; r == nil || r.Key != key.Digest() || r.Joined.IsZero() || token.Status.Uses != 1 || string(token.UID) != c.UID {
		t.Errorf("the token has %+v", token.Status)
	}
	if f.node("edge-1") != nil {
		t.Error("a relay is a node")
	}
	pair, err := key.TLS(c.Certificate)
	f.must(err)
	want := server.Identity{Name: "edge-1", UID: c.UID, Key: key.Digest(), Relay: true}
	if who, err := f.Identify(pair.Leaf); err != nil || who != want {
		t.Errorf("the certificate is of %+v, %v", who, err)
	}
	if again, err := f.Join(t.Context(), home, relayRequest(t, key, ofRelay.Token)); err != nil || again.UID != c.UID || f.uses("edge-1") != 1 {
		t.Errorf("an answer that was lost: %+v, %v", again, err)
	}
	f.refuses("another relay", relayRequest(t, trust.NewHostKey(), ofRelay.Token), reason.TokenRefused, "has joined with it")
	renewal := wire.RenewRequest{Protocol: wire.Protocol, Request: relayRequest(t, key, "").Request}
	if _, err := f.Renew(t.Context(), want, renewal); err != nil {
		t.Errorf("it renews: %v", err)
	}
	renewal.Request = relayRequest(t, trust.NewHostKey(), "").Request
	if _, err := f.Renew(t.Context(), want, renewal); !reason.Is(err, reason.JoinRequestInvalid) {
		t.Errorf("it renews with another key: %v", err)
	}
	f.must(f.store.local.Delete(t.Context(), token, nil))
	f.shift = relayFresh
	if who, err := f.Identify(pair.Leaf); !reason.Is(err, reason.IdentityGone) || who != want {
		t.Errorf("after its token was deleted: %+v, %v", who, err)
	}
	renewal.Request = relayRequest(t, key, "").Request
	if _, err := f.Renew(t.Context(), want, renewal); !reason.Is(err, reason.IdentityGone) {
		t.Errorf("it renews after that: %v", err)
	}
}

// TestRelaysAreRemembered: the store is asked about a relay every few seconds, and not at each call; what could not be found out is asked again.
func TestRelaysAreRemembered(t *testing.T) {
	r := relays{seen: map[server.Identity]sighting{}}
	who, now, asked := server.Identity{Name: "edge-1", Relay: true}, time.Now(), 0
	var says error
	look := func() error {
		return r.look(who, now, func() error { asked++; return says })
	}
	for range 10 {
		if err := look(); err != nil {
			t.Fatal(err)
		}
	}
	if now = now.Add(relayFresh); look() != nil || asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	says = storeFault("read", nil)
	now = now.Add(relayFresh)
	for range 2 {
		if err := look(); !reason.Is(err, reason.StoreUnreachable) {
			t.Errorf("of a store that is away: %v", err)
		}
	}
	if asked != 4 {
		t.Errorf("asked %d times, want each time of a store that is away", asked)
	}
}
