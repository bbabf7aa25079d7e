// Package intern has what stored objects say in the same words in memory once. A watch cache holds every object, and of those that change several versions,
// each decoded from text of its own; but most of their strings are the same: names and UIDs of owners, nodes and revisions, labels, reasons. The strings of
// a hundred thousand instances are a third of what the server has of them, and the collector goes through all of them again and again.
package intern

import (
	"hash/maphash"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// longest is how many bytes a string has at most that is looked up. A longer one is a text of somebody's, which is seldom said twice.
	longest = 128
	// shards is how many parts of the strings can be looked up at once.
	shards = 64
	// slots is how many strings each of them has at hand, a megabyte of places in all: what tens of thousands of objects have in common goes on being
	// found, though each of them brings a name and a UID that nobody else has.
	slots = 1024
)

// Codec is a codec whose decoded objects share their strings with others that were decoded lately.
func Codec(c runtime.Codec, strings *Strings) runtime.Codec { return &codec{c, strings} }

type codec struct {
	runtime.Codec
	strings *Strings
}

// Decode decodes an object.
func (c *codec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, kind, err := c.Codec.Decode(data, defaults, into)
	if err == nil {
		c.strings.Share(o)
	}
	return o, kind, err
}

// Strings has objects share their strings. It has those at hand that came last, and lets the others go: package unique forgets a string as soon as the
// collector has run and nobody has its handle, which would be as much again as the string.
type Strings struct {
	walks  sync.Map // by reflect.Type, nil of one that has no strings; what it keeps is of types, not of objects
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	sync.Mutex
	slots [slots]string // by hash
}

// New has nothing at hand yet.
func New() *Strings { return &Strings{seed: maphash.MakeSeed()} }

// Share puts equal strings that are shared in the place of those of an object that nobody else has yet. What is behind an interface, and what the
// object's package alone can see, stays as it is.
func (s *Strings) Share(o runtime.Object) {
	if v := reflect.ValueOf(o); v.IsValid() {
		if w := s.of(v.Type()); w != nil {
			w.visit(v)
		}
	}
}

func (s *Strings) of(t reflect.Type) *walk {
	if w, ok := s.walks.Load(t); ok {
		return w.(*walk)
	}
	// Another one may do the same at the same time, with the same end.
	w := plans{strings: s, walks: map[reflect.Type]*walk{}}.of(t)
	s.walks.Store(t, w)
	return w
}

// shared is a string that equals text, the same one as before if that is still at hand.
func (s *Strings) shared(text string) string {
	if text == "" || len(text) > longest {
		return text
	}
	hash := maphash.String(s.seed, text)
	at := &s.shards[hash%shards]
	at.Lock()
	defer at.Unlock()
	slot := &at.slots[hash/shards%slots]
	if *slot != text {
		*slot = text
	}
	return *slot
}

// walk visits the values of one type.
type walk struct{ visit func(reflect.Value) }

// plans are the walks of the types that one consists of. A type within itself is found here while its walk is being made.
type plans struct {
	strings *Strings
	walks   map[reflect.Type]*walk
}

func (p plans) of(t reflect.Type) *walk {
	if w, ok := p.walks[t]; ok {
		return w
	}
	w := &walk{}
	p.walks[t] = w
	if w.visit = p.visit(t); w.visit == nil {
		p.walks[t] = nil
		return nil
	}
	return w
}

func (p plans) visit(t reflect.Type) func(reflect.Value) {
	switch t.Kind() {
	case reflect.String:
		return func(v reflect.Value) { v.SetString(p.strings.shared(v.String())) }
	case reflect.Pointer:
		return p.pointer(t)
	case reflect.Slice, reflect.Array:
		return p.members(t)
	case reflect.Map:
		return p.entries(t)
	case reflect.Struct:
		return p.fields(t)
	default:
		return nil
	}
}

func (p plans) pointer(t reflect.Type) func(reflect.Value) {
	w := p.of(t.Elem())
	if w == nil {
		return nil
	}
	return func(v reflect.Value) {
		if !v.IsNil() {
			w.visit(v.Elem())
		}
	}
}

func (p plans) members(t reflect.Type) func(reflect.Value) {
	w := p.of(t.Elem())
	if w == nil {
		return nil
	}
	return func(v reflect.Value) {
		for i := range v.Len() {
			w.visit(v.Index(i))
		}
	}
}

func (p plans) fields(t reflect.Type) func(reflect.Value) {
	type field struct {
		at int
		*walk
	}
	var fields []field
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			if w := p.of(f.Type); w != nil {
				fields = append(fields, field{i, w})
			}
		}
	}
	if fields == nil {
		return nil
	}
	return func(v reflect.Value) {
		for _, f := range fields {
			f.visit(v.Field(f.at))
		}
	}
}

// entries visits those of a map, which are no variables: each is put back. Keys with the same strings are the same keys.
func (p plans) entries(t reflect.Type) func(reflect.Value) {
	if t == reflect.TypeFor[map[string]string]() {
		return func(v reflect.Value) { p.strings.pairs(*v.Addr().Interface().(*map[string]string)) }
	}
	key, value := p.of(t.Key()), p.of(t.Elem())
	if key == nil && value == nil {
		return nil
	}
	return func(v reflect.Value) {
		for entries := v.MapRange(); entries.Next(); {
			k, e := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
			k.Set(entries.Key())
			e.Set(entries.Value())
			if key != nil {
				key.visit(k)
			}
			if value != nil {
				value.visit(e)
			}
			v.SetMapIndex(k, e)
		}
	}
}

// pairs are by far the most maps: labels and annotations.
func (s *Strings) pairs(m map[string]string) {
	for k, v := range m {
		m[s.shared(k)] = s.shared(v)
	}
}
