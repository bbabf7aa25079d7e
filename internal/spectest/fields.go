package spectest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// Fields wants a page to have a table of the fields of each of these types of the package in the folder of the test, between the lines
// "<!-- fields NAME -->" and "<!-- end -->". It reads the keys from the tags, and what the fields mean from their comments.
func Fields(t *testing.T, page, name string, types ...string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- fields "+name+" -->\n", "<!-- end -->"
	before, rest, found := strings.Cut(string(text), begin)
	old, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no lines %q and %q", page, strings.TrimSpace(begin), end)
	}
	structs, err := declared(".")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, typ := range types {
		s := structs[typ]
		if s == nil {
			t.Fatalf("there is no struct %s here", typ)
		}
		fmt.Fprintf(&b, "\n`%s`\n\n| key | field | form | meaning |\n|---|---|---|---|\n", typ)
		table(&b, s, structs)
	}
	switch made := b.String(); {
	case made == old:
	case *update:
		if err := os.WriteFile(page, []byte(before+begin+made+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not say of %s what the code does: write it with -update", page, strings.Join(types, ", "))
	}
}

// declared are the structs of the package in a folder, without those of its tests.
func declared(dir string) (map[string]*ast.StructType, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	all := map[string]*ast.StructType{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, is := n.(*ast.TypeSpec); is {
				if x, is := s.Type.(*ast.StructType); is {
					all[s.Name.Name] = x
				}
			}
			return true
		})
	}
	return all, nil
}

// table writes the fields of a type, with those of the structs that are embedded in it. An array has its elements in the order of the fields.
func table(b *strings.Builder, s *ast.StructType, structs map[string]*ast.StructType) {
	array, at := false, 0
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 {
			table(b, structs[f.Type.(*ast.Ident).Name], structs)
			continue
		}
		tag := tagOf(f, "cbor")
		if tag == "" {
			tag = tagOf(f, "json")
		}
		key, options, _ := strings.Cut(tag, ",")
		if f.Names[0].Name == "_" {
			array = strings.Contains(options, "toarray")
			continue
		}
		if array {
			key = fmt.Sprintf("[%d]", at)
		}
		form := formOf(f.Type)
		if strings.Contains(options, "omit") {
			form += ", or absent"
		}
		for _, n := range f.Names {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", key, n.Name, form, meaning(f))
			if at++; array {
				key = fmt.Sprintf("[%d]", at)
			}
		}
	}
}

func tagOf(f *ast.Field, name string) string {
	if f.Tag == nil {
		return ""
	}
	text, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		return ""
	}
	return reflect.StructTag(text).Get(name)
}

// meaning is the comment of a field, in one line.
func meaning(f *ast.Field) string {
	text := f.Doc.Text() + " " + f.Comment.Text()
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}

// formOf is a type in the words of the page.
func formOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return formOf(e.X)
	case *ast.ArrayType:
		if of, is := e.Elt.(*ast.Ident); is && of.Name == "byte" {
			return "bytes"
		}
		return "array of " + formOf(e.Elt)
	case *ast.MapType:
		return "map of " + formOf(e.Key) + " to " + formOf(e.Value)
	case *ast.SelectorExpr:
		return formOf(e.Sel)
	case *ast.Ident:
		for form, names := range map[string]string{
			"text": "string KeyID ClusterID Role", "uint": "uint uint8 uint32 uint64 Code VerdictType SyncKind Leaving", "int": "int int64", "bool": "bool", "digest": "Digest", "hash": "Hash", "public key": "PublicKey", "time": "Time",
		} {
			for _, n := range strings.Fields(names) {
				if n == e.Name {
					return form
				}
			}
		}
		return "`" + e.Name + "`"
	}
	return fmt.Sprintf("%T", e)
}
