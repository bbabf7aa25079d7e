package tidy

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// row is a row of the import table: of our packages, those that match pattern may import those that match one of may.
// "x/..." is x and everything below, "x/*" is everything right below x. "!x" takes x out of what came before.
type row struct {
	pattern string
	may     []string
	k8s     []string // what of k8s.io and sigs.k8s.io; "..." is all
}

// importTable is the architecture: section 5 of the design, the planned packages included. Of several rows that match a
// package the first counts. A package that is in no row may not be.
func importTable() []row {
	plain := func(names ...string) []string {
		for i, n := range names {
			names[i] = "internal/" + n
		}
		return append(names, "declare/...", "internal/reason")
	}
	contract := plain("converge", "content")
	driver := plain("converge", "content", "disk", "disk/acl", "disk/durable", "systemd", "facts", "host", "run", "command", "command/check")
	agent := plain("disk", "disk/durable", "disk/watch", "systemd", "facts", "present", "relations", "trust", "converge", "content", "catalog", "host", "run", "names", "names/server", "names/endpoints",
		"scheduler/fit", "transfer/wire", "transfer/core", "transfer/client", "transfer/place")
	centre := []string{"...", "!internal/agent/...", "!internal/host/...", "!internal/run/...", "!e2e/...", "!bench/...", "!examples/...", "!tools/..."}
	all := []string{"..."}
	return []row{
		{pattern: "internal/reason"},
		{pattern: "declare/...", may: []string{"declare/...", "internal/reason"}},
		{pattern: "internal/disk", may: []string{"internal/reason"}},
		{pattern: "internal/disk/acl"},
		{pattern: "internal/disk/durable", may: []string{"internal/disk", "internal/reason"}},
		{pattern: "internal/disk/watch", may: []string{"internal/disk", "internal/reason"}},
		{pattern: "internal/systemd", may: []string{"internal/reason"}},
		{pattern: "internal/command"},
		{pattern: "internal/command/check", may: []string{"internal/command", "internal/disk", "internal/reason"}},
		{pattern: "internal/facts", may: plain("disk", "disk/watch")},
		{pattern: "internal/present", may: plain()},
		{pattern: "internal/relations", may: plain("present")},
		{pattern: "internal/trust", may: plain()},
		{pattern: "internal/converge", may: plain()},
		{pattern: "internal/content", may: plain("disk")},
		{pattern: "internal/catalog", may: plain("trust")},
		{pattern: "internal/layerstore", may: plain("catalog", "disk")},
		{pattern: "internal/bundle", may: plain("catalog")},
		{pattern: "internal/scheduler", may: plain("catalog", "converge", "scheduler/fit")},
		{pattern: "internal/scheduler/fit", may: plain("catalog", "converge")},
		{pattern: "internal/fleet/rollout", may: plain("catalog", "converge", "fleet/rollout/pace")},
		{pattern: "internal/fleet/workload", may: plain("catalog", "converge", "fleet/node", "fleet/rollout/pace")},
		{pattern: "internal/fleet/...", may: plain("catalog", "converge")},
		{pattern: "internal/host", may: contract},
		{pattern: "internal/run", may: contract},
		{pattern: "internal/run/core", may: plain("run")},
		{pattern: "internal/run/bell"},
		{pattern: "internal/run/shim", may: plain("run", "run/account", "run/bell", "disk")},
		{pattern: "internal/run/process", may: plain("run", "run/account", "run/shim")},
		{pattern: "internal/run/cdi", may: plain("run", "disk")},
		{pattern: "internal/run/oci", may: plain("run", "run/account", "run/shim", "run/oci/image", "run/oci/cni", "disk")},
		{pattern: "internal/run/oci/cni", may: plain("disk", "facts")},
		{pattern: "internal/run/oci/image", may: plain("content", "disk")},
		{pattern: "internal/host/all", may: slices.Concat(driver, []string{"internal/host/*", "internal/host/packages/*"})},
		{pattern: "internal/run/all", may: slices.Concat(driver, []string{"internal/run/*"})},
		{pattern: "internal/host/hosttest/*", may: plain("disk", "host")},
		{pattern: "internal/host/edit/part", may: plain()},
		{pattern: "internal/host/edit", may: append(without(driver, "internal/run"), "internal/host/edit/part")},
		{pattern: "internal/host/packages/*", may: append(without(driver, "internal/run"), "internal/host/packages")},
		{pattern: "internal/host/*", may: without(driver, "internal/run")},
		{pattern: "internal/run/account", may: plain("disk")},
		{pattern: "internal/run/*", may: append(without(driver, "internal/host"), "internal/run/account", "internal/run/bell")},
		{pattern: "internal/names", may: plain()},
		{pattern: "internal/names/server", may: plain("names", "transfer/bucket", "disk", "names/endpoints", "host")}, // the last three for tests: what the page about names shows, on a host of its own
		{pattern: "internal/names/endpoints", may: plain("names", "disk", "disk/durable")},
		{pattern: "internal/names/edition", may: plain("catalog", "names", "transfer/wire", "trust")},
		{pattern: "internal/transfer/wire", may: plain("catalog")},
		{pattern: "internal/transfer/core", may: plain("catalog", "trust", "transfer/wire")},
		{pattern: "internal/transfer/place", may: plain("catalog", "command", "trust", "transfer/wire")},
		{pattern: "internal/transfer/handshake"},
		{pattern: "internal/transfer/h2", may: plain("transfer/bucket")},
		{pattern: "internal/transfer/bucket"},
		{pattern: "internal/transfer/snapshots", may: plain("catalog")},
		{pattern: "internal/transfer/server", may: plain("catalog", "content", "trust", "transfer/core", "transfer/bucket", "transfer/h2", "transfer/handshake", "transfer/server/budget", "transfer/server/index", "transfer/snapshots", "transfer/wire")},
		{pattern: "internal/transfer/server/budget", may: plain()},
		{pattern: "internal/transfer/server/index", may: plain("catalog")},
		{pattern: "internal/transfer/export", may: plain("catalog", "transfer/server", "transfer/wire")},
		{pattern: "internal/transfer/client", may: plain("catalog", "names/edition", "content", "trust", "disk", "transfer/core", "transfer/peer/core", "transfer/place", "transfer/wire")},
		{pattern: "internal/transfer/peer", may: plain("catalog", "trust", "transfer/core", "transfer/wire")},
		{pattern: "internal/transfer/peer/core", may: plain("catalog")},
		{pattern: "internal/transfer/relay", may: plain("catalog", "names/edition", "content", "trust", "transfer/client", "transfer/core", "transfer/relay/core", "transfer/server", "transfer/wire",
			"names", "transfer/peer", "transfer/peer/core", "transfer/place")}, // the last four for tests: hosts that have lost their relay ask each other
		{pattern: "internal/transfer/relay/core", may: plain("catalog", "transfer/wire")},
		{pattern: "internal/agent", may: slices.Concat(agent, []string{"internal/agent/*", "internal/agent/instances/core"})},
		{pattern: "internal/agent/book", may: plain("converge", "agent/report", "agent/store")},
		{pattern: "internal/agent/instances", may: plain("catalog", "content", "names", "disk", "disk/durable", "run", "run/core", "run/cdi", "scheduler/fit", "transfer/wire", "agent/instances/core", "agent/store",
			"run/oci/image")}, // the last one for the suite of tests beside it: images that are fetched
		{pattern: "internal/agent/instances/core", may: plain("catalog", "run", "run/core", "scheduler/fit", "transfer/wire")},
		{pattern: "internal/agent/naming", may: plain("catalog", "disk", "disk/durable", "names", "names/edition", "names/endpoints", "names/server", "transfer/client", "transfer/wire", "trust")},
		{pattern: "internal/agent/bring", may: plain("transfer/client", "transfer/place")},
		{pattern: "internal/agent/peering", may: plain("catalog", "agent/held", "agent/report", "transfer/client", "transfer/peer", "transfer/wire")},
		{pattern: "internal/agent/chart", may: []string{"internal/converge", "internal/relations"}},
		{pattern: "internal/agent/usage"},
		{pattern: "internal/agent/held", may: plain("catalog", "converge", "layerstore", "trust", "disk", "disk/durable", "transfer/wire", "transfer/core", "transfer/client")},
		{pattern: "internal/agent/ground", may: plain("converge", "host")},
		{pattern: "internal/agent/hold", may: plain("catalog", "agent/report", "agent/store")},
		{pattern: "internal/agent/lookup", may: plain("catalog", "agent/held", "agent/store")},
		{pattern: "internal/agent/join", may: plain("transfer/client", "trust", "agent/held", "agent/store")},
		{pattern: "internal/agent/fetch", may: plain("catalog", "content", "disk", "trust", "agent/held", "transfer/client", "transfer/wire")},
		{pattern: "internal/agent/left", may: plain("converge", "relations", "agent/chart", "agent/load", "agent/report", "agent/store")},
		{pattern: "internal/agent/local", may: plain("relations", "agent/bring", "agent/hold", "agent/left", "agent/report", "agent/socket", "agent/store")},
		{pattern: "internal/agent/load", may: plain("converge", "catalog", "agent/core", "agent/store")},
		{pattern: "internal/agent/observe", may: plain("host", "disk")},
		{pattern: "internal/agent/clock", may: []string{"internal/reason"}},
		{pattern: "internal/agent/preview", may: plain("catalog", "converge", "host", "agent/core", "agent/ground", "agent/hold", "agent/load")},
		{pattern: "internal/agent/program"},
		{pattern: "internal/agent/rehearse", may: plain("catalog", "host", "trust", "agent/clock", "agent/held", "agent/hold", "agent/load", "agent/preview", "agent/store")},
		{pattern: "internal/agent/report", may: plain("agent/instances/core", "agent/usage", "converge", "host", "transfer/wire", "transfer/client", "agent/observe", "agent/store")},
		{pattern: "internal/agent/socket", may: []string{"internal/reason"}},
		{pattern: "internal/agent/subscribe", may: plain("converge", "host", "disk", "disk/watch", "systemd")},
		{pattern: "internal/agent/store", may: plain("converge", "host", "disk", "disk/durable", "content")},
		{pattern: "internal/agent/core", may: agent},
		{pattern: "internal/stack", may: contract},
		{pattern: "api/...", may: []string{"api/...", "declare/...", "internal/reason"}, k8s: []string{"k8s.io/apimachinery"}},
		{pattern: "internal/source/git", may: []string{"internal/reason"}},
		{pattern: "internal/source/origin"},
		{pattern: "internal/source/pick", may: []string{"internal/reason"}},
		{pattern: "internal/source/schedule"},
		{pattern: "internal/source/verify", may: []string{"internal/reason"}},
		{pattern: "internal/source/forge", may: []string{"internal/reason"}},
		{pattern: "internal/source/webhook", may: []string{"internal/reason"}},
		{pattern: "internal/source/render/ignore"},
		{pattern: "internal/source/render/kustomize", may: plain(), k8s: []string{"sigs.k8s.io/kustomize"}},
		{pattern: "internal/source/render", may: plain("cli/documents", "source/render/*"), k8s: []string{"sigs.k8s.io/kustomize"}},
		{pattern: "internal/source", may: slices.Concat(plain("present"), []string{"api/..."}), k8s: all},
		{pattern: "internal/apiserver/...", may: centre, k8s: all},
		{pattern: "internal/controllers/...", may: centre, k8s: all},
		{pattern: "internal/cli/...", may: centre, k8s: all},
		{pattern: "internal/console/...", may: centre, k8s: all},
		{pattern: "internal/sim", may: plain("trust", "catalog", "converge", "scheduler/...", "fleet/...", "transfer/core", "transfer/relay/core", "transfer/wire", "agent/core")},
		{pattern: "internal/sim/workloads", may: append(plain("catalog", "fleet/...", "scheduler/...", "transfer/relay/core", "transfer/wire", "run", "run/core", "agent/instances/core", "controllers/workloads", "controllers/presence"), "api/..."), k8s: all},
		{pattern: "cmd/tako", may: centre},
		{pattern: "cmd/tako-agent", may: plain("agent", "agent/bring", "agent/fetch", "agent/join", "agent/local", "agent/lookup", "agent/naming", "agent/rehearse", "agent/store", "host/all", "host/upgrade", "run", "run/all", "systemd", "present", "command")},
		{pattern: "internal/casetest"},
		{pattern: "internal/spectest"},
		{pattern: "internal/tidy"},
		{pattern: "e2e/...", may: all, k8s: all},
		{pattern: "bench/...", may: all, k8s: all},
		{pattern: "examples/...", may: all, k8s: all},
		{pattern: "tools/...", may: all},
	}
}

// outside lists the folders that use the product and that the product does not use.
var outside = []string{"e2e", "bench", "examples", "tools"}

// forTests is what every test may import, whatever its package may: e2e/host, because a case that boots hosts stands beside
// what it is about.
var forTests = []string{"internal/casetest", "internal/spectest", "e2e/host"}

// contracts are packages whose implementations are the folders right below them.
var contracts = []string{"internal/host", "internal/run"}

func without(list []string, drop ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(drop, s) })
}

// imports checks every import between our packages, and of Kubernetes, against the table.
func imports(t *tree) []finding {
	var found []finding
	for _, p := range t.packages {
		r, ok := rowOf(p.path)
		if !ok {
			found = append(found, finding{path: p.path, message: "package is not in the import table: agree on its place and add it to internal/tidy/imports_test.go, or put the code where it belongs"})
			continue
		}
		for _, f := range p.files {
			found = append(found, importsOf(f, r)...)
		}
	}
	return found
}

func importsOf(f *goFile, r row) []finding {
	var found []finding
	for _, spec := range f.ast.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // it does not compile either
		}
		ours, isOurs := cutModule(name)
		switch {
		case isOurs && !mayImport(f, r, ours):
			found = append(found, f.at(spec, fmt.Sprintf("%s may not import %s, says the import table (internal/tidy/imports_test.go): turn the dependency round (an interface where it is used) or move the code", f.pkg.path, ours)))
		case isKubernetes(name) && !underAny(name, r.k8s):
			found = append(found, f.at(spec, fmt.Sprintf("%s may not import %s: Kubernetes belongs to api, apiserver, controllers, source, cli and console", f.pkg.path, name)))
		}
	}
	return found
}

func mayImport(f *goFile, r row, ours string) bool {
	switch {
	case underAny(ours, outside) && !underAny(f.pkg.path, outside):
		return f.test && slices.Contains(forTests, ours)
	case matchAny(ours, r.may), isSuite(f.pkg.path) && ours == path.Dir(f.pkg.path):
		return true
	case !f.test:
		return isSuite(f.pkg.path) && ours == "internal/casetest"
	}
	// A test sees its own package from outside, the real implementations of a contract that it may import, and the suites of its contract and
	// of what it may import.
	return ours == f.pkg.path || slices.Contains(contracts, path.Dir(ours)) && matchAny(path.Dir(ours), r.may) || slices.Contains(forTests, ours) ||
		isSuite(ours) && (contractOf(ours) == f.pkg.path || contractOf(ours) == path.Dir(f.pkg.path) || matchAny(contractOf(ours), r.may))
}

// isSuite tells whether a package is the test suite of a contract, or a part of one.
func isSuite(p string) bool { return contractOf(p) != "" }

// contractOf is the contract of a suite, which is right above it, and of a part of one: internal/host of internal/host/hosttest and of
// internal/host/hosttest/kill. It is empty for what is no suite.
func contractOf(p string) string {
	for ; path.Dir(p) != "."; p = path.Dir(p) {
		if path.Base(p) == path.Base(path.Dir(p))+"test" {
			return path.Dir(p)
		}
	}
	return ""
}

// rowOf finds the row of a package. The suite of a contract has the row of the contract.
func rowOf(p string) (row, bool) {
	if c := contractOf(p); c != "" && c == path.Dir(p) {
		return rowOf(c)
	}
	for _, r := range importTable() {
		if match(p, r.pattern) {
			return r, true
		}
	}
	return row{}, false
}

func cutModule(name string) (string, bool) {
	if name == module {
		return ".", true
	}
	return strings.CutPrefix(name, module+"/")
}

func isKubernetes(name string) bool { return underAny(name, []string{"k8s.io", "sigs.k8s.io"}) }

// underAny tells whether name is one of the folders or below one; "..." is above all.
func underAny(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return match(name, f+"/...") || f == "..." })
}

func matchAny(name string, patterns []string) bool {
	ok := false
	for _, p := range patterns {
		if not, isNot := strings.CutPrefix(p, "!"); isNot {
			ok = ok && !match(name, not)
		} else {
			// Suites are for tests only, also where a pattern with a star names them.
			ok = ok || match(name, p) && (!isSuite(name) || p == "...")
		}
	}
	return ok
}

func match(name, pattern string) bool {
	switch {
	case pattern == "...":
		return true
	case strings.HasSuffix(pattern, "/..."):
		folder := strings.TrimSuffix(pattern, "/...")
		return name == folder || strings.HasPrefix(name, folder+"/")
	case strings.HasSuffix(pattern, "/*"):
		return path.Dir(name) == strings.TrimSuffix(pattern, "/*")
	}
	return name == pattern
}
