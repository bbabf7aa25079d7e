package git

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"testing"

	"tako.dev/tako/internal/reason"
)

// deltaBomb is a pack of some hundred bytes whose last object has base << doublings bytes: each delta copies the one before it twice
// (gitformat-pack(5)).
func deltaBomb(t *testing.T, base, doublings int) []byte {
	var pack bytes.Buffer
	pack.WriteString("PACK")
	must(t, binary.Write(&pack, binary.BigEndian, []uint32{2, uint32(doublings + 1)}))
	object := func(kind byte, size int, before []byte, content []byte) {
		first := kind<<4 | byte(size&15)
		for rest := size >> 4; ; rest >>= 7 {
			if rest == 0 {
				pack.WriteByte(first)
				break
			}
			pack.WriteByte(first | 0x80)
			first = byte(rest & 0x7f)
		}
		pack.Write(before)
		w := zlib.NewWriter(&pack)
		_, err := w.Write(content)
		must(t, err)
		must(t, w.Close())
	}
	at := pack.Len()
	object(3, base, nil, make([]byte, base))
	for i := range doublings {
		size := base << i
		delta := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(size)), uint64(2*size))
		for range 2 {
			for from := 0; from < size; from += 1 << 20 {
				n := min(size-from, 1<<20)
				delta = append(delta, 0xff, byte(from), byte(from>>8), byte(from>>16), byte(from>>24), byte(n), byte(n>>8), byte(n>>16))
			}
		}
		back := pack.Len() - at
		at = pack.Len()
		offset := []byte{byte(back & 0x7f)}
		for back >>= 7; back > 0; back >>= 7 {
			back--
			offset = append([]byte{0x80 | byte(back&0x7f)}, offset...)
		}
		object(6, len(delta), offset, delta)
	}
	sum := sha1.Sum(pack.Bytes())
	pack.Write(sum[:])
	return pack.Bytes()
}

// A pack of a few hundred bytes that stands for more than the memory that git may have ends at that limit, and leaves nothing.
func TestDeltaBomb(t *testing.T) {
	o := newOrigin(t)
	const base, doublings = 1 << 16, 10 // 64 MiB
	bomb := deltaBomb(t, base, doublings)
	o.gitIn(o.dir, bomb, "index-pack", "--stdin")
	id := o.commitTree("main", o.tree("100644 "+string(hash("blob", make([]byte, base<<doublings), 40))+"\ta.yaml"))
	small := o.commitTree("small", o.tree("100644 "+string(o.object("blob", []byte("x")))+"\ta.yaml"))
	o.git("config", "uploadpack.allowFilter", "false") // as a server that wants to hurt
	for _, tt := range []struct {
		limits Limits
		code   reason.Code
	}{{Limits{MemoryBytes: 96 << 20}, reason.RepositoryLimit}, {Limits{}, 0}} {
		g := newGit(t, tt.limits)
		r := g.Repository("k")
		_, err := r.Fetch(t.Context(), o.remote(), Ref{ID: id}, nil)
		if tt.code != 0 {
			if !reason.Is(err, tt.code) || isDirectory(r.dir) || isDirectory(r.dir+newSuffix) {
				t.Errorf("a bomb of %d bytes: %v", len(bomb), err)
			}
			if _, err := r.Fetch(t.Context(), o.remote(), Ref{ID: small}, nil); err != nil {
				t.Errorf("git does nothing with so little memory: %v", err)
			}
			continue
		}
		must(t, err) // where there is memory for it, the file is refused when it is read
		err = r.Tree(t.Context(), Commit{ID: id}, nil, func(tree *Tree) error {
			_, err := tree.ReadFile("a.yaml")
			return err
		})
		if !reason.Is(err, reason.RepositoryLimit) {
			t.Errorf("a file of %d bytes was read: %v", base<<doublings, err)
		}
	}
}
