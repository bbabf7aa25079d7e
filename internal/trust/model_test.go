package trust

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

// people is a few keys, some of which are root keys at some time.
type people []*SigningKey

func newPeople(n int) people {
	var p people
	for range n {
		p = append(p, NewSigningKey())
	}
	return p
}

func (p people) draw(t *rapid.T, label string) []*SigningKey {
	var some []*SigningKey
	for _, k := range p {
		if rapid.Bool().Draw(t, label) {
			some = append(some, k)
		}
	}
	return some
}

// enough is the rule of thresholds in its most naive form.
func enough(signers []*SigningKey, roots ...Root) bool {
	for _, k := range signers {
		known := false
		for _, r := range roots {
			known = known || slices.Contains(r.Keys, k.Public())
		}
		if !known {
			return false
		}
	}
	for _, r := range roots {
		n := 0
		for _, k := range signers {
			if slices.Contains(r.Keys, k.Public()) {
				n++
			}
		}
		if n < r.Threshold {
			return false
		}
	}
	return true
}

func drawEdit(t *rapid.T, p people, d Document) Edit {
	key := rapid.SampledFrom(p).Draw(t, "key").Public()
	switch rapid.SampledFrom([]string{"add", "remove", "rotate", "threshold", "epoch", "role", "revoke", "fallback"}).Draw(t, "edit") {
	case "add":
		return AddRoot(key, rapid.IntRange(0, 4).Draw(t, "threshold"))
	case "remove":
		return RemoveRoot(key.ID())
	case "rotate":
		return RotateRoot(rapid.SampledFrom(d.Root.Keys).Draw(t, "old").ID(), key)
	case "threshold":
		return SetThreshold(rapid.IntRange(0, 4).Draw(t, "threshold"))
	case "role":
		return SetKey(RoleOperator, key, testTime.AddDate(1, 0, 0))
	case "revoke":
		return Revoke(key.ID())
	case "fallback":
		return SetFallback("https://a.example/" + rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "place"))
	}
	return BumpEpoch()
}

// Whatever is proposed and whoever signs it: it is taken exactly when the thresholds say so, and what can be proposed leaves a
// threshold that can be reached.
func TestThresholdModel(t *testing.T) {
	keys := testKeys(t)
	rapid.Check(t, func(t *rapid.T) {
		p := newPeople(5)
		c, err := NewChain(Genesis{Cluster: keys.Cluster(), CA: keys.CA(), Root: p[0], Heads: keys.Heads().Public()}, testTime, testBuilt)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 8).Draw(t, "numbers") {
			old := c.Current()
			proposal, err := c.Next(testTime, drawEdit(t, p, old))
			if err != nil {
				if !reason.Is(err, reason.TrustRefused) {
					t.Fatal(err)
				}
				continue
			}
			root := proposal.Document.Root
			if root.Threshold < 1 || root.Threshold > len(root.Keys) {
				t.Fatalf("a threshold of %d with %d keys was proposed", root.Threshold, len(root.Keys))
			}
			signers := p.draw(t, "signs")
			s := proposal
			for _, k := range signers {
				if s, err = s.Sign(k); err != nil {
					t.Fatal(err)
				}
			}
			after, err := c.Extend([]Signed{s})
			if want := enough(signers, old.Root, root); (err == nil) != want {
				t.Fatalf("%d signers, root %+v then %+v: %v, want accepted %v", len(signers), old.Root, root, err, want)
			}
			if err == nil {
				c = after
			}
		}
		again, err := Verify(c.After(0), c.Pin(), testBuilt)
		if err != nil || again.last != c.last {
			t.Fatalf("what was accepted one by one is refused at once: %v", err)
		}
	})
}

// line is a chain that grows with p[0] as its only root key.
func line(t *rapid.T, c *Chain, root *SigningKey, label string) *Chain {
	for range rapid.IntRange(1, 4).Draw(t, label) {
		s, err := c.Next(testTime.Add(time.Hour), SetFallback("https://a.example/"+rapid.StringMatching(`[a-z]{6}`).Draw(t, label)), BumpEpoch())
		if err == nil {
			s, err = s.Sign(root)
		}
		if err == nil {
			c, err = c.Extend([]Signed{s})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// Whatever a server, a relay or a thief makes of genuine documents, dropping, doubling, moving, mixing, cutting and changing them:
// accepted is a genuine line from number 1, and nothing else. The model only knows which hashes are genuine.
func TestForgedSequencesModel(t *testing.T) {
	keys := testKeys(t)
	rapid.Check(t, func(t *rapid.T) {
		p := newPeople(2)
		root, thief := p[0], p[1]
		first, err := NewChain(Genesis{Cluster: keys.Cluster(), CA: keys.CA(), Root: root, Heads: keys.Heads().Public()}, testTime, testBuilt)
		if err != nil {
			t.Fatal(err)
		}
		one, other := line(t, first, root, "one"), line(t, first, root, "other")
		genuine := map[Hash]bool{}
		for _, s := range append(one.After(0), other.After(0)...) {
			h, err := s.Document.Hash()
			if err != nil {
				t.Fatal(err)
			}
			genuine[h] = true
		}
		list := one.After(0)
		for range rapid.IntRange(0, 4).Draw(t, "attacks") {
			list = attack(t, list, other.After(0), thief)
		}
		got, err := Verify(list, first.Pin(), testBuilt)
		if want := naive(t, list, genuine, first.Pin(), root); (err == nil) != want {
			t.Fatalf("%d documents: %v, want accepted %v", len(list), err, want)
		}
		if err != nil {
			return
		}
		for _, s := range got.After(0) {
			if h, err := s.Document.Hash(); err != nil || !genuine[h] {
				t.Fatalf("number %d is forged and was accepted (%v)", s.Document.Number, err)
			}
		}
	})
}

func attack(t *rapid.T, list, other []Signed, thief *SigningKey) []Signed {
	if len(list) == 0 {
		return list
	}
	i := rapid.IntRange(0, len(list)-1).Draw(t, "i")
	j := rapid.IntRange(0, len(list)-1).Draw(t, "j")
	s := list[i].with()
	switch rapid.SampledFrom([]string{"drop", "double", "swap", "cut", "mix", "change", "steal", "unsign"}).Draw(t, "attack") {
	case "drop":
		return slices.Delete(list, i, i+1)
	case "double":
		return slices.Insert(list, j, s)
	case "swap":
		list[i], list[j] = list[j], list[i]
	case "cut":
		return list[:i]
	case "mix":
		return slices.Insert(list, j, rapid.SampledFrom(other).Draw(t, "of the other line").with())
	case "change":
		s.Document.Epoch++
		list[i] = s
	case "steal":
		s.Document.Root.Keys = []PublicKey{thief.Public()}
		stolen, err := s.Sign(thief)
		if err != nil {
			t.Fatal(err)
		}
		list[i] = stolen
	case "unsign":
		s.Signatures = []Signature{}
		list[i] = s
	}
	return list
}

// naive walks a list: each document is known already, or is genuine, signed by root alone, and follows the last one.
func naive(t *rapid.T, list []Signed, genuine map[Hash]bool, pin Hash, root *SigningKey) bool {
	var known []Hash
	for i, s := range list {
		h, err := s.Document.Hash()
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(known, h) {
			continue
		}
		follows := i == 0 && h == pin || i > 0 && s.Document.Previous == known[len(known)-1]
		if !genuine[h] || !follows || len(s.Signatures) != 1 || s.Signatures[0].Key != root.Public() {
			return false
		}
		known = append(known, h)
	}
	return len(known) > 0
}
