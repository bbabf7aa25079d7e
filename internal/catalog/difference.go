package catalog

import (
	"bytes"
	"iter"
)

// Change is what becomes of one row on the way from one trie to another.
type Change struct {
	Key     Digest
	Digest  Digest // of the new body
	Deleted bool
}

// Difference iterates over what turns base into target, in the order of the keys, from a key on. What the tries share is not
// looked at.
func Difference(base, target Trie, from Digest) iter.Seq[Change] {
	return func(yield func(Change) bool) { difference(base.node(), target.node(), from, 0, yield) }
}

// difference reports whether to go on.
func difference(base, target *node, from Digest, depth int, yield func(Change) bool) bool {
	if base == target || base.hash == target.hash {
		return true
	}
	if base.leaf() || target.leaf() {
		return merge(base, target, from, depth, yield)
	}
	first := nibble(&from, depth)
	for at := first; at < fanout; at++ {
		b, t := base.child(at), target.child(at)
		start := from
		if at > first {
			start = Digest{}
		}
		if !difference(orEmpty(b), orEmpty(t), start, depth+1, yield) {
			return false
		}
	}
	return true
}

func orEmpty(n *node) *node {
	if n == nil {
		return empty
	}
	return n
}

// merge compares row by row. At least one of the two is a leaf.
func merge(base, target *node, from Digest, depth int, yield func(Change) bool) bool {
	next, stop := iter.Pull(func(yield func(Row) bool) { base.from(from, depth, yield) })
	defer stop()
	old, more := next()
	// drop tells that the rows of base before a key are gone, and all of them when there is no key.
	drop := func(before *Digest) bool {
		for more && (before == nil || bytes.Compare(old.Key[:], before[:]) < 0) {
			if !yield(Change{Key: old.Key, Deleted: true}) {
				return false
			}
			old, more = next()
		}
		return true
	}
	going := target.from(from, depth, func(r Row) bool {
		if !drop(&r.Key) {
			return false
		}
		if more && old.Key == r.Key {
			same := old.Digest == r.Digest
			if old, more = next(); same {
				return true
			}
		}
		return yield(Change{Key: r.Key, Digest: r.Digest})
	})
	return going && drop(nil)
}

// Apply returns the trie after changes.
func (t Trie) Apply(changes iter.Seq[Change]) Trie {
	for c := range changes {
		if c.Deleted {
			t = t.Delete(c.Key)
		} else {
			t = t.Put(Row{Key: c.Key, Digest: c.Digest})
		}
	}
	return t
}
