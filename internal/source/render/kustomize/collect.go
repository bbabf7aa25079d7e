package kustomize

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Limits bound what one Collect walks over.
type Limits struct {
	Files     int   // all files together; default 100,000
	FileBytes int64 // of one file; default 1 MiB, that of an object that etcd stores
	TreeBytes int64 // of all files together; default 256 MiB
	Objects   int   // that may be made, of bases that are included twice twice; default 20,000
	Depth     int   // of kustomizations that include each other; default 32
}

func (l Limits) withDefaults() Limits {
	fill(&l.Files, 100_000)
	fill(&l.FileBytes, 1<<20)
	fill(&l.TreeBytes, 256<<20)
	fill(&l.Objects, 20_000)
	fill(&l.Depth, 32)
	return l
}

func fill[N int | int64](n *N, value N) {
	if *n == 0 {
		*n = value
	}
}

// Tree is what kustomizations need: the directories to build, and every file that one of them names.
type Tree struct {
	Roots []string
	Files map[string][]byte // nil until Load has read it

	kustomizations map[string]*kustomization // by directory
	limits         Limits
}

// kustomization is one that was walked over.
type kustomization struct {
	file      string
	component bool
	resources []string // files with objects
	included  []string // directories
	root      *yaml.Node
}

// Collect walks over kustomizations and all that they name. It reads the kustomizations only: Load reads the rest. With a
// fault the tree must not be built.
func Collect(view fs.FS, roots []string, limits Limits) (*Tree, []declare.Fault) {
	c := collector{view: view, tree: &Tree{Roots: roots, Files: map[string][]byte{}, kustomizations: map[string]*kustomization{}, limits: limits.withDefaults()}}
	for _, root := range roots {
		c.visit(root, nil)
	}
	return c.tree, declare.SortFaults(c.faults)
}

type collector struct {
	view   fs.FS
	tree   *Tree
	faults []declare.Fault
}

// visit walks over one directory. The way to it is the list of directories that include it.
func (c *collector) visit(dir string, way []string) {
	if c.tree.kustomizations[dir] != nil || len(way) > c.tree.limits.Depth {
		return // the second is told by the one that includes it
	}
	names := FileOf(c.view, dir)
	if len(names) != 1 {
		c.fault(declare.Fault{Code: reason.KustomizationFailed, File: dir, Message: fmt.Sprintf("one kustomization must stand in the directory, and there are %d", len(names)),
			Hint: "kustomization.yaml is its name"})
		return
	}
	file := join(dir, names[0])
	k, node := c.read(file)
	if k == nil {
		return
	}
	one := &kustomization{file: file, component: k.Kind == types.ComponentKind, root: node}
	c.tree.kustomizations[dir] = one
	for _, field := range programs(k) {
		c.at(one, field, -1, declare.Fault{Code: reason.KustomizationRefused, Path: field, Message: fmt.Sprintf("%s starts a program, and none is started for a Source", field),
			Hint: "commit what it makes, and name that under resources"})
	}
	for _, r := range references(k) {
		c.follow(one, dir, r, append(way[:len(way):len(way)], dir))
	}
}

// read reads a kustomization as the library does, and for the places of its fields as a tree.
func (c *collector) read(file string) (*types.Kustomization, *yaml.Node) {
	data, err := ReadFile(c.view, file, c.tree.limits.FileBytes)
	if err != nil {
		c.fault(unread(file, err))
		return nil, nil
	}
	c.tree.Files[file] = data
	var k types.Kustomization
	document, err := yaml.Parse(string(data))
	if err == nil {
		if at := aliasOf(document.YNode()); at != nil {
			c.fault(declare.Fault{Code: reason.AnchorRefused, File: file, Line: at.Line, Column: at.Column, Message: "aliases are not read in a kustomization", Hint: "write the value out"})
			return nil, nil
		}
		err = k.Unmarshal(data)
	}
	if err != nil {
		c.fault(declare.Fault{Code: reason.KustomizationFailed, File: file, Line: 1, Column: 1, Message: oneLine(err.Error())})
		return nil, nil
	}
	return &k, document.YNode()
}

// aliasOf finds an alias: a few of them can stand for more than fits any memory.
func aliasOf(n *yaml.Node) *yaml.Node {
	if n == nil || n.Kind == yaml.AliasNode {
		return n
	}
	for _, child := range n.Content {
		if at := aliasOf(child); at != nil {
			return at
		}
	}
	return nil
}

// follow checks one path of a kustomization, and walks on where it leads.
func (c *collector) follow(from *kustomization, dir string, r reference, way []string) {
	refuse := func(code reason.Code, message, hint string) {
		c.at(from, r.field, r.index, declare.Fault{Code: code, Path: r.field, Message: message, Hint: hint})
	}
	name := join(dir, r.path)
	switch {
	case isRemote(r.path):
		refuse(reason.KustomizationRefused, fmt.Sprintf("%q is not in this repository, and nothing is fetched for a Source", shown(r.path)),
			"commit a copy; a directory whose name looks like an address is written with ./ before it")
		return
	case strings.HasPrefix(r.path, "/"), name == "..", strings.HasPrefix(name, "../"):
		refuse(reason.KustomizationRefused, fmt.Sprintf("%q leads out of the repository", shown(r.path)), "write a path relative to the kustomization")
		return
	case !fs.ValidPath(name), strings.ContainsFunc(r.path, func(c rune) bool { return c < 0x20 || c == 0x7f }):
		refuse(reason.InvalidValue, fmt.Sprintf("%q is no path", shown(r.path)), "")
		return
	}
	info, err := fs.Stat(c.view, name)
	switch {
	case err != nil:
		refuse(reason.DeclarationUnread, fmt.Sprintf("%s: %v", name, cause(err)), unread(name, err).Hint)
	case info.IsDir() && r.want == wantFile:
		refuse(reason.InvalidValue, fmt.Sprintf("%s is a directory, and a file must stand here", name), "")
	case info.IsDir() && slices.Contains(way, name):
		refuse(reason.DependencyCycle, fmt.Sprintf("%s includes itself: %s", name, strings.Join(append(way, name), " -> ")), "take one of these references out")
	case info.IsDir() && len(way) > c.tree.limits.Depth:
		refuse(reason.RenderLimit, fmt.Sprintf("kustomizations include each other more than %d deep", c.tree.limits.Depth), "")
	case info.IsDir():
		from.included = append(from.included, name)
		c.visit(name, way)
	case r.want == wantDir || !info.Mode().IsRegular():
		refuse(reason.InvalidValue, fmt.Sprintf("%s is no directory with a kustomization", name), "")
	case dir != "." && !strings.HasPrefix(name, dir+"/"):
		refuse(reason.KustomizationRefused, fmt.Sprintf("%s is not below %s, the directory of the kustomization", name, dir), "as for `kustomize build`: name the directory instead, with a kustomization of its own")
	default:
		if r.want == wantEither {
			from.resources = append(from.resources, name)
		}
		if _, ok := c.tree.Files[name]; !ok {
			c.tree.Files[name] = nil
		}
		if len(c.tree.Files) == c.tree.limits.Files+1 {
			refuse(reason.RenderLimit, fmt.Sprintf("more than %d files are named", c.tree.limits.Files), "split the Source into several")
		}
	}
}

// at records a fault with the place of a field of a kustomization, or of an item of it.
func (c *collector) at(k *kustomization, field string, index int, f declare.Fault) {
	f.File = k.file
	f.Line, f.Column = k.place(field, index)
	c.fault(f)
}

// faultsMax bounds what is told of one tree.
const faultsMax = 1000

func (c *collector) fault(f declare.Fault) {
	if len(c.faults) < faultsMax {
		c.faults = append(c.faults, f)
	}
}

// place finds a field of a kustomization, whose name the library reads in any letter case, and an item of it.
func (k *kustomization) place(field string, index int) (line, column int) {
	n := k.root
	if n != nil && n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	if n == nil || n.Kind != yaml.MappingNode {
		return 1, 1
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key, value := n.Content[i], n.Content[i+1]; strings.EqualFold(key.Value, field) {
			if index >= 0 && value.Kind == yaml.SequenceNode && index < len(value.Content) {
				key = value.Content[index]
			}
			return key.Line, key.Column
		}
	}
	return 1, 1
}

// join is a path in the tree; "." is its root, and what begins with ".." is outside.
func join(dir, name string) string { return path.Join(dir, name) }

func shown(path string) string {
	if r := []rune(path); len(r) > 200 {
		return string(r[:200]) + "…"
	}
	return path
}

func oneLine(text string) string {
	return shown(strings.Join(strings.Fields(text), " "))
}
