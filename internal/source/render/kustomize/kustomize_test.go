package kustomize

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"sigs.k8s.io/kustomize/api/types"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// TestMain makes of the test's program the child that the tests start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "serve":
			if err := Serve(os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			syscall.Exit(0) // not os.Exit, before which the race detector sleeps for a second
		case "unchecked":
			os.Exit(unchecked())
		case "surroundings":
			os.Exit(surroundings())
		}
	}
	os.Exit(m.Run())
}

// unchecked is a child that gives the library what Collect would have refused, and then tries to get out by itself.
func unchecked() int {
	var r request
	if err := json.NewDecoder(os.Stdin).Decode(&r); err != nil {
		return 1
	}
	if err := shutIn(r.MemoryBytes, r.Seconds); err != nil {
		return 1
	}
	built := build(r.Files, r.Roots[0])
	var escaped []string
	if c, err := net.DialTimeout("tcp", r.Roots[1], time.Second); err == nil {
		c.Close()
		escaped = append(escaped, "network")
	}
	if _, err := os.ReadFile("/etc/hostname"); err == nil {
		escaped = append(escaped, "file")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := exec.CommandContext(ctx, "/bin/true").Run(); err == nil {
		escaped = append(escaped, "program")
	}
	escaped = append(escaped, os.Environ()...)
	fmt.Printf("%q %q", built.Failure, escaped)
	return 0
}

func tree(files map[string]string) fstest.MapFS {
	view := fstest.MapFS{}
	for name, text := range files {
		view[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return view
}

func process(t *testing.T, o Options) *Process {
	t.Helper()
	o.Command = []string{os.Args[0], "serve"}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run collects, loads and builds one kustomization.
func run(t *testing.T, files map[string]string, root string) Built {
	t.Helper()
	view := tree(files)
	c, faults := Collect(view, []string{root}, Limits{})
	if faults = append(faults, c.Load(view)...); len(faults) > 0 {
		t.Fatal(declare.Faults(faults))
	}
	built, err := process(t, Options{}).Build(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return built[0]
}

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\ndata:\n  a: b\n"

func TestBuild(t *testing.T) {
	built := run(t, map[string]string{
		"base/kustomization.yaml": "resources: [cm.yaml, 'strange name @ü+.yaml']\n",
		"base/cm.yaml":            configMap,
		"base/strange name @ü+.yaml": "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: site}\nspec:\n  resources:\n" +
			"  - name: motd\n    file: {path: /etc/motd, mode: 0644, content: x}\n",
		"prod/kustomization.yaml": "resources: [../base]\nnamePrefix: prod-\nnamespace: prod\n" +
			"configMapGenerator:\n- name: gen\n  files: [key=app.conf]\n  literals: [x=y]\n  envs: [e.env]\n" +
			"patches:\n- path: patch.yaml\n- target: {kind: ConfigMap, name: web}\n  patch: '[{\"op\": \"add\", \"path\": \"/data/c\", \"value\": \"d\"}]'\n",
		"prod/app.conf":   "text",
		"prod/e.env":      "HOME\n",
		"prod/patch.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {a: null, e: f}\n",
	}, "prod")
	if built.Failure != "" || len(built.Objects) != 3 {
		t.Fatalf("%+v", built)
	}
	for i, want := range []struct {
		file, generator string
		texts           []string
	}{
		{"base/cm.yaml", "", []string{"name: prod-web", "namespace: prod", "c: d", "e: f"}},
		{"base/strange name @ü+.yaml", "", []string{"name: prod-site", "mode: 0644"}},
		{"prod/kustomization.yaml", "configMapGenerator", []string{"key: text", "x: \"y\"", "HOME: \"\"", "name: prod-gen-"}},
	} {
		o := built.Objects[i]
		if o.File != want.file || o.Generator != want.generator || len(o.Numbers) > 0 {
			t.Errorf("object %d is of %q %q, numbers %v", i, o.File, o.Generator, o.Numbers)
		}
		for _, text := range want.texts {
			if !strings.Contains(string(o.Text), text) {
				t.Errorf("object %d has no %q:\n%s", i, text, o.Text)
			}
		}
		if strings.Contains(string(o.Text), "annotations") || strings.Contains(string(o.Text), "a: b") {
			t.Errorf("object %d has what it should not:\n%s", i, o.Text)
		}
	}
}

// TestOriginsAreKept: who has switched the annotations on gets them.
func TestOriginsAreKept(t *testing.T) {
	built := run(t, map[string]string{"kustomization.yml": "resources: [cm.yaml]\nbuildMetadata: [originAnnotations]\n", "cm.yaml": configMap}, ".")
	if len(built.Objects) != 1 || !strings.Contains(string(built.Objects[0].Text), "config.kubernetes.io/origin") || built.Objects[0].File != "cm.yaml" {
		t.Errorf("%+v", built)
	}
}

// TestNumbers: a mode that a JSON patch has made a decimal number of is told; as digits it would be another mode.
func TestNumbers(t *testing.T) {
	built := run(t, map[string]string{
		"kustomization.yaml": "resources: [n.yaml]\npatches:\n- target: {kind: NodeConfig}\n  patch: '[{\"op\": \"add\", \"path\": \"/metadata/labels\", \"value\": {}}]'\n",
		"n.yaml":             "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: n}\nspec:\n  resources:\n  - {name: a, file: {path: /a, mode: 0644}}\n  - {name: b, file: {path: /b, mode: '0644'}}\n",
	}, ".")
	if len(built.Objects) != 1 || !slices.Equal(built.Objects[0].Numbers, []string{"spec.resources[0].file.mode"}) {
		t.Errorf("%+v", built)
	}
}

func TestRefused(t *testing.T) {
	const at = "resources:\n- cm.yaml\n- "
	for _, c := range []struct {
		text string
		code reason.Code
		line int
	}{
		{at + "https://example.com/x.yaml\n", reason.KustomizationRefused, 3},
		{at + "HTTPS:example.com\n", reason.KustomizationRefused, 3},
		{at + "github.com/org/repo?ref=v1\n", reason.KustomizationRefused, 3},
		{at + "GitHub.com:org/repo\n", reason.KustomizationRefused, 3},
		{at + "git::github.com/org/repo\n", reason.KustomizationRefused, 3},
		{at + "git@example.com:org/repo\n", reason.KustomizationRefused, 3},
		{at + "x@example.com/org/repo.git\n", reason.KustomizationRefused, 3},
		{at + "ssh://example.com/org/repo\n", reason.KustomizationRefused, 3},
		{at + "file:///etc\n", reason.KustomizationRefused, 3},
		{at + "/etc/passwd\n", reason.KustomizationRefused, 3},
		{at + "../../etc/passwd\n", reason.KustomizationRefused, 3},
		{at + "\"https://x\\n/org/repo\"\n", reason.KustomizationRefused, 3},
		{at + "\"a\\nb\"\n", reason.InvalidValue, 3},
		{at + "\"\"\n", reason.DependencyCycle, 3},
		{at + "nothing.yaml\n", reason.DeclarationUnread, 3},
		{at + "plain\n", reason.KustomizationFailed, 0},
		{at + ".\n", reason.DependencyCycle, 3},
		{at + "../loop\n", reason.DependencyCycle, 2},
		{at + "../other/cm.yaml\n", reason.KustomizationRefused, 3},
		{"bases: [https://example.com/x]\n", reason.KustomizationRefused, 1},
		{"components: ['github.com/org/repo']\n", reason.KustomizationRefused, 1},
		{"components: [cm.yaml]\n", reason.InvalidValue, 1},
		{"crds:\n- http://example.com/crd.json\n", reason.KustomizationRefused, 2},
		{"configurations:\n- http://example.com/c.yaml\n", reason.KustomizationRefused, 2},
		{"openapi:\n  path: http://example.com/o.json\n", reason.KustomizationRefused, 1},
		{"patches:\n- path: https://example.com/p.yaml\n", reason.KustomizationRefused, 2},
		{"patches:\n- path: plain\n", reason.InvalidValue, 2},
		{"patchesJson6902:\n- path: https://example.com/p.yaml\n", reason.KustomizationRefused, 2},
		{"patchesStrategicMerge:\n- https://example.com/p.yaml\n", reason.KustomizationRefused, 2},
		{"patchesStrategicMerge:\n- 'https: //example.com/p.yaml'\n", reason.KustomizationRefused, 2},
		{"replacements:\n- path: https://example.com/p.yaml\n", reason.KustomizationRefused, 2},
		{"configMapGenerator:\n- name: a\n  files: [k=https://example.com/f]\n", reason.KustomizationRefused, 2},
		{"configMapGenerator:\n- name: a\n  files: [../../f]\n", reason.KustomizationRefused, 2},
		{"secretGenerator:\n- name: a\n  env: /proc/self/environ\n", reason.KustomizationRefused, 2},
		{"secretGenerator:\n- name: a\n  envs: [/proc/self/environ]\n", reason.KustomizationRefused, 2},
		{"generators: [gen.yaml]\n", reason.KustomizationRefused, 1},
		{"transformers:\n- |\n  apiVersion: x\n", reason.KustomizationRefused, 1},
		{"validators: [v.yaml]\n", reason.KustomizationRefused, 1},
		{"helmCharts: [{name: x, repo: 'https://example.com'}]\n", reason.KustomizationRefused, 1},
		{"HELMCHARTS: [{name: x}]\n", reason.KustomizationRefused, 1},
		{"helmGlobals: {chartHome: x}\n", reason.KustomizationRefused, 1},
		{"helmChartInflationGenerator: [{chartName: x}]\n", reason.KustomizationRefused, 1},
		{"a: &x [b]\nresources: *x\n", reason.AnchorRefused, 2},
		{"resorces: [cm.yaml]\n", reason.KustomizationFailed, 1},
		{"resources: [\n", reason.KustomizationFailed, 1},
	} {
		_, faults := Collect(tree(map[string]string{
			"k/kustomization.yaml": c.text, "k/cm.yaml": configMap, "k/plain/cm.yaml": configMap, "other/cm.yaml": configMap,
			"loop/kustomization.yaml": "resources:\n- ../k\n",
		}), []string{"k"}, Limits{})
		if len(faults) != 1 || faults[0].Code != c.code || faults[0].Line != c.line || faults[0].File == "" {
			t.Errorf("%q: %v, want %s on line %d", c.text, faults, c.code, c.line)
		}
	}
}

// TestEveryField: a field that a later version of the library brings is not passed on before somebody has looked at it.
func TestEveryField(t *testing.T) {
	known := strings.Fields(`TypeMeta MetaData OpenAPI NamePrefix NameSuffix Namespace CommonLabels Labels CommonAnnotations PatchesStrategicMerge
		PatchesJson6902 Patches Images ImageTags Replacements Replicas Vars SortOptions Resources Components Crds Bases ConfigMapGenerator SecretGenerator
		HelmGlobals HelmCharts HelmChartInflationGenerator GeneratorOptions Configurations Generators Transformers Validators BuildMetadata`)
	of := map[reflect.Type][]string{
		reflect.TypeFor[types.Kustomization]():    known,
		reflect.TypeFor[types.Patch]():            {"Path", "Patch", "Target", "Options"},
		reflect.TypeFor[types.ReplacementField](): {"Replacement", "Path"},
		reflect.TypeFor[types.Replacement]():      {"Source", "Targets", "SourceValue"},
		reflect.TypeFor[types.ConfigMapArgs]():    {"GeneratorArgs"},
		reflect.TypeFor[types.SecretArgs]():       {"GeneratorArgs", "Type"},
		reflect.TypeFor[types.GeneratorArgs]():    {"Namespace", "Name", "Behavior", "KvPairSources", "Options"},
		reflect.TypeFor[types.KvPairSources]():    {"LiteralSources", "FileSources", "EnvSources", "EnvSource"},
	}
	for typ, want := range of {
		for i := range typ.NumField() {
			if name := typ.Field(i).Name; !slices.Contains(want, name) {
				t.Errorf("%s has a field %s: does it name a file, or run a program?", typ, name)
			}
		}
	}
}

// TestNothingIsReached: what Collect would refuse is given to the library all the same, in a child, beside a listener that must
// see nobody. No program is started: a git of ours, on the only path that there is, would leave a file.
func TestNothingIsReached(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	seen := make(chan string, 1)
	go func() {
		if c, err := listener.Accept(); err == nil {
			seen <- c.RemoteAddr().String()
			c.Close()
		}
	}()
	bin := t.TempDir()
	started := filepath.Join(bin, "started")
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte("#!/bin/sh\n: > "+started+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	for _, resource := range []string{"http://" + address + "/x.yaml", "http://" + address + "/org/repo.git", "git@" + address + ":org/repo", "file:///org/repo.git"} {
		input, err := json.Marshal(request{Roots: []string{".", address}, MemoryBytes: 1 << 30, Seconds: 30,
			Files: map[string][]byte{"kustomization.yaml": []byte("resources: ['" + resource + "']\n")}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0], "unchecked")
		cmd.Stdin, cmd.Env = bytes.NewReader(input), []string{"PATH=" + bin}
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil || bytes.HasPrefix(out, []byte(`""`)) || !bytes.HasSuffix(out, []byte(` ["PATH=`+bin+`"]`)) {
			t.Errorf("%s: %v: %s", resource, err, out)
		}
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("a program was started")
	}
	select {
	case who := <-seen:
		t.Errorf("%s has connected", who)
	default:
	}
	// And the listener does hear who connects.
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	select {
	case <-seen:
	case <-time.After(time.Minute):
		t.Error("the listener hears nobody")
	}
}

// TestBombs: what does not end, or fills any memory, ends at the limits with words.
func TestBombs(t *testing.T) {
	twice := map[string]string{"0/kustomization.yaml": "resources: [cm.yaml]\n", "0/cm.yaml": configMap}
	for i := 1; i <= 20; i++ {
		twice[fmt.Sprintf("%d/kustomization.yaml", i)] = "resources: [a, b]\n"
		for _, d := range []string{"a", "b"} {
			twice[fmt.Sprintf("%d/%s/kustomization.yaml", i, d)] = fmt.Sprintf("resources: [../../%d]\nnamePrefix: %s\n", i-1, d)
		}
	}
	view := tree(twice)
	c, faults := Collect(view, []string{"20"}, Limits{Depth: 64})
	if faults = append(faults, c.Load(view)...); len(faults) != 1 || faults[0].Code != reason.RenderLimit {
		t.Errorf("a million copies: %v", faults)
	}
	if _, faults := Collect(view, []string{"20"}, Limits{}); len(faults) == 0 || faults[0].Code != reason.RenderLimit {
		t.Errorf("forty levels: %v", faults)
	}
	var copies []string
	for i := range 40 {
		copies = append(copies, fmt.Sprintf(`{"op": "copy", "from": "/data", "path": "/data/x%d"}`, i))
	}
	files := map[string]string{"cm.yaml": configMap, "kustomization.yaml": "resources: [cm.yaml]\npatches:\n- target: {kind: ConfigMap}\n  patch: '[" + strings.Join(copies, ", ") + "]'\n"}
	view = tree(files)
	if c, faults = Collect(view, []string{"."}, Limits{}); len(faults)+len(c.Load(view)) > 0 {
		t.Fatal(faults)
	}
	for _, o := range []Options{{MemoryBytes: 256 << 20}, {Timeout: time.Second, MemoryBytes: 4 << 30}} {
		if _, err := process(t, o).Build(t.Context(), c); !reason.Is(err, reason.RenderLimit) {
			t.Errorf("a terabyte within %+v: %v", o, err)
		}
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := process(t, Options{}).Build(ctx, &Tree{}); err == nil || reason.Is(err, reason.RenderLimit) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestFailures(t *testing.T) {
	for text, words := range map[string]string{
		"resources: [cm.yaml, cm2.yaml]\n": "already registered",
		"resources: [cm.yaml]\npatches: [{path: cm2.yaml, target: {kind: Nothing}}]\nnamePrefix: 'ü'\n": "",
		"namePrefix: x\nresources: [bad.yaml]\n":                                                        "bad.yaml",
	} {
		built := run(t, map[string]string{"kustomization.yaml": text, "cm.yaml": configMap, "cm2.yaml": configMap, "bad.yaml": "a: [\n"}, ".")
		if words != "" && !strings.Contains(built.Failure, words) || strings.Contains(built.Failure, "\n") {
			t.Errorf("%q fails with %q", text, built.Failure)
		}
	}
}

func FuzzCollect(f *testing.F) {
	f.Add("resources: [cm.yaml, d]\npatches:\n- path: cm.yaml\n", "resources: [../x]\n")
	f.Add("bases: [d]\nhelmCharts: [{}]\n", "components: ['..']\n")
	f.Add("? [a]\n: b\n", "kind: Component\n")
	f.Fuzz(func(t *testing.T, text, below string) {
		view := tree(map[string]string{"kustomization.yaml": text, "d/Kustomization": below, "cm.yaml": configMap})
		c, faults := Collect(view, []string{"."}, Limits{})
		faults = append(faults, c.Load(view)...)
		for _, fault := range faults {
			if fault.Code == 0 || fault.Message == "" || strings.Contains(fault.Message, "\n") {
				t.Errorf("a fault that says nothing: %+v", fault)
			}
		}
		for name := range c.Files {
			if _, ok := view[name]; !ok {
				t.Errorf("%q is not in the tree", name)
			}
		}
	})
}
