package tidy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sample is a small tree and what one check finds in it: "path:line: words of the message", in the order found.
type sample struct {
	check string
	files map[string]string
	want  []string
}

// plant writes a tree and reads it as TestTree reads the repository.
func plant(t *testing.T, files map[string]string) *tree {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	planted, err := readTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	return planted
}

// TestChecks shows that every check finds what it is there for, and leaves alone what is good.
func TestChecks(t *testing.T) {
	tested := map[string]bool{}
	for _, s := range slices.Concat(importSamples(), shapeSamples(), callSamples(), textSamples()) {
		tested[s.check] = true
		t.Run(s.check, func(t *testing.T) {
			i := slices.IndexFunc(checks(), func(c check) bool { return c.name == s.check })
			if i < 0 {
				t.Fatal("no such check")
			}
			var got []string
			for _, f := range checks()[i].find(plant(t, s.files)) {
				line := f.String()
				if f.warning {
					line = "warning: " + line
				}
				got = append(got, line)
			}
			if !slices.EqualFunc(got, s.want, strings.HasPrefix) {
				t.Errorf("found\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(s.want, "\n  "))
			}
		})
	}
	for _, c := range checks() {
		if !tested[c.name] {
			t.Errorf("check %s has no sample", c.name)
		}
	}
}

func importSamples() []sample {
	imports := func(pkg string, names ...string) string {
		text := "package " + pkg + "\n"
		for _, n := range names {
			text += fmt.Sprintf("import _ %q\n", n)
		}
		return text
	}
	one := func(path, pkg, imported string, want ...string) sample {
		return sample{"imports", map[string]string{path: imports(pkg, imported)}, want}
	}
	return []sample{
		one("internal/gadget/a.go", "gadget", "fmt", "internal/gadget: package is not in the import table"),
		one("internal/disk/deep/a.go", "deep", "fmt", "internal/disk/deep: package is not in the import table"),
		one("a.go", "tako", "fmt", ".: package is not in the import table"),
		one("declare/a.go", "declare", "tako.dev/tako/internal/reason"),
		one("declare/a.go", "declare", "tako.dev/tako/internal/disk", "declare/a.go:2: declare may not import internal/disk"),
		one("internal/reason/a.go", "reason", "tako.dev/tako/declare", "internal/reason/a.go:2: "),
		one("internal/host/file/a.go", "file", "tako.dev/tako/internal/host"),
		one("internal/host/file/a.go", "file", "tako.dev/tako/internal/host/user", "internal/host/file/a.go:2: "),
		one("internal/host/file/a.go", "file", "tako.dev/tako/internal/run", "internal/host/file/a.go:2: "),
		one("internal/host/all/a.go", "all", "tako.dev/tako/internal/host/file"),
		one("internal/host/all/a.go", "all", "tako.dev/tako/internal/host/hosttest", "internal/host/all/a.go:2: "),
		one("internal/host/all/a.go", "all", "tako.dev/tako/internal/run/oci", "internal/host/all/a.go:2: "),
		one("internal/host/hosttest/a.go", "hosttest", "tako.dev/tako/internal/host"),
		one("internal/host/file/a_test.go", "file", "tako.dev/tako/internal/host/hosttest"),
		one("internal/host/file/a.go", "file", "tako.dev/tako/internal/host/hosttest", "internal/host/file/a.go:2: "),
		one("internal/host/hosttest/kill/a.go", "kill", "tako.dev/tako/internal/host/hosttest"),
		one("internal/host/file/b_test.go", "file", "tako.dev/tako/internal/host/hosttest/kill"),
		one("internal/host/file/b.go", "file", "tako.dev/tako/internal/host/hosttest/kill", "internal/host/file/b.go:2: "),
		one("internal/systemd/a_test.go", "systemd_test", "tako.dev/tako/internal/systemd"),
		one("internal/systemd/a_test.go", "systemd", "tako.dev/tako/internal/systemd/systemdtest"),
		one("internal/systemd/a_test.go", "systemd", "tako.dev/tako/e2e/host"),
		one("internal/systemd/a_test.go", "systemd", "tako.dev/tako/e2e/nginx", "internal/systemd/a_test.go:2: "),
		one("internal/systemd/a_test.go", "systemd", "tako.dev/tako/internal/casetest"),
		one("internal/systemd/a.go", "systemd", "tako.dev/tako/internal/casetest", "internal/systemd/a.go:2: "),
		one("internal/systemd/a_test.go", "systemd", "tako.dev/tako/internal/disk", "internal/systemd/a_test.go:2: "),
		one("internal/agent/a.go", "agent", "tako.dev/tako/internal/scheduler/fit"),
		one("internal/agent/a.go", "agent", "tako.dev/tako/internal/scheduler", "internal/agent/a.go:2: "),
		one("internal/agent/a.go", "agent", "tako.dev/tako/internal/host/file", "internal/agent/a.go:2: "),
		one("internal/agent/a.go", "agent", "tako.dev/tako/internal/agent/core"),
		one("internal/agent/core/a.go", "core", "tako.dev/tako/internal/agent", "internal/agent/core/a.go:2: "),
		one("cmd/tako/a.go", "main", "tako.dev/tako/internal/transfer"),
		one("cmd/tako/a.go", "main", "tako.dev/tako/internal/host/all", "cmd/tako/a.go:2: "),
		one("cmd/tako/a.go", "main", "tako.dev/tako/tools/cases", "cmd/tako/a.go:2: "),
		one("internal/apiserver/a.go", "apiserver", "k8s.io/apiserver/pkg/server"),
		one("api/v1alpha1/a.go", "v1alpha1", "k8s.io/apimachinery/pkg/runtime"),
		one("api/v1alpha1/a.go", "v1alpha1", "k8s.io/apiserver/pkg/server", "api/v1alpha1/a.go:2: api/v1alpha1 may not import k8s.io/apiserver"),
		one("internal/agent/a.go", "agent", "sigs.k8s.io/yaml", "internal/agent/a.go:2: "),
		one("e2e/nginx/a.go", "nginx", "tako.dev/tako/internal/host/hosttest"),
		one("internal/reason/testdata/a.go", "a", "tako.dev/tako/internal/agent"),
	}
}

func shapeSamples() []sample {
	lines := func(n int) string { return strings.Repeat("//\n", n) }
	fields := func(n int) string { return strings.Repeat("\t_ int\n", n) }
	methods := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "\tM%d()\n", i)
		}
		return b.String()
	}
	body := func(n int) string { return "{\n" + strings.Repeat("\t_ = 0\n", n-2) + "}\n" }
	return []sample{
		{"sizes", map[string]string{
			"a/ok.go": "package a\n" + lines(499), "a/warn.go": "package a\n" + lines(500), "a/fail.go": "package a\n" + lines(800),
		}, []string{"a/fail.go:1: lines of the file: 801", "warning: a/warn.go:1: lines of the file: 501"}},
		{"sizes", map[string]string{
			"a/a.go":      "package a\nfunc ok() " + body(70) + "func warn() " + body(71) + "func fail() " + body(101),
			"a/a_test.go": "package a\nfunc table() " + body(101),
		}, []string{"warning: a/a.go:72: lines of function warn: 71", "a/a.go:143: lines of function fail: 101", "warning: a/a_test.go:2: lines of function table: 101"}},
		{"sizes", map[string]string{
			"a/a.go":       "package a\ntype (\nfail struct {\n" + fields(21) + "}\nok struct {\n" + fields(15) + "})\n",
			"declare/a.go": "package declare\ntype given struct {\n" + fields(21) + "}\n",
			"a/gen.go":     "// Code generated by hand. DO NOT EDIT.\n\npackage a\ntype given struct {\n" + fields(21) + "}\n",
		}, []string{"a/a.go:3: fields of the struct: 21"}},
		{"sizes", map[string]string{
			"a/a.go": "package a\ntype (\nwarn interface {\n" + methods(6) + "}\nfail interface {\n" + methods(9) + "})\n",
		}, []string{"warning: a/a.go:3: methods of the interface: 6", "a/a.go:11: methods of the interface: 9"}},
		{"sizes", map[string]string{
			"a/a.go": "package a\n" + lines(499), "a/b.go": "package a\n" + lines(499), "a/c.go": "package a\n" + lines(499),
			"a/d.go": "package a\n" + lines(499), "a/e.go": "package a\n", "a/e_test.go": "package a\n" + lines(499),
		}, []string{"warning: a: lines of the package without tests: 2001"}},
		{"package-comments", map[string]string{
			"ok/doc.go": "// Package ok is.\npackage ok\n", "ok/b.go": "package ok\n",
			"none/a.go": "package none\n", "tests/a_test.go": "package tests\n",
			"twice/doc.go": "// Package twice is.\npackage twice\n", "twice/twice.go": "// Package twice is.\npackage twice\n",
			"place/a.go": "// Package place is.\npackage place\n", "words/doc.go": "// This is.\npackage words\n",
			"cmd/tako/main.go": "// Command tako is.\npackage main\n",
		}, []string{"none: no package comment", "place/a.go:1: the package comment stands in", "twice/twice.go:1: a second package comment", "words/doc.go:1: the package comment begins"}},
		{"documented", map[string]string{
			"a/a.go":           "package a\n// Good is.\ntype Good int\ntype Bad int\n// Wrong words.\nfunc Words() {}\nfunc (Good) Method() {}\ntype hidden int\nfunc (hidden) Method() {}\nfunc (Good) String() string { return \"\" }\n",
			"a/b.go":           "package a\n// The limits.\nconst (\n\tA = 1\n)\nconst B = 2 // seconds\nconst C = 3\ntype (\n\t// An Inner is.\n\tInner int\n\tOther int\n)\n// Box is.\ntype Box[T any] struct{}\nfunc (*Box[T]) Open() {}\n",
			"cmd/tako/main.go": "package main\nfunc Exported() {}\n", "a/a_test.go": "package a\nfunc Exported() {}\n",
		}, []string{"a/a.go:4: Bad is exported and has no comment", "a/a.go:6: the comment of Words", "a/a.go:7: Method is exported",
			"a/b.go:7: C is exported", "a/b.go:11: Other is exported", "a/b.go:15: Open is exported"}},
		{"names", map[string]string{
			"internal/util/a.go": "package util\n", "internal/disk/a.go": "package disk\nfunc init() {}\ntype FileManager struct{}\ntype NodeInfo int\ntype t int\nfunc (t) init() {}\n",
			"internal/x/a.go": "package helpers\n", "docs/glossary.md": "**NodeInfo**: defined.\n",
		}, []string{`internal/util: "util" says nothing`, `internal/x: "helpers" says nothing`, "internal/disk/a.go:2: func init", "internal/disk/a.go:3: type FileManager"}},
		{"context-fields", map[string]string{
			"a/a.go": "package a\nimport stdctx \"context\"\ntype a struct {\n\tctx stdctx.Context\n\tf func(stdctx.Context)\n}\ntype b struct { ctx fake.Context }\n",
		}, []string{"a/a.go:4: a context is the first parameter"}},
		{"not-implemented", map[string]string{
			"a/a.go": "package a\nfunc a() { panic(\"a: Not Implemented\") }\nfunc b() { panic(\"broken invariant\") }\n",
		}, []string{"a/a.go:2: code that is not there yet"}},
	}
}

func callSamples() []sample {
	return []sample{
		{"calls", map[string]string{
			"a/a.go": "package a\nimport (\n\"time\"\nclock \"time\"\n\"os/exec\"\n)\nfunc a() {\n\ttime.Sleep(1)\n\tclock.AfterFunc(1, nil)\n\texec.Command(\"x\")\n\texec.CommandContext(nil, \"x\")\n\ttime.Now()\n}\nfunc b(time interface{ Sleep(int) }) { time.Sleep(1) }\n",
			"a/a_test.go": "package a\nimport (\"testing/synctest\"; \"testing\"; \"time\"; \"os/exec\")\nfunc TestA(t *testing.T) {\n\tsynctest.Test(t, func(t *testing.T) {\n\t\ttime.Sleep(1)\n\t})\n" +
				"\ttime.Sleep(1)\n\texec.Command(\"x\")\n}\n",
		}, []string{"a/a.go:8: time.Sleep: ", "a/a.go:9: time.AfterFunc: ", "a/a.go:10: exec.Command: ", "a/a_test.go:7: time.Sleep: "}},
		{"calls", map[string]string{
			"internal/converge/a.go":      "package converge\nimport (\"time\"; \"math/rand/v2\"; \"os\")\nfunc a(r *rand.Rand) {\n\t_ = time.Now\n\trand.IntN(3)\n\trand.New(rand.NewPCG(1, 2)).IntN(3)\n\tr.IntN(3)\n\tos.Getpid()\n\ttime.Unix(0, 0)\n}\n",
			"internal/fleet/gc/a.go":      "package gc\nimport \"time\"\nvar a = time.After(1)\n",
			"internal/agent/core/a.go":    "package core\nimport \"math/rand\"\nvar a = rand.Int()\n",
			"internal/agent/a.go":         "package agent\nimport \"time\"\nfunc a() { time.Now() }\n",
			"internal/converge/_a.go":     "package converge\n",
			"internal/fleet/gc/a_test.go": "package gc\nimport \"time\"\nfunc a() { time.Now() }\n",
		}, []string{"internal/agent/core/a.go:3: rand.Int: ", "internal/converge/a.go:4: time.Now: ", "internal/converge/a.go:5: rand.IntN: ", "internal/converge/a.go:8: os.Getpid: ", "internal/fleet/gc/a.go:3: time.After: "}},
		{"global-state", map[string]string{
			"a/a.go": "package a\nimport \"sync\"\nvar table = map[string]int{}\nvar counter int\nvar mu sync.Mutex\nvar pool sync.Pool\nvar fixed = []int{1}\ntype s struct{ f int }\nvar one s\nfunc a() {\n\ttable[\"x\"] = 1\n\tcounter := 2\n\tcounter = 3\n\tfixed := fixed\n\tfixed[0] = 2\n}\n",
			"a/b.go": "package a\nfunc b() {\n\tcounter++\n\tdelete(table, \"x\")\n\tone.f = 2\n\t_ = fixed\n}\n", "a/a_test.go": "package a\nvar update = false\nfunc c() { update = true }\n",
		}, []string{"a/a.go:5: mu is mutable state", "a/a.go:11: table is a variable", "a/b.go:3: counter is a variable", "a/b.go:4: table is a variable", "a/b.go:5: one is a variable"}},
		{"case-tests", map[string]string{
			"a/a_test.go": "package a\nfunc TestAgentCase01_Good(t *testing.T) { c := casetest.Start(t); _ = c }\nfunc TestAgentCase02_Late(t *testing.T) {\n\tt.Log()\n\tcasetest.Start(t)\n}\nfunc TestOther(t *testing.T) {}\nfunc TestAgentCase03_Empty(t *testing.T) {}\n",
		}, []string{"a/a_test.go:3: TestAgentCase02_Late begins", "a/a_test.go:8: TestAgentCase03_Empty begins"}},
	}
}

func textSamples() []sample {
	fix, later := "FIX"+"ME", "TO"+"DO"
	return []sample{
		{"leftovers", map[string]string{
			"a/a.go":   "package a\n// " + fix + " this.\n// " + later + "(#12): good.\n// " + later + ": bad.\nconst a = \"" + fix + "\"\n",
			"a.md":     "`" + fix + "` is spoken of.\n" + later + " soon\n",
			"Makefile": "# " + later + "(me): bad\n",
		}, []string{"a/a.go:2: put right", "a/a.go:4: name the issue", "Makefile:1: name the issue", "a.md:2: name the issue"}},
		{"places", map[string]string{
			"a.txt": "fine\nsee /wo" + "rk/main\n", "bench/a.txt": "../sha" + "red/bench\n", "b.txt": "../sha" + "red/x\n", "c.txt": "net" + "wo" + "rk/x\n",
		}, []string{"a.txt:2: ", "b.txt:1: "}},
		{"large-files", map[string]string{"a": strings.Repeat("x", 1<<20), "b": strings.Repeat("x", 1<<20+1)}, []string{"b: 1048577 bytes"}},
		{"links", map[string]string{
			"README.md": "# Read me\n[a](docs/a.md) [b](docs/a.md#the-way-in) [c](#read-me) [d](https://example.org/x) `[e](nowhere)` [f](docs) [g](docs/a.md#same-1)\n" +
				"[x](nowhere.md) ![y](docs/b.png \"title\")\n[z](docs/a.md#the-way-out)\n```\n[in code](nowhere)\n```\n[r]: docs/none.md\n",
			"docs/a.md": "## The *way* in!\n# Same\n# Same\n[up](../README.md) [top](/README.md) [no](/nothing.md)\n",
		}, []string{"README.md:3: dead link: there is no nowhere.md", "README.md:3: dead link: there is no docs/b.png", "README.md:4: dead link: docs/a.md has no heading", "README.md:8: dead link: there is no docs/none.md", "docs/a.md:4: dead link: there is no nothing.md"}},
		{"paths-in-architecture", map[string]string{
			"ARCHITECTURE.md": "`declare/` `internal/gadget` `a/b` `internal/disk/`\n", "declare/a.go": "package declare\n", "internal/disk/a.go": "package disk\n",
		}, []string{"ARCHITECTURE.md:1: there is no internal/gadget"}},
		{"paths-in-architecture", nil, []string{"ARCHITECTURE.md: missing"}},
		{"reason-pages", map[string]string{
			"internal/reason/code.go":         "package reason\ntype Code uint16\nconst (\n\tA Code = 401\n\tB Code = 1402\n\tC Code = 403\n\tOther = 7\n)\n",
			"internal/reason/pages/TK0401.md": "# TK0401: good\n", "internal/reason/pages/TK1402.md": "# TK0402: wrong\n", "internal/reason/pages/TK0999.md": "# TK0999: stray\n",
		}, []string{"internal/reason/pages/TK1402.md:1: the title begins", "internal/reason/pages/TK0403.md: missing", "internal/reason/pages/TK0999.md: page of no code"}},
		{"reason-pages", nil, []string{"internal/reason: no constants"}},
		{"glossary", map[string]string{
			"docs/glossary.md": "| term | meaning |\n|---|---|\n| drift | x |\n| **Plan** | y |\n\n- **drift**: again\n**plan**. again\n| term | in another table |\n",
		}, []string{`docs/glossary.md:6: "drift" is defined in line 3`, `docs/glossary.md:7: "plan" is defined in line 4`}},
		{"glossary", map[string]string{"docs/glossary.md": "# Glossary\n"}, []string{"docs/glossary.md: no terms found"}},
		{"glossary", nil, []string{"docs/glossary.md: missing"}},
		{"dependencies", map[string]string{
			"go.mod":               "module x\n\nrequire example.org/one v1.0.0\nrequire (\n\texample.org/two v1.0.0\n\texample.org/two/v2 v2.0.0\n\texample.org/three v1.0.0 // indirect\n)\n",
			"docs/dependencies.md": "| example.org/one | … |\n| example.org/two/v2 | … |\n",
		}, []string{"go.mod:5: example.org/two has no line"}},
		{"dependencies", nil, []string{"go.mod: missing"}},
	}
}
