package held

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// aTemplate is what a revision of a workload runs.
func aTemplate(revision string) catalog.Template {
	return catalog.Template{Namespace: "shop", Revision: revision, Spec: workload.Template{Tasks: []workload.Task{{Name: "a", Command: []string{"/bin/a"},
		Env: []workload.EnvVar{{Name: "P", ValueFrom: &workload.EnvSource{Secret: &declare.KeySelector{Name: "db", Key: "p"}}}}}}},
		Secrets: []catalog.TemplateSecret{{Task: "a", Env: "P", Sealed: catalog.Sealed{Key: "k", Text: []byte("sealed")}}}}
}

// putTemplate stores the layer of a template with a body.
func putTemplate(t testing.TB, s *Store, tpl catalog.Template, item catalog.Item) catalog.Layer {
	t.Helper()
	id := catalog.TemplateLayer(tpl.Namespace, tpl.Revision)
	return catalog.Layer{Priority: catalog.TemplatePriority, ID: id, Root: putItems(t, s, id, []catalog.Item{item})}
}

func templateItem(t testing.TB, tpl catalog.Template) catalog.Item {
	t.Helper()
	item, err := tpl.Item()
	must(t, err)
	return item
}

// TestContentsOfInstances: what is in a catalog for instances stands beside what is enforced, and is part of none of it.
func TestContentsOfInstances(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	web := aTemplate("web-a")
	own := catalog.Own{Keys: []catalog.OwnKey{{ID: "k", Sealed: []byte{1}}},
		Instances: []catalog.Instance{{UID: "u", Namespace: "shop", Name: "web-0", Workload: "web", Revision: "web-a", Stop: true, Lease: 60}}}
	ownItems, err := own.Items()
	must(t, err)
	file, err := catalog.Compile([]declare.Resource{{Name: "f", File: &declare.File{Path: "/f"}}})
	must(t, err)
	data, err := catalog.DataItem(&declare.Data{Key: "k", Value: "v"})
	must(t, err)
	config := catalog.Layer{Priority: 5, ID: "NodeConfig/shop/a", Root: putItems(t, s, "NodeConfig/shop/a", append(file, data))}
	root := putList(t, s, config, putTemplate(t, s, web, templateItem(t, web)), catalog.Layer{Priority: catalog.OwnPriority, ID: wire.OwnLayer, Root: putItems(t, s, wire.OwnLayer, ownItems)})
	for what, from := range map[string]*Store{"open": s, "looked at": inspected(t, dir)} {
		c, err := from.Contents(root)
		must(t, err)
		if !reflect.DeepEqual(c.Templates, []catalog.Template{web}) || !reflect.DeepEqual(c.Own, own) {
			t.Errorf("%s: %+v and %+v", what, c.Templates, c.Own)
		}
		if len(c.Layers) != 1 || c.Layers[0].ID != config.ID || c.Delivered != 1 {
			t.Errorf("%s: what is enforced is %+v, with %d delivered", what, c.Layers, c.Delivered)
		}
		if d, err := from.DataOf(root, "k", catalog.Proof{}); err != nil || d.Value != "v" {
			t.Errorf("%s: %+v, %v", what, d, err)
		}
		if keys, err := from.Keys(root, "", "", 10, catalog.Proof{}); err != nil || len(keys) != 1 {
			t.Errorf("%s: %v, %v", what, keys, err)
		}
	}
	// A template that goes is no data that is lost.
	less := putList(t, s, config)
	if deleted, example, err := s.Lost(root, less); err != nil || deleted != 0 {
		t.Errorf("%d are lost, such as %s: %v", deleted, example, err)
	}
}

func inspected(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Inspect(dir)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func asUnusable(err error, as *Unusable) bool { return errors.As(err, as) }

// TestContentsOfALaterVersion: a template that this version cannot run is there with why, and the state is taken; one that is none is not.
func TestContentsOfALaterVersion(t *testing.T) {
	s := open(t, t.TempDir())
	tpl := aTemplate("web-a")
	good := templateItem(t, tpl)
	later, err := cbor.Marshal(map[string]any{"v": 99, "c": good.Claim, "t": "in another form"})
	must(t, err)
	c, err := s.Contents(putList(t, s, putTemplate(t, s, tpl, catalog.Item{Claim: good.Claim, Body: later})))
	if err != nil || len(c.Templates) != 1 || !reason.Is(c.Templates[0].Unsupported, reason.LaterVersion) || c.Templates[0].Revision != "web-a" {
		t.Errorf("%+v, %v", c.Templates, err)
	}
	elsewhere, err := cbor.Marshal(map[string]any{"v": 1, "c": "program:shop/web-a"})
	must(t, err)
	c, err = s.Contents(putList(t, s, putTemplate(t, s, tpl, catalog.Item{Claim: "program:shop/web-a", Body: elsewhere})))
	if err != nil || len(c.Templates) != 1 || !reason.Is(c.Templates[0].Unsupported, reason.LaterVersion) {
		t.Errorf("without a template: %+v, %v", c.Templates, err)
	}
	c, err = s.Contents(putList(t, s, catalog.Layer{ID: "Revision/of/another/form", Root: putItems(t, s, "Revision/of/another/form", []catalog.Item{good})}))
	if err != nil || len(c.Templates) != 0 || len(c.Layers) != 0 {
		t.Errorf("with another name: %+v, %v", c, err)
	}
	var bad Unusable
	wrong := putList(t, s, putTemplate(t, s, tpl, catalog.Item{Claim: good.Claim, Body: []byte("text")}))
	if _, err := s.Contents(wrong); !asUnusable(err, &bad) || !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("what is none: %v", err)
	}
	root := putList(t, s, putTemplate(t, s, tpl, good))
	must(t, os.Remove(filepath.Join(s.state, layersName, catalog.TrieOf([]catalog.Item{good}).Root().String())))
	again := inspected(t, s.state)
	if _, err := again.Contents(root); asUnusable(err, &bad) || !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("what is not here: %v", err)
	}
}
