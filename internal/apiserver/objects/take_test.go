package objects

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
)

// from is a source that breaks off after so many bytes of each call; 0: it does not.
func from(data []byte, most int, calls *int) content.Source {
	return func(_ context.Context, at int64) (int64, io.ReadCloser, error) {
		*calls++
		if at > int64(len(data)) {
			return 0, nil, &reason.Error{Code: reason.CallMalformed, Doing: "read Range"}
		}
		rest := data[at:]
		if most > 0 && len(rest) > most {
			return int64(len(data)), io.NopCloser(io.MultiReader(bytes.NewReader(rest[:most]), breaks{})), nil
		}
		return int64(len(data)), io.NopCloser(bytes.NewReader(rest)), nil
	}
}

type breaks struct{}

func (breaks) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestTake: it goes on where it was cut off, and where somebody has stopped to put it; what comes is an object only with its digest.
func TestTake(t *testing.T) {
	s, calls := newShelf(t), 0
	data := make([]byte, 300_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	d := content.DigestOf(data)
	if _, code := call(t, s, "PATCH", at(d, len(data), 0), data[:100_000]); code != "" {
		t.Fatal(code)
	}
	if err := s.Take(t.Context(), d, from(data, 70_000, &calls)); err != nil || calls != 3 {
		t.Fatalf("%v after %d calls", err, calls)
	}
	f, err := s.Open(d)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if err := s.Take(t.Context(), d, from(data, 0, &calls)); err != nil || calls != 3 {
		t.Errorf("what is here is fetched again: %v", err)
	}
	if err := s.Take(t.Context(), content.DigestOf(nil), from(nil, 0, &calls)); err != nil {
		t.Errorf("an empty one: %v", err)
	}
}

// TestTakeRefuses: what is something else, too long, or does not come leaves nothing behind that would spoil the next attempt.
func TestTakeRefuses(t *testing.T) {
	data := []byte("what it should be")
	d := content.DigestOf(data)
	away := &reason.Error{Code: reason.ServerUnreachable, Doing: "call it"}
	for name, c := range map[string]struct {
		source content.Source
		want   reason.Code
	}{
		"something else": {from([]byte("something else"), 0, new(int)), reason.ContentMismatch},
		"too long": {func(context.Context, int64) (int64, io.ReadCloser, error) {
			return declare.ObjectBytesMax + 1, io.NopCloser(bytes.NewReader(nil)), nil
		}, reason.TransferWrong},
		"nothing comes": {func(context.Context, int64) (int64, io.ReadCloser, error) {
			return int64(len(data)), io.NopCloser(bytes.NewReader(nil)), nil
		}, reason.ServerUnreachable},
		"nobody there": {func(context.Context, int64) (int64, io.ReadCloser, error) { return 0, nil, away }, reason.ServerUnreachable},
	} {
		s := newShelf(t)
		if err := s.Take(t.Context(), d, c.source); !reason.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := s.Open(d); !reason.Is(err, reason.ObjectMissing) {
			t.Errorf("%s: it is here: %v", name, err)
		}
		if err := s.Take(t.Context(), d, from(data, 0, new(int))); err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		}
	}
}

// TestTakeAfterALongerOne: what somebody has begun to put under that digest, and is more than there is, does not keep it away for ever.
func TestTakeAfterALongerOne(t *testing.T) {
	s, calls := newShelf(t), 0
	data := []byte("short")
	d := content.DigestOf(data)
	if _, code := call(t, s, "PATCH", at(d, 100, 0), bytes.Repeat([]byte("x"), 50)); code != "" {
		t.Fatal(code)
	}
	if err := s.Take(t.Context(), d, from(data, 0, &calls)); !reason.Is(err, reason.CallMalformed) {
		t.Fatal(err)
	}
	if err := s.Take(t.Context(), d, from(data, 0, &calls)); err != nil {
		t.Error(err)
	}
}

// TestTakeWhileItIsPut: two do not write over each other.
func TestTakeWhileItIsPut(t *testing.T) {
	s := newShelf(t)
	data := []byte("data")
	d := content.DigestOf(data)
	err := s.Take(t.Context(), d, func(ctx context.Context, begin int64) (int64, io.ReadCloser, error) {
		if _, code := call(t, s, "PATCH", at(d, len(data), 0), data); code != reason.TransferBusy.String() {
			t.Errorf("somebody puts it meanwhile: %q", code)
		}
		return from(data, 0, new(int))(ctx, begin)
	})
	if err != nil {
		t.Error(err)
	}
}
