package tidy

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ports are what the commands are for besides the machine's own.
var ports = []string{"linux/arm64", "linux/riscv64"}

// testPorts checks the types of all that the commands are made of, with the files and sizes of each port. To compile it would take as long
// as all else that is compiled for a test of this tree, and find no more in our code. What is not ours is taken by its declarations alone.
func testPorts(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it reads the source of everything")
	}
	for _, port := range ports {
		t.Run(strings.ReplaceAll(port, "/", "-"), func(t *testing.T) {
			list := goCommand(t, port, "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./cmd/...")
			_, arch, _ := strings.Cut(port, "/")
			c := checker{files: token.NewFileSet(), sizes: types.SizesFor("gc", arch), done: map[string]*types.Package{"unsafe": types.Unsafe}}
			ours := 0
			for d := json.NewDecoder(strings.NewReader(list)); ; {
				var p listed
				if err := d.Decode(&p); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if p.ours() {
					ours++
				}
				for _, err := range c.check(p) {
					t.Errorf("%s: %v", port, err)
				}
			}
			if ours == 0 {
				t.Error("no package of this tree was checked")
			}
		})
	}
}

// listed is what go list says of a package, what it imports before it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string // what the source names otherwise than it is called: what comes with Go itself
	Module          *struct{ Main bool }
}

func (p listed) ours() bool { return p.Module != nil && p.Module.Main }

// checker checks packages in the order in which go lists them.
type checker struct {
	files *token.FileSet
	sizes types.Sizes
	done  map[string]*types.Package
}

func (c *checker) check(p listed) (errs []error) {
	if p.ImportPath == "unsafe" {
		return nil
	}
	add := func(err error) { errs = append(errs, err) }
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			add(err)
			continue
		}
		files = append(files, f)
	}
	config := types.Config{Importer: importer{c, p.ImportMap}, Sizes: c.sizes, IgnoreFuncBodies: !p.ours(), Error: add}
	c.done[p.ImportPath], _ = config.Check(p.ImportPath, c.files, files, nil) // each error is added
	return errs
}

// importer gives one package what it imports.
type importer struct {
	*checker
	renamed map[string]string
}

// Import returns a package that was checked before.
func (i importer) Import(path string) (*types.Package, error) {
	if to, ok := i.renamed[path]; ok {
		path = to
	}
	if p := i.done[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s was not listed before", path)
}

// TestChecker: a fault in a body is found in our own packages, and one in a declaration in all.
func TestChecker(t *testing.T) {
	for _, test := range []struct {
		text        string
		ours, wrong bool
	}{
		{"package p\n\nfunc f() int { return 1 }\n", true, false},
		{"package p\n\nfunc f() { undefined() }\n", true, true},
		{"package p\n\nfunc f() { undefined() }\n", false, false},
		{"package p\n\nvar v int = \"a\"\n", false, true},
		{"package p\n\nimport _ \"nowhere\"\n", true, true},
		{"package p\n\nfunc\n", true, true},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := checker{files: token.NewFileSet(), sizes: types.SizesFor("gc", "riscv64"), done: map[string]*types.Package{}}
		errs := c.check(listed{ImportPath: "p", Dir: dir, GoFiles: []string{"p.go"}, Module: &struct{ Main bool }{test.ours}})
		if (len(errs) > 0) != test.wrong {
			t.Errorf("%q, ours %v: %v, want errors: %v", test.text, test.ours, errs, test.wrong)
		}
	}
}
