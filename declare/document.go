package declare

import (
	"strconv"
	"strings"
)

// Document is one declaration as it stands in a file.
type Document struct {
	File string
	// Config is what it declares; nil where ReadAs has read it.
	Config *NodeConfig
	// Positions says where each field stands. A caller that has finished with faults drops it by setting it to nil: it
	// costs about a hundred bytes for each resource.
	Positions *Positions

	incomplete bool     // not all names of resources could be read, so a reference to nothing proves nothing
	broken     []string // paths that Read has found a mistake in
}

// Place returns where a field stands, or its nearest parent that stands in the file. A document without positions knows
// the file only.
func (d *Document) Place(path string) Place {
	p := Place{File: d.File, Path: path}
	if d.Positions != nil {
		p.Line, p.Column = d.Positions.Find(path)
	}
	return p
}

// Locate fills in the file, line and column of faults, and of their related places, that carry a path only.
func (d *Document) Locate(faults []Fault) []Fault {
	for i := range faults {
		f := &faults[i]
		if f.Line == 0 {
			p := d.Place(f.Path)
			f.File, f.Line, f.Column = p.File, p.Line, p.Column
		}
		for j := range f.Related {
			if r := &f.Related[j]; r.Line == 0 && (r.File == "" || r.File == d.File) {
				p := d.Place(r.Path)
				r.File, r.Line, r.Column = p.File, p.Line, p.Column
			}
		}
	}
	return faults
}

// Positions maps field paths to lines and columns. It is two forests in preorder: the document without its resources, and
// the resources, one root each, so that a resource is found by its index and a field by a walk over a few siblings. A
// node takes 16 bytes.
type Positions struct {
	names     []string
	ids       map[string]int32
	nodes     []position
	resources []int32 // the root of each resource in nodes
}

// position is a node: its key (an index into names, or -1 minus the index in a list), the end of its subtree, its place.
type position struct {
	key, end, line, column int32
}

const rootKey = -1 << 31

func newPositions() *Positions { return &Positions{ids: map[string]int32{}} }

// openField and openItem begin a node; close ends it. Between them its children are opened and closed.
func (p *Positions) openField(name string, line, column int) int {
	id, ok := p.ids[name]
	if !ok {
		id = int32(len(p.names))
		name = strings.Clone(name) // the source text must not stay in memory for a key
		p.names = append(p.names, name)
		p.ids[name] = id
	}
	return p.open(id, line, column)
}

func (p *Positions) openItem(index, line, column int) int {
	return p.open(int32(-1-index), line, column)
}

func (p *Positions) openRoot(line, column int) int { return p.open(rootKey, line, column) }

func (p *Positions) openResource(line, column int) int {
	p.resources = append(p.resources, int32(len(p.nodes)))
	return p.open(rootKey, line, column)
}

func (p *Positions) open(key int32, line, column int) int {
	p.nodes = append(p.nodes, position{key: key, line: int32(line), column: int32(column)})
	return len(p.nodes) - 1
}

func (p *Positions) close(node int) { p.nodes[node].end = int32(len(p.nodes)) }

// Find returns line and column of a path, or of its nearest parent that is there; 0, 0 for an empty document.
func (p *Positions) Find(path string) (line, column int) {
	if len(p.nodes) == 0 {
		return 0, 0
	}
	at := 0
	if index, rest, ok := cutResource(path); ok && index < len(p.resources) {
		at, path = int(p.resources[index]), rest
	}
	for path != "" {
		var key int32
		var ok bool
		key, path, ok = p.cutKey(path)
		if !ok {
			break
		}
		child := p.child(at, key)
		if child < 0 {
			break
		}
		at = child
	}
	return int(p.nodes[at].line), int(p.nodes[at].column)
}

func (p *Positions) child(parent int, key int32) int {
	for i := int32(parent) + 1; i < p.nodes[parent].end; i = p.nodes[i].end {
		if p.nodes[i].key == key {
			return int(i)
		}
	}
	return -1
}

// cutResource splits spec.resources[3].file.path into 3 and file.path.
func cutResource(path string) (index int, rest string, ok bool) {
	s, ok := strings.CutPrefix(path, "spec.resources[")
	if !ok {
		return 0, "", false
	}
	digits, rest, ok := strings.Cut(s, "]")
	index, err := strconv.Atoi(digits)
	return index, strings.TrimPrefix(rest, "."), ok && err == nil && index >= 0
}

// cutKey takes the first element off a path: name, [3] or ['any key'].
func (p *Positions) cutKey(path string) (key int32, rest string, ok bool) {
	if s, found := strings.CutPrefix(path, "['"); found {
		name, rest, found := strings.Cut(s, "']")
		key, known := p.ids[name]
		return key, strings.TrimPrefix(rest, "."), found && known
	}
	if s, found := strings.CutPrefix(path, "["); found {
		digits, rest, _ := strings.Cut(s, "]")
		index, err := strconv.Atoi(digits)
		return int32(-1 - index), strings.TrimPrefix(rest, "."), err == nil
	}
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		end = len(path)
	}
	key, known := p.ids[path[:end]]
	return key, strings.TrimPrefix(path[end:], "."), known
}

// indexPath and keyPath write one step of a path; fields are joined with a dot.
func indexPath(parent string, index int) string { return parent + "[" + strconv.Itoa(index) + "]" }

func keyPath(parent, key string) string { return parent + "['" + key + "']" }

// ResourcePath is the path of the resource with an index, for Place.
func ResourcePath(index int) string { return indexPath("spec.resources", index) }
