package order

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/place"
	"tako.dev/tako/internal/trust"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const declared = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: web}
spec:
  drift: observe
  resources:
    - name: motd
      file: {path: /etc/motd, content: "hello\n"}
    - name: page
      require: [motd]
      file: {path: /srv/page, mode: "0640", contentFrom: {configMap: {name: pages, key: index}}}
`

const pages = `---
apiVersion: v1
kind: ConfigMap
metadata: {name: pages}
data: {index: "the page\n"}
`

const cluster = `---
apiVersion: tako.dev/v1alpha1
kind: ClusterNodeConfig
metadata: {name: all}
spec:
  resources:
    - name: page
      file: {path: /srv/page, contentFrom: {configMap: {namespace: prod, name: pages, key: index}}}
`

// bench is a directory with a key of an operator, the trust documents, and what is declared.
type bench struct {
	*Shell
	t     *testing.T
	dir   string
	key   *trust.SigningKey
	chain *trust.Chain
	said  bytes.Buffer
}

func newBench(t *testing.T, text string, valid time.Duration) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), key: trust.NewSigningKey()}
	b.Shell = &Shell{In: strings.NewReader(text), Out: &b.said, Err: &b.said, Namespace: func() string { return "prod" },
		Refused: func(err error, _ *documents.Source) error { return err }}
	id, root, now := trust.NewClusterID(), trust.NewSigningKey(), time.Now()
	ca, err := trust.NewCA(id, now)
	must(t, err)
	b.chain, err = trust.NewChain(trust.Genesis{Cluster: id, CA: ca, Root: root, Heads: trust.NewSigningKey().Public()}, now.Add(-time.Hour), time.Time{})
	must(t, err)
	next, err := b.chain.Next(now.Add(-time.Minute), trust.BumpEpoch(), trust.SetKey(trust.RoleOperator, b.key.Public(), now.Add(valid)))
	must(t, err)
	next, err = next.Sign(root)
	must(t, err)
	b.chain, err = b.chain.Extend([]trust.Signed{next})
	must(t, err)
	trusted, err := b.chain.Encode()
	must(t, err)
	must(t, os.WriteFile(b.path("trust.json"), trusted, 0o600))
	must(t, os.WriteFile(b.path("declared.yaml"), []byte(text), 0o600))
	must(t, trust.SaveSigningKey(b.key, b.path("key")))
	return b
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// sign runs the command.
func (b *bench) sign(args ...string) error {
	b.t.Helper()
	c := b.NewSign()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append([]string{"layer", "-f", b.path("declared.yaml"), "--key", b.path("key")}, args...))
	return c.ExecuteContext(b.t.Context())
}

// readOrder reads an order.
func readOrder(t *testing.T, path string) (catalog.Statement, map[string]catalog.Desired) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	signed, layer, err := catalog.ReadOrder(f)
	must(t, err)
	_, st, err := catalog.DecodeStatement(signed)
	must(t, err)
	entries := map[string]catalog.Desired{}
	must(t, catalog.ReadRows(layer, func(key catalog.Digest, body []byte) error {
		d, err := catalog.DecodeBody(key, body)
		entries[d.Claim] = d
		return err
	}))
	return st, entries
}

func TestSignLayer(t *testing.T) {
	b := newBench(t, declared+pages, time.Hour)
	must(t, b.sign("-o", b.path("a.order"), "--number", "7"))
	st, entries := readOrder(t, b.path("a.order"))
	current := b.chain.Current()
	if st.Layer != "NodeConfig/prod/web" || st.Number != 7 || st.Epoch != 2 || st.Cluster != current.Cluster || st.Key != b.key.Public().ID() || st.Expires-st.Issued != int64(validFor/time.Second) {
		t.Errorf("the statement is %+v", st)
	}
	page := entries["path:/srv/page"]
	if len(entries) != 2 || page.Resource.File.Content != "the page\n" || page.Resource.Drift != "observe" || len(page.Require) != 1 || page.Require[0] != "path:/etc/motd" {
		t.Errorf("the layer is %+v", entries)
	}
	if said := b.said.String(); !strings.Contains(said, "statement 7 of epoch 2 about NodeConfig/prod/web, 2 resources") || !strings.Contains(said, "tako-agent accept a.order") {
		t.Errorf("it says %s", said)
	}
	must(t, b.sign("-o", b.path("b.order")))
	if st, _ = readOrder(t, b.path("b.order")); time.Since(time.Unix(int64(st.Number), 0)) > time.Minute {
		t.Errorf("by itself the number is %d", st.Number)
	}
}

func TestSignLayerIntoADirectory(t *testing.T) {
	b := newBench(t, declared+pages+cluster, time.Hour)
	stick := t.TempDir()
	must(t, b.sign("ClusterNodeConfig/all", "-o", stick, "--number", "1"))
	must(t, b.sign("NodeConfig/prod/web", "-o", stick, "--number", "1"))
	must(t, b.sign("NodeConfig/prod/web", "-o", stick, "--number", "2"))
	all, err := place.Directory(stick).Statements(t.Context())
	must(t, err)
	if len(all) != 2 {
		t.Fatalf("%d statements", len(all))
	}
	for i, want := range []struct {
		layer  string
		number uint64
	}{{"ClusterNodeConfig/all", 1}, {"NodeConfig/prod/web", 2}} {
		_, st, err := catalog.DecodeStatement(all[i])
		must(t, err)
		f, err := os.Open(filepath.Join(stick, "layers", st.Root.String()))
		must(t, err)
		trie, size, err := catalog.ReadTrie(f)
		if err := errors.Join(err, f.Close()); err != nil || st.Layer != want.layer || st.Number != want.number || trie.Root() != st.Root || size != st.Bytes {
			t.Errorf("%+v: %v, root %s, %d bytes", st, err, trie.Root(), size)
		}
	}
}

func TestSignLayerRefuses(t *testing.T) {
	secret := strings.Replace(declared, "configMap", "secret", 1)
	other := filepath.Join(t.TempDir(), "other-key")
	must(t, trust.SaveSigningKey(trust.NewSigningKey(), other))
	for name, one := range map[string]struct {
		text  string
		args  []string
		valid time.Duration
		code  reason.Code
		says  string
	}{
		"a value of a Secret":          {text: secret, code: reason.ContentNeedsServer, says: "Secret pages"},
		"a ConfigMap that is not here": {text: declared, code: reason.LayerReference, says: "it is not in these files"},
		"a key that it has not":        {text: declared + strings.Replace(pages, "index", "other", 1), code: reason.LayerReference, says: "it has no such key"},
		"several configs":              {text: declared + pages + cluster, code: reason.Usage, says: "several"},
		"a config that is not here":    {text: declared + pages, args: []string{"NodeConfig/qa/web"}, code: reason.Usage, says: "not in these files"},
		"nothing of the kind":          {text: strings.TrimPrefix(pages, "---\n"), code: reason.NothingDeclared, says: "no NodeConfig"},
		"a key without the role":       {text: declared + pages, args: []string{"--key", other, "--trust", ""}, code: reason.TrustRefused, says: "role operator"},
		"a key whose time is over":     {text: declared + pages, valid: -30 * time.Second, code: reason.TrustRefused, says: "role operator"},
		"no trust documents":           {text: declared + pages, args: []string{"--trust", "/nowhere/trust.json"}, code: reason.Usage, says: "trust documents"},
	} {
		t.Run(name, func(t *testing.T) {
			valid := one.valid
			if valid == 0 {
				valid = time.Hour
			}
			b := newBench(t, one.text, valid)
			for i, arg := range one.args {
				if arg == "" {
					one.args[i] = b.path("trust.json")
				}
			}
			err := b.sign(append(one.args, "-o", b.path("a.order"))...)
			if !reason.Is(err, one.code) || !strings.Contains(err.Error(), one.says) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(b.path("a.order")); err == nil {
				t.Error("something is written")
			}
		})
	}
	b := newBench(t, declared+pages, time.Hour)
	for _, valid := range []string{"1s", "9000h"} {
		if err := b.sign("-o", b.path("a.order"), "--valid", valid); err == nil {
			t.Errorf("--valid %s is taken", valid)
		}
	}
}
