package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
)

// ground is a directory, a state directory and a Type.
type ground struct {
	testing.TB
	dir     string // of the host; declared paths begin below it
	sources string // where archives are
	state   string
	objects *content.Objects
	*Type
}

func newGround(t testing.TB) *ground {
	t.Helper()
	g := &ground{TB: t, dir: t.TempDir(), sources: t.TempDir(), state: t.TempDir()}
	root, err := disk.OpenRoot("/")
	g.must(err)
	t.Cleanup(func() { root.Close() })
	g.objects, err = content.OpenObjects(filepath.Join(g.state, "objects"), content.Options{})
	g.must(err)
	g.Type = New(Options{Root: root, Objects: g.objects, StateDir: g.state})
	return g
}

func (g *ground) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

func (g *ground) path(name string) string { return g.dir + "/" + name }

// source makes a file that archives are unpacked from.
func (g *ground) source(name string, data []byte) string {
	g.Helper()
	p := g.sources + "/" + name
	g.must(os.WriteFile(p, data, 0o644))
	return p
}

// declared makes a resource as the agent gives it to Bind.
func declared(a declare.Archive) host.Declared {
	r := declare.Resource{Name: "x", Archive: &a}
	return host.Declared{Title: "archive/x", Key: r.Claim().String(), Resource: r, Body: func() (declare.Resource, error) { return r, nil }}
}

func (g *ground) bind(a declare.Archive) host.Resource {
	g.Helper()
	r, err := g.Bind(g.Context(), declared(a))
	g.must(err)
	return r
}

func (g *ground) check(r host.Resource, depth host.Depth) host.Plan {
	return g.Check(g.Context(), []host.Resource{r}, depth)[0]
}

// converge checks and applies one resource; nothing to do is an empty result.
func (g *ground) converge(r host.Resource) host.Result {
	p := g.check(r, host.Shallow)
	if p.Err != nil || p.Empty() {
		return host.Result{Err: p.Err}
	}
	return g.Apply(g.Context(), []host.Plan{p})[0]
}

// made converges a resource that must not fail.
func (g *ground) made(r host.Resource) host.Result {
	g.Helper()
	res := g.converge(r)
	g.must(res.Err)
	return res
}

// look describes all that is below a path, without times: "-" where nothing is.
func look(t testing.TB, p string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(p, func(at string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(at)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(at, p)
		sys := st.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%q %v %d:%d", name, st.Mode(), sys.Uid, sys.Gid)
		switch {
		case st.Mode().IsRegular():
			data, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %q", data)
		case st.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(at)
			fmt.Fprintf(&b, " -> %q", to)
		}
		b.WriteString("\n")
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) && b.Len() == 0 {
		return "-"
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// names lists the names in the ground.
func (g *ground) names() []string {
	g.Helper()
	list, err := os.ReadDir(g.dir)
	g.must(err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// entry is one of an archive that a test makes.
type entry struct {
	name string
	kind byte // tar.TypeReg where it is zero
	mode int64
	body string
	link string
}

// tarOf makes a tar archive.
func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: e.mode, Size: int64(len(e.body)), Linkname: e.link, ModTime: time.Unix(1_700_000_000, 0), Uid: 4711, Gid: 4712}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if e.mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zipOf makes a zip file; directories, files and links only.
func zipOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: time.Unix(1_700_000_000, 0)}
		mode := fs.FileMode(e.mode & 0o777)
		if e.mode == 0 {
			mode = 0o644
		}
		if e.mode&0o4000 != 0 {
			mode |= fs.ModeSetuid
		}
		body := e.body
		switch e.kind {
		case tar.TypeDir:
			mode |= fs.ModeDir
		case tar.TypeSymlink:
			mode |= fs.ModeSymlink
			body = e.link
		case tar.TypeChar:
			mode |= fs.ModeDevice | fs.ModeCharDevice
		case tar.TypeFifo:
			mode |= fs.ModeNamedPipe
		}
		h.SetMode(mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// program are the entries of a usual archive.
func program(version string) []entry {
	return []entry{
		{name: "app/", kind: tar.TypeDir, mode: 0o755},
		{name: "app/bin/run", mode: 0o775, body: "#!/bin/sh\necho " + version + "\n"},
		{name: "app/share/data", mode: 0o666, body: strings.Repeat(version+"\n", 1000)},
		{name: "app/share/now", kind: tar.TypeSymlink, link: "../bin/run"},
		{name: "app/share/again", kind: tar.TypeSymlink, link: "data"},
		{name: "app/empty/", kind: tar.TypeDir, mode: 0o500},
	}
}
