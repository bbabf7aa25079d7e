package sim

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/trust"
)

// layer is a layer at one root, with all that is in it.
type layer struct {
	id     string
	trie   catalog.Trie
	bodies map[catalog.Digest][]byte
	bytes  uint64
}

// layerOf makes a layer of items.
func layerOf(id string, items []catalog.Item) *layer {
	l := &layer{id: id, trie: catalog.TrieOf(items), bodies: make(map[catalog.Digest][]byte, len(items))}
	for i := range items {
		l.bodies[sha256.Sum256(items[i].Body)] = items[i].Body
		l.bytes += uint64(len(items[i].Body))
	}
	return l
}

// signedRoot is what one head says.
type signedRoot struct {
	node           string
	epoch, version uint64
	root           catalog.Digest
}

// truth is what people and servers have said: what a host may have is measured by it, and no machine of the world reads it but for
// contents, which the store keeps for ever.
type truth struct {
	layers map[catalog.Digest]*layer         // by root
	lists  map[catalog.Digest]catalog.List   // by root
	signed map[signedRoot]bool               // by whoever has the key
	told   map[catalog.Digest][]orderOf      // statements, by the root of their layer
	parsed map[catalog.Digest]decodedContent // of layers that were verified: reading one again gives the same
	chains map[span]*trust.Chain             // that were verified, for the same reason
}

// span is which trust documents a chain was extended by.
type span struct {
	from *trust.Chain
	to   trust.Hash
}

// extend extends a chain, as a host does.
func (t *truth) extend(c *trust.Chain, later []trust.Signed) (*trust.Chain, error) {
	if len(later) == 0 {
		return c, nil
	}
	last := later[len(later)-1]
	s := span{c, must(last.Document.Hash())}
	if longer := t.chains[s]; longer != nil {
		return longer, nil
	}
	longer, err := c.Extend(later)
	if err == nil {
		t.chains[s] = longer
	}
	return longer, err
}

// orderOf is a statement of an operator.
type orderOf struct {
	catalog.Statement
	signed []byte
}

// decodedContent is what a host reads in a layer.
type decodedContent struct {
	acting []catalog.Desired
	poison bool // it kills who reads it
}

func newTruth() truth {
	return truth{
		layers: map[catalog.Digest]*layer{}, lists: map[catalog.Digest]catalog.List{}, signed: map[signedRoot]bool{},
		told: map[catalog.Digest][]orderOf{}, parsed: map[catalog.Digest]decodedContent{}, chains: map[span]*trust.Chain{},
	}
}

// poisonPath is of a resource that the program dies of when it reads it.
const poisonPath = "/srv/poison"

// config is what people declare, as it stands: the resources of one layer.
type config struct {
	id       string
	priority int
	files    []string // contents by number; empty: none
	data     int      // how many values of data it delivers, and
	stamp    int      // which
	service  bool
	poison   bool
}

// resources are those of a config.
func (c *config) resources() []declare.Resource {
	var all []declare.Resource
	for i, text := range c.files {
		if text == "" {
			continue
		}
		r := declare.Resource{Name: fmt.Sprint("f", i), OnRemove: declare.OnRemoveDelete,
			File: &declare.File{Path: fmt.Sprintf("/srv/%s/f%d", c.short(), i), Content: text}}
		switch {
		case i == 0: // one path that all configs want
			r.File.Path = "/srv/shared"
		case i%3 == 1 && c.service:
			r.Notify = []string{"s"}
		case i%3 == 2 && c.files[i-1] != "":
			r.Require = []string{fmt.Sprint("f", i-1)}
		}
		switch i % 4 {
		case 0: // the path that all configs want is one of them
			r.TTL = ttlLong
		case 2:
			r.TTL = ttlShort
		}
		all = append(all, r)
	}
	if c.service {
		all = append(all, declare.Resource{Name: "s", Service: &declare.Service{Unit: c.short() + ".service"}})
	}
	if c.poison {
		all = append(all, declare.Resource{Name: "poison", OnRemove: declare.OnRemoveDelete, File: &declare.File{Path: poisonPath}})
	}
	return all
}

func (c *config) short() string { return c.id[strings.LastIndexByte(c.id, '/')+1:] }

// compile makes the layer of a config.
func (c *config) compile() *layer {
	items := must(catalog.Compile(c.resources()))
	for i := range c.data {
		stamp := c.stamp
		if i%7 != 0 {
			stamp = 0 // most of it stays as it is
		}
		items = append(items, must(catalog.DataItem(&declare.Data{Key: fmt.Sprintf("%s.d%d", c.short(), i), Value: fmt.Sprintf("value %d", stamp)})))
	}
	return layerOf(c.id, items)
}
