package trust

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

// testBuilt is when the program that verifies was built.
var testBuilt = testTime.AddDate(0, -1, 0)

type testChain struct {
	*Chain
	root *SigningKey
	keys *Keys
}

func newTestChain(t testing.TB) testChain {
	t.Helper()
	keys, root := testKeys(t), NewSigningKey()
	c, err := NewChain(Genesis{Cluster: keys.Cluster(), CA: keys.CA(), Root: root, Heads: keys.Heads().Public()}, testTime, testBuilt)
	if err != nil {
		t.Fatal(err)
	}
	return testChain{c, root, keys}
}

// next makes the next number and has keys sign it.
func next(t testing.TB, c *Chain, now time.Time, signers []*SigningKey, edits ...Edit) Signed {
	t.Helper()
	s, err := c.Next(now, edits...)
	if err != nil {
		t.Fatal(err)
	}
	return signed(t, s, signers...)
}

func signed(t testing.TB, s Signed, signers ...*SigningKey) Signed {
	t.Helper()
	for _, k := range signers {
		var err error
		if s, err = s.Sign(k); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func extend(t testing.TB, c *Chain, later ...Signed) *Chain {
	t.Helper()
	out, err := c.Extend(later)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFirstDocument(t *testing.T) {
	c := newTestChain(t)
	d := c.Current()
	if d.Number != 1 || d.Epoch != 1 || d.Root.Threshold != 1 || !slices.Equal(d.Root.Keys, []PublicKey{c.root.Public()}) {
		t.Errorf("document 1 is %+v", d)
	}
	if keys := c.KeysOf(RoleHeads, testTime); !slices.Equal(keys, []PublicKey{c.keys.Heads().Public()}) {
		t.Errorf("heads keys %v", keys)
	}
	if !bytes.Equal(c.CAPEM(), c.keys.CA().CertificatePEM()) || !c.Pool().Equal(c.keys.CA().Pool()) {
		t.Error("the authority in the document is another one")
	}
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	list, err := DecodeDocuments(text)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Verify(list, c.Pin(), testBuilt)
	if err != nil || back.Pin() != c.Pin() || back.Current().hash(t) != c.Pin() {
		t.Errorf("the chain came back with %v", err)
	}
	if strings.Contains(string(text), "PRIVATE") {
		t.Error("trust.json holds a private key")
	}
}

// hash is Document.Hash for tests.
func (d Document) hash(t testing.TB) Hash {
	t.Helper()
	h, err := d.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// From the root key that the first start made to 2 of 3 keys that are kept offline, with every step on paper as people do it.
func TestRootGoesOffline(t *testing.T) {
	c := newTestChain(t)
	dir := t.TempDir()
	state, stick := filepath.Join(dir, "root"), filepath.Join(dir, "stick")
	if err := CreatePrivate(state, c.root.EncodePEM()); err != nil {
		t.Fatal(err)
	}
	if err := SaveSigningKey(c.root, stick); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	a, err := LoadSigningKey(stick)
	if err != nil {
		t.Fatal(err)
	}
	b, third := NewSigningKey(), NewSigningKey()

	// One of 1 adds two keys and asks for 2 of 3: the old key and one of the new ones must sign.
	proposal, err := c.Next(testTime, AddRoot(b.Public(), 2), AddRoot(third.Public(), 0))
	if err != nil {
		t.Fatal(err)
	}
	text, err := proposal.Encode()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := DecodeSigned(text)
	if err != nil {
		t.Fatal(err)
	}
	byA, byB := signed(t, proposal, a), signed(t, elsewhere, b)
	for who, s := range map[string]Signed{"nobody": proposal, "the old key alone": byA, "a new key alone": byB} {
		_, err := c.Extend([]Signed{s})
		if words := wantCode(t, err, reason.SignaturesMissing); who != "a new key alone" && !strings.Contains(words, string(third.Public().ID())) {
			t.Errorf("signed by %s: %q does not say who may sign", who, words)
		}
	}
	both, err := byA.Merge(byB)
	if err != nil {
		t.Fatal(err)
	}
	two := extend(t, c.Chain, both)

	// Key a is lost: the other two take it out and put a new one in.
	fresh := NewSigningKey()
	three := extend(t, two, next(t, two, testTime, []*SigningKey{b, third}, RotateRoot(a.Public().ID(), fresh.Public())))
	if d := three.Current(); d.Root.Threshold != 2 || len(d.Root.Keys) != 3 || slices.Contains(d.Root.Keys, a.Public()) || len(d.Revoked) != 1 {
		t.Errorf("after the rotation: %+v", d.Root)
	}
	// Who has found it signs nothing with it any more, not even beside a good key.
	four, err := three.Next(testTime, BumpEpoch())
	if err != nil {
		t.Fatal(err)
	}
	_, err = three.Extend([]Signed{signed(t, four, a, b)})
	wantCode(t, err, reason.TrustRefused)
	if last := extend(t, three, signed(t, four, fresh, b)); last.Current().Epoch != 2 || last.Current().Number != 4 {
		t.Errorf("number 4 is %+v", last.Current())
	}
	// A host that knows number 1 only takes all the others at once.
	if caught := extend(t, c.Chain, three.After(1)...); caught.Current().Number != 3 {
		t.Errorf("a host that was away is at number %d", caught.Current().Number)
	}
}

func TestMergeWantsOneDocument(t *testing.T) {
	c := newTestChain(t)
	one := next(t, c.Chain, testTime, []*SigningKey{c.root}, BumpEpoch())
	other := next(t, c.Chain, testTime, []*SigningKey{c.root}, SetFallback("https://a.example/t"))
	_, err := one.Merge(other)
	wantCode(t, err, reason.TrustRefused)
	if same, err := one.Merge(one); err != nil || len(same.Signatures) != 1 {
		t.Errorf("merged with itself: %d signatures, %v", len(same.Signatures), err)
	}
}

// What nobody may make believe, each signed by the right key where that is not what is wrong.
func TestDocumentsRefused(t *testing.T) {
	c := newTestChain(t)
	stranger, extra := NewSigningKey(), NewSigningKey()
	release := NewSigningKey().Public()
	two := next(t, c.Chain, testTime.Add(time.Hour), []*SigningKey{c.root}, SetKey(RoleBuild, release, testTime.AddDate(1, 0, 0)), BumpEpoch())
	c2 := extend(t, c.Chain, two)
	three := next(t, c2, testTime.Add(2*time.Hour), []*SigningKey{c.root}, Revoke(release.ID()))
	c3 := extend(t, c2, three)
	four := next(t, c3, testTime.Add(3*time.Hour), []*SigningKey{c.root}, BumpEpoch())
	another := newTestChain(t)
	// change makes number 4 otherwise, and signs it anew.
	change := func(f func(*Document)) []Signed {
		s := Signed{Document: four.Document.clone(), Signatures: []Signature{}}
		f(&s.Document)
		b, err := s.Document.signedBytes()
		if err != nil {
			t.Fatal(err)
		}
		return append(c3.After(0), s.with(Signature{c.root.Public(), c.root.Sign(b)}))
	}
	forge := func(f func(*Signed)) []Signed {
		s := four.with()
		f(&s)
		return append(c3.After(0), s)
	}
	if _, err := Verify(change(func(*Document) {}), c.Pin(), testBuilt); err != nil {
		t.Fatalf("unchanged: %v", err)
	}
	list := c3.After(0)
	for name, c := range map[string]struct {
		documents []Signed
		words     string
	}{
		"nothing":                  {nil, "there are none"},
		"another cluster's chain":  {another.After(0), "pinned is number 1"},
		"first one missing":        {list[1:], "pinned is number 1"},
		"one left out":             {[]Signed{list[0], list[2]}, "missing or out of order"},
		"out of order":             {[]Signed{list[0], list[2], list[1]}, "missing or out of order"},
		"another cluster in front": {append(another.After(0), list[1:]...), "pinned is number 1"},
		"another cluster":          {change(func(d *Document) { d.Cluster = another.Current().Cluster }), "is of cluster"},
		"number again":             {change(func(d *Document) { d.Number = 3 }), "is known already"},
		"number too high":          {change(func(d *Document) { d.Number = 5 }), "missing or out of order"},
		"number 0":                 {change(func(d *Document) { d.Number = 0 }), "do not go together"},
		"number 1 again":           {change(func(d *Document) { d.Number, d.Previous = 1, Hash{} }), "is known already"},
		"follows another":          {change(func(d *Document) { d.Previous[0]++ }), "follows another number 3"},
		"lower epoch":              {change(func(d *Document) { d.Epoch = 1 }), "lower than 2"},
		"epoch 0":                  {change(func(d *Document) { d.Epoch = 0 }), "do not go together"},
		"issued earlier":           {change(func(d *Document) { d.Issued = testTime }), "before number 3"},
		"issued between seconds":   {change(func(d *Document) { d.Issued = d.Issued.Add(1) }), "whole seconds"},
		"issued in another zone":   {change(func(d *Document) { d.Issued = d.Issued.In(time.FixedZone("X", 0)) }), "UTC"},
		"issued in year 1":         {change(func(d *Document) { d.Issued = time.Time{} }), "2000"},
		"revocation taken back":    {change(func(d *Document) { d.Revoked = []Revocation{} }), "takes back the revocation"},
		"revocation moved":         {change(func(d *Document) { d.Revoked[0].At = testTime }), "takes back the revocation"},
		"revoked key back":         {change(func(d *Document) { d.Keys[0].Key = release }), "is revoked"},
		"revoked root key":         {change(func(d *Document) { d.Root.Keys[0] = release }), "is revoked"},
		"threshold lost":           {change(func(d *Document) { d.Root.Threshold = 2 }), "threshold of 2 with 1 root keys"},
		"threshold 0":              {change(func(d *Document) { d.Root.Threshold = 0 }), "threshold of 0"},
		"no root keys":             {change(func(d *Document) { d.Root.Keys = []PublicKey{} }), "threshold of 1 with 0 root keys"},
		"root key twice":           {change(func(d *Document) { d.Root.Keys = slices.Repeat(d.Root.Keys, 2) }), "twice"},
		"too many root keys":       {change(func(d *Document) { d.Root.Keys = slices.Repeat(d.Root.Keys, RootKeysMax+1) }), "at most 16"},
		"root key with a role":     {change(func(d *Document) { d.Keys[0].Key = d.Root.Keys[0] }), "is a root key and a key of role"},
		"no authority":             {change(func(d *Document) { d.CAs = []string{} }), "certificate authorities"},
		"authority is none":        {change(func(d *Document) { d.CAs = []string{"x"} }), "PEM block"},
		"authority twice":          {change(func(d *Document) { d.CAs = slices.Repeat(d.CAs, 2) }), "twice"},
		"authority with more":      {change(func(d *Document) { d.CAs[0] += "\n" }), "PEM block"},
		"role unknown":             {change(func(d *Document) { d.Keys[0].Role = "root" }), "is no role"},
		"release into nowhere":     {change(func(d *Document) { d.Keys[0].Role = "release/" }), "is no role"},
		"key never valid":          {change(func(d *Document) { d.Keys[0].NotAfter = d.Keys[0].NotBefore }), "never"},
		"fallback with password":   {change(func(d *Document) { d.Fallback = []string{"https://u:p@h/"} }), "password"},
		"fallback into the file":   {change(func(d *Document) { d.Fallback = []string{"file:///etc"} }), "is no URL"},
		"list missing":             {change(func(d *Document) { d.Fallback = nil }), "list is missing"},
		"not signed":               {forge(func(s *Signed) { s.Signatures = []Signature{} }), "signatures of root keys missing"},
		"signed by a stranger":     {forge(func(s *Signed) { *s = signed(t, Signed{Document: s.Document}, stranger) }), "is no root key"},
		"stranger beside root":     {forge(func(s *Signed) { *s = signed(t, *s, stranger) }), "is no root key"},
		"signature of another":     {forge(func(s *Signed) { s.Signatures = three.Signatures }), "is wrong"},
		"signature under this name": {forge(func(s *Signed) {
			s.Signatures[0].Value = signed(t, Signed{Document: s.Document}, stranger).Signatures[0].Value
		}), "is wrong"},
		"signature cut":         {forge(func(s *Signed) { s.Signatures[0].Value = s.Signatures[0].Value[:63] }), "63 bytes"},
		"signature twice":       {forge(func(s *Signed) { s.Signatures = slices.Repeat(s.Signatures, 2) }), "twice"},
		"changed after signing": {forge(func(s *Signed) { s.Document.Epoch++ }), "is wrong"},
		"takes over with own root": {forge(func(s *Signed) {
			s.Document.Root.Keys = []PublicKey{extra.Public()}
			*s = signed(t, Signed{Document: s.Document}, extra)
		}), "present root keys"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Verify(c.documents, newPin(list), testBuilt)
			if err == nil {
				t.Fatalf("accepted up to number %d", got.Current().Number)
			}
			if !reason.Is(err, reason.TrustRefused) && !reason.Is(err, reason.SignaturesMissing) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, want words %q", err, c.words)
			}
		})
	}
}

func newPin(list []Signed) Hash {
	h, err := list[0].Document.Hash()
	if err != nil {
		panic(err)
	}
	return h
}

// Two numbers 2, both signed by the right key: who has one never takes the other.
func TestForkIsRefused(t *testing.T) {
	c := newTestChain(t)
	one := extend(t, c.Chain, next(t, c.Chain, testTime, []*SigningKey{c.root}, BumpEpoch()))
	other := extend(t, c.Chain, next(t, c.Chain, testTime, []*SigningKey{c.root}, SetFallback("https://a.example/t")))
	_, err := one.Extend(other.After(1))
	wantCode(t, err, reason.TrustRefused)
	longer := extend(t, other, next(t, other, testTime, []*SigningKey{c.root}, BumpEpoch()))
	_, err = one.Extend(longer.After(2))
	wantCode(t, err, reason.TrustRefused)
	if same := extend(t, one, one.After(0)...); same.Current().Number != 2 {
		t.Errorf("what is known already led to number %d", same.Current().Number)
	}
}

func TestEditsRefused(t *testing.T) {
	c := newTestChain(t)
	root := c.root.Public()
	heads := c.keys.Heads().Public()
	for name, edits := range map[string][]Edit{
		"none":                    {},
		"root key again":          {AddRoot(root, 0)},
		"threshold out of reach":  {AddRoot(NewSigningKey().Public(), 3)},
		"threshold below 1":       {SetThreshold(-1)},
		"last root key removed":   {RemoveRoot(root.ID())},
		"unknown root key":        {RemoveRoot("0")},
		"rotation to a role key":  {RotateRoot(root.ID(), heads)},
		"rotation to the old key": {RotateRoot(root.ID(), root)},
		"key without role":        {Revoke(root.ID())},
		"role until yesterday":    {SetKey(RoleBuild, NewSigningKey().Public(), testTime.AddDate(0, 0, -1))},
		"role for a revoked key":  {Revoke(heads.ID()), SetKey(RoleHeads, heads, testTime.AddDate(1, 0, 0))},
		"no authority":            {SetCAs()},
		"leaf as authority":       {SetCAs(leafPEM(t, c.keys.CA()))},
		"no URL":                  {SetFallback("here")},
	} {
		_, err := c.Next(testTime, edits...)
		if !reason.Is(err, reason.TrustRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c.Current().hash(t) != c.Pin() {
		t.Error("a refused edit changed the chain")
	}
}

func leafPEM(t testing.TB, ca *CA) string {
	t.Helper()
	leaf, err := ca.IssueClient(ClientRequest{User: "a"}, testTime)
	if err != nil {
		t.Fatal(err)
	}
	return string(leaf.CertificatePEM())
}

// Expiry is judged by the latest of the clock, the last document and the program's build: setting a clock back revives no key.
func TestClockSetBackRevivesNoKey(t *testing.T) {
	c := newTestChain(t)
	key := NewSigningKey().Public()
	end := testTime.AddDate(0, 1, 0)
	two := extend(t, c.Chain, next(t, c.Chain, testTime, []*SigningKey{c.root}, SetKey(RoleOperator, key, end)))
	has := func(c *Chain, now time.Time) bool { return slices.Contains(c.KeysOf(RoleOperator, now), key) }
	if !has(two, testTime) || !has(two, end.Add(-time.Second)) || has(two, end) {
		t.Error("the key is not valid from its beginning until its end")
	}
	if !has(two, time.Unix(0, 0)) {
		t.Error("a machine without a clock takes no key that the last document gave a role")
	}
	three := extend(t, two, next(t, two, end, []*SigningKey{c.root}, BumpEpoch()))
	if has(three, testTime) {
		t.Error("a clock behind the last document revives an expired key")
	}
	late, err := Verify(two.After(0), two.Pin(), end.Add(time.Hour))
	if err != nil || has(late, testTime) {
		t.Errorf("a clock behind the build revives an expired key (%v)", err)
	}
	// A number that is made with the clock set back takes the time of the one before, so that others accept it.
	if s := next(t, three, testTime, nil, BumpEpoch()); !s.Document.Issued.Equal(end) {
		t.Errorf("issued at %s, want %s", s.Document.Issued, end)
	}
}

// A document from the future is not put into force: hosts would take the time from it, and no later number could be dated before.
func TestDocumentFromTheFuture(t *testing.T) {
	c := newTestChain(t)
	year := testTime.AddDate(1, 0, 0)
	ahead := next(t, c.Chain, year, []*SigningKey{c.root}, BumpEpoch())
	words := wantCode(t, c.CheckIssued(ahead, testTime), reason.TrustRefused)
	for _, w := range []string{"issued at 2027-11-21 08:00:00 UTC", "this machine's clock says 2026-11-21 08:00:00 UTC", "document 2"} {
		if !strings.Contains(words, w) {
			t.Errorf("%q does not say %q", words, w)
		}
	}
	for name, now := range map[string]time.Time{"as it was issued": year, "with a skew": year.Add(-ClockSkew), "later": year.AddDate(5, 0, 0)} {
		if err := c.CheckIssued(ahead, now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Where the harm is done, as by a server whose clock was ahead, work goes on: its successor takes the same time.
	poisoned := extend(t, c.Chain, ahead)
	if err := poisoned.CheckIssued(next(t, poisoned, testTime, nil, BumpEpoch()), testTime); err != nil {
		t.Errorf("behind one from the future: %v", err)
	}
}

func TestRevokedKeyHasNoRole(t *testing.T) {
	c := newTestChain(t)
	heads, fresh := c.keys.Heads().Public(), NewSigningKey().Public()
	edits := []Edit{Revoke(heads.ID()), SetKey(RoleHeads, fresh, testTime.AddDate(1, 0, 0)), SetKey(ReleaseRole("prod"), fresh, testTime.AddDate(1, 0, 0))}
	two := extend(t, c.Chain, next(t, c.Chain, testTime, []*SigningKey{c.root}, edits...))
	if keys := two.KeysOf(RoleHeads, testTime); !slices.Equal(keys, []PublicKey{fresh}) {
		t.Errorf("heads keys are %v", keys)
	}
	if keys := two.KeysOf(ReleaseRole("prod"), testTime); !slices.Equal(keys, []PublicKey{fresh}) {
		t.Errorf("release keys are %v", keys)
	}
	if keys := two.KeysOf(ReleaseRole("dev"), testTime); keys != nil {
		t.Errorf("release keys of another environment are %v", keys)
	}
}

// The chain hands out copies: nobody changes what was verified.
func TestChainCannotBeChanged(t *testing.T) {
	c := newTestChain(t)
	before, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	d := c.Current()
	d.Root.Keys[0][0]++
	d.CAs[0] = ""
	for _, s := range c.After(0) {
		s.Document.Keys[0].Role = RoleBuild
		s.Signatures[0].Value[0]++
	}
	given := c.After(0)
	verified, err := Verify(given, c.Pin(), testBuilt)
	if err != nil {
		t.Fatal(err)
	}
	given[0].Document.Root.Keys[0][0]++
	for _, chain := range []*Chain{c.Chain, verified} {
		if after, err := chain.Encode(); err != nil || !bytes.Equal(after, before) {
			t.Errorf("the chain was changed from outside (%v)", err)
		}
	}
}

// TestSignatureByMistake: a wrong key that has signed too is told, and spoils nothing; whoever holds it is told when signing.
func TestSignatureByMistake(t *testing.T) {
	c := newTestChain(t)
	wrong, fresh := NewSigningKey(), NewSigningKey()
	proposal, err := c.Next(testTime, RotateRoot(c.root.Public().ID(), fresh.Public()))
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, proposal.CheckSigner(wrong.Public()), reason.TrustRefused)
	for _, key := range []*SigningKey{c.root, wrong, fresh} {
		if key != wrong && proposal.CheckSigner(key.Public()) != nil {
			t.Errorf("%v: %v", key, proposal.CheckSigner(key.Public()))
		}
		if proposal, err = proposal.Sign(key); err != nil {
			t.Fatal(err)
		}
	}
	_, err = c.Extend([]Signed{proposal})
	wantCode(t, err, reason.TrustRefused)
	kept, others := c.Relevant(proposal)
	if !slices.Equal(others, []KeyID{wrong.Public().ID()}) || len(kept.Signatures) != 2 {
		t.Errorf("left out %v, %d kept", others, len(kept.Signatures))
	}
	two, err := c.Extend([]Signed{kept})
	if err != nil {
		t.Fatal(err)
	}
	// What was rotated away has no say any more.
	later, err := two.Next(testTime.Add(time.Minute), BumpEpoch())
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, later.CheckSigner(c.root.Public()), reason.TrustRefused)
}

// TestPin: only who has the cluster's keys can say what its trust documents begin with.
func TestPin(t *testing.T) {
	c := newTestChain(t)
	sealed := c.keys.SealPin(c.Pin())
	if pin, err := c.keys.OpenPin(sealed); err != nil || pin != c.Pin() {
		t.Errorf("%v, %v", pin, err)
	}
	_, err := testKeys(t).OpenPin(sealed)
	wantCode(t, err, reason.SealKeyUnknown)
	sealed[len(sealed)-1] ^= 1
	_, err = c.keys.OpenPin(sealed)
	wantCode(t, err, reason.SealBroken)
}
