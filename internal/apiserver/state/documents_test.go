package state

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// TestDocuments: what `tako trust` changes is in force in a server that runs; what is put back or replaced is not.
func TestDocuments(t *testing.T) {
	s := start(t, t.TempDir())
	client := s.admin.client.Client
	first, err := s.admin.Chain(t.Context())
	must(t, err)
	d := NewDocuments(client, s.keys, first, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { d.Run(ctx) })
	defer all.Wait()
	defer cancel()
	old, err := client.Get(t.Context(), chainKey)
	must(t, err)
	for number := uint64(2); number <= 3; number++ {
		_, err = s.admin.Change(t.Context(), time.Now(), trust.BumpEpoch())
		must(t, err)
		deadline := time.After(time.Minute)
		for d.Newest().Current().Number < number {
			select {
			case <-time.After(time.Millisecond):
			case <-deadline:
				t.Fatalf("number %d is not in force, %d is", number, d.Newest().Current().Number)
			}
		}
	}
	_, err = client.Put(t.Context(), chainKey, string(old.Kvs[0].Value))
	must(t, err)
	if c, err := d.Read(t.Context()); err != nil || c.Current().Number != 3 || d.Newest().Current().Epoch != 3 {
		t.Errorf("an old one was put back: %v", err)
	}
	_, err = client.Put(t.Context(), chainKey, "something else")
	must(t, err)
	if _, err := d.Read(t.Context()); err == nil || d.Newest().Current().Number != 3 {
		t.Errorf("something else was put there: %v", err)
	}
	_, err = client.Delete(t.Context(), chainKey)
	must(t, err)
	if _, err := d.Read(t.Context()); !reason.Is(err, reason.TrustRefused) || d.Newest().Current().Number != 3 {
		t.Errorf("they were taken away: %v", err)
	}
}

// TestDeliveryKeyIsOne: of several servers that find keys without a delivery key at once all go on with the same.
func TestDeliveryKeyIsOne(t *testing.T) {
	s := start(t, t.TempDir())
	client := s.admin.client.Client
	secret, err := trust.LoadSecret(s.admin.dir.Join(secretName))
	must(t, err)
	got, err := client.Get(t.Context(), keysKey)
	must(t, err)
	b, _, err := secret.Open(trust.PurposeClusterKeys, "", got.Kvs[0].Value)
	must(t, err)
	var fields map[string]any
	must(t, cbor.Unmarshal(b, &fields))
	if fields["delivery"] == nil {
		t.Fatal("the keys have no delivery key to begin with")
	}
	delete(fields, "delivery")
	options, err := cbor.CoreDetEncOptions().EncMode()
	must(t, err)
	b, err = options.Marshal(fields)
	must(t, err)
	_, err = client.Put(t.Context(), keysKey, string(secret.Seal(trust.PurposeClusterKeys, "", b)))
	must(t, err)
	ids := make([]string, 8)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			keys, err := ClusterKeys(t.Context(), client, secret, time.Now())
			if err != nil {
				t.Error(err)
				return
			}
			ids[i], _ = keys.Delivery().DataKey("uid", "key", nil)
		})
	}
	all.Wait()
	before, _ := s.keys.Delivery().DataKey("uid", "key", nil)
	for i, id := range ids {
		if id != ids[0] || id == before {
			t.Errorf("server %d derives %s, the first %s, before it was %s", i, id, ids[0], before)
		}
	}
}
