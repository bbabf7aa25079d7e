package server

import (
	"bytes"
	"crypto/sha256"

	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// shelf is Objects in a directory.
type shelf struct{ dir string }

func (s shelf) put(t testing.TB, data []byte) content.Digest {
	t.Helper()
	d := content.DigestOf(data)
	if err := os.WriteFile(s.dir+"/"+d.String(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

func (s shelf) Open(d content.Digest) (*os.File, error) {
	f, err := os.Open(s.dir + "/" + d.String())
	if err != nil {
		return nil, &reason.Error{Code: reason.ObjectMissing, Doing: "open " + d.String(), Cause: err}
	}
	return f, nil
}

// compiled is the layer of resources, which is known from now on.
func (r *rig) compiled(id string, resources ...declare.Resource) catalog.Trie {
	r.t.Helper()
	items, err := catalog.Compile(resources)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.layerOf(id, items...)
}

// layerOf is the layer of items, which is known from now on.
func (r *rig) layerOf(id string, items ...catalog.Item) catalog.Trie {
	for _, i := range items {
		r.bodies.Store(catalog.Digest(sha256.Sum256(i.Body)), i.Body)
	}
	trie := catalog.TrieOf(items)
	r.change(func() { r.layers[id] = map[catalog.Digest]Layer{trie.Root(): {Trie: trie, Body: r.body}} })
	return trie
}

// object asks for an object.
func (h *host) object(name string, head []byte, key, ranged string) (int, []byte, *wire.Problem) {
	h.rig.t.Helper()
	req, err := http.NewRequestWithContext(h.rig.t.Context(), http.MethodGet, "https://"+h.rig.addr+wire.PathObject+name, nil)
	if err != nil {
		h.rig.t.Fatal(err)
	}
	req.Header.Set(wire.HeaderHead, wire.EncodeHead(head))
	req.Header.Set(wire.HeaderKey, key)
	if ranged != "" {
		req.Header.Set("Range", ranged)
	}
	resp, err := h.Do(req)
	if err != nil {
		h.rig.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return resp.StatusCode, nil, problemOf(h.rig.t, resp)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		h.rig.t.Fatal(err)
	}
	return resp.StatusCode, data, nil
}

func fileOf(path string, d content.Digest, size int) declare.Resource {
	return declare.Resource{Name: path[1:], File: &declare.File{Path: path, ContentFrom: &declare.ContentSource{Object: &declare.ObjectReference{Digest: d.String(), SizeBytes: int64(size)}}}}
}

// TestObject: a host gets what its own state names, from anywhere in it, and nothing else.
func TestObject(t *testing.T) {
	s := shelf{t.TempDir()}
	r := newRig(t, func(o *Options) { o.Objects = s })
	me, other := r.add("web-1"), r.add("db-1")
	data := bytes.Repeat([]byte("0123456789"), 30_000)
	mine, theirs, lost := s.put(t, data), s.put(t, []byte("theirs")), content.DigestOf([]byte("lost"))
	archive := declare.Resource{Name: "a", Archive: &declare.Archive{Path: "/opt/a", From: declare.ArchiveSource{Object: &declare.ObjectReference{Digest: mine.String(), SizeBytes: 300_000}}}}
	myLayer := r.compiled("mine", fileOf("/mine", mine, len(data)), fileOf("/lost", lost, 4), declare.Resource{Name: "plain", File: &declare.File{Path: "/plain", Content: mine.String()}}, archive)
	theirLayer := r.compiled("theirs", fileOf("/theirs", theirs, 6))
	tpl := catalog.Template{Namespace: "shop", Revision: "web-1", Spec: workload.Template{Tasks: []workload.Task{{Name: "a", Image: &workload.Image{
		Object: &declare.ObjectReference{Digest: mine.String(), SizeBytes: 300_000}}}, {Name: "b", Image: &workload.Image{Path: "/" + theirs.String()}}}}}
	item, err := tpl.Item()
	if err != nil {
		t.Fatal(err)
	}
	tplID := catalog.TemplateLayer("shop", "web-1")
	tplLayer := r.layerOf(tplID, item)
	myHead := r.head(me, 5, listOf(t, catalog.Layer{ID: tplID, Root: tplLayer.Root()}, catalog.Layer{ID: "mine", Root: myLayer.Root()}))
	theirHead := r.head(other, 5, listOf(t, catalog.Layer{ID: "theirs", Root: theirLayer.Root()}))
	h := r.as("web-1")
	key := func(p string) string { return catalog.KeyOf("path:" + p).String() }
	for name, c := range map[string]struct {
		object, key, ranged string
		head                []byte
		status              int
		want                []byte
		code                string
	}{
		"whole":                 {mine.String(), key("/mine"), "", myHead, 200, data, ""},
		"the rest":              {mine.String(), key("/mine"), "bytes=299995-", myHead, 206, data[299995:], ""},
		"nothing left":          {mine.String(), key("/mine"), "bytes=300000-", myHead, 206, nil, ""},
		"of an archive":         {mine.String(), key("/opt/a"), "", myHead, 200, data, ""},
		"image of a task":       {mine.String(), tpl.Key().String(), "", myHead, 200, data, ""},
		"no image of a task":    {theirs.String(), tpl.Key().String(), "", myHead, 403, nil, "TK0662"},
		"beyond":                {mine.String(), key("/mine"), "bytes=300001-", myHead, 400, nil, "TK1040"},
		"another range":         {mine.String(), key("/mine"), "bytes=1-2", myHead, 400, nil, "TK1040"},
		"not named there":       {mine.String(), key("/plain"), "", myHead, 403, nil, "TK0662"},
		"another's":             {theirs.String(), key("/theirs"), "", myHead, 403, nil, "TK0662"},
		"another's, named here": {theirs.String(), key("/mine"), "", myHead, 403, nil, "TK0662"},
		"another's head":        {theirs.String(), key("/theirs"), "", theirHead, 403, nil, "TK1012"},
		"not here":              {lost.String(), key("/lost"), "", myHead, 404, nil, "TK0661"},
		"no digest":             {"x", key("/mine"), "", myHead, 400, nil, "TK1040"},
		"a way out":             {"..%2f..%2fetc", key("/mine"), "", myHead, 400, nil, "TK1040"},
		"no key":                {mine.String(), "zz", "", myHead, 400, nil, "TK1040"},
		"no head":               {mine.String(), key("/mine"), "", nil, 400, nil, "TK1040"},
	} {
		status, got, p := h.object(c.object, c.head, c.key, c.ranged)
		code := ""
		if p != nil {
			code = p.Code
		}
		if status != c.status || code != c.code || !bytes.Equal(got, c.want) {
			t.Errorf("%s: HTTP %d %s with %d bytes, want %d %s with %d", name, status, code, len(got), c.status, c.code, len(c.want))
		}
	}
}

// TestObjectIsCutOff: who reads slowly keeps a place for a bounded time, and comes again for the rest.
func TestObjectIsCutOff(t *testing.T) {
	s := shelf{t.TempDir()}
	r := newRig(t, func(o *Options) { o.Objects, o.Times.Send, o.Limits.Objects = s, 50*time.Millisecond, 1 })
	me := r.add("web-1")
	data := bytes.Repeat([]byte("x"), 8<<20)
	d := s.put(t, data)
	layer := r.compiled("mine", fileOf("/mine", d, len(data)))
	head := r.head(me, 5, listOf(t, catalog.Layer{ID: "mine", Root: layer.Root()}))
	h := r.as("web-1")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.addr+wire.PathObject+d.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(wire.HeaderHead, wire.EncodeHead(head))
	req.Header.Set(wire.HeaderKey, catalog.KeyOf("path:/mine").String())
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	n, buffer := 0, make([]byte, 64<<10)
	for {
		m, err := resp.Body.Read(buffer)
		if n += m; err != nil {
			if err == io.EOF && n == len(data) {
				t.Error("it was not cut off")
			}
			break
		}
		<-tick.C
	}
	if n == 0 {
		t.Error("nothing came")
	}
}
