package declare

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	yamltoken "github.com/goccy/go-yaml/token"

	"tako.dev/tako/internal/reason"
)

// decoder turns the syntax tree of one document into typed values. It is told every field by the json tags, notes where
// each stands, and goes on after every mistake.
type decoder struct {
	r         *reader
	at        func(line int) int // a line of the section that is being decoded, as a line of the file
	positions *Positions
	fields    map[reflect.Type]*fieldTable
	path      []step
	// apart says that the items of spec.resources were taken out of the tree and come through resourceItems.
	apart      bool
	pending    ast.Node // spec.resources, when it was not taken out
	incomplete bool     // the name of a resource could not be read
	broken     []string // paths of the mistakes
}

// step is one element of a path: a field, a key of a map, or an item of a list.
type step struct {
	name  string
	kind  stepKind
	index int
}

type stepKind uint8

const (
	stepField stepKind = iota
	stepKey
	stepItem
)

// fieldTable is what a struct type takes, by the names of its json tags.
type fieldTable struct {
	names    []string
	index    map[string][]int // within the struct, as reflect counts
	required []string         // without omitempty or omitzero
}

func newDecoder(r *reader, apart bool) *decoder {
	return &decoder{r: r, positions: newPositions(), fields: map[reflect.Type]*fieldTable{}, apart: apart}
}

func (d *decoder) table(t reflect.Type) *fieldTable {
	if table, ok := d.fields[t]; ok {
		return table
	}
	table := &fieldTable{index: map[string][]int{}}
	for _, field := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if options == "inline" {
			continue // its fields come by themselves
		}
		table.names = append(table.names, name)
		table.index[name] = field.Index
		if options == "" {
			table.required = append(table.required, name)
		}
	}
	d.fields[t] = table
	return table
}

func (d *decoder) pathString() string {
	var b strings.Builder
	for _, s := range d.path {
		switch s.kind {
		case stepItem:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case stepKey:
			b.WriteString("['" + s.name + "']")
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.name)
		}
	}
	return b.String()
}

// fault records a mistake at a token.
func (d *decoder) fault(t *yamltoken.Token, code reason.Code, message, hint string) *Fault {
	line, column := d.placeOf(t)
	path := d.pathString()
	d.broke(path)
	return d.r.fault(Fault{Code: code, Line: line, Column: column, Path: path, Message: message, Hint: hint})
}

// broke notes the path of a mistake, as many as faults are kept.
func (d *decoder) broke(path string) {
	if len(d.broken) < faultsMax {
		d.broken = append(d.broken, path)
	}
}

func (d *decoder) placeOf(t *yamltoken.Token) (line, column int) {
	if t == nil || t.Position == nil {
		return d.at(1), 1
	}
	return d.at(max(t.Position.Line, 1)), max(t.Position.Column, 1)
}

// document decodes a whole document; false if it is of a kind that this package does not know, which is said once and
// nothing else about it.
func (d *decoder) document(body ast.Node) (*NodeConfig, bool) {
	if body = plain(body); body == nil {
		return nil, false // an alias, refused on its token already
	}
	pairs, ok := pairsOf(body)
	if !ok {
		d.fault(body.GetToken(), reason.WrongType, "found "+describeNode(body)+" where a declaration must stand", "a declaration begins with apiVersion: "+APIVersion)
		return nil, false
	}
	if !d.header(pairs) {
		return nil, false
	}
	config := &NodeConfig{}
	d.value(body, reflect.ValueOf(config).Elem(), firstToken(body))
	if d.pending != nil {
		config.Spec.Resources = []Resource{} // an empty list is not a missing one
		d.resourceItems(d.pending, config)
	}
	return config, true
}

// header looks at kind and apiVersion before everything else, because they say what the rest is.
func (d *decoder) header(pairs []*ast.MappingValueNode) bool {
	known := true
	for _, p := range pairs {
		text, ok := p.Value.(*ast.StringNode)
		if !ok {
			continue
		}
		switch keyText(p.Key) {
		case "kind":
			if kinds := []string{KindNodeConfig, KindClusterNodeConfig}; !slices.Contains(kinds, text.Value) {
				d.path = []step{{name: "kind"}}
				d.fault(text.GetToken(), reason.UnknownKind, fmt.Sprintf("unknown kind %q", clipText(text.Value)), didYouMean(text.Value, kinds))
				known = false
			}
		case "apiVersion":
			if text.Value != APIVersion {
				d.path = []step{{name: "apiVersion"}}
				d.fault(text.GetToken(), reason.UnknownAPIVersion, fmt.Sprintf("unknown apiVersion %q", clipText(text.Value)), "write "+APIVersion)
			}
		}
	}
	d.path = nil
	return known
}

// value decodes a node into a Go value. The token is where the value is said to stand.
func (d *decoder) value(node ast.Node, v reflect.Value, at *yamltoken.Token) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	pairs, isMapping := pairsOf(node)
	switch v.Kind() {
	case reflect.Struct:
		if isMapping {
			d.structure(pairs, v, at)
			return
		}
	case reflect.Map:
		if isMapping {
			d.textMap(pairs, v)
			return
		}
	case reflect.Slice:
		if list, ok := node.(*ast.SequenceNode); ok {
			d.list(list, v)
			return
		}
	default:
		if d.scalar(node, v) {
			return
		}
	}
	d.wrongType(node, v.Type(), at)
}

// structure decodes the fields of a struct.
func (d *decoder) structure(pairs []*ast.MappingValueNode, v reflect.Value, at *yamltoken.Token) {
	table := d.table(v.Type())
	root := -1
	if len(d.path) == 0 {
		root = d.positions.openRoot(d.placeOf(at))
	}
	meant := d.eachKey(pairs, v.Type(), func(name string, value ast.Node, keyAt *yamltoken.Token) {
		field := v.FieldByIndex(table.index[name])
		if field.Type() == reflect.TypeFor[[]Resource]() {
			d.resources(value, keyAt)
			return
		}
		d.value(value, field, keyAt)
	})
	for _, name := range table.required {
		if !slices.Contains(meant, name) {
			d.missing(name, at)
		}
	}
	if root >= 0 {
		d.positions.close(root)
	}
}

func (d *decoder) missing(name string, at *yamltoken.Token) {
	if name == "name" {
		d.incomplete = true
	}
	hint := map[string]string{
		"apiVersion": "write apiVersion: " + APIVersion,
		"kind":       "write kind: " + KindNodeConfig + " or kind: " + KindClusterNodeConfig,
		"resources":  "write resources: [] to declare nothing",
	}[name]
	what := "the declaration"
	if path := d.pathString(); path != "" {
		what = path
	}
	d.path = append(d.path, step{name: name})
	d.fault(at, reason.MissingField, fmt.Sprintf("%s has no %q", what, name), hint)
	d.path = d.path[:len(d.path)-1]
}

// eachKey goes over the pairs of a mapping, refuses a key that is given twice or, for a struct, unknown, and calls f for
// the others. It returns the names that were given or, misspelt, meant.
func (d *decoder) eachKey(pairs []*ast.MappingValueNode, t reflect.Type, f func(name string, value ast.Node, keyAt *yamltoken.Token)) (meant []string) {
	seen := make(map[string]*yamltoken.Token, len(pairs))
	kind := stepKey
	var names []string
	if t.Kind() == reflect.Struct {
		kind, names = stepField, d.table(t).names
	}
	for _, pair := range pairs {
		if _, merge := pair.Key.(*ast.MergeKeyNode); merge {
			continue // refused already, on its token
		}
		name, at := keyText(pair.Key), pair.Key.GetToken()
		d.path = append(d.path, step{name: name, kind: kind})
		first, twice := seen[name]
		switch {
		case twice:
			line, column := d.placeOf(first)
			f := d.fault(at, reason.DuplicateKey, fmt.Sprintf("key %q is given twice", clipText(name)), "keep one of them")
			f.Related = []Place{{File: d.r.file, Line: line, Column: column, Note: "first given here"}}
		case kind == stepField && !slices.Contains(names, name):
			d.fault(at, reason.UnknownField, fmt.Sprintf("unknown field %q", clipText(name)), d.unknownFieldHint(name, t, pairs))
			if near := nearest(name, names); near != "" {
				meant = append(meant, near)
				d.path[len(d.path)-1].name = near
				d.broke(d.pathString()) // so that nobody says that it is missing
				d.incomplete = d.incomplete || near == "name"
			}
		default:
			meant = append(meant, name)
			d.field(name, pair, f)
		}
		if !twice {
			seen[name] = at
		}
		d.path = d.path[:len(d.path)-1]
	}
	return meant
}

// unknownFieldHint knows misspelt fields, and those that belong one level deeper, into a field that is given.
func (d *decoder) unknownFieldHint(name string, t reflect.Type, pairs []*ast.MappingValueNode) string {
	table := d.table(t)
	if n := nearest(name, table.names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	for _, pair := range pairs {
		parent := keyText(pair.Key)
		i, ok := table.index[parent]
		if !ok {
			continue
		}
		inner := t.FieldByIndex(i).Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && slices.Contains(d.table(inner).names, name) {
			return fmt.Sprintf("%s belongs to %s: write it below, indented deeper", name, parent)
		}
	}
	return "fields here: " + joinWords(table.names)
}

func (d *decoder) field(name string, pair *ast.MappingValueNode, f func(string, ast.Node, *yamltoken.Token)) {
	value, at := plain(pair.Value), pair.Key.GetToken()
	place := at
	if _, null := value.(*ast.NullNode); isScalar(value) && !null {
		place = value.GetToken()
	}
	line, column := d.placeOf(place)
	node := d.positions.openField(name, line, column)
	if value == nil {
		d.broke(d.pathString()) // refused on its token already
	} else {
		f(name, value, at)
	}
	d.positions.close(node)
}

func (d *decoder) textMap(pairs []*ast.MappingValueNode, v reflect.Value) {
	m := make(map[string]string, len(pairs))
	d.eachKey(pairs, v.Type(), func(name string, value ast.Node, at *yamltoken.Token) {
		text := reflect.New(reflect.TypeFor[string]()).Elem()
		d.value(value, text, at)
		m[strings.Clone(name)] = text.String()
	})
	v.Set(reflect.ValueOf(m))
}

func (d *decoder) list(list *ast.SequenceNode, v reflect.Value) {
	v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
	for i, item := range list.Values {
		item = plain(item)
		if item == nil {
			continue
		}
		d.path = append(d.path, step{kind: stepItem, index: i})
		at := itemToken(list, i)
		line, column := d.placeOf(at)
		node := d.positions.openItem(i, line, column)
		d.value(item, v.Index(i), at)
		d.positions.close(node)
		d.path = d.path[:len(d.path)-1]
	}
}

// resources keeps spec.resources, where it stands in the tree, for after the rest of the document.
func (d *decoder) resources(node ast.Node, at *yamltoken.Token) {
	if _, empty := node.(*ast.NullNode); empty && d.apart {
		return
	}
	if _, ok := node.(*ast.SequenceNode); !ok {
		d.wrongType(node, reflect.TypeFor[[]Resource](), at)
		return
	}
	d.pending = node
}

// resourceItems decodes items of spec.resources, and appends them to the config.
func (d *decoder) resourceItems(node ast.Node, config *NodeConfig) {
	node = plain(node)
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		d.path = []step{{name: "spec"}, {name: "resources"}}
		d.wrongType(node, reflect.TypeFor[[]Resource](), firstToken(node))
		d.path = nil
		return
	}
	config.Spec.Resources = slices.Grow(config.Spec.Resources, len(list.Values))
	for i, item := range list.Values {
		index := len(config.Spec.Resources)
		config.Spec.Resources = append(config.Spec.Resources, Resource{})
		d.path = append(d.path[:0], step{name: "spec"}, step{name: "resources"}, step{kind: stepItem, index: index})
		at := itemToken(list, i)
		line, column := d.placeOf(at)
		root := d.positions.openResource(line, column)
		if item = plain(item); item == nil {
			d.broke(d.pathString()) // refused on its token already
			d.incomplete = true
		} else {
			d.value(item, reflect.ValueOf(&config.Spec.Resources[index]).Elem(), at)
		}
		d.positions.close(root)
	}
	d.path = nil
}
