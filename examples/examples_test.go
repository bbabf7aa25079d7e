package examples

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/catalog"
)

// commandTime bounds one run of the agent, which takes well under a second, on a machine that is busy building.
const commandTime = time.Minute

// sandboxed lists the examples that converge below a scratch root, without root rights. The others are for a real host.
var sandboxed = []struct {
	name   string
	labels []string
	files  map[string]string // a content, or a part of it; a link's target begins with "-> "
	absent []string
}{
	{
		name: "hello",
		files: map[string]string{
			"etc/motd":                 "kept as it is declared",
			"etc/greeter/greeter.conf": "listen = 127.0.0.1:7070\nmessages = /etc/greeter/messages\n",
			"etc/greeter/messages":     "Good morning.",
			"opt/greeter/1.4.2/greet":  "#!/bin/sh",
			"opt/greeter/current":      "-> 1.4.2",
		},
	},
	{
		name:   "expand",
		labels: []string{"site=north", "stage=test"},
		files: map[string]string{
			"etc/worker/worker.conf": "site = north\n",
			"etc/worker/debug.conf":  "log = debug\n",
		},
	},
	{
		name:   "expand",
		labels: []string{"stage=production"},
		files:  map[string]string{"etc/worker/worker.conf": " --id $(uuidgen)\n"},
		absent: []string{"etc/worker/debug.conf"},
	},
	{
		name: "identity",
		files: map[string]string{
			"etc/hosts":       "192.0.2.20\tdb.example.com db\n2001:db8::20\tdb.example.com db\n",
			"etc/localtime":   "-> ../usr/share/zoneinfo/Europe/Berlin",
			"etc/locale.conf": "LANG=C.UTF-8\nLC_PAPER=de_DE.UTF-8\n",
		},
	},
	{
		name:   "repositories",
		labels: []string{"manager=apt"},
		files: map[string]string{
			"etc/apt/sources.list.d/backports.sources": "Suites: bookworm-backports\n",
			"etc/apt/sources.list.d/tools.sources":     "Signed-By: /etc/apt/keyrings/tools.gpg\n",
			"etc/apt/keyrings/tools.gpg":               "test@example.com",
		},
		absent: []string{"etc/yum.repos.d/tools.repo"},
	},
	{
		name:   "repositories",
		labels: []string{"manager=dnf"},
		files: map[string]string{
			"etc/yum.repos.d/tools.repo": "gpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/tools.asc\n",
			"etc/pki/rpm-gpg/tools.asc":  "-----BEGIN PGP PUBLIC KEY BLOCK-----\n",
		},
	},
	{
		name: "edit",
		files: map[string]string{
			"etc/ssh/sshd_config":    "PermitRootLogin no\n",
			"etc/hosts":              "# BEGIN lab-hosts (tako)\n192.0.2.10 db.lab\n192.0.2.11 web.lab\n# END lab-hosts (tako)\n",
			"etc/login.defs":         "UMASK 027\n",
			"etc/worker/config.json": "{\n  \"log\": {\n    \"level\": \"debug\"\n  }\n}\n",
			"etc/worker/config.yaml": "  port: 8080\n",
		},
	},
	{
		name:   "facts",
		files:  map[string]string{"etc/issue.net": " processors, disks "},
		absent: []string{"etc/rack"},
	},
	{
		name:  "directories",
		files: map[string]string{"etc/cron.d/backup": "30 2 * * * root /usr/local/bin/backup\n"},
	},
	{
		name: "pieces",
		files: map[string]string{
			"etc/monitor.conf": "interval = 10s\n[disk]\nfull = 90%\n[database]\nname = ",
			"etc/worker.ini":   "[worker]\nthreads = 4\ndebug = false\n",
		},
	},
	{
		name:  "data",
		files: map[string]string{"etc/motd": "data list\n"},
	},
	{
		name: "priority",
		files: map[string]string{
			"etc/motd":        "Authorised use only.\n",
			"etc/limits.conf": "open-files = 65536\n",
		},
	},
}

// TestExamples reads every example, and makes the graph that a host would make of it.
func TestExamples(t *testing.T) {
	for _, name := range exampleNames(t) {
		t.Run(name, func(t *testing.T) {
			documents, err := declare.Load([]string{name})
			if err != nil {
				t.Fatalf("read the example: %v", err)
			}
			entries, faults := catalog.Resolve(documents)
			if len(faults) > 0 {
				t.Fatalf("resolve the example: %v", declare.Faults(faults))
			}
			if len(entries) == 0 {
				t.Error("the example declares nothing")
			}
			_, faults = core.Compile(core.Input{
				Entries: entries, Lookup: declare.Scope{NodeName: "example"}.Lookup,
				Lane: func(kind declare.ResourceType) string { return string(kind) },
			})
			if len(faults) > 0 {
				t.Errorf("order the example: %v", declare.Faults(faults))
			}
			readme, err := os.ReadFile(filepath.Join(name, "README.md"))
			if err != nil || !strings.HasPrefix(string(readme), "# "+name+"\n") {
				t.Errorf("its README.md must begin with %q: %v", "# "+name, err)
			}
		})
	}
}

// TestExamplesConverge converges those examples that can do without a host, and sees that nothing is left to do.
func TestExamplesConverge(t *testing.T) {
	agent := host.AgentBinary(t)
	for _, e := range sandboxed {
		t.Run(strings.Join(append([]string{e.name}, e.labels...), " "), func(t *testing.T) {
			root := t.TempDir()
			flags := []string{"converge", "-f", e.name, "--root", root}
			for _, l := range e.labels {
				flags = append(flags, "--label", l)
			}
			run(t, agent, flags...)
			for file, want := range e.files {
				if got := contentOf(t, filepath.Join(root, file)); !strings.Contains(got, want) {
					t.Errorf("%s is %q, want %q in it", file, got, want)
				}
			}
			for _, file := range e.absent {
				if _, err := os.Lstat(filepath.Join(root, file)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is there, want nothing: %v", file, err)
				}
			}
			run(t, agent, append(flags, "--diff")...) // exits with 1 where there is a difference
		})
	}
}

// TestDataIsLookedUp runs what the example of data shows.
func TestDataIsLookedUp(t *testing.T) {
	agent := host.AgentBinary(t)
	if got := run(t, agent, "data", "get", "limits/upload", "-f", "data"); got != "20M" {
		t.Errorf("the value of the higher priority is %q", got)
	}
	if got := run(t, agent, "data", "list", "-f", "data"); got != "badges/default\nlimits/download\nlimits/upload\n" {
		t.Errorf("the keys are %q", got)
	}
	if got := run(t, agent, "data", "get", "badges/default", "-f", "data"); got != "\x89PNG\r\n\x1a\n" {
		t.Errorf("the bytes are %q", got)
	}
}

// TestPriorityWinsWhole sees that the loser of a claim leaves no trace in the file.
func TestPriorityWinsWhole(t *testing.T) {
	root := t.TempDir()
	run(t, host.AgentBinary(t), "converge", "-f", "priority", "--root", root)
	if got := contentOf(t, filepath.Join(root, "etc/limits.conf")); strings.Contains(got, "processes") {
		t.Errorf("etc/limits.conf is %q: fields of two configs were mixed", got)
	}
}

// documents are the texts that show declarations.
var documents = []string{"../README.md", "../docs/spec/nodeconfig.md"}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestDocuments reads the declarations that documents show. The tour's has mistakes, and the README says which.
func TestDocuments(t *testing.T) {
	for _, name := range documents {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		blocks := yamlBlock.FindAllSubmatch(text, -1)
		if len(blocks) == 0 {
			t.Errorf("%s shows no declaration: this test no longer sees them", name)
		}
		for _, b := range blocks {
			read, faults := declare.Read(name, declaration(b[1]))
			for i := range read {
				faults = append(faults, read[i].Validate()...)
			}
			for _, f := range faults {
				if shown := "error[" + f.Code.String() + "]: " + f.Message; !bytes.Contains(text, []byte(shown)) {
					t.Errorf("%s: %v", name, f)
				}
			}
		}
	}
}

// declaration makes a whole declaration of a text that shows resources alone, which is a list.
func declaration(text []byte) []byte {
	if !bytes.HasPrefix(text, []byte("- ")) {
		return text
	}
	const head = "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: shown}\nspec:\n  resources:\n"
	return append([]byte(head), bytes.ReplaceAll(append([]byte("  "), text...), []byte("\n"), []byte("\n  "))...)
}

// TestReference wants every field, word and fact of declarations in the reference.
func TestReference(t *testing.T) {
	text, err := os.ReadFile("../docs/spec/nodeconfig.md")
	if err != nil {
		t.Fatal(err)
	}
	words := fieldNames(reflect.TypeFor[declare.NodeConfig](), map[reflect.Type]bool{})
	for _, f := range declare.FactNames() {
		words = append(words, f.Name)
	}
	for _, op := range []declare.SelectorOperator{declare.OpIn, declare.OpNotIn, declare.OpExists, declare.OpDoesNotExist} {
		words = append(words, string(op))
	}
	slices.Sort(words)
	for _, w := range slices.Compact(words) {
		if !regexp.MustCompile("`(?:[a-z]+\\.)?" + regexp.QuoteMeta(w) + "`").Match(text) {
			t.Errorf("the reference says nothing of `%s`", w)
		}
	}
}

// TestReferenceOfWorkloads wants every field of workloads and instances in the reference, and examples there without a mistake.
func TestReferenceOfWorkloads(t *testing.T) {
	for page, types := range map[string][]reflect.Type{
		"workload": {reflect.TypeFor[workload.Spec](), reflect.TypeFor[v1alpha1.WorkloadStatus]()},
		"instance": {reflect.TypeFor[v1alpha1.InstanceSpec](), reflect.TypeFor[v1alpha1.InstanceStatus]()},
	} {
		text, err := os.ReadFile("../docs/spec/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		seen := map[reflect.Type]bool{reflect.TypeFor[metav1.Condition](): true, reflect.TypeFor[metav1.Time](): true, reflect.TypeFor[metav1.MicroTime](): true,
			reflect.TypeFor[declare.Selector](): true, reflect.TypeFor[declare.Window](): true} // told of elsewhere
		var words []string
		for _, of := range types {
			words = append(words, fieldNames(of, seen)...)
		}
		code := bytes.Join(regexp.MustCompile("`[^`\n]+`").FindAll(text, -1), []byte(" "))
		slices.Sort(words)
		for _, w := range slices.Compact(words) {
			if !regexp.MustCompile("\\b" + regexp.QuoteMeta(w) + "\\b").Match(code) {
				t.Errorf("the reference of %s says nothing of `%s`", page, w)
			}
		}
		for _, b := range yamlBlock.FindAllSubmatch(text, -1) {
			if _, _, faults := workload.Read(page, b[1]); len(faults) > 0 {
				t.Errorf("%s: %v", page, declare.Faults(faults))
			}
		}
	}
}

// fieldNames lists the names of all fields below a type.
func fieldNames(t reflect.Type, seen map[reflect.Type]bool) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return nil
	}
	seen[t] = true
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(append(names, name), fieldNames(t.Field(i).Type, seen)...)
	}
	return names
}

// exampleNames lists the examples that are declarations. A program has a test of its own beside it, and what other programs
// make declarations of has one in e2e.
func exampleNames(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		programs, err := filepath.Glob(filepath.Join(e.Name(), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		declarations, err := filepath.Glob(filepath.Join(e.Name(), "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if len(declarations) > 0 && len(programs) == 0 {
			names = append(names, e.Name())
		}
	}
	for _, e := range sandboxed {
		if !slices.Contains(names, e.name) {
			t.Fatalf("there is no example %s", e.name)
		}
	}
	return names
}

// run runs the agent, which must succeed.
func run(t *testing.T, agent string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, agent, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("tako-agent %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// contentOf is a file's content, or "-> TARGET" for a link.
func contentOf(t *testing.T, path string) string {
	t.Helper()
	if target, err := os.Readlink(path); err == nil {
		return "-> " + target
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(content)
}
