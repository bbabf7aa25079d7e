package server

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// storage is Stored: objects in a directory, and bundles that are just bytes.
type storage struct {
	shelf
	bundles map[content.Digest][]byte
}

func (s storage) Object(d content.Digest) (Object, error) {
	f, err := s.Open(d)
	if err != nil {
		return nil, err
	}
	return OfFile(f)
}

func (s storage) Bundle(d content.Digest) (Object, error) {
	data, found := s.bundles[d]
	if !found {
		return nil, &reason.Error{Code: reason.BundleMissing, Doing: "open it"}
	}
	return bytesOf{bytes.NewReader(data)}, nil
}

type bytesOf struct{ *bytes.Reader }

func (bytesOf) Close() error { return nil }

// fetch asks for a content without a head, as a server does.
func (h *host) fetch(path, ranged string) (int, []byte, string) {
	h.rig.t.Helper()
	req, err := http.NewRequestWithContext(h.rig.t.Context(), http.MethodGet, "https://"+h.rig.addr+path, nil)
	if err != nil {
		h.rig.t.Fatal(err)
	}
	if ranged != "" {
		req.Header.Set("Range", ranged)
	}
	resp, err := h.Do(req)
	if err != nil {
		h.rig.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return resp.StatusCode, nil, problemOf(h.rig.t, resp).Code
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		h.rig.t.Fatal(err)
	}
	return resp.StatusCode, data, ""
}

// TestStored: another server gets what is here, from anywhere in it, without a head; a host or a relay gets nothing so.
func TestStored(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 30_000)
	s := storage{shelf{t.TempDir()}, map[content.Digest][]byte{content.DigestOf(data): data}}
	object, bundle, lost := s.put(t, data), content.DigestOf(data), content.DigestOf([]byte("lost"))
	fetched := shelf{t.TempDir()} // what hosts are given is not asked: it would fetch
	r := newRig(t, func(o *Options) { o.Objects, o.Stored = fetched, s })
	r.add("web-1")
	elsewhere := fetched.put(t, []byte("here for hosts"))
	callers := map[string]*host{"server-b": r.as("server-b"), "relay-1": r.as("relay-1"), "web-1": r.as("web-1")}
	for name, c := range map[string]struct {
		as, path, ranged string
		status           int
		want             []byte
		code             string
	}{
		"object":             {"server-b", wire.PathObject + object.String(), "", 200, data, ""},
		"its rest":           {"server-b", wire.PathObject + object.String(), "bytes=299995-", 206, data[299995:], ""},
		"none of it":         {"server-b", wire.PathObject + object.String(), "bytes=300000-", 206, nil, ""},
		"beyond it":          {"server-b", wire.PathObject + object.String(), "bytes=300001-", 400, nil, "TK1040"},
		"no object":          {"server-b", wire.PathObject + lost.String(), "", 404, nil, "TK0661"},
		"not looked for":     {"server-b", wire.PathObject + elsewhere.String(), "", 404, nil, "TK0661"},
		"bundle":             {"server-b", wire.PathBundle + bundle.String(), "", 200, data, ""},
		"rest of a bundle":   {"server-b", wire.PathBundle + bundle.String(), "bytes=123456-", 206, data[123456:], ""},
		"beyond a bundle":    {"server-b", wire.PathBundle + bundle.String(), "bytes=300001-", 400, nil, "TK1040"},
		"no bundle":          {"server-b", wire.PathBundle + lost.String(), "", 404, nil, "TK1075"},
		"no digest":          {"server-b", wire.PathBundle + "x", "", 400, nil, "TK1040"},
		"a range":            {"server-b", wire.PathBundle + bundle.String(), "bytes=1-2", 400, nil, "TK1040"},
		"object, as a host":  {"web-1", wire.PathObject + object.String(), "", 400, nil, "TK1040"},
		"object, as a relay": {"relay-1", wire.PathObject + object.String(), "", 400, nil, "TK1040"},
		"bundle, as a host":  {"web-1", wire.PathBundle + bundle.String(), "", 401, nil, "TK1003"},
		"bundle, as a relay": {"relay-1", wire.PathBundle + bundle.String(), "", 401, nil, "TK1003"},
	} {
		status, got, code := callers[c.as].fetch(c.path, c.ranged)
		if status != c.status || code != c.code || !bytes.Equal(got, c.want) {
			t.Errorf("%s: HTTP %d %s with %d bytes, want %d %s with %d", name, status, code, len(got), c.status, c.code, len(c.want))
		}
	}
}

// TestNothingStored: a server without a shelf says that it has nothing.
func TestNothingStored(t *testing.T) {
	h := newRig(t, nil).as("server-b")
	d := catalog.Digest{1}
	for _, path := range []string{wire.PathObject, wire.PathBundle} {
		if status, _, code := h.fetch(path+content.Digest(d).String(), ""); status != http.StatusNotFound || code != "TK0661" {
			t.Errorf("%s: HTTP %d %s", path, status, code)
		}
	}
}

// TestBundleIsCutOff: a server that reads slowly keeps a place for a bounded time, as a host does, and comes again for the rest.
func TestBundleIsCutOff(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 8<<20)
	d := content.DigestOf(data)
	r := newRig(t, func(o *Options) {
		o.Stored, o.Times.Send = storage{shelf{t.TempDir()}, map[content.Digest][]byte{d: data}}, time.Nanosecond
	})
	if status, got, _ := r.as("server-b").fetch(wire.PathBundle+d.String(), ""); status != http.StatusOK || len(got) == len(data) {
		t.Errorf("HTTP %d with all %d bytes", status, len(got))
	}
}
