package edition

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"tako.dev/tako/internal/catalog"
)

// row is a row as it came.
type row struct {
	key    string
	hash   catalog.Digest // of the key
	digest catalog.Digest // of the body
	body   []byte
}

func newRow(key string, body []byte) *row {
	return &row{key: key, hash: sha256.Sum256([]byte(key)), digest: sha256.Sum256(body), body: body}
}

// bucketCount: with 100,000 rows a change of one hashes some 400 digests of its bucket, and 256 of buckets.
const bucketCount = 256

// set is rows with their root.
type set struct {
	buckets [bucketCount]bucket
	count   int
	bytes   int
}

type bucket struct {
	rows   []*row // by hash
	sum    catalog.Digest
	summed bool // sum is of what is there now
}

func (b *bucket) find(hash catalog.Digest) (int, bool) {
	return slices.BinarySearchFunc(b.rows, hash, func(r *row, hash catalog.Digest) int { return bytes.Compare(r.hash[:], hash[:]) })
}

// put enters a row, and returns the one with its key that was there before.
func (s *set) put(r *row) (old *row) {
	b := &s.buckets[r.hash[0]]
	at, found := b.find(r.hash)
	b.summed = false
	s.bytes += len(r.body)
	if found {
		old, b.rows[at] = b.rows[at], r
		s.bytes -= len(old.body)
		return old
	}
	b.rows = slices.Insert(b.rows, at, r)
	s.count++
	return nil
}

// drop takes the row of a key out, and returns it.
func (s *set) drop(key string) (old *row) {
	hash := catalog.Digest(sha256.Sum256([]byte(key)))
	b := &s.buckets[hash[0]]
	at, found := b.find(hash)
	if !found {
		return nil
	}
	old = b.rows[at]
	b.rows, b.summed = slices.Delete(b.rows, at, at+1), false
	s.count--
	s.bytes -= len(old.body)
	return old
}

func (s *set) get(key string) *row {
	hash := catalog.Digest(sha256.Sum256([]byte(key)))
	b := &s.buckets[hash[0]]
	if at, found := b.find(hash); found {
		return b.rows[at]
	}
	return nil
}

// root is over all rows. An empty bucket counts as zeros.
func (s *set) root() catalog.Digest {
	all := sha256.New()
	all.Write([]byte("tako/names-root/1\n"))
	for i := range s.buckets {
		b := &s.buckets[i]
		if !b.summed {
			b.sum, b.summed = catalog.Digest{}, true
			if len(b.rows) > 0 {
				h := sha256.New()
				for _, r := range b.rows {
					h.Write(r.hash[:])
					h.Write(r.digest[:])
				}
				b.sum = catalog.Digest(h.Sum(nil))
			}
		}
		all.Write(b.sum[:])
	}
	return catalog.Digest(all.Sum(nil))
}

// all are the rows, in the order of the hashes of their keys.
func (s *set) all() []*row {
	all := make([]*row, 0, s.count)
	for i := range s.buckets {
		all = append(all, s.buckets[i].rows...)
	}
	return all
}

// change is rows that are put and keys of rows that are dropped.
type change struct {
	put  []*row
	gone []string
}

// apply makes a change, and returns the one that undoes it.
func (s *set) apply(c change) (undo change) {
	for _, key := range c.gone {
		if old := s.drop(key); old != nil {
			undo.put = append(undo.put, old)
		}
	}
	for _, r := range c.put {
		if old := s.put(r); old != nil {
			undo.put = append(undo.put, old)
		} else {
			undo.gone = append(undo.gone, r.key)
		}
	}
	slices.Reverse(undo.put) // of two puts of one key the first one's old row is the one to come back
	return undo
}
