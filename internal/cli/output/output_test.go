package output

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

func named(name string) Named {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Thing",
		"metadata": map[string]any{"name": name, "managedFields": []any{map[string]any{"manager": "x"}}}, "n": int64(3)}}
	return Named{Name: "thing/" + name, Object: o}
}

func TestObjects(t *testing.T) {
	for _, c := range []struct {
		format string
		single bool
		names  string
		want   string
	}{
		{"name", false, "a b", "thing/a\nthing/b\n"},
		{"ndjson", false, "a b", `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a"},"n":3}` + "\n" + `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"b"},"n":3}` + "\n"},
		{"yaml", true, "a", "apiVersion: v1\nkind: Thing\nmetadata:\n  name: a\n\"n\": 3\n"},
		{"yaml", false, "a", "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Thing\n  metadata:\n    name: a\n  \"n\": 3\nkind: List\n"},
		{"jsonpath={.items[*].metadata.name}", false, "a b", "a b\n"},
		{"jsonpath=.metadata.name", true, "a", "a\n"},
		{"jsonpath={.none}", true, "a", ""},
		{"jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}", false, "a b", "a\nb\n"},
	} {
		format, err := Parse(c.format)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		o := NewObjects(&b, format, c.single)
		for _, name := range strings.Fields(c.names) {
			if err := o.Add(named(name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Close(); err != nil || b.String() != c.want {
			t.Errorf("-o %s: %q (%v), want %q", c.format, b.String(), err, c.want)
		}
	}
}

func TestJSONIsAList(t *testing.T) {
	for _, n := range []int{0, 2} {
		var b bytes.Buffer
		o := NewObjects(&b, Format{kind: asJSON}, false)
		for range n {
			if err := o.Add(named("a")); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		var list struct {
			Kind  string
			Items []any
		}
		if err := json.Unmarshal(b.Bytes(), &list); err != nil || list.Kind != "List" || list.Items == nil || len(list.Items) != n {
			t.Errorf("%d objects: %s (%v)", n, b.String(), err)
		}
	}
}

func TestChanges(t *testing.T) {
	for format, want := range map[string]string{
		"name":   "thing/a\nthing/b\n",
		"ndjson": `{"object":{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a"},"n":3},"type":"ADDED"}` + "\n" + `{"object":{"apiVersion":"v1","kind":"Thing","metadata":{"name":"b"},"n":3},"type":"ADDED"}` + "\n",
		"yaml":   "apiVersion: v1\nkind: Thing\nmetadata:\n  name: a\n\"n\": 3\n---\napiVersion: v1\nkind: Thing\nmetadata:\n  name: b\n\"n\": 3\n",
	} {
		parsed, err := Parse(format)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		o := NewObjects(&b, parsed, false)
		for _, name := range []string{"a", "b"} {
			if err := o.Change("ADDED", named(name)); err != nil {
				t.Fatal(err)
			}
		}
		if b.String() != want {
			t.Errorf("-o %s: %q, want %q", format, b.String(), want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"xml", "JSON", "jsonpath", "jsonpath={.a", "custom-columns=x"} {
		if _, err := Parse(text); !reason.Is(err, reason.Usage) {
			t.Errorf("-o %q: %v", text, err)
		}
	}
}

func TestTables(t *testing.T) {
	part := remote.Table{Columns: []metav1.TableColumnDefinition{{Name: "Name", Format: "name"}, {Name: "Data"}, {Name: "More", Priority: 1}}}
	for _, name := range []string{"a", "b"} {
		o := named(name).Object
		o.SetNamespace("ns")
		o.SetLabels(map[string]string{"x": "y"})
		part.Rows = append(part.Rows, remote.Row{Cells: []any{name, float64(1_000_000), nil}, Object: o})
	}
	for _, c := range []struct {
		options TableOptions
		want    string
	}{
		{TableOptions{}, "NAME  DATA\na     1000000\nb     1000000\n"},
		{TableOptions{Wide: true}, "NAME  DATA     MORE\na     1000000  -\nb     1000000  -\n"},
		{TableOptions{Namespace: true, Labels: true}, "NAMESPACE  NAME  DATA     LABELS\nns         a     1000000  x=y\nns         b     1000000  x=y\n"},
		{TableOptions{NoHeader: true, Prefix: "thing/"}, "thing/a  1000000\nthing/b  1000000\n"},
	} {
		table := NewTables(c.options)
		table.Add(part)
		var b bytes.Buffer
		if err := table.Write(&b, present.Style{}); err != nil || b.String() != c.want {
			t.Errorf("%+v: %q (%v), want %q", c.options, b.String(), err, c.want)
		}
		b.Reset()
		table.Add(remote.Table{Rows: part.Rows[:1]})
		table.Mark("(deleted)")
		if err := table.Write(&b, present.Style{}); err != nil || strings.Contains(b.String(), "NAME") || !strings.HasSuffix(b.String(), "  (deleted)\n") {
			t.Errorf("%+v: a change is written as %q (%v)", c.options, b.String(), err)
		}
	}
}

func TestAge(t *testing.T) {
	now := time.Unix(1000, 0)
	for want, at := range map[string]time.Time{"-": {}, "1m": time.Unix(900, 0), "0ms": time.Unix(2000, 0)} {
		if got := Age(at, now); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
