package agent

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// webTemplate is what the instances of these tests run: a program, with a variable out of a Secret.
func webTemplate(sealed catalog.Sealed) catalog.Template {
	return catalog.Template{Namespace: "shop", Revision: "web-a", Spec: workload.Template{Tasks: []workload.Task{{Name: "a", Command: []string{"/bin/sleep", "infinity"},
		Env: []workload.EnvVar{{Name: "P", ValueFrom: &workload.EnvSource{Secret: &declare.KeySelector{Name: "db", Key: "p"}}}}}}},
		Secrets: []catalog.TemplateSecret{{Task: "a", Env: "P", Sealed: sealed}}}
}

// template is the layer of a template.
func (c *centre) template(t catalog.Template) catalog.Layer {
	c.t.Helper()
	item, err := t.Item()
	must(c.t, err)
	return c.shelve(catalog.TemplateLayer(t.Namespace, t.Revision), catalog.TemplatePriority, []catalog.Item{item})
}

func instanceOf(uid string) catalog.Instance {
	return catalog.Instance{UID: uid, Namespace: "shop", Name: "web-0", Workload: "web", Revision: "web-a"}
}

// has reads what a host holds of a state beside what it enforces.
func (s *site) has(root catalog.Digest) held.Contents {
	s.t.Helper()
	h, err := held.Inspect(s.opts.StateDir)
	must(s.t, err)
	defer h.Close()
	c, err := h.Contents(root)
	must(s.t, err)
	return c
}

// TestInstancesComeToTheHost: a head with instances comes from a server, and in a directory while no server is there; what is enforced is not disturbed,
// no config is reported that is none, and the value of a secret is opened with the key that came along.
func TestInstancesComeToTheHost(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	const plain = "the plain text of it"
	keys, err := trust.NewKeys(c.id, time.Now())
	must(t, err)
	id, key := keys.Delivery().DataKey("uid-of-secret", "p", []byte(plain))
	wrapped, err := trust.SealKey(c.sealing, trust.Envelope{Cluster: c.id, NodeUID: nodeUID, KeyID: id}, key)
	must(t, err)
	sealed := catalog.Sealed{Key: id, Text: key.SealText(id, []byte(plain))}
	own := func(instances ...catalog.Instance) catalog.Layer {
		return c.own(catalog.Own{Keys: []catalog.OwnKey{{ID: id, Sealed: wrapped}}, Instances: instances})
	}
	config := c.config("NodeConfig/web", 5, filesOf("a")...)
	m := c.assign(nil, config, c.template(webTemplate(sealed)), own(instanceOf("u1")))
	r := c.settles(m, wire.Applied)
	if len(r.Configs) != 1 || r.Configs[0].ID != "NodeConfig/web" || r.Counts.Kept+r.Counts.Repaired != 1 {
		t.Errorf("configs %+v of %+v", r.Configs, r.Counts)
	}
	c.gone(true)
	stopped := instanceOf("u1")
	stopped.Stop = true
	m = c.assign(nil, config, c.template(webTemplate(sealed)), own(stopped, instanceOf("u2")))
	dir := t.TempDir()
	c.fill(dir)
	b, err := s.accept(dir)
	if err != nil || b.Version != m.Version || !b.News {
		t.Fatalf("brought is %+v, %v", b, err)
	}
	s.until("it is enforced", func(r *Report) bool {
		return r.Cluster != nil && r.Cluster.Version == m.Version && r.Converged && r.Settled
	})
	s.holds("a", "text of a")
	has := s.has(m.Root)
	if len(has.Own.Instances) != 2 || !has.Own.Instances[0].Stop || has.Own.Instances[1].UID != "u2" || len(has.Templates) != 1 || len(has.Layers) != 1 {
		t.Fatalf("the host holds %+v", has)
	}
	identity, err := held.LoadIdentity(s.opts.StateDir, trust.Built())
	must(t, err)
	vault := held.NewVault(identity)
	vault.Take(has.Own.Keys)
	if text, err := vault.Open(has.Templates[0].Secrets[0].Sealed); err != nil || !bytes.Equal(text, []byte(plain)) {
		t.Errorf("opened is %q, %v", hex.EncodeToString(text), err)
	}
}

// TestTemplateOfALaterVersion: a state with a template that the host does not know is enforced all the same.
func TestTemplateOfALaterVersion(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	item, err := webTemplate(catalog.Sealed{}).Item()
	must(t, err)
	item.Body, err = cbor.Marshal(map[string]any{"v": 99, "c": item.Claim, "t": "in another form"})
	must(t, err)
	later := c.shelve(catalog.TemplateLayer("shop", "web-a"), catalog.TemplatePriority, []catalog.Item{item})
	m := c.assign(nil, c.config("NodeConfig/web", 5, filesOf("a")...), later, c.own(catalog.Own{Instances: []catalog.Instance{instanceOf("u1")}}))
	c.settles(m, wire.Applied)
	s.holds("a", "text of a")
	if has := s.has(m.Root); len(has.Templates) != 1 || !reason.Is(has.Templates[0].Unsupported, reason.LaterVersion) {
		t.Errorf("the host holds %+v", has.Templates)
	}
}
