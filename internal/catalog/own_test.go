package catalog

import (
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// stored yields items as a host reads them.
func stored(items []Item) iter.Seq2[Digest, []byte] {
	return func(yield func(Digest, []byte) bool) {
		for i := range items {
			if !yield(items[i].Row().Key, items[i].Body) {
				return
			}
		}
	}
}

func TestOwnComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o Own
		for _, id := range rapid.SliceOfDistinct(rapid.StringMatching(`[0-9a-f]{32}`), rapid.ID[string]).Draw(t, "keys") {
			o.Keys = append(o.Keys, OwnKey{ID: id, Sealed: rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "sealed")})
		}
		for _, c := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"", "NodeConfig/a", "NodeConfig/b/a", "ClusterNodeConfig/a"}), rapid.ID[string]).Draw(t, "configs") {
			o.Holds = append(o.Holds, Hold{Config: c, Claim: rapid.SampledFrom([]string{"", "path:/a", "unit:x|y"}).Draw(t, "claim"), Reason: "why", Owner: "who",
				Until: rapid.Int64().Draw(t, "until")})
		}
		if labels := rapid.MapOf(rapid.StringMatching(`[a-z]{1,5}`), rapid.StringMatching(`[a-z]{0,5}`)).Draw(t, "labels"); len(labels) > 0 {
			o.Labels = labels
		}
		for _, name := range rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,5}`), 0, PeersMax).Draw(t, "peers") {
			o.Peers = append(o.Peers, Peer{Name: name, UID: "uid of " + name, Address: name + ":6445"})
		}
		for _, uid := range rapid.SliceOfNDistinct(rapid.StringMatching(`[0-9a-f]{8}`), 0, 8, rapid.ID[string]).Draw(t, "instances") {
			o.Instances = append(o.Instances, Instance{UID: uid, Namespace: "shop", Name: "web-1", Workload: "web", Revision: "web-abc", Slot: rapid.IntRange(0, 9).Draw(t, "slot"),
				Job: rapid.Bool().Draw(t, "job"), Stop: rapid.Bool().Draw(t, "stop"), Lease: rapid.IntRange(0, 1<<20).Draw(t, "lease")})
		}
		items, err := o.Items()
		if err != nil {
			t.Fatal(err)
		}
		if len(items) != len(o.Keys)+len(o.Holds)+min(len(o.Labels), 1)+min(len(o.Peers), 1)+len(o.Instances) || !slices.IsSortedFunc(items, func(a, b Item) int { return strings.Compare(a.Claim, b.Claim) }) {
			t.Fatalf("%d items, or out of order", len(items))
		}
		slices.Reverse(items)
		back, err := DecodeOwn(stored(items))
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(o.Keys, func(a, b OwnKey) int { return strings.Compare(a.ID, b.ID) })
		slices.SortFunc(o.Holds, func(a, b Hold) int { return strings.Compare(a.Config, b.Config) })
		slices.SortFunc(o.Instances, func(a, b Instance) int { return strings.Compare(a.UID, b.UID) })
		if !reflect.DeepEqual(back, o) {
			t.Fatalf("got  %+v\nwant %+v", back, o)
		}
	})
}

func anInstance(uid string) Instance {
	return Instance{UID: uid, Namespace: "shop", Name: "web-0", Workload: "web", Revision: "web-abc"}
}

// TestInstanceOfALaterVersion: an instance of which this version does not know all is known to be there, or the host would end what runs of it.
func TestInstanceOfALaterVersion(t *testing.T) {
	body, err := encoding.Marshal(map[string]any{"v": ownSchema + 1, "c": "instance:a", "i": "in another form"})
	if err != nil {
		t.Fatal(err)
	}
	o, err := DecodeOwn(stored([]Item{{Claim: "instance:a", Body: body}}))
	if err != nil || len(o.Instances) != 1 || o.Instances[0].UID != "a" || !reason.Is(o.Instances[0].Unsupported, reason.LaterVersion) {
		t.Errorf("%+v, %v", o, err)
	}
	many := make([]Item, InstancesMax+1)
	for i := range many {
		in := anInstance(strconv.Itoa(i))
		body, err := encoding.Marshal(ownBody{Schema: 1, Claim: in.claim(), Instance: &in})
		if err != nil {
			t.Fatal(err)
		}
		many[i] = Item{Claim: in.claim(), Body: body}
	}
	if _, err := DecodeOwn(stored(many)); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("%d instances: %v", len(many), err)
	}
	if o, err := DecodeOwn(stored(many[1:])); err != nil || len(o.Instances) != InstancesMax {
		t.Errorf("%d instances: %d, %v", InstancesMax, len(o.Instances), err)
	}
}

func TestOwnRefusesTwoOfOne(t *testing.T) {
	for name, o := range map[string]Own{
		"keys":  {Keys: []OwnKey{{ID: "a", Sealed: []byte{1}}, {ID: "a", Sealed: []byte{2}}}},
		"holds": {Holds: []Hold{{Reason: "a"}, {Reason: "b"}}},
		"claim": {Holds: []Hold{{Claim: strings.Repeat("x", 2*declare.ClaimBytesMax)}}},
		"peers": {Peers: make([]Peer, PeersMax+1)},

		"instances":      {Instances: make([]Instance, InstancesMax+1)},
		"two instances":  {Instances: []Instance{anInstance("a"), anInstance("a")}},
		"no name":        {Instances: []Instance{{UID: "a"}}},
		"negative slot":  {Instances: []Instance{{UID: "a", Namespace: "n", Name: "w-0", Workload: "w", Revision: "w-1", Slot: -1}}},
		"negative lease": {Instances: []Instance{{UID: "a", Namespace: "n", Name: "w-0", Workload: "w", Revision: "w-1", Lease: -1}}},
	} {
		if _, err := o.Items(); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOwnOfALaterVersion: what a later version puts into an own layer is passed over; what is damaged is not.
func TestOwnOfALaterVersion(t *testing.T) {
	raw := func(v any) []byte {
		b, err := encoding.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	key := OwnKey{ID: "a", Sealed: []byte{1}}
	for name, test := range map[string]struct {
		claim string
		body  any
		want  int // keys; -1 is an error
	}{
		"as it is":              {"key:a", ownBody{Schema: 1, Claim: "key:a", Key: &key}, 1},
		"a field more":          {"key:a", map[string]any{"v": 1, "c": "key:a", "k": map[string]any{"id": "a", "s": []byte{1}, "alg": 2}, "new": true}, 1},
		"another schema":        {"key:a", map[string]any{"v": Schema + 1, "c": "key:a", "k": []string{"other"}}, 0},
		"another kind":          {"mirrors:", map[string]any{"v": 1, "c": "mirrors:", "k": []string{"web-2"}}, 0},
		"peers of another form": {"peers:", map[string]any{"v": 1, "c": "peers:", "p": []string{"web-2"}}, -1},
		"too many peers":        {"peers:", ownBody{Schema: 1, Claim: "peers:", Peers: make([]Peer, PeersMax+1)}, -1},
		"at another key":        {"key:b", ownBody{Schema: 1, Claim: "key:a", Key: &key}, -1},
		"of another ID":         {"key:b", ownBody{Schema: 1, Claim: "key:b", Key: &key}, -1},
		"a hold that is a key":  {"hold:|", ownBody{Schema: 1, Claim: "hold:|", Key: &key}, -1},
		"a key without one":     {"key:a", ownBody{Schema: 1, Claim: "key:a"}, -1},
		"a key of another form": {"key:a", map[string]any{"v": 1, "c": "key:a", "k": []string{"other"}}, -1},
		"an instance without":   {"instance:a", ownBody{Schema: 1, Claim: "instance:a"}, -1},
		"an empty instance":     {"instance:a", ownBody{Schema: 1, Claim: "instance:a", Instance: &Instance{UID: "a"}}, -1},
		"another's instance":    {"instance:b", ownBody{Schema: 1, Claim: "instance:b", Instance: &Instance{UID: "a", Namespace: "n", Name: "w-0", Workload: "w", Revision: "w-1"}}, -1},
		"no claim":              {"", ownBody{Schema: 1}, -1},
		"a text":                {"key:a", "key:a", -1},
	} {
		o, err := DecodeOwn(stored([]Item{{Claim: test.claim, Body: raw(test.body)}}))
		if test.want < 0 && !reason.Is(err, reason.StateCorrupt) || test.want >= 0 && (err != nil || len(o.Keys) != test.want || len(o.Holds) != 0) {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}

func TestHoldCovers(t *testing.T) {
	claim := declare.Claim{Kind: declare.ClaimPath, ID: "/etc/motd"}
	for _, test := range []struct {
		hold Hold
		want bool
	}{
		{Hold{Until: 11}, true},
		{Hold{Until: 10}, false},
		{Hold{Until: 11, Config: "NodeConfig/a"}, true},
		{Hold{Until: 11, Config: "NodeConfig/b"}, false},
		{Hold{Until: 11, Claim: "path:/etc/motd"}, true},
		{Hold{Until: 11, Claim: "path:/etc/issue"}, false},
		{Hold{Until: 11, Config: "NodeConfig/b", Claim: "path:/etc/motd"}, false},
	} {
		if got := test.hold.Covers("NodeConfig/a", claim, time.Unix(10, 5)); got != test.want {
			t.Errorf("%+v: %v", test.hold, got)
		}
	}
}

func FuzzDecodeOwn(f *testing.F) {
	items, err := Own{Keys: []OwnKey{{ID: "a", Sealed: []byte{1}}}, Holds: []Hold{{Config: "NodeConfig/a", Reason: "r", Owner: "o", Until: 1}},
		Peers: []Peer{{Name: "web-2", UID: "uid-2", Address: "192.0.2.7:6445"}}}.Items()
	if err != nil {
		f.Fatal(err)
	}
	for _, i := range items {
		f.Add(i.Claim, i.Body)
	}
	f.Fuzz(func(t *testing.T, claim string, data []byte) {
		o, err := DecodeOwn(stored([]Item{{Claim: claim, Body: data}}))
		if err != nil {
			return
		}
		if slices.ContainsFunc(o.Instances, func(i Instance) bool { return i.Unsupported != nil }) {
			return
		}
		again, err := o.Items()
		if err != nil || len(again) > 0 && again[0].Claim != claim {
			t.Errorf("at %q something was read that is %+v (%v)", claim, again, err)
		}
	})
}
