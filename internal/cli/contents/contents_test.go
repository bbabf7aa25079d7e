package contents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
)

// server takes one object in pieces.
type server struct {
	data  []byte
	calls int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.calls++
	size, _ := strconv.Atoi(r.URL.Query().Get("size"))
	if r.Method == http.MethodPatch {
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		if piece, _ := io.ReadAll(r.Body); offset == len(s.data) {
			s.data = append(s.data, piece...)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"here": %t, "offset": %d}`, len(s.data) == size, len(s.data))
}

func run(t *testing.T, handler http.Handler, args ...string) (string, error) {
	t.Helper()
	listening := httptest.NewServer(handler)
	t.Cleanup(listening.Close)
	var out, errs bytes.Buffer
	shell := &Shell{Out: &out, Err: &errs, Connect: func() (*remote.Server, string, error) {
		s, err := remote.New(&rest.Config{Host: listening.URL}, remote.Options{})
		return s, "", err
	}}
	cmd := shell.New()
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func file(t *testing.T, data []byte) string {
	t.Helper()
	name := t.TempDir() + "/file"
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestPut(t *testing.T) {
	for _, size := range []int{0, 1, 2 << 20, 5<<20 + 1} {
		data := bytes.Repeat([]byte("x"), size)
		s := &server{data: data[: size/3 : size/3]} // an earlier upload has come so far
		out, err := run(t, s, "put", file(t, data), "-o", "json")
		var got declare.ObjectReference
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Digest != content.DigestOf(data).String() || got.SizeBytes != int64(size) {
			t.Errorf("%d bytes: %s, %v", size, out, err)
		}
		if !bytes.Equal(s.data, data) {
			t.Errorf("%d of %d bytes have come", len(s.data), size)
		}
	}
	out, err := run(t, &server{}, "put", file(t, []byte("test")))
	if want := `object: {digest: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", sizeBytes: 4}`; err != nil || !strings.Contains(out, want) {
		t.Errorf("%s, %v", out, err)
	}
}

func TestPutRefused(t *testing.T) {
	large := file(t, nil)
	if err := os.Truncate(large, declare.ObjectBytesMax+1); err != nil {
		t.Fatal(err)
	}
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server is asked") })
	for what, args := range map[string][]string{"a directory": {"put", t.TempDir()}, "too large": {"put", large}, "nothing there": {"put", large + "x"}, "format": {"put", large, "-o", "yaml"}} {
		if _, err := run(t, never, args...); err == nil {
			t.Errorf("%s is put", what)
		}
	}
	full := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInsufficientStorage)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":507,"message":"no room","details":{"causes":[{"reason":"TK0669","message":"no room"}]}}`)
	})
	_, err := run(t, full, "put", file(t, []byte("x")))
	if e := failure.Of(err, ""); e == nil || e.Code != reason.ObjectUnstored {
		t.Errorf("%v", err)
	}
	// One that says the same for ever is not asked for ever.
	stuck := &server{}
	endless := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stuck.calls++
		fmt.Fprint(w, `{"here": false, "offset": 0}`)
	})
	if _, err := run(t, endless, "put", file(t, []byte("x"))); err == nil || stuck.calls > 10 {
		t.Errorf("%v after %d calls", err, stuck.calls)
	}
}
