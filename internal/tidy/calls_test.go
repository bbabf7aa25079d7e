package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
)

// ban is a function that is not called, and what is done instead.
type ban struct {
	pkg, name string // name may be "*"
	instead   string
	in        []string // packages, as in the import table; none is everywhere
	tests     bool     // in tests too
	allow     []string // with name "*": what may be used all the same
}

// pureCores lists the packages that take the time and a source of randomness as arguments, and touch nothing outside.
var pureCores = []string{
	"internal/converge", "internal/catalog", "internal/fleet/...", "internal/scheduler/...", "internal/transfer/core", "internal/transfer/relay/core", "internal/transfer/peer/core", "internal/agent/core",
	"internal/run/core", "internal/source/pick", "internal/source/verify", "internal/sim",
}

// bans lists what is not called. Sleeping is allowed in the bubbles of testing/synctest, where it costs nothing and races with nothing.
func bans() []ban {
	list := []ban{
		{pkg: "time", name: "Sleep", tests: true, instead: "wait for a state with a deadline: select on the event, a timer and ctx.Done(); in a test use synctest or casetest's Eventually"},
		{pkg: "time", name: "AfterFunc", tests: true, instead: "the timer belongs to the loop: a channel in its select"},
		{pkg: "os/exec", name: "Command", instead: "exec.CommandContext with a context that has a deadline"},
	}
	for _, name := range []string{"Now", "Since", "Until", "After", "Tick", "NewTimer", "NewTicker"} {
		list = append(list, ban{pkg: "time", name: name, in: pureCores, instead: "a pure core is told the time: take now as an argument"})
	}
	ownRand := []string{"New", "NewSource", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "Source64", "PCG", "ChaCha8", "Zipf"}
	for _, pkg := range []string{"math/rand", "math/rand/v2"} {
		list = append(list, ban{pkg: pkg, name: "*", in: pureCores, allow: ownRand, instead: "a pure core is given its randomness: take a seeded *rand.Rand as an argument"})
	}
	for _, pkg := range []string{"os", "os/exec", "net", "net/http", "syscall", "golang.org/x/sys/unix", "log"} {
		list = append(list, ban{pkg: pkg, name: "*", in: pureCores, instead: "a pure core does no I/O: return an effect, and let the shell do it"})
	}
	return list
}

// calls finds uses of what is banned. A function that is passed on is as good as called.
func calls(t *tree) []finding {
	var found []finding
	list := bans()
	for _, p := range t.packages {
		for _, f := range p.files {
			if f.generated {
				continue
			}
			bubbles := synctestBubbles(f)
			ast.Inspect(f.ast, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				for _, b := range list {
					if b.meets(f, p.importOf(sel), sel.Sel.Name) && !inside(bubbles, sel) {
						found = append(found, f.at(sel, fmt.Sprintf("%s.%s: %s", importName(b.pkg), sel.Sel.Name, b.instead)))
					}
				}
				return true
			})
		}
	}
	return found
}

func (b ban) meets(f *goFile, pkg, name string) bool {
	if pkg == "" || pkg != b.pkg || f.test && !b.tests || b.in != nil && !matchAny(f.pkg.path, b.in) {
		return false
	}
	return b.name == name || b.name == "*" && !slices.Contains(b.allow, name)
}

// synctestBubbles finds the functions that are written out as arguments of synctest.Test.
func synctestBubbles(f *goFile) []ast.Node {
	var bubbles []ast.Node
	ast.Inspect(f.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && f.pkg.importOf(sel) == "testing/synctest" {
			for _, arg := range call.Args {
				if fn, ok := arg.(*ast.FuncLit); ok {
					bubbles = append(bubbles, fn)
				}
			}
		}
		return true
	})
	return bubbles
}

func inside(nodes []ast.Node, n ast.Node) bool {
	return slices.ContainsFunc(nodes, func(outer ast.Node) bool { return outer.Pos() <= n.Pos() && n.End() <= outer.End() })
}

// resolve tells which name in a package is which declaration of it, and which is an import, as far as that can be known without
// reading what it imports.
func (p *pkg) resolve(fset *token.FileSet) *types.Info {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	byName := map[string][]*ast.File{} // an external test package is one of its own
	for _, f := range p.files {
		byName[f.ast.Name.Name] = append(byName[f.ast.Name.Name], f.ast)
	}
	config := types.Config{Importer: emptyImporter{}, Error: func(error) {}}
	for _, files := range byName {
		// Errors are expected: nothing is known of what is imported.
		_, _ = config.Check(p.path, fset, files, info)
	}
	return info
}

// emptyImporter makes of every import a package in which nothing is declared.
type emptyImporter struct{}

func (emptyImporter) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, importName(name))
	p.MarkComplete()
	return p, nil
}

var versionSuffix = regexp.MustCompile(`^v[0-9]+$`)

// importName guesses the name of a package from its path: the last part that is no version.
func importName(name string) string {
	base := path.Base(name)
	if versionSuffix.MatchString(base) {
		base = path.Base(path.Dir(name))
	}
	return strings.TrimPrefix(base, "go-")
}

// importOf is the import path of the package in "pkg.Name", or nothing when what stands before the dot is no package.
func (p *pkg) importOf(sel *ast.SelectorExpr) string {
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	name, ok := p.info.Uses[id].(*types.PkgName)
	if !ok {
		return ""
	}
	return name.Imported().Path()
}

// globalState finds variables of a package that its functions change, and those whose type is made to be changed.
func globalState(t *tree) []finding {
	var found []finding
	const instead = "make it a field of what New returns, or a function that returns a fresh value"
	for _, p := range t.packages {
		for _, f := range p.files {
			if f.test || f.generated {
				continue
			}
			for _, id := range packageVars(f) {
				if stateful(f, id) {
					found = append(found, f.at(id, id.Name+" is mutable state of the package: "+instead))
				}
			}
			for _, use := range changes(f) {
				if v, ok := p.info.Uses[use].(*types.Var); ok && v.Parent() != nil && v.Parent() == v.Pkg().Scope() {
					found = append(found, f.at(use, use.Name+" is a variable of the package and changed here: "+instead))
				}
			}
		}
	}
	return found
}

func packageVars(f *goFile) []*ast.Ident {
	var ids []*ast.Ident
	for _, d := range f.ast.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, spec := range g.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					ids = append(ids, v.Names...)
				}
			}
		}
	}
	return ids
}

// stateful tells whether a package variable is declared with a type of sync or sync/atomic. A pool holds nothing that matters.
func stateful(f *goFile, id *ast.Ident) bool {
	found := false
	ast.Inspect(f.ast, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || !slices.Contains(v.Names, id) || v.Type == nil {
			return true
		}
		ast.Inspect(v.Type, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				pkg := f.pkg.importOf(sel)
				found = found || pkg == "sync/atomic" || pkg == "sync" && sel.Sel.Name != "Pool"
			}
			return true
		})
		return false
	})
	return found
}

// changes finds the variables that statements of a file assign to, whole or in part.
func changes(f *goFile) []*ast.Ident {
	var ids []*ast.Ident
	add := func(e ast.Expr) {
		if id := assigned(e); id != nil {
			ids = append(ids, id)
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, e := range n.Lhs {
					add(e)
				}
			}
		case *ast.IncDecStmt:
			add(n.X)
		case *ast.CallExpr:
			if fn, ok := n.Fun.(*ast.Ident); ok && (fn.Name == "delete" || fn.Name == "clear") && len(n.Args) > 0 {
				add(n.Args[0])
			}
		}
		return true
	})
	return ids
}

// assigned finds the variable at the root of what stands left of an assignment: x in x, x.f, x[i] and *x.
func assigned(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

var caseFunc = regexp.MustCompile(`^Test[A-Z][a-z]+Case[0-9]`)

// caseTests wants every case test to begin with casetest.Start, before anything that may skip.
func caseTests(t *tree) []finding {
	var found []finding
	for _, f := range t.goFiles() {
		if !f.test || f.pkg.path == "internal/casetest" {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && caseFunc.MatchString(fn.Name.Name) && !startsCase(fn) {
				found = append(found, f.at(fn, fn.Name.Name+" begins with c := casetest.Start(t): otherwise a skip or a failure leaves no trace in cases.json"))
			}
		}
	}
	return found
}

// startsCase tells whether the first statement of a function calls casetest.Start.
func startsCase(fn *ast.FuncDecl) bool {
	if fn.Body == nil || len(fn.Body.List) == 0 {
		return false
	}
	starts := false
	ast.Inspect(fn.Body.List[0], func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Start" {
			id, ok := sel.X.(*ast.Ident)
			starts = starts || ok && id.Name == "casetest"
		}
		return true
	})
	return starts
}
