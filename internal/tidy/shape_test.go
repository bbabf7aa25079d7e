package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// limit is a size that is warned of, and one that fails.
type limit struct{ warn, fail int }

// Section 2 of the house style: lines of files, functions and packages (these without tests), fields of structs, methods of
// interfaces. A function of a test is mostly a table, so its length is only warned of.
var (
	fileLines        = limit{500, 800}
	functionLines    = limit{70, 100}
	packageLines     = limit{2000, 3500}
	structFields     = limit{15, 20}
	interfaceMethods = limit{5, 8}
)

// shapeGiven lists the packages whose size and structs are given by what users declare.
var shapeGiven = []string{"declare", "api/v1alpha1"}

// over says that something is too large; nothing when it is not.
func (l limit) over(n int, what string) (message string, warning bool) {
	if n <= l.warn {
		return "", false
	}
	return fmt.Sprintf("%s: %d, at most %d is good and %d allowed: split it by what its parts are about", what, n, l.warn, l.fail), n <= l.fail
}

func sizes(t *tree) []finding {
	var found []finding
	for _, p := range t.packages {
		given, lines := slices.Contains(shapeGiven, p.path), 0
		for _, f := range p.files {
			if f.generated {
				continue
			}
			if !f.test {
				lines += f.lines
			}
			found = append(found, fileSizes(f, given)...)
		}
		if message, warning := packageLines.over(lines, "lines of the package without tests"); message != "" && !given {
			found = append(found, finding{path: p.path, message: message, warning: warning})
		}
	}
	return found
}

func fileSizes(f *goFile, given bool) []finding {
	var found []finding
	add := func(n ast.Node, l limit, size int, what string) {
		if message, warning := l.over(size, what); message != "" {
			w := f.at(n, message)
			w.warning = warning
			found = append(found, w)
		}
	}
	add(f.ast, fileLines, f.lines, "lines of the file")
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			l := functionLines
			if f.test {
				l.fail = fileLines.fail
			}
			add(n, l, f.fset.Position(n.End()).Line-f.fset.Position(n.Pos()).Line+1, "lines of function "+n.Name.Name)
		case *ast.StructType:
			if !given {
				add(n, structFields, count(n.Fields), "fields of the struct")
			}
		case *ast.InterfaceType:
			add(n, interfaceMethods, count(n.Methods), "methods of the interface")
		}
		return true
	})
	return found
}

// count counts names; what is embedded is one.
func count(list *ast.FieldList) int {
	n := 0
	for _, field := range list.List {
		n += max(1, len(field.Names))
	}
	return n
}

// packageComments wants one comment per package, where readers look for it. A folder of tests only needs none.
func packageComments(t *tree) []finding {
	var found []finding
	for _, p := range t.packages {
		var with []*goFile
		code := slices.DeleteFunc(slices.Clone(p.files), func(f *goFile) bool { return f.test })
		for _, f := range code {
			if f.ast.Doc != nil {
				with = append(with, f)
			}
		}
		switch {
		case len(code) == 0:
		case len(with) == 0:
			found = append(found, finding{path: p.path, message: "no package comment: say in doc.go what the package is for, who owns which goroutine, and the algorithm"})
		case len(with) > 1:
			found = append(found, with[1].at(with[1].ast.Doc, "a second package comment, after "+with[0].path+": one per package"))
		default:
			found = append(found, packageComment(with[0])...)
		}
	}
	return found
}

func packageComment(f *goFile) []finding {
	name := f.ast.Name.Name
	if allowed := []string{"doc.go", "main.go", name + ".go", path.Base(f.pkg.path) + ".go"}; !slices.Contains(allowed, path.Base(f.path)) {
		return []finding{f.at(f.ast.Doc, "the package comment stands in doc.go or the package's main file, not here")}
	}
	if want := "Package " + name + " "; name != "main" && !strings.HasPrefix(f.ast.Doc.Text(), want) {
		return []finding{f.at(f.ast.Doc, fmt.Sprintf("the package comment begins with %q", want))}
	}
	return nil
}

// saidElsewhere lists methods whose meaning is given by the standard library's interfaces.
var saidElsewhere = []string{"String", "Error", "Unwrap"}

// documented wants a comment for every exported name outside package main, beginning with that name. A comment on a group of
// constants or variables is for all of them, and so is a comment at the end of the line.
func documented(t *tree) []finding {
	var found []finding
	for _, f := range t.code() {
		if f.ast.Name.Name == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				given := d.Recv != nil && slices.Contains(saidElsewhere, d.Name.Name)
				if d.Name.IsExported() && receiverExported(d) && !given {
					found = append(found, f.comment(d.Name, d.Doc)...)
				}
			case *ast.GenDecl:
				found = append(found, documentedGroup(f, d)...)
			}
		}
	}
	return found
}

func documentedGroup(f *goFile, d *ast.GenDecl) []finding {
	var found []finding
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			doc := s.Doc
			if doc == nil && !d.Lparen.IsValid() {
				doc = d.Doc
			}
			if s.Name.IsExported() {
				found = append(found, f.comment(s.Name, doc)...)
			}
		case *ast.ValueSpec:
			exported := slices.IndexFunc(s.Names, (*ast.Ident).IsExported)
			if exported >= 0 && d.Doc == nil && s.Doc == nil && s.Comment == nil {
				found = append(found, f.at(s, s.Names[exported].Name+" is exported and has no comment: say what it is, its unit and where its value comes from"))
			}
		}
	}
	return found
}

func (f *goFile) comment(name *ast.Ident, doc *ast.CommentGroup) []finding {
	if doc == nil {
		return []finding{f.at(name, name.Name+" is exported and has no comment: say in a sentence that begins with its name what it does, its units, bounds and errors")}
	}
	first := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(doc.Text(), "A "), "An "), "The ")
	if !strings.HasPrefix(first, name.Name) && !strings.HasPrefix(first, "Deprecated:") {
		return []finding{f.at(name, "the comment of "+name.Name+" is a sentence that begins with its name")}
	}
	return nil
}

// receiverExported tells whether a function is one that others can call: none of a type that they cannot name.
func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.Ident:
			return t.IsExported()
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr: // one type parameter
			typ = t.X
		case *ast.IndexListExpr: // several
			typ = t.X
		default:
			return true
		}
	}
}

// Names that say nothing. A helper lives with the noun that it serves.
var (
	emptyFolders  = []string{"util", "utils", "common", "helper", "helpers", "misc", "base", "types", "pkg"}
	emptySuffixes = []string{"Manager", "Helper", "Info", "Data"}
)

// names refuses folders, packages and types whose names say nothing (types unless the glossary defines them), and init functions.
func names(t *tree) []finding {
	var found []finding
	for _, p := range t.packages {
		for _, word := range append(strings.Split(p.path, "/"), p.name()) {
			if slices.Contains(emptyFolders, word) {
				found = append(found, finding{path: p.path, message: fmt.Sprintf("%q says nothing: name the package after the noun that its code serves", word)})
				break
			}
		}
	}
	defined := terms(t)
	for _, f := range t.code() {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				for _, suffix := range emptySuffixes {
					if strings.HasSuffix(n.Name.Name, suffix) && !slices.Contains(defined, strings.ToLower(n.Name.Name)) {
						found = append(found, f.at(n, fmt.Sprintf("type %s: %q says nothing: name what it is, or define it in docs/glossary.md", n.Name.Name, suffix)))
					}
				}
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil {
					found = append(found, f.at(n, "func init: nothing registers itself; list what there is in one function, and call it"))
				}
			}
			return true
		})
	}
	return found
}

// contextFields refuses contexts that outlive the call they came with.
func contextFields(t *tree) []finding {
	var found []finding
	for _, f := range t.code() {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range s.Fields.List {
				if sel, ok := field.Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "Context" && f.pkg.importOf(sel) == "context" {
					found = append(found, f.at(field, "a context is the first parameter of what needs it, never a field"))
				}
			}
			return true
		})
	}
	return found
}

// notImplemented refuses code that is there in name only.
func notImplemented(t *tree) []finding {
	var found []finding
	for _, f := range t.goFiles() {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			fn, isIdent := call.Fun.(*ast.Ident)
			text, isText := call.Args[0].(*ast.BasicLit)
			if isIdent && fn.Name == "panic" && isText && text.Kind == token.STRING {
				if words := strings.ToLower(text.Value); strings.Contains(words, "not implemented") || strings.Contains(words, "unimplemented") {
					found = append(found, f.at(call, "code that is not there yet is not declared either: remove it, or write it"))
				}
			}
			return true
		})
	}
	return found
}
