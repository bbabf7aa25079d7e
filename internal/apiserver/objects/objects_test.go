package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
)

func newShelf(t *testing.T) *Shelf {
	t.Helper()
	s, err := New(t.TempDir() + "/objects")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// call makes one call, and returns the state, or the code of the refusal.
func call(t *testing.T, s *Shelf, method, query string, body []byte) (State, string) {
	t.Helper()
	w := httptest.NewRecorder()
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	s.Handler(next).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, query, bytes.NewReader(body)))
	if w.Code == http.StatusTeapot {
		return State{}, "next"
	}
	if w.Code != http.StatusOK {
		var status metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || status.Kind != "Status" {
			t.Fatalf("HTTP %d: %s", w.Code, w.Body)
		}
		return State{}, string(status.Details.Causes[0].Type)
	}
	var state State
	if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil {
		t.Fatal(err)
	}
	return state, ""
}

func at(d content.Digest, size, offset int) string {
	return fmt.Sprintf("%s%s?size=%d&offset=%d", Path, d, size, offset)
}

func TestPutInPieces(t *testing.T) {
	s := newShelf(t)
	data := make([]byte, 2*PieceMax+12345)
	rnd := rand.NewChaCha8([32]byte{})
	_, _ = rnd.Read(data)
	d := content.DigestOf(data)
	if state, code := call(t, s, "GET", at(d, len(data), 0), nil); state != (State{}) || code != "" {
		t.Fatalf("%+v %s", state, code)
	}
	for offset := 0; ; {
		end := min(offset+PieceMax, len(data))
		state, code := call(t, s, "PATCH", at(d, len(data), offset), data[offset:end])
		if code != "" {
			t.Fatal(code)
		}
		if state.Here {
			break
		}
		// Who asks, or begins anew, is told where to go on.
		if again, _ := call(t, s, "PATCH", at(d, len(data), 0), data[:10]); again.Offset != int64(end) {
			t.Fatalf("%+v after %d", again, end)
		}
		offset = int(state.Offset)
	}
	f, err := s.Open(d)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if state, code := call(t, s, "PATCH", at(d, len(data), 0), data[:10]); !state.Here || code != "" {
		t.Errorf("once more: %+v %s", state, code)
	}
}

func TestRefused(t *testing.T) {
	s := newShelf(t)
	data := []byte("right")
	d := content.DigestOf(data)
	for what, c := range map[string]struct {
		method, path string
		body         []byte
		want         string
	}{
		"elsewhere":         {"GET", "/apis", nil, "next"},
		"no digest":         {"GET", Path + "x?size=1", nil, "TK0414"},
		"a way out":         {"GET", Path + "../../x?size=1", nil, "TK0414"},
		"no size":           {"GET", Path + d.String(), nil, "TK0414"},
		"too large":         {"GET", Path + d.String() + "?size=1073741825", nil, "TK0414"},
		"negative":          {"PATCH", Path + d.String() + "?size=-1&offset=0", nil, "TK0414"},
		"no offset":         {"PATCH", Path + d.String() + "?size=5", data, "TK0414"},
		"beyond":            {"PATCH", at(d, 5, 6), data, "TK0414"},
		"another method":    {"DELETE", at(d, 5, 0), nil, "TK0414"},
		"something else":    {"PATCH", at(d, 5, 0), []byte("wrong"), "TK0663"},
		"more than is said": {"PATCH", at(content.DigestOf([]byte("more")), 4, 0), []byte("more and more"), "TK0414"},
	} {
		if _, code := call(t, s, c.method, c.path, c.body); code != c.want {
			t.Errorf("%s: %q, want %q", what, code, c.want)
		}
	}
	if state, code := call(t, s, "PATCH", at(d, 5, 0), data); !state.Here || code != "" {
		t.Errorf("after all that: %+v %s", state, code)
	}
	s.begin(d)
	if _, code := call(t, s, "PATCH", at(d, 5, 0), data); code != "TK1043" {
		t.Errorf("at the same time: %q", code)
	}
	if _, err := s.Open(content.DigestOf(nil)); !reason.Is(err, reason.ObjectMissing) {
		t.Errorf("not there: %v", err)
	}
}

func TestCollect(t *testing.T) {
	s := newShelf(t)
	put := func(text string) content.Digest {
		d := content.DigestOf([]byte(text))
		if state, code := call(t, s, "PATCH", at(d, len(text), 0), []byte(text)); !state.Here {
			t.Fatal(code)
		}
		return d
	}
	used, free := put("used"), put("free")
	named := func(context.Context) (map[string]bool, error) { return map[string]bool{used.String(): true}, nil }
	has := func(d content.Digest) bool {
		f, err := s.Open(d)
		if err == nil {
			f.Close()
		}
		return err == nil
	}
	now := time.Now()
	if err := s.collect(t.Context(), named, now.Add(29*24*time.Hour)); err != nil || !has(free) || !has(used) {
		t.Errorf("%v: too early", err)
	}
	// Nothing goes where it is not known what is named.
	if err := s.collect(t.Context(), func(context.Context) (map[string]bool, error) { return nil, errors.New("no") }, now.Add(400*24*time.Hour)); err == nil || !has(free) {
		t.Errorf("%v", err)
	}
	if err := s.collect(t.Context(), named, now.Add(31*24*time.Hour)); err != nil || has(free) || !has(used) {
		t.Errorf("%v: what nothing names goes, and nothing else", err)
	}
	// The time counts from when it was named last.
	none := func(context.Context) (map[string]bool, error) { return nil, nil }
	if err := s.collect(t.Context(), none, now.Add(60*24*time.Hour)); err != nil || !has(used) {
		t.Errorf("%v: it was named 29 days ago", err)
	}
	if err := s.collect(t.Context(), none, now.Add(62*24*time.Hour)); err != nil || has(used) {
		t.Errorf("%v: it was named 31 days ago", err)
	}
}
