package agent

import (
	"fmt"
	"os"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/lookup"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

func dataOf(n int, value string) []declare.Resource {
	var list []declare.Resource
	for i := range n {
		list = append(list, declare.Resource{Name: fmt.Sprint("d", i), Data: &declare.Data{Key: fmt.Sprintf("k/%03d", i), Value: value}})
	}
	return list
}

// looked is the value of a key, as the host has it.
func (s *site) looked(key string) string {
	s.t.Helper()
	d, err := lookup.In{StateDir: s.opts.StateDir}.Get(key)
	if err != nil {
		return reason.Of(err).Code.String()
	}
	return d.Config + " " + string(d.Bytes())
}

// TestDataIsDelivered: data is there to be looked up, by the priority of who declares it; there is nothing to do about it, and it is counted
// apart from all else, over a restart too.
func TestDataIsDelivered(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	low := append(dataOf(30, "low"), fileOf("a"))
	high := append(dataOf(10, "high"), fileOf("b"))
	m := c.assign(nil, c.config("NodeConfig/prod/web", 5, high...), c.config("NodeConfig/prod/base", 1, low...))
	r := c.settles(m, wire.Applied)
	if r.Delivered != 40 || r.Counts.Repaired+r.Counts.Kept != 2 {
		t.Errorf("the servers are told of %d values and %+v", r.Delivered, r.Counts)
	}
	local := s.until("it is told", func(r *Report) bool { return r.Converged && r.Settled })
	if local.Delivered != 40 || len(local.Resources) > 2 {
		t.Errorf("status %+v", local)
	}
	for key, want := range map[string]string{"k/003": "NodeConfig/prod/web high", "k/020": "NodeConfig/prod/base low", "k/030": reason.ResourceUnknown.String()} {
		if got := s.looked(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	in := lookup.In{StateDir: s.opts.StateDir}
	if keys, err := in.List("k/00", "k/003", 4); err != nil || fmt.Sprint(keys) != "[k/004 k/005 k/006 k/007]" {
		t.Errorf("keys %v, %v", keys, err)
	}
	if keys, err := in.List("", "", 1000); err != nil || len(keys) != 30 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	stop()
	c.gone(true)
	if got := s.looked("k/003"); got != "NodeConfig/prod/web high" {
		t.Errorf("with nobody there it is %q", got)
	}
	s.watch()
	if local := s.until("it is there again", func(r *Report) bool { return r.Converged && r.Settled }); local.Delivered != 40 {
		t.Errorf("after a restart %d are delivered", local.Delivered)
	}
}

// TestDataAlone: what changes in data alone changes nothing on the host, and two configs of one priority that do not agree are told when it
// is looked up, and keep nothing else away.
func TestDataAlone(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	c.settles(c.assign(nil, c.config("NodeConfig/web", 5, append(dataOf(3, "one"), fileOf("a"))...)), wire.Applied)
	m := c.assign(nil, c.config("NodeConfig/web", 5, append(dataOf(3, "two"), fileOf("a"))...))
	if r := c.settles(m, wire.Applied); r.Counts.Kept+r.Counts.Repaired != 1 || r.Delivered != 3 {
		t.Errorf("%+v", r)
	}
	if got := s.looked("k/001"); got != "NodeConfig/web two" {
		t.Errorf("it is %q", got)
	}
	m = c.assign(nil, c.config("NodeConfig/web", 5, append(dataOf(3, "two"), fileOf("a"))...), c.config("NodeConfig/zoo", 5, dataOf(2, "three")...))
	c.settles(m, wire.Applied)
	for key, want := range map[string]string{"k/001": reason.PriorityConflict.String(), "k/002": "NodeConfig/web two"} {
		if got := s.looked(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	// A host that has data and nothing else is as declared.
	m = c.assign(func(h *catalog.Head) { h.Consent = 100 }, c.config("NodeConfig/web", 5, dataOf(2, "x")...))
	if r := c.settles(m, wire.Applied); r.Delivered != 2 {
		t.Errorf("%+v", r)
	}
}

// TestBlastGuardOfData: an update that takes most of the data away waits for consent, however much stays of the rest; one that moves it from
// one config to another does not.
func TestBlastGuardOfData(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	web := filesOf(namesOf("f", 30)...)
	c.settles(c.assign(nil, c.config("NodeConfig/web", 5, append(dataOf(20, "v"), web...)...)), wire.Applied)
	m := c.assign(nil, c.config("NodeConfig/web", 5, append(dataOf(20, "other"), web...)...))
	c.settles(m, wire.Applied) // a change is no loss
	moved := c.assign(nil, c.config("NodeConfig/web", 5, web...), c.config("NodeConfig/data", 5, dataOf(20, "other")...))
	c.settles(moved, wire.Applied)
	fewer := c.config("NodeConfig/data", 5, dataOf(9, "other")...)
	m = c.assign(nil, c.config("NodeConfig/web", 5, web...), fewer)
	if r := c.settles(m, wire.Withheld); r.Verdict.Code != reason.DeletionsWithheld || r.Enforced.Version != moved.Version {
		t.Errorf("%+v", r)
	}
	stop()
	s.watch()
	c.until("it waits still", func(r *wire.Report) bool { return r.Session.Start == 2 && r.Verdict.Type == wire.Withheld })
	if got := s.looked("k/015"); got != "NodeConfig/data other" {
		t.Errorf("it is %q", got)
	}
	m = c.assign(nil, c.config("NodeConfig/web", 5, web...)) // all of it goes
	c.settles(m, wire.Withheld)
	m = c.assign(func(h *catalog.Head) { h.Consent = 60 }, c.config("NodeConfig/web", 5, web...), fewer)
	c.settles(m, wire.Applied)
	if got := s.looked("k/015"); got != reason.ResourceUnknown.String() {
		t.Errorf("it is %q", got)
	}
}

// TestLookupAlone: a host that stands alone has what its files declare.
func TestLookupAlone(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		must(t, os.WriteFile(dir+"/"+name, []byte(text), 0o600))
		return dir + "/" + name
	}
	config := func(name string, priority int, value string) string {
		return fmt.Sprintf("apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: %s}\nspec:\n  priority: %d\n  resources:\n  - {name: d, data: {key: k, value: %s}}\n  - {name: f, data: {key: %s/f}}\n", name, priority, value, name)
	}
	in := lookup.In{Files: []string{write("a.yaml", config("a", 100, "low")), write("b.yaml", config("b", 200, "high"))}}
	if d, err := in.Get("k"); err != nil || d.Value != "high" || d.Config != "NodeConfig/b" {
		t.Errorf("%+v, %v", d, err)
	}
	if keys, err := in.List("", "", 10); err != nil || fmt.Sprint(keys) != "[a/f b/f k]" {
		t.Errorf("%v, %v", keys, err)
	}
	if _, err := in.Get("x"); !reason.Is(err, reason.ResourceUnknown) {
		t.Errorf("%v", err)
	}
	write("b.yaml", config("b", 100, "high"))
	if _, err := in.Get("k"); err == nil {
		t.Error("two that do not agree are one")
	}
	state := t.TempDir()
	if _, err := (lookup.In{StateDir: state}).Get("k"); !reason.Is(err, reason.HostNotJoined) {
		t.Errorf("%v", err)
	}
}

// TestDataOfAHostAlone: data in its files is no work for the agent, and counted.
func TestDataOfAHostAlone(t *testing.T) {
	s := newSite(t)
	s.write("    - {name: d, data: {key: k, value: v}}\n    - {name: e, data: {key: l, base64: AAE=}}\n    - {name: a, file: {path: /a, content: text}}\n")
	planned, delivered, err := Preview(t.Context(), s.opts)
	if err != nil || len(planned) != 1 || delivered != 2 {
		t.Errorf("%d planned, %d delivered, %v", len(planned), delivered, err)
	}
	s.watch()
	r := s.until("it is converged", func(r *Report) bool { return r.Converged && r.Settled })
	if r.Delivered != 2 || r.Counts[reason.Repaired]+r.Counts[reason.Kept] != 1 {
		t.Errorf("%+v", r)
	}
}
