package held

import (
	"errors"
	"slices"
	"strings"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// DataOf is what the layers of a catalog want of a key: the data of the highest priority of which the TTL is not over. The errors are
// ResourceUnknown where no layer has it, ResourceExpired where some have had it, PriorityConflict, StateCorrupt and those of the disk.
func (s *Store) DataOf(root catalog.Digest, key string, p catalog.Proof) (catalog.Datum, error) {
	list, err := s.Catalog(root)
	if err != nil {
		return catalog.Datum{}, err
	}
	var wants []catalog.Datum
	var priorities []int
	var expired error
	for _, l := range list {
		if !l.Config() {
			continue
		}
		body, err := s.Body(l.Root, catalog.KeyOf(catalog.DataClaim(key)))
		if err != nil {
			return catalog.Datum{}, err
		}
		if body == nil {
			if _, err := s.whole(l.Root); err != nil {
				return catalog.Datum{}, err
			}
			continue
		}
		d, err := datum(l.ID, key, body)
		if err != nil {
			return catalog.Datum{}, err
		}
		if ttl := catalog.TTLOf(body); p.Expired(ttl) {
			expired = p.Unheard("look up data "+key, ttl)
			continue
		}
		wants, priorities = append(wants, d), append(priorities, l.Priority)
	}
	if len(wants) == 0 && expired != nil {
		return catalog.Datum{}, expired
	}
	if len(wants) == 0 {
		return catalog.Datum{}, &reason.Error{Code: reason.ResourceUnknown, Doing: "look up data " + key, Cause: errors.New("nothing of that key is declared for this host")}
	}
	return catalog.ResolveData(wants, priorities)
}

func datum(config, key string, body []byte) (catalog.Datum, error) {
	d, err := catalog.DecodeBody(catalog.KeyOf(catalog.DataClaim(key)), body)
	switch {
	case err != nil:
		return catalog.Datum{}, err
	case d.Unsupported != nil:
		return catalog.Datum{}, d.Unsupported
	}
	return catalog.Datum{Config: config, TTL: d.Resource.TTL, Data: *d.Resource.Data}, nil
}

// data calls take with the body of each entry of a layer that is delivered, in no order that anybody knows. The errors are those of Rows.
func (s *Store) data(root catalog.Digest, take func(body []byte) error) error {
	trie, err := s.whole(root)
	if err != nil {
		return err
	}
	for row, err := range trie.From(catalog.Digest{}) {
		if err != nil {
			return err
		}
		body, err := s.Body(root, row.Key)
		if err != nil {
			return err
		}
		if body == nil {
			return absent(root)
		}
		if !catalog.Delivered(body) {
			continue
		}
		if err := take(body); err != nil {
			return err
		}
	}
	return nil
}

// whole is the trie of a layer that must be here.
func (s *Store) whole(root catalog.Digest) (catalog.Trie, error) {
	trie, found, err := s.Trie(root)
	if err == nil && !found {
		err = absent(root)
	}
	return trie, err
}

func absent(root catalog.Digest) error {
	return &reason.Error{Code: reason.StateCorrupt, Doing: "read layer " + root.String(), Cause: errors.New("it is not here"),
		Hint: "it is fetched again when a server can be reached"}
}

// Keys lists keys of the data in a catalog that begin with a prefix and come after another key, and of which a TTL is not over, in their order:
// at most so many, which it keeps in memory while it looks at all.
func (s *Store) Keys(root catalog.Digest, prefix, after string, atMost int, p catalog.Proof) ([]string, error) {
	list, err := s.Catalog(root)
	if err != nil {
		return nil, err
	}
	first := FirstKeys{AtMost: atMost}
	for _, l := range list {
		if !l.Config() {
			continue
		}
		err := s.data(l.Root, func(body []byte) error {
			if key, is := catalog.DataKey(catalog.ClaimOf(body)); is && strings.HasPrefix(key, prefix) && key > after && !p.Expired(catalog.TTLOf(body)) {
				first.Add(key)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return first.Sorted(), nil
}

// FirstKeys collects the first of many keys in their order, each once.
type FirstKeys struct {
	AtMost int
	keys   []string // may have twice as many, and some twice
	last   string   // of the first so many, once there were as many
}

// Add takes a key.
func (f *FirstKeys) Add(key string) {
	if f.last != "" && key >= f.last {
		return
	}
	if f.keys = append(f.keys, key); len(f.keys) >= 2*f.AtMost {
		f.cut()
	}
}

func (f *FirstKeys) cut() {
	slices.Sort(f.keys)
	f.keys = slices.Compact(f.keys)
	if len(f.keys) >= f.AtMost {
		f.keys = f.keys[:f.AtMost]
		f.last = f.keys[f.AtMost-1]
	}
}

// Sorted is what there is of the first.
func (f *FirstKeys) Sorted() []string {
	f.cut()
	return f.keys
}

// Loss is what a catalog takes away of the data that the enforced one has delivered.
type Loss struct {
	All, Deleted int
	Example      string // claim of some of what is deleted
}

// Losing compares a catalog with the one that is enforced. Of one that cannot be read any more, nothing is known to be lost.
func (s *Store) Losing(next catalog.Digest) Loss {
	life := s.Life()
	if life.Delivered == 0 || life.Enforced.Root == next {
		return Loss{}
	}
	deleted, example, err := s.Lost(life.Enforced.Root, next)
	if err != nil {
		return Loss{}
	}
	return Loss{All: int(life.Delivered), Deleted: deleted, Example: example}
}

// Lost counts the data that one catalog has and another has not, and names one of it. Both must be here. What several layers have had
// counts for each.
func (s *Store) Lost(was, is catalog.Digest) (deleted int, example string, err error) {
	before, err := s.Catalog(was)
	if err != nil {
		return 0, "", err
	}
	after, err := s.Catalog(is)
	if err != nil {
		return 0, "", err
	}
	for _, l := range before {
		if !l.Config() || slices.ContainsFunc(after, func(x catalog.Layer) bool { return x.Root == l.Root }) {
			continue
		}
		err := s.gone(l, after, func(key catalog.Digest, claim string) error {
			for _, x := range after {
				body, err := s.Body(x.Root, key)
				if err != nil || body != nil {
					return err
				}
			}
			deleted, example = deleted+1, claim
			return nil
		})
		if err != nil {
			return 0, "", err
		}
	}
	return deleted, example, nil
}

// gone calls found with what of the data of a layer the one of the same ID in another catalog has not.
func (s *Store) gone(l catalog.Layer, after catalog.List, found func(key catalog.Digest, claim string) error) error {
	base, err := s.whole(l.Root)
	if err != nil {
		return err
	}
	var target catalog.Trie
	if i := slices.IndexFunc(after, func(x catalog.Layer) bool { return x.ID == l.ID }); i >= 0 {
		if target, err = s.whole(after[i].Root); err != nil {
			return err
		}
	}
	for c, err := range catalog.Difference(base, target, catalog.Digest{}) {
		if err != nil {
			return err
		}
		if !c.Deleted {
			continue
		}
		body, err := s.Body(l.Root, c.Key)
		if err != nil {
			return err
		}
		claim := catalog.ClaimOf(body)
		if _, is := catalog.DataKey(claim); !is {
			continue
		}
		if err := found(c.Key, claim); err != nil {
			return err
		}
	}
	return nil
}
