// Command openapi takes out of a file that openapi-gen wrote what no served kind reaches: of k8s.io/api/core/v1 the server serves
// four kinds, and the package defines two hundred.
//
//	openapi -file zz_generated.openapi.go ROOT...
//
// A root is the import path of a package, for all its types, or import path, dot and type. What a root's definition refers to is
// kept, and so on. The file is rewritten in place.
//
// It also takes out that numbers of our own types default to 0: openapi-gen says so of every number that must be given.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	file := flag.String("file", "", "the `file` that openapi-gen wrote")
	flag.Parse()
	if err := run(*file, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(file string, roots []string) error {
	src, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if src, err = filter(src, roots); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, src, 0o644)
}

// filter returns the source without what the roots do not reach.
func filter(src []byte, roots []string) ([]byte, error) {
	f, err := parse(src)
	if err != nil {
		return nil, err
	}
	definitions, err := f.definitions()
	if err != nil {
		return nil, err
	}
	reached, err := reach(definitions, roots)
	if err != nil {
		return nil, err
	}
	var drop []ast.Node
	for name, d := range definitions {
		if !reached[name] {
			drop = append(drop, d.entry, d.function)
		}
	}
	if f, err = parse(f.without(drop)); err != nil {
		return nil, err
	}
	out, err := format.Source(f.without(f.unusedImports()))
	return withoutZeros(out), err
}

// ourDefinition is the function of a definition of ours, and zero a default of 0 in it.
var (
	ourDefinition = regexp.MustCompile(`(?ms)^func schema_takodev_.*?^}`)
	zero          = regexp.MustCompile(`(?m)^\s*Default: +0,\n`)
)

func withoutZeros(src []byte) []byte {
	return ourDefinition.ReplaceAllFunc(src, func(f []byte) []byte { return zero.ReplaceAll(f, nil) })
}

// source is a parsed file.
type source struct {
	text    []byte
	fset    *token.FileSet
	ast     *ast.File
	imports map[string]string // path by name
}

// definition is one type's entry in the map of all definitions, the function it calls, and the types that it refers to.
type definition struct {
	entry    *ast.KeyValueExpr
	function *ast.FuncDecl
	refers   []string
}

func parse(src []byte) (*source, error) {
	s := &source{text: src, fset: token.NewFileSet(), imports: map[string]string{}}
	var err error
	if s.ast, err = parser.ParseFile(s.fset, "", src, parser.ParseComments|parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	for _, spec := range s.ast.Imports {
		if spec.Name == nil {
			return nil, fmt.Errorf("import %s has no name", spec.Path.Value)
		}
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		s.imports[spec.Name.Name] = path
	}
	return s, nil
}

// definitions returns what the file defines, by import path, dot and type.
func (s *source) definitions() (map[string]*definition, error) {
	functions := map[string]*ast.FuncDecl{}
	for _, decl := range s.ast.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			functions[f.Name.Name] = f
		}
	}
	all := functions["GetOpenAPIDefinitions"]
	if all == nil {
		return nil, errors.New("there is no GetOpenAPIDefinitions")
	}
	out := map[string]*definition{}
	var err error
	ast.Inspect(all, func(n ast.Node) bool {
		entry, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return err == nil
		}
		name := s.model(entry.Key)
		function := functions[called(entry.Value)]
		if name == "" || function == nil {
			err = fmt.Errorf("line %d is no definition of a type that has a model name", s.fset.Position(entry.Pos()).Line)
			return false
		}
		out[name] = &definition{entry: entry, function: function, refers: s.dependencies(function)}
		return false
	})
	return out, err
}

// model reads TYPE{}.OpenAPIModelName() as import path, dot and type; "" where something else stands.
func (s *source) model(e ast.Expr) string {
	call, _ := e.(*ast.CallExpr)
	if call == nil {
		return ""
	}
	method, _ := call.Fun.(*ast.SelectorExpr)
	if method == nil || method.Sel.Name != "OpenAPIModelName" {
		return ""
	}
	literal, _ := method.X.(*ast.CompositeLit)
	if literal == nil {
		return ""
	}
	named, _ := literal.Type.(*ast.SelectorExpr)
	if named == nil {
		return ""
	}
	pkg, _ := named.X.(*ast.Ident)
	if pkg == nil {
		return ""
	}
	return s.imports[pkg.Name] + "." + named.Sel.Name
}

func called(e ast.Expr) string {
	if call, ok := e.(*ast.CallExpr); ok {
		if name, ok := call.Fun.(*ast.Ident); ok {
			return name.Name
		}
	}
	return ""
}

// dependencies are the models in the function's list of that name.
func (s *source) dependencies(f *ast.FuncDecl) []string {
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, _ := pair.Key.(*ast.Ident)
		list, _ := pair.Value.(*ast.CompositeLit)
		if key == nil || key.Name != "Dependencies" || list == nil {
			return true
		}
		for _, e := range list.Elts {
			out = append(out, s.model(e))
		}
		return false
	})
	return out
}

// reach returns the definitions that the roots refer to, over any number of steps, and the roots.
func reach(definitions map[string]*definition, roots []string) (map[string]bool, error) {
	var next []string
	for _, root := range roots {
		before := len(next)
		for _, name := range slices.Sorted(maps.Keys(definitions)) {
			if name == root || name[:strings.LastIndexByte(name, '.')] == root {
				next = append(next, name)
			}
		}
		if len(next) == before {
			return nil, fmt.Errorf("nothing is defined for %s", root)
		}
	}
	reached := map[string]bool{}
	for len(next) > 0 {
		name := next[len(next)-1]
		next = next[:len(next)-1]
		if reached[name] {
			continue
		}
		d := definitions[name]
		if d == nil {
			return nil, fmt.Errorf("%q is referred to and not defined: give openapi-gen its package", name)
		}
		reached[name] = true
		next = append(next, d.refers...)
	}
	return reached, nil
}

// unusedImports returns the imports whose name stands nowhere.
func (s *source) unusedImports() []ast.Node {
	used := map[string]bool{}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := selector.X.(*ast.Ident); ok {
				used[pkg.Name] = true
			}
		}
		return true
	})
	var out []ast.Node
	for _, spec := range s.ast.Imports {
		if !used[spec.Name.Name] {
			out = append(out, spec)
		}
	}
	return out
}

// without returns the text without the lines that the nodes stand on.
func (s *source) without(nodes []ast.Node) []byte {
	lines := strings.SplitAfter(string(s.text), "\n")
	for _, n := range nodes {
		first, last := s.fset.Position(n.Pos()).Line, s.fset.Position(n.End()).Line
		clear(lines[first-1 : last])
	}
	return []byte(strings.Join(lines, ""))
}
