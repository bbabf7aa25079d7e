package scheduler

import "math/bits"

// bitset is a set of nodes, or of anything with a small dense number. It grows when something is added; what is beyond its end is not in it.
type bitset []uint64

func (b *bitset) add(i int32) {
	for int(i>>6) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[i>>6] |= 1 << (i & 63)
}

func (b bitset) remove(i int32) {
	if int(i>>6) < len(b) {
		b[i>>6] &^= 1 << (i & 63)
	}
}

func (b *bitset) set(i int32, in bool) {
	if in {
		b.add(i)
	} else {
		b.remove(i)
	}
}

func (b bitset) has(i int32) bool { return int(i>>6) < len(b) && b[i>>6]&(1<<(i&63)) != 0 }

func (b bitset) count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// first is the smallest number in it, or -1.
func (b bitset) first() int32 {
	for i, w := range b {
		if w != 0 {
			return int32(i<<6 + bits.TrailingZeros64(w))
		}
	}
	return -1
}

// copyOf makes b a copy of another one, of n words.
func (b *bitset) copyOf(from bitset, n int) {
	if cap(*b) < n {
		*b = make(bitset, n)
	}
	*b = (*b)[:n]
	clear((*b)[copy(*b, from):])
}

// keep takes out what is not in other.
func (b bitset) keep(other bitset) {
	n := min(len(b), len(other))
	for i := range n {
		b[i] &= other[i]
	}
	clear(b[n:])
}

// drop takes out what is in other.
func (b bitset) drop(other bitset) {
	for i := range min(len(b), len(other)) {
		b[i] &^= other[i]
	}
}

// join adds what is in other, which is not longer.
func (b bitset) join(other bitset) {
	for i := range min(len(b), len(other)) {
		b[i] |= other[i]
	}
}

// each calls a function with every number in it, in order.
func (b bitset) each(do func(int32)) {
	for i, w := range b {
		for ; w != 0; w &= w - 1 {
			do(int32(i<<6 + bits.TrailingZeros64(w)))
		}
	}
}
