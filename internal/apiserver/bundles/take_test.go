package bundles

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
)

// source is what a store has, broken off after so many bytes of each call.
func (r *rig) source(root catalog.Digest, most int, calls *int) content.Source {
	return func(_ context.Context, from int64) (int64, io.ReadCloser, error) {
		*calls++
		w, err := r.store.Whole(root)
		if err != nil {
			return 0, nil, err
		}
		var b bytes.Buffer
		_, err = io.Copy(&b, io.NewSectionReader(w, from, w.Size()-from))
		if err := errors.Join(err, w.Close()); err != nil {
			return 0, nil, err
		}
		if b.Len() <= most {
			return w.Size(), io.NopCloser(&b), nil
		}
		return w.Size(), io.NopCloser(io.MultiReader(bytes.NewReader(b.Bytes()[:most]), broken{})), nil
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestTake: a bundle comes from another store as it was pushed there, however often that breaks off; it is told that it has come, and a push that
// follows builds upon nothing that nobody has pushed here.
func TestTake(t *testing.T) {
	for _, n := range []int{0, 1, 65, 20_000} {
		near, far := newRig(t), newRig(t)
		arrived := make(chan catalog.Digest, 1)
		near.store.Tell(func(d catalog.Digest) { arrived <- d })
		want, calls := some(t, n, "v"), 0
		root := want.trie().Root()
		if _, code := far.upload("prod", want.digest(), "", items{}.to(t, want), PieceMax); code != 0 {
			t.Fatal(code)
		}
		if err := near.store.Take(t.Context(), root, far.source(root, 300_000, &calls)); err != nil {
			t.Fatalf("%d entries: %v", n, err)
		}
		near.has(want)
		if got := <-arrived; got != root {
			t.Errorf("%s has come, it is said", got)
		}
		if size := len(items{}.to(t, want)); calls != 2+size/300_000 { // one asks for the size
			t.Errorf("%d calls for %d bytes", calls, size)
		}
		if err := near.store.Take(t.Context(), root, nil); err != nil {
			t.Errorf("what is here is fetched again: %v", err)
		}
		if _, pushed := near.store.newest("prod"); pushed {
			t.Error("it counts as pushed")
		}
		if parts, err := os.ReadDir(filepath.Join(near.dir, partDir)); err != nil || len(parts) != 0 {
			t.Errorf("parts are left: %v, %v", parts, err)
		}
	}
}

// TestTakeAfterDeath: what had come before the server died is not asked for again.
func TestTakeAfterDeath(t *testing.T) {
	near, far := newRig(t), newRig(t)
	want := some(t, 20_000, "v")
	root, data := want.trie().Root(), items{}.to(t, want)
	if _, code := far.upload("prod", want.digest(), "", data, PieceMax); code != 0 {
		t.Fatal(code)
	}
	u := upload{root: root, size: int64(len(data))}
	if err := os.WriteFile(near.store.partPath(u), data[:len(data)-1000], 0o600); err != nil {
		t.Fatal(err)
	}
	calls, from := 0, int64(0)
	source := far.source(root, len(data), &calls)
	if err := near.store.Take(t.Context(), root, func(ctx context.Context, at int64) (int64, io.ReadCloser, error) {
		from = at
		return source(ctx, at)
	}); err != nil || from != int64(len(data)-1000) {
		t.Fatalf("from %d on: %v", from, err)
	}
	near.has(want)
}

// TestTakeRefuses: what is another bundle, or none, is thrown away, and the next attempt begins anew.
func TestTakeRefuses(t *testing.T) {
	want, other := some(t, 100, "v"), some(t, 100, "w")
	root := want.trie().Root()
	whole := func(data []byte) content.Source {
		return func(_ context.Context, from int64) (int64, io.ReadCloser, error) {
			return int64(len(data)), io.NopCloser(bytes.NewReader(data[from:])), nil
		}
	}
	for name, c := range map[string]struct {
		source content.Source
		want   reason.Code
	}{
		"another bundle": {whole(items{}.to(t, other)), reason.BundleRefused},
		"no bundle":      {whole([]byte("hello")), reason.BundleRefused},
		"too long": {func(context.Context, int64) (int64, io.ReadCloser, error) {
			return bundle.DifferenceBytesMax + 1, io.NopCloser(bytes.NewReader(nil)), nil
		}, reason.TransferWrong},
		"nothing comes": {func(context.Context, int64) (int64, io.ReadCloser, error) {
			return 1000, io.NopCloser(bytes.NewReader(nil)), nil
		}, reason.ServerUnreachable},
		"it grows": {func(_ context.Context, from int64) (int64, io.ReadCloser, error) {
			return 1000 + from, io.NopCloser(bytes.NewReader(make([]byte, 10))), nil
		}, reason.TransferWrong},
		"nobody has it": {newRig(t).source(root, 1, new(int)), reason.BundleMissing},
	} {
		r := newRig(t)
		if err := r.store.Take(t.Context(), root, c.source); !reason.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if r.store.Has(root) {
			t.Errorf("%s: it is here", name)
		}
		if err := r.store.Take(t.Context(), root, whole(items{}.to(t, want))); err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		}
	}
}
