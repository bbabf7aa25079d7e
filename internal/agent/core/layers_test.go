package core

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// unknown is the entry of a claim that this version cannot read, of config NodeConfig/a.
func unknown(t testing.TB, claim string) catalog.Entry {
	t.Helper()
	text := func(s string) []byte { return append([]byte{0x78, byte(len(s))}, s...) }
	body := append([]byte{0xa2, 0x61, 'c'}, text(claim)...)
	body = append(body, 0x61, 'v', 0x18, 99) // a schema that nobody has
	d, err := catalog.DecodeBody(catalog.KeyOf(claim), body)
	if err != nil || d.Unsupported == nil {
		t.Fatalf("%+v, %v", d, err)
	}
	entries, conflicts := catalog.ResolveLayers([]catalog.DecodedLayer{{ID: "NodeConfig/a", Entries: []catalog.Desired{d}}})
	if len(conflicts) > 0 {
		t.Fatal(conflicts)
	}
	return entries[0]
}

// TestTransferCase51_UnknownEntryKind: what is not known here fails as such, what depends on it is blocked, and all others go on.
func TestTransferCase51_UnknownEntryKind(t *testing.T) {
	cs := casetest.Start(t)
	in := input(t, "  resources:\n  - name: below\n    file: {path: /srv/x}\n    require: [link]\n  - name: link\n    symlink: {path: /srv/link, target: x}\n  - name: free\n    file: {path: /free}\n")
	for i := range in.Entries {
		if in.Entries[i].Claim().ID == "/srv/link" {
			in.Entries[i] = unknown(t, "path:/srv/link")
		}
	}
	in.Entries = append(in.Entries, unknown(t, "socket:/run/x"))
	known := in.Lane
	in.Lane = func(t declare.ResourceType) string {
		if t == "" {
			panic("no type has no lane")
		}
		return known(t)
	}
	c := compile(t, in)
	for title, want := range map[string]reason.Outcome{"path:/srv/link": reason.Failed, "socket:/run/x": reason.Failed, "file/below": reason.Blocked, "file/free": reason.Repaired} {
		cs.Equal(converged(t, c)[title].Outcome, want, title)
	}
	st := converged(t, c)["socket:/run/x"]
	cs.Check(reason.Is(st.Err, reason.LaterVersion) && st.Detail == reason.Unsupported, "%v, %s", st.Err, st.Detail)
}

// converged drives a graph to its end on a host where everything works but what the items say cannot be had, and returns what became
// of each.
func converged(t testing.TB, c *Compiled) map[string]converge.Status {
	t.Helper()
	e, err := converge.New(c.Graph, converge.Options{Lanes: []converge.Lane{{Name: "lane", Parallel: 64, Batch: 64}}}, rand.New(rand.NewPCG(1, 2)), converge.Resume{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	ops, done := e.Step(now, converge.Tick{}).Start, map[converge.ID]bool{}
	for len(ops) > 0 {
		op := ops[0]
		finished := converge.Done{Token: op.Token}
		for _, id := range op.IDs {
			done[id] = done[id] || op.Verb == converge.Apply
			finished.Results = append(finished.Results, converge.Result{Err: c.Items[id].Err, InSync: done[id], Changed: op.Verb == converge.Apply})
		}
		ops = append(ops[1:], e.Step(now, finished).Start...)
	}
	all := map[string]converge.Status{}
	for i := range c.Items {
		all[c.Items[i].Title] = e.Status(converge.ID(i))
	}
	return all
}

// TestTransferCase32_PoisonEntry: one entry of many that cannot be had keeps nothing else from its place.
func TestTransferCase32_PoisonEntry(t *testing.T) {
	cs := casetest.Start(t)
	const n = 10_000
	in := Input{Lookup: scope.Lookup, Lane: func(declare.ResourceType) string { return "lane" }}
	for i := range n {
		in.Entries = append(in.Entries, catalog.Entry{Config: "NodeConfig/a", Resource: declare.Resource{Name: fmt.Sprint("f", i), File: &declare.File{Path: fmt.Sprint("/f", i)}}})
	}
	poison := &in.Entries[n/2]
	poison.Resource.Expand, poison.Resource.File.Content = true, "$(facts.hostname)"
	c := compile(t, in)
	count := map[reason.Outcome]int{}
	for title, st := range converged(t, c) {
		count[st.Outcome]++
		cs.Check(st.Outcome != reason.Failed || title == poison.Title() && st.Err != nil, "%s failed: %v", title, st.Err)
	}
	cs.Equal(count, map[reason.Outcome]int{reason.Repaired: n - 1, reason.Failed: 1}, "outcomes")
}

// secretFile is an entry whose content is a secret.
func secretFile(s *catalog.Sealed) catalog.Entry {
	return catalog.Entry{Sealed: s, Resource: declare.Resource{Name: "key",
		File: &declare.File{Path: "/key", ContentFrom: &declare.ContentSource{Secret: &declare.KeySelector{Name: "db", Key: "password"}}}}}
}

// Another secret is a change; nobody else is concerned. Without its content a resource is not to be had.
func TestCompileSecret(t *testing.T) {
	in := input(t, "  resources:\n  - name: f\n    file: {path: /f}\n")
	with := func(s *catalog.Sealed) *Compiled {
		next := in
		next.Entries = append([]catalog.Entry{secretFile(s)}, in.Entries...)
		return compile(t, next)
	}
	one, same, two, none := with(&catalog.Sealed{Key: "k", Text: []byte("x")}), with(&catalog.Sealed{Key: "k", Text: []byte("x")}), with(&catalog.Sealed{Key: "k2", Text: []byte("y")}), with(nil)
	digest := func(c *Compiled, i int) converge.Digest { return c.Graph.Vertices[i].Digest }
	if digest(one, 0) != digest(same, 0) || digest(one, 0) == digest(two, 0) || digest(one, 0) == digest(none, 0) {
		t.Error("the digest does not follow the secret")
	}
	if digest(one, 1) != digest(two, 1) {
		t.Error("another secret changed what does not use it")
	}
	if err := one.Items[0].Err; err == nil || err.Code != reason.SecretKeyMissing {
		t.Errorf("sealed: %v", err)
	}
	if err := none.Items[0].Err; err == nil || err.Code != reason.ContentNeedsServer || err.Hint == "" {
		t.Errorf("alone: %v", err)
	}
}

// A condition that is false comes before everything that is missing.
func TestNotApplicableNeedsNothing(t *testing.T) {
	in := input(t, "  resources:\n  - name: f\n    file: {path: /f}\n")
	e := secretFile(nil)
	e.Resource.When = "facts.cpu.count > 8"
	in.Entries = []catalog.Entry{e}
	if it := compile(t, in).Items[0]; it.When == "" || it.Err != nil {
		t.Errorf("%q, %v", it.When, it.Err)
	}
}
