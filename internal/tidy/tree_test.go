package tidy

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "tako.dev/tako"

// root is where the tree is, seen from where go test runs these tests.
const root = "../.."

// notOurs lists what stands in the tree and is no part of it: see .gitignore.
var notOurs = []string{".git", "bin", ".scratch", "cases.json"}

// textMax bounds the files that are read as text; a larger one is a finding of largeFiles anyway.
const textMax = 1 << 20

// tree is the repository as the checks see it. Paths are relative to its top, with slashes.
type tree struct {
	files    []file
	packages []*pkg // by path
}

// file is any file of the tree.
type file struct {
	path string
	size int64
	text string // empty for files over textMax
}

// pkg is one folder of Go files.
type pkg struct {
	path  string // "internal/reason"; "." for the top
	files []*goFile
	info  *types.Info // see resolve
}

// goFile is one parsed Go file. Files in testdata are no goFiles.
type goFile struct {
	path      string
	pkg       *pkg
	test      bool
	generated bool
	lines     int
	fset      *token.FileSet
	ast       *ast.File
}

// finding is one thing that is not as agreed.
type finding struct {
	path    string
	line    int    // 0 where the file as a whole is meant
	message string // what is wrong, and what to do
	warning bool   // listed with -v, fails nothing
}

func (f *goFile) at(n ast.Node, message string) finding {
	return finding{path: f.path, line: f.fset.Position(n.Pos()).Line, message: message}
}

// code yields the Go files that are neither tests nor generated.
func (t *tree) code() []*goFile {
	var files []*goFile
	for _, p := range t.packages {
		for _, f := range p.files {
			if !f.test && !f.generated {
				files = append(files, f)
			}
		}
	}
	return files
}

// goFiles yields all Go files.
func (t *tree) goFiles() []*goFile {
	var files []*goFile
	for _, p := range t.packages {
		files = append(files, p.files...)
	}
	return files
}

func (t *tree) file(name string) (file, bool) {
	i := slices.IndexFunc(t.files, func(f file) bool { return f.path == name })
	if i < 0 {
		return file{}, false
	}
	return t.files[i], true
}

// exists tells whether there is a file or folder of that path.
func (t *tree) exists(name string) bool {
	return name == "." || slices.ContainsFunc(t.files, func(f file) bool {
		return f.path == name || strings.HasPrefix(f.path, name+"/")
	})
}

// name is the package's name in its code; a folder with nothing but external tests has none.
func (p *pkg) name() string {
	for _, f := range p.files {
		if n := f.ast.Name.Name; !f.test || !strings.HasSuffix(n, "_test") {
			return n
		}
	}
	return ""
}

// readTree reads the files below dir.
func readTree(dir string) (*tree, error) {
	t := &tree{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if slices.Contains(notOurs, rel) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return t.read(name, rel)
	})
	if err != nil {
		return nil, err
	}
	return t, t.parse()
}

func (t *tree) read(name, rel string) error {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a temporary of somebody who works in the tree
	}
	if err != nil {
		return err
	}
	f := file{path: rel, size: info.Size()}
	if f.size <= textMax {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f.text = string(text)
	}
	t.files = append(t.files, f)
	return nil
}

// parse makes packages of the Go files outside testdata.
func (t *tree) parse() error {
	fset := token.NewFileSet()
	byPath := map[string]*pkg{}
	for _, f := range t.files {
		dir := path.Dir(f.path)
		if path.Ext(f.path) != ".go" || slices.Contains(strings.Split(dir, "/"), "testdata") {
			continue
		}
		syntax, err := parser.ParseFile(fset, f.path, f.text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if byPath[dir] == nil {
			byPath[dir] = &pkg{path: dir}
			t.packages = append(t.packages, byPath[dir])
		}
		p := byPath[dir]
		p.files = append(p.files, &goFile{
			path: f.path, pkg: p, fset: fset, ast: syntax,
			test:      strings.HasSuffix(f.path, "_test.go"),
			generated: ast.IsGenerated(syntax),
			lines:     strings.Count(f.text, "\n"),
		})
	}
	for _, p := range t.packages {
		p.info = p.resolve(fset)
	}
	slices.SortFunc(t.packages, func(a, b *pkg) int { return strings.Compare(a.path, b.path) })
	return nil
}

// check is one agreement about the tree.
type check struct {
	name string
	find func(*tree) []finding
}

// checks lists all of them but those that build (build_test.go).
func checks() []check {
	return []check{
		{"imports", imports},
		{"sizes", sizes},
		{"package-comments", packageComments},
		{"documented", documented},
		{"names", names},
		{"calls", calls},
		{"context-fields", contextFields},
		{"global-state", globalState},
		{"not-implemented", notImplemented},
		{"case-tests", caseTests},
		{"leftovers", leftovers},
		{"places", places},
		{"large-files", largeFiles},
		{"links", links},
		{"paths-in-architecture", architecturePaths},
		{"reason-pages", reasonPages},
		{"glossary", glossary},
		{"dependencies", dependencies},
	}
}

// TestTree puts every check to the repository.
func TestTree(t *testing.T) {
	repo, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) { report(t, c.find(repo)) })
	}
	t.Run("agent", testAgent)
	t.Run("ports", testPorts)
}

func report(t *testing.T, findings []finding) {
	t.Helper()
	for _, f := range findings {
		if f.warning {
			t.Logf("warning: %v", f)
		} else {
			t.Errorf("%v", f)
		}
	}
}

// String says where and what, as compilers do.
func (f finding) String() string {
	if f.line == 0 {
		return f.path + ": " + f.message
	}
	return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.message)
}
