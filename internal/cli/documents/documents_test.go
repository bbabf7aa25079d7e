package documents

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

const site = `# what the site is
apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata:
  name: web
spec:
  resources:
    - name: motd
      file:
        path: /etc/motd
        mode: 0644
    - name: nginx
      package: {}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {"a.b/c": x}
data:
  a.b: "1"
  list: |
    text
--- # nothing here
---
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Secret",
   "metadata": {"name": "s"}}]}
`

func read(t *testing.T, text string) []Document {
	t.Helper()
	list, faults := Read("site.yaml", []byte(text))
	if len(faults) > 0 {
		t.Fatalf("faults: %v", faults)
	}
	return list
}

func TestRead(t *testing.T) {
	list := read(t, site)
	var got []string
	for _, d := range list {
		got = append(got, d.Kind().Kind+"/"+d.Object.GetName())
	}
	if want := []string{"NodeConfig/web", "ConfigMap/settings", "Secret/s"}; !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	resources, _ := list[0].Object.Object["spec"].(map[string]any)["resources"].([]any)
	mode := resources[0].(map[string]any)["file"].(map[string]any)["mode"]
	if mode != "0644" { // YAML 1.1 would have made 420 of it
		t.Errorf("mode is %v", mode)
	}
}

// TestWorkload: amounts, shares and modes may stand as numbers, and are sent as texts; a mistake is found before anything is sent, also in
// a list.
func TestWorkload(t *testing.T) {
	const text = `apiVersion: tako.dev/v1alpha1
kind: Workload
metadata: {name: web, uid: x}
spec:
  template:
    tasks:
    - name: a
      command: [/bin/a]
      resources:
        requests: {cpu: 0.25, memory: 1048576}
      files: [{path: /etc/a, content: b, mode: 0440}]
  rollout: {maxSurge: 2}
status: {ready: 1}
`
	d := read(t, text)[0]
	for path, want := range map[string]string{"template.tasks.0.resources.requests": `map[cpu:0.25 memory:1048576]`, "template.tasks.0.files.0": "map[content:b mode:0440 path:/etc/a]", "rollout": "map[maxSurge:2]"} {
		var got any = d.Object.Object["spec"]
		for step := range strings.SplitSeq(path, ".") {
			if list, ok := got.([]any); ok {
				got = list[0]
			} else {
				got = got.(map[string]any)[step]
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s is %v, want %s", path, got, want)
		}
	}
	if _, ok := d.Object.Object["spec"].(map[string]any)["rollout"].(map[string]any)["maxSurge"].(string); !ok || d.Object.Object["status"] != nil {
		t.Errorf("it is sent as %v", d.Object.Object)
	}
	if p := d.Place("spec.template.tasks[0].resources.requests.cpu"); p.Line != 10 || p.Column != 25 {
		t.Errorf("the request is at %s", p)
	}
	wrong := "# first\n---\n" + strings.Replace(text, "maxSurge: 2", "maxSurge: -2", 1)
	if _, faults := Read("f", []byte(wrong)); len(faults) != 1 || faults[0].Line != 14 || faults[0].Path != "spec.rollout.maxSurge" {
		t.Errorf("%v", faults)
	}
	list := "apiVersion: v1\nkind: List\nitems:\n- apiVersion: tako.dev/v1alpha1\n  kind: Workload\n  metadata: {name: w}\n  spec:\n    replicas: -1\n    template: {tasks: [{name: a, command: [/a]}]}\n"
	if _, faults := Read("f", []byte(list)); len(faults) != 1 || faults[0].Line != 8 || faults[0].Path != "spec.replicas" {
		t.Errorf("in a list: %v", faults)
	}
	if items := read(t, strings.Replace(list, "-1", "3", 1)); len(items) != 1 || items[0].Object.GetName() != "w" {
		t.Errorf("in a list: %v", items)
	}
}

func TestPlace(t *testing.T) {
	list := read(t, site)
	for _, c := range []struct {
		document int
		path     string
		line     int
		column   int
	}{
		{0, "spec.resources[0].file.path", 10, 15},
		{0, `.spec.resources[name="motd"].file.path`, 10, 15},
		{0, "spec.resources[1].package.version", 13, 7},
		{0, "spec.nothing", 6, 1},
		{0, "", 2, 1},
		{1, "metadata.name", 18, 9},
		{1, "data[a.b]", 21, 8},
		{1, "data.a.b", 21, 8},
		{1, "metadata.labels['a.b/c']", 19, 21},
		{1, "metadata.labels[nothing]", 19, 3},
		{1, "[", 15, 1},
		{2, "metadata.name", 28, 25},
		{2, "data", 27, 3},
	} {
		p := list[c.document].Place(c.path)
		if p.Line != c.line || p.Column != c.column || p.File != "site.yaml" {
			t.Errorf("%q is at %s, want %d:%d", c.path, p, c.line, c.column)
		}
	}
}

func TestPlaceOfKey(t *testing.T) {
	list := read(t, site)
	for path, want := range map[string][2]int{"metadata.name": {18, 3}, "data[a.b]": {21, 3}, "metadata.labels['a.b/c']": {19, 12}, "data": {20, 1}} {
		if p := list[1].PlaceOfKey(path); p.Line != want[0] || p.Column != want[1] {
			t.Errorf("the key of %q is at %s, want %v", path, p, want)
		}
	}
}

// TestServerFields: what `tako get -o yaml` writes is applied as it is, and what is a mistake is still one.
func TestServerFields(t *testing.T) {
	const metadata = "metadata:\n  name: web\n  uid: x\n  creationTimestamp: null\n  generation: 3\n  resourceVersion: '7'\n  managedFields: []\n"
	for _, text := range []string{
		"apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\n" + metadata + "spec: {resources: []}\nstatus: {revision: x}\n",
		"apiVersion: tako.dev/v1alpha1\nkind: Node\n" + metadata + "status: {lastHeard: x}\n",
		"apiVersion: v1\nkind: ConfigMap\n" + metadata,
		"apiVersion: v1\nkind: List\nitems:\n- apiVersion: tako.dev/v1alpha1\n  kind: NodeConfig\n  metadata: {name: web, uid: x}\n  spec: {resources: []}\n  status: {}\n",
	} {
		list := read(t, text)
		for _, field := range serverFields {
			if _, ok, _ := unstructured.NestedFieldNoCopy(list[0].Object.Object, "metadata", field); ok {
				t.Errorf("metadata.%s is sent:\n%s", field, text)
			}
		}
		if list[0].Object.Object["status"] != nil || list[0].Object.GetName() != "web" {
			t.Errorf("it is sent as %v:\n%s", list[0].Object.Object, text)
		}
	}
	if list := read(t, "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: w}\nstatus: {a: b}\n"); list[0].Object.Object["status"] == nil {
		t.Error("the status of a kind of others is lost")
	}
	_, faults := Read("f", []byte("apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\n"+metadata+"  uidd: y\nspec: {resources: [{name: a, status: {}}]}\n"))
	if len(faults) < 2 {
		t.Errorf("mistakes are hidden: %v", faults)
	}
}

func TestReadFaults(t *testing.T) {
	for _, c := range []struct {
		text string
		code reason.Code
		line int
	}{
		{"\n---\napiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: x}\nspec:\n  resorces: []\n", reason.UnknownField, 7},
		{"a: b\n---\nx: 1\n", reason.MissingField, 1},
		{"apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n", reason.MissingField, 3},
		{"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  name: b\n", reason.DuplicateKey, 5},
		{"apiVersion: v1\nkind: [\n", reason.MalformedYAML, 2},
		{"text\n", reason.WrongType, 1},
		{"[1, 2]\n", reason.WrongType, 1},
		{"apiVersion: v1\nkind: List\nitems: [3]\n", reason.WrongType, 3},
		{"apiVersion: v1\nkind: List\nitems:\n- apiVersion: tako.dev/v1alpha1\n  kind: NodeConfig\n  metadata: {name: x}\n  spec:\n    resources: [{name: a}]\n", reason.NotExactlyOneType, 8},
		{"apiVersion: v1\nkind: List\nitems:\n- apiVersion: tako.dev/v1alpha1\n  kind: NodeConfig\n  metadata: {name: x}\n  spec:\n    resources:\n    - name: a\n      file: {path: /a, mode: 0644}\n", reason.WrongType, 10},
		{"apiVersion: v1\nkind: Node\nmetadata: {name: n}\n", reason.WrongType, 3},
		{"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n  good: YQ==\n  bad: hunter2!\n", reason.InvalidValue, 6},
		{"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n   labels: x\n", reason.MalformedYAML, 4},
		{"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: \"a\ndata: {}\n", reason.MalformedYAML, 4},
		{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \xff}\n", reason.MalformedYAML, 3},
		{`{"apiVersion": "tako.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "x"}, "spec": {"resorces": []}}`, reason.UnknownField, 1},
	} {
		_, faults := Read("f", []byte(c.text))
		if len(faults) == 0 || faults[0].Code != c.code || faults[0].Line != c.line {
			t.Errorf("%q: %v, want %s on line %d", c.text, faults, c.code, c.line)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	object := func(name string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
	}
	write("b.yaml", object("b"))
	write("a.yml", object("a"))
	write("c.json", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}`)
	write("notes.txt", "not a document")
	write(".hidden.yaml", "not: [read")
	write("below/d.yaml", object("d"))
	names := func(recursive bool, paths ...string) string {
		t.Helper()
		source, err := Load(paths, recursive, strings.NewReader(object("stdin")))
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, d := range source.Documents {
			list = append(list, d.Object.GetName())
		}
		return strings.Join(list, " ")
	}
	if got := names(false, dir); got != "a b c" {
		t.Errorf("a directory has %q", got)
	}
	if got := names(true, dir, filepath.Join(dir, "b.yaml")); got != "a b d c" && got != "a b c d" {
		t.Errorf("a directory with all below it has %q", got)
	}
	if got := names(false, "-", "-"); got != "stdin" {
		t.Errorf("standard input has %q", got)
	}
	for _, c := range []struct {
		paths []string
		code  reason.Code
	}{
		{[]string{filepath.Join(dir, "nothing.yaml")}, reason.DeclarationUnread},
		{[]string{"-", filepath.Join(dir, "below")}, 0},
		{[]string{filepath.Join(dir, "notes.txt")}, reason.WrongType},
	} {
		_, err := Load(c.paths, false, strings.NewReader(object("x")))
		if c.code == 0 && err != nil || c.code != 0 && !reason.Is(err, c.code) {
			t.Errorf("%v: %v, want %s", c.paths, err, c.code)
		}
	}
	write("twice.yaml", object("same")+"---\n"+object("same"))
	_, err := Load([]string{filepath.Join(dir, "twice.yaml")}, false, nil)
	var faults declare.Faults
	if !errors.As(err, &faults) || faults[0].Code != reason.DuplicateDeclaration || faults[0].Line != 7 || faults[0].Related[0].Line != 3 {
		t.Errorf("one object twice: %v", err)
	}
}

// TestBelow: what a directory has below it and was not read is known.
func TestBelow(t *testing.T) {
	dir := t.TempDir()
	object := []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
	for _, name := range []string{"a.yaml", "with/b.yaml", "deep/er/c.json", ".git/d.yaml", "text/notes.txt", "deep/.hidden/e.yaml"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), object, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		recursive bool
		paths     []string
		want      []string
	}{
		{false, []string{dir}, []string{filepath.Join(dir, "deep"), filepath.Join(dir, "with")}},
		{false, []string{filepath.Join(dir, "a.yaml")}, nil},
	} {
		source, err := Load(c.paths, c.recursive, nil)
		if err != nil || !slices.Equal(source.Below, c.want) {
			t.Errorf("below %v is %v (%v), want %v", c.paths, source.Below, err, c.want)
		}
	}
}

func TestSort(t *testing.T) {
	kinds := []string{"tako.dev/v1alpha1 NodeConfig", "v1 Secret", "rbac.authorization.k8s.io/v1 RoleBinding", "example.org/v1 Widget",
		"apiextensions.k8s.io/v1 CustomResourceDefinition", "v1 ConfigMap", "rbac.authorization.k8s.io/v1 Role", "v1 Namespace"}
	var text strings.Builder
	for i, k := range kinds {
		version, kind, _ := strings.Cut(k, " ")
		fmt.Fprintf(&text, "---\napiVersion: %s\nkind: %s\nmetadata: {name: n%d}\nspec: {resources: []}\n", version, kind, i)
	}
	list := read(t, text.String())
	Sort(list)
	var got []string
	for _, d := range list {
		got = append(got, d.Kind().Kind)
	}
	want := "Namespace CustomResourceDefinition Role RoleBinding Secret ConfigMap Widget NodeConfig"
	if strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestPathRoundTrip: what is written in the words of this project is read back as the same steps.
func TestPathRoundTrip(t *testing.T) {
	one := rapid.Custom(func(t *rapid.T) step {
		if rapid.Bool().Draw(t, "index") {
			return step{kind: stepIndex, index: rapid.IntRange(0, 1<<20).Draw(t, "at")}
		}
		return step{name: rapid.StringMatching(`[a-zA-Z][a-zA-Z0-9./\[\]-]{0,8}`).Draw(t, "name")}
	})
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfN(one, 0, 6).Draw(t, "steps")
		if got := parsePath(writePath(steps)); !slices.Equal(got, steps) {
			t.Fatalf("%v came back as %v by %q", steps, got, writePath(steps))
		}
	})
}

// TestBuilt: what was made of a document has the places of that document, and its mistakes stand there.
func TestBuilt(t *testing.T) {
	const text = "# incomplete\napiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata:\n  name: web\nspec:\n  resources:\n  - name: a\n    file:\n      path: /a\n---\n" +
		"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c}\n"
	outline, faults := Outline("base.yaml", []byte(text))
	if len(faults) > 0 || len(outline) != 2 || outline[0].Object.GetName() != "web" || outline[1].Place("metadata.name").Line != 17 {
		t.Fatalf("%v, %v", outline, faults)
	}
	made := "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: x-web}\nspec: {resources: [{name: a, file: {path: /a, mode: 0644, content: x}}]}\n"
	list, faults := ReadBuilt([]byte(made), &outline[0])
	if len(faults) > 0 || len(list) != 1 || list[0].Object.GetName() != "x-web" {
		t.Fatalf("%v, %v", list, faults)
	}
	for path, line := range map[string]int{"metadata.name": 5, "spec.resources[0].file.path": 10, "spec.resources[0].file.mode": 9, "": 2} {
		if p := list[0].Place(path); p.File != "base.yaml" || p.Line != line {
			t.Errorf("%q is at %s, want line %d", path, p, line)
		}
	}
	if _, faults := ReadBuilt([]byte(strings.Replace(made, "0644", "0999", 1)), &outline[0]); len(faults) != 1 || faults[0].Line != 9 || faults[0].File != "base.yaml" {
		t.Errorf("a mistake in what was made: %v", faults)
	}
	if _, faults := ReadBuilt([]byte("a: ["), At("k.yaml", 7)); len(faults) != 1 || faults[0].Line != 7 || faults[0].Code != reason.MalformedYAML {
		t.Errorf("no YAML was made: %v", faults)
	}
	if _, faults := Outline("f", []byte("a: [\n---\nkind: A\n")); len(faults) != 1 || faults[0].Line != 1 {
		t.Errorf("%v", faults)
	}
}

// TestDuplicates: a document that names no namespace is in the one that it is applied in.
func TestDuplicates(t *testing.T) {
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: prod}\n"
	for namespace, want := range map[string]int{"": 0, "prod": 1, "dev": 0} {
		if faults := Duplicates(read(t, text), namespace); len(faults) != want {
			t.Errorf("in %q: %v", namespace, faults)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(site), "spec.resources[0].file")
	f.Add([]byte("apiVersion: //\nkind: A\nmetadata:\n  name: A"), "0")
	f.Add([]byte("\"0\r\r"), "0")
	f.Add([]byte(" \rkind: A"), "0")
	f.Add([]byte("a: &x [*x]\n"), `[name="]`)
	f.Add([]byte("{\"kind\": \"NodeConfig\"}\n...\n---"), "a['b")
	f.Add([]byte("apiVersion: v1\nkind: A\nmetadata: {name: x}\n? [a]\n: b\n"), "a.b.c[1]")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		list, faults := Read("f", data)
		lines := strings.Count(strings.ReplaceAll(string(data), "\r", "\n"), "\n") + 1
		for _, fault := range faults {
			if fault.Code == 0 || fault.Message == "" || fault.Line > lines+1 {
				t.Errorf("a fault that says nothing: %+v", fault)
			}
		}
		for i := range list {
			d := &list[i]
			if d.Kind().Kind == "" && len(faults) == 0 {
				t.Error("an object without a kind was accepted")
			}
			if p := d.Place(path); p.Line < 1 || p.Line > lines {
				t.Errorf("%q is on line %d of %d", path, p.Line, lines)
			}
		}
	})
}
