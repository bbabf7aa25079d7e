package held

import (
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// TestVaultOverStates: a host opens what its state has, and nothing of it is told as long as something that began with it may still speak.
func TestVaultOverStates(t *testing.T) {
	cluster := trust.NewClusterID()
	v := NewVault(&Identity{keys: Keys{Sealing: trust.NewSealingKey()}, node: node{Cluster: cluster, Name: "web-1", UID: "uid-1"}})
	keys, err := trust.NewKeys(cluster, time.Now())
	must(t, err)
	secret := func(value string) (catalog.OwnKey, catalog.Sealed) {
		id, data := keys.Delivery().DataKey("uid-of-secret", "password", []byte(value))
		wrapped, err := trust.SealKey(v.identity.Sealing().Public(), trust.Envelope{Cluster: cluster, NodeUID: "uid-1", KeyID: id}, data)
		must(t, err)
		return catalog.OwnKey{ID: id, Sealed: wrapped}, catalog.Sealed{Key: id, Text: data.SealText(id, []byte(value))}
	}
	open := func(s catalog.Sealed, want string) {
		t.Helper()
		if value, err := v.Open(s); err != nil || string(value) != want {
			t.Errorf("opened %q, %v; want %q", value, err, want)
		}
	}
	says := func(text, want string) {
		t.Helper()
		if got := v.Scrub(text); got != want {
			t.Errorf("%q is told as %q, want %q", text, got, want)
		}
	}
	oneKey, one := secret("first value")
	twoKey, two := secret("second value")
	v.Take([]catalog.OwnKey{oneKey})
	open(one, "first value")
	says("first value, second value", "[secret], second value")

	v.Take([]catalog.OwnKey{twoKey})
	if _, err := v.Open(one); !reason.Is(err, reason.SecretKeyMissing) {
		t.Errorf("a key of the state before opens: %v", err)
	}
	open(two, "second value")
	says("first value, second value", "[secret], [secret]")
	v.Take([]catalog.OwnKey{twoKey}) // the same once more
	says("first value, second value", "[secret], [secret]")

	v.Take([]catalog.OwnKey{oneKey}) // back again, and nothing was opened yet
	says("first value, second value", "[secret], [secret]")
	v.Take(nil)
	says("first value, second value", "[secret], second value")
}
