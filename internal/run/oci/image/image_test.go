package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run/oci/image/imagetest"
)

// All of the tests give files owners, which only root may.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "skipped: the tests of images need root")
		return
	}
	os.Exit(m.Run())
}

func all(string) bool { return true }

// take unpacks an image.
func take(t *testing.T, s *Store, path, holder string) (got Image, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = s.Take(ctx, path, holder, func(i Image) error { got = i; return nil })
	return got, err
}

func newStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := NewStore(Options{Dir: dir}, all)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// found are the things below a directory, with what tells one from another.
func found(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		rest, ok := strings.CutPrefix(p, dir+"/")
		if err != nil || !ok {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case e.Type().IsRegular():
			text, err := os.ReadFile(p)
			list = append(list, fmt.Sprintf("%s %v %.40q", rest, st.Mode(), text))
			return err
		case e.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			list = append(list, rest+" -> "+to)
			return err
		}
		list = append(list, fmt.Sprintf("%s %v", rest, st.Mode()))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

type file = imagetest.File

// layers are two of which the second hides, replaces and adds.
func layers() [][]file {
	return [][]file{
		{
			imagetest.Dir("./"), imagetest.Dir("etc"), imagetest.Plain("etc/a", "one"), imagetest.Plain("etc/b", "two"), imagetest.Dir("gone"), imagetest.Plain("gone/x", "x"),
			imagetest.Dir("opaque"), imagetest.Plain("opaque/old", "old"), imagetest.Dir("opaque/deep"), imagetest.Plain("opaque/deep/old", "old"),
			imagetest.Dir("usr"), imagetest.Dir("usr/bin"), imagetest.Link("bin", "usr/bin"), imagetest.Link("var", "/usr"), imagetest.Dir("turns"), imagetest.Plain("turns/x", "x"),
			imagetest.Plain("straight", "file"),
		},
		{
			imagetest.Plain("etc/.wh.b", ""), imagetest.Plain(".wh.gone", ""), imagetest.Plain("opaque/new", "new"), imagetest.Plain("opaque/.wh..wh..opq", ""),
			imagetest.Plain("bin/tool", "through a link"), imagetest.Plain("var/share/doc", "through another"), imagetest.Plain("turns", "a file now"),
			imagetest.Dir("straight"), imagetest.Plain("straight/x", "y"), imagetest.Plain("etc/.wh..wh.plnk", ""), imagetest.Plain("etc/a", "changed"),
			{Header: tar.Header{Typeflag: tar.TypeLink, Name: "etc/same", Linkname: "etc/a"}},
			{Header: tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/su", Mode: 0o6755, Uid: 5, Gid: 6}, Body: "setuid"},
			{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "etc/disk", Mode: 0o666, Devmajor: 254}},
			{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "etc/pipe", Mode: 0o644}},
			{Header: tar.Header{Typeflag: tar.TypeDir, Name: "tmp", Mode: 0o7777}},
		},
	}
}

// Layers come one over the other, whatever they are packed with, from a directory and from an archive.
func TestUnpack(t *testing.T) {
	want := []string{
		"bin -> usr/bin", "etc drwxr-xr-x", `etc/a -rw-r--r-- "changed"`, "etc/pipe prw-r--r--", `etc/same -rw-r--r-- "changed"`, "opaque drwxr-xr-x", `opaque/new -rw-r--r-- "new"`,
		"straight drwxr-xr-x", `straight/x -rw-r--r-- "y"`, "tmp dtrwxrwxrwx", `turns -rw-r--r-- "a file now"`, "usr drwxr-xr-x", "usr/bin drwxr-xr-x",
		`usr/bin/su -rwxr-xr-x "setuid"`, `usr/bin/tool -rw-r--r-- "through a link"`, "usr/share drwxr-xr-x", `usr/share/doc -rw-r--r-- "through another"`, "var -> /usr",
	}
	for _, packing := range []string{"", "gzip", "zstd"} {
		dir := t.TempDir()
		layout, archived := filepath.Join(dir, "layout"), filepath.Join(dir, "archive.tar")
		digest := imagetest.Image{Layers: layers(), Packing: packing, Config: map[string]any{"User": "web", "Cmd": []string{"a"}, "Entrypoint": []string{"b"}, "Env": []string{"X=1"}, "WorkingDir": "/w"}}.Write(t, layout)
		imagetest.Archive(t, layout, archived)
		for i, path := range []string{layout, archived} {
			s := newStore(t, filepath.Join(dir, fmt.Sprint("store", i)))
			image, err := take(t, s, path, "me")
			if err != nil {
				t.Fatalf("%s: %v", packing, err)
			}
			got := found(t, image.Root)
			if !slices.Equal(got, want) {
				t.Errorf("%s: there is\n%s\nwant\n%s", packing, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if "sha256:"+string(image.Digest) != digest || image.Config.User != "web" || image.Config.WorkingDir != "/w" || len(image.Config.Env) != 1 {
				t.Errorf("it is %+v, want %s", image, digest)
			}
			if st, err := os.Stat(filepath.Join(image.Root, "etc/a")); err != nil || st.ModTime().Unix() != 0 {
				t.Errorf("its time is %v (%v)", st.ModTime(), err)
			}
			again, err := take(t, s, path, "other")
			if err != nil || again.Root != image.Root {
				t.Errorf("a second time it is %+v (%v)", again, err)
			}
		}
	}
}

// What a layer may try, to reach what is not of the image.
func TestHostile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "mine"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	hard := func(name, target string) file {
		return file{Header: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}}
	}
	up := strings.Repeat("../", 20)
	for name, row := range map[string]struct {
		files   []file
		refused bool
	}{
		"absolute":                     {[]file{imagetest.Plain(outside+"/mine", "x")}, true},
		"dots":                         {[]file{imagetest.Plain(up+outside[1:]+"/mine", "x")}, true},
		"dots within":                  {[]file{imagetest.Dir("a"), imagetest.Plain("a/../../mine", "x")}, true},
		"through a link":               {[]file{imagetest.Link("a", outside), imagetest.Plain("a/mine", "x")}, true}, // in the image there is no such directory
		"through a link of dots":       {[]file{imagetest.Link("a", up+outside[1:]), imagetest.Plain("a/mine", "x")}, true},
		"in place of a link":           {[]file{imagetest.Link("a", outside+"/mine"), imagetest.Plain("a", "x")}, false},
		"a directory over a link":      {[]file{imagetest.Link("a", outside), imagetest.Dir("a"), imagetest.Plain("a/mine", "x")}, false},
		"hard link to outside":         {[]file{hard("a", up+outside[1:]+"/mine"), imagetest.Plain("a", "x")}, true},
		"absolute hard link":           {[]file{hard("a", outside+"/mine")}, true},
		"hard link through a link":     {[]file{imagetest.Link("a", outside), hard("b", "a/mine")}, true},
		"hard link to a link":          {[]file{imagetest.Link("a", outside+"/mine"), hard("b", "a"), imagetest.Plain("b", "x")}, false},
		"whiteout of dots":             {[]file{imagetest.Dir("a"), imagetest.Plain("a/.wh...", "")}, true},
		"whiteout of nothing":          {[]file{imagetest.Plain(".wh.", "")}, true},
		"whiteout of a link":           {[]file{imagetest.Link("a", outside), imagetest.Plain("b/.wh.mine", "")}, false},
		"whiteout through a link":      {[]file{imagetest.Link("a", outside), imagetest.Plain("a/.wh.mine", "")}, true},
		"opaque through a link":        {[]file{imagetest.Link("a", outside), imagetest.Plain("a/.wh..wh..opq", "")}, true},
		"through proc":                 {[]file{imagetest.Link("a", "/proc/self/root"), imagetest.Plain("a"+outside+"/mine", "x")}, true},
		"the root as a file":           {[]file{imagetest.Plain(".", "x")}, true},
		"the root as a link":           {[]file{imagetest.Link(".", outside)}, true},
		"a device, and a file over it": {[]file{{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "disk", Devmajor: 254}}, imagetest.Plain("disk", "x")}, false},
		"an owner that cannot be":      {[]file{{Header: tar.Header{Typeflag: tar.TypeReg, Name: "a", Uid: -1}}}, true},
		"deep":                         {[]file{imagetest.Plain(strings.Repeat("d/", partsMax+2)+"x", "")}, true},
		"long":                         {[]file{imagetest.Plain(strings.Repeat("d", nameMax+1), "")}, true},
		"through a file":               {[]file{imagetest.Plain("a", ""), imagetest.Plain("a/b", "")}, true},
	} {
		dir := t.TempDir()
		layout := filepath.Join(dir, "layout")
		imagetest.Image{Layers: [][]file{row.files}}.Write(t, layout)
		s := newStore(t, filepath.Join(dir, "store"))
		_, err := take(t, s, layout, "me")
		if row.refused != reason.Is(err, reason.ImageRefused) || !row.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := found(t, outside); !slices.Equal(got, []string{`mine -rw-r--r-- "mine"`}) {
			t.Fatalf("%s: outside there is %q", name, got)
		}
		if left := found(t, s.temporary()); len(left) > 0 {
			t.Errorf("%s: %q is left", name, left)
		}
		if kept := found(t, s.images()); row.refused && len(kept) > 0 {
			t.Errorf("%s: %q is kept", name, kept)
		}
	}
}

// What is not what it says it is, is not used; nor what unpacks to more than it may.
func TestRefused(t *testing.T) {
	plain := [][]file{{imagetest.Plain("a", strings.Repeat("zero", 10_000))}}
	sparse := file{Header: tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 4, PAXRecords: map[string]string{"VENDOR.x": "y"}}, Body: "four"}
	for name, make := range map[string]func(dir string){
		"content of a layer": func(dir string) {
			imagetest.Image{Layers: plain, Change: func(_ int, _ map[string]any, b []byte) []byte { b[600] ^= 1; return b }}.Write(t, dir)
		},
		"size of a layer": func(dir string) {
			imagetest.Image{Layers: plain, Change: func(_ int, d map[string]any, b []byte) []byte { d["size"] = len(b) + 1; return b }}.Write(t, dir)
		},
		"what a layer unpacks to": func(dir string) {
			imagetest.Image{Layers: plain, Packing: "gzip", DiffID: imagetest.Digest([]byte("x"))}.Write(t, dir)
		},
		"kind of a layer": func(dir string) {
			imagetest.Image{Layers: plain, Change: func(_ int, d map[string]any, b []byte) []byte {
				d["mediaType"] = "application/x-squashfs"
				return b
			}}.Write(t, dir)
		},
		"packing of a layer": func(dir string) {
			imagetest.Image{Layers: plain, Change: func(_ int, d map[string]any, b []byte) []byte {
				d["mediaType"] = "application/vnd.oci.image.layer.v1.tar+gzip"
				return b
			}}.Write(t, dir)
		},
		"digest with a path": func(dir string) {
			imagetest.Image{Layers: plain, Change: func(_ int, d map[string]any, b []byte) []byte {
				d["digest"] = "sha256:../../index.json"
				return b
			}}.Manifest(t, dir)
			imagetest.Index(t, dir, map[string]any{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:../../index.json", "size": 3})
		},
		"another machine": func(dir string) { imagetest.Image{Layers: plain, Architecture: "pdp11"}.Write(t, dir) },
		"no layers":       func(dir string) { imagetest.Image{}.Write(t, dir) },
		"bomb": func(dir string) {
			imagetest.Image{Layers: [][]file{{imagetest.Plain("a", strings.Repeat("\x00", 3<<20))}}, Packing: "gzip"}.Write(t, dir)
		},
		"bomb of headers": func(dir string) {
			imagetest.Image{Layers: [][]file{slices.Repeat([]file{imagetest.Dir("a")}, 5000)}, Packing: "zstd"}.Write(t, dir)
		},
		"bomb in two parts": func(dir string) {
			imagetest.Image{Layers: [][]file{{imagetest.Plain("a", strings.Repeat("a", 1<<20))}, {imagetest.Plain("a", strings.Repeat("b", 1<<20)), sparse}}}.Write(t, dir)
		},
		"two images": func(dir string) {
			a, b := imagetest.Image{Layers: plain}.Manifest(t, dir), imagetest.Image{Layers: plain, Config: map[string]any{"User": "x"}}.Manifest(t, dir)
			imagetest.Index(t, dir, a, b)
		},
		"endless indexes": func(dir string) {
			d := imagetest.Image{Layers: plain}.Manifest(t, dir)
			for range 5 {
				const kind = "application/vnd.oci.image.index.v1+json"
				d = imagetest.Blob(t, dir, kind, imagetest.JSON(t, map[string]any{"manifests": []any{d}}))
			}
			imagetest.Index(t, dir, d)
		},
		"no JSON": func(dir string) {
			imagetest.Index(t, dir)
			imagetest.Blob(t, dir, "", nil)
			write(t, filepath.Join(dir, "index.json"), "{")
		},
		"index too large": func(dir string) {
			imagetest.Index(t, dir)
			write(t, filepath.Join(dir, "index.json"), "{}"+strings.Repeat(" ", documentMax))
		},
		"somebody else's": func(dir string) {
			imagetest.Image{Layers: plain}.Write(t, dir)
			if err := os.Chown(dir, 1234, 0); err != nil {
				t.Fatal(err)
			}
		},
		"index for everybody": func(dir string) {
			imagetest.Image{Layers: plain}.Write(t, dir)
			if err := os.Chmod(filepath.Join(dir, "index.json"), 0o666); err != nil {
				t.Fatal(err)
			}
		},
		"no layout":      func(dir string) { write(t, filepath.Join(dir, "x"), "") },
		"no archive":     func(dir string) { write(t, dir, "text") },
		"packed archive": func(dir string) { write(t, dir, "\x1f\x8b\x08\x00") },
	} {
		dir := t.TempDir()
		layout := filepath.Join(dir, "layout")
		make(layout)
		s, err := NewStore(Options{Dir: filepath.Join(dir, "store"), BytesMax: 2 << 20}, all)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := take(t, s, layout, "me"); !reason.Is(err, reason.ImageRefused) {
			t.Errorf("%s: %v", name, err)
		}
		if kept := slices.Concat(found(t, s.images()), found(t, s.temporary())); len(kept) > 0 {
			t.Errorf("%s: %q is kept", name, kept)
		}
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Of an index for many machines the one for this is taken, also where indexes stand in one another.
func TestPlatforms(t *testing.T) {
	dir := t.TempDir()
	layout := filepath.Join(dir, "layout")
	mine := imagetest.Image{Layers: [][]file{{imagetest.Plain("mine", "")}}}.Manifest(t, layout)
	other := imagetest.Image{Layers: [][]file{{imagetest.Plain("other", "")}}, Architecture: "pdp11"}.Manifest(t, layout)
	other["platform"] = map[string]string{"architecture": "pdp11", "os": "linux"}
	note := imagetest.Blob(t, layout, "application/vnd.oci.empty.v1+json", []byte("{}"))
	inner := imagetest.Blob(t, layout, "application/vnd.oci.image.index.v1+json", imagetest.JSON(t, map[string]any{"manifests": []any{other, mine, note}}))
	imagetest.Index(t, layout, inner, other)
	image, err := take(t, newStore(t, filepath.Join(dir, "store")), layout, "me")
	if err != nil {
		t.Fatal(err)
	}
	if got := found(t, image.Root); len(got) != 1 || !strings.HasPrefix(got[0], "mine ") {
		t.Errorf("it holds %q", got)
	}
}

// Many that want one image at the same time have it unpacked once; what is used stays, and of the rest a few.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, filepath.Join(dir, "store"))
	var layouts []string
	for i := range idleMax + 3 {
		layouts = append(layouts, filepath.Join(dir, fmt.Sprint("layout", i)))
		imagetest.Image{Layers: [][]file{{imagetest.Plain("a", fmt.Sprint(i))}}}.Write(t, layouts[i])
	}
	var together sync.WaitGroup
	for i := range 20 {
		together.Go(func() {
			if _, err := take(t, s, layouts[i%2], fmt.Sprint("holder", i)); err != nil {
				t.Error(err)
			}
		})
	}
	together.Wait()
	if list, err := os.ReadDir(s.images()); err != nil || len(list) != 2 {
		t.Errorf("%d images are there (%v)", len(list), err)
	}
	for i, l := range layouts {
		if _, err := take(t, s, l, fmt.Sprint("late", i)); err != nil {
			t.Fatal(err)
		}
	}
	used, err := take(t, s, layouts[3], "stays")
	if err != nil {
		t.Fatal(err)
	}
	for h := range maps.Clone(s.uses) {
		if h != "stays" {
			if err := s.Forget(h); err != nil {
				t.Error(err)
			}
		}
	}
	if list, err := os.ReadDir(s.images()); err != nil || len(list) != idleMax+1 {
		t.Errorf("%d images are there, want %d (%v)", len(list), idleMax+1, err)
	}
	if _, err := os.Stat(filepath.Join(used.Root, "a")); err != nil {
		t.Error(err)
	}
	if left := found(t, s.temporary()); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
	// Who has been killed has left something, and holders that nobody knows any more.
	write(t, filepath.Join(s.temporary(), "half/root/a"), "x")
	write(t, s.use("nobody"), string(used.Digest))
	again, err := NewStore(Options{Dir: s.dir}, func(h string) bool { return h == "stays" })
	if err != nil {
		t.Fatal(err)
	}
	if left := found(t, s.temporary()); len(left) > 0 || len(again.uses) != 1 || again.uses["stays"] != used.Digest {
		t.Errorf("%q is left, and used is %v", left, again.uses)
	}
	if err := s.Forget("nobody knows"); err != nil {
		t.Error(err)
	}
}

// Who gives up waits for nobody, and while somebody uses an image it is not forgotten.
func TestTake(t *testing.T) {
	dir := t.TempDir()
	layout := filepath.Join(dir, "layout")
	imagetest.Image{Layers: layers()}.Write(t, layout)
	s := newStore(t, filepath.Join(dir, "store"))
	ctx, cancel := context.WithCancel(t.Context())
	s.one <- struct{}{} // somebody unpacks another one
	cancel()
	if err := s.Take(ctx, layout, "me", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-s.one
	if err := s.Take(ctx, layout, "me", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	err := s.Take(t.Context(), layout, "me", func(Image) error { return s.Forget("me") })
	if _, held := s.uses["me"]; err != nil || !held {
		t.Errorf("it was forgotten while it was used (%v)", err)
	}
}

func TestGarbage(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	there := []kept{{"a", at(1)}, {"b", at(5)}, {"c", at(3)}, {"d", at(2)}, {"e", at(4)}, {"f", at(0)}, {"g", at(3)}}
	if got := garbage(there, map[Digest]bool{"f": true}, idleMax); !slices.Equal(got, []Digest{"d", "a"}) {
		t.Errorf("garbage is %q", got)
	}
	if got := garbage(there[:2], nil, idleMax); got != nil {
		t.Errorf("garbage is %q", got)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	layout := filepath.Join(dir, "layout")
	imagetest.Image{Layers: [][]file{{
		imagetest.Dir("etc"), imagetest.Plain("etc/real", "text"), imagetest.Link("etc/link", "/etc/real"), imagetest.Link("etc/host", "../../../../../etc/hostname"),
		{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "etc/pipe"}},
	}}}.Write(t, layout)
	i, err := take(t, newStore(t, filepath.Join(dir, "store")), layout, "me")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := i.ReadFile("etc/link", 10); err != nil || string(text) != "text" {
		t.Errorf("%q (%v)", text, err)
	}
	if _, err := i.ReadFile("etc/link", 3); err == nil {
		t.Error("more than is wanted is read")
	}
	if _, err := i.ReadFile("etc/host", 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link leads out of the image: %v", err)
	}
	if _, err := i.ReadFile("etc/pipe", 100); err == nil {
		t.Error("a pipe is read")
	}
}

// Whatever a layer holds, nothing outside is touched.
func FuzzLayer(f *testing.F) {
	for _, l := range layers() {
		f.Add(imagetest.Layer(f, l))
	}
	f.Add(imagetest.Layer(f, []file{imagetest.Link("a", "/"), imagetest.Plain("a/b", "x")}))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "root"), 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := openRoot(filepath.Join(dir, "root"))
		if err != nil {
			t.Fatal(err)
		}
		u := &unpacking{root: r, at: dir, bytes: 1 << 20, room: 1 << 20, entries: 100}
		_ = u.apply(t.Context(), strings.NewReader(string(text))) // any error will do
		if err := r.close(); err != nil {
			t.Error(err)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
			t.Errorf("beside the root there is %v (%v)", list, err)
		}
	})
}

// Whatever documents hold, what is taken from them is within bounds.
func FuzzDocuments(f *testing.F) {
	f.Add([]byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:00","size":1,"platform":{"architecture":"amd64","os":"linux"}}]}`))
	f.Add([]byte(`{"config":{"digest":"sha256:00"},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:00","size":-1}]}`))
	f.Add([]byte(`{"architecture":"amd64","os":"linux","config":{"Env":["A=B"]},"rootfs":{"type":"layers","diff_ids":["sha256:00"]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if i, err := parseIndex(text); err == nil && len(i.Manifests) > indexMax {
			t.Errorf("%d images", len(i.Manifests))
		}
		if m, err := parseManifest(text); err == nil && (len(m.Layers) == 0 || len(m.Layers) > layersMax) {
			t.Errorf("%d layers", len(m.Layers))
		}
		if d, err := parseConfig(text, 1); err == nil {
			for _, v := range d.Config.Env {
				if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.Contains(v, "\x00") {
					t.Errorf("the variable %q", v)
				}
			}
		}
		if d, err := parseDigest(string(text)); err == nil && (len(d) != 64 || strings.ContainsAny(string(d), "/.")) {
			t.Errorf("the digest %q", d)
		}
	})
}

// TestNoRoom: what does not fit onto the disk is refused in words, leaves nothing, and disturbs no other image.
func TestNoRoom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=48m"); err != nil {
		t.Skip("needs to mount: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := newStore(t, dir)
	layouts := map[string]string{}
	for name, size := range map[string]int{"small": 1 << 10, "idle": 1 << 20, "large": 64 << 20} {
		layouts[name] = filepath.Join(t.TempDir(), name)
		imagetest.Image{Layers: [][]imagetest.File{{imagetest.Plain("a", strings.Repeat("x", size)+name)}}}.Write(t, layouts[name])
	}
	packed := filepath.Join(t.TempDir(), "packed")
	imagetest.Image{Layers: [][]imagetest.File{{imagetest.Plain("a", strings.Repeat("y", 64<<20))}}, Packing: "gzip"}.Write(t, packed)
	small, err := take(t, s, layouts["small"], "one")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := take(t, s, layouts["idle"], "two"); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget("two"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{layouts["large"], packed} {
		_, err := take(t, s, path, "three")
		if !reason.Is(err, reason.DiskFull) || !strings.Contains(err.Error(), "MiB more are needed") {
			t.Errorf("%s: %v", path, err)
		}
		if err := s.Forget("three"); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(filepath.Join(dir, "temporary"))
	images, err2 := os.ReadDir(filepath.Join(dir, "images"))
	if err != nil || err2 != nil || len(left) != 0 || len(images) != 1 || images[0].Name() != prefix+string(small.Digest) {
		t.Errorf("left are %v and the images %v (%v, %v)", left, images, err, err2)
	}
	if text, err := small.ReadFile("a", 1<<20); err != nil || !strings.HasSuffix(string(text), "small") {
		t.Errorf("the image that is in use has %d bytes (%v)", len(text), err)
	}
}
