package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// hostile are entries of archives that somebody means harm with, by what is wrong with them.
func hostile() map[string][]entry {
	good := entry{name: "good", body: "good"}
	deep := strings.Repeat("d/", partsMax+1)
	return map[string][]entry{
		"absolute name":                 {good, {name: "/etc/evil", body: "x"}},
		"up":                            {good, {name: "../evil", body: "x"}},
		"up in the middle":              {good, {name: "a/../../evil", body: "x"}},
		"only up":                       {good, {name: "..", kind: tar.TypeDir}},
		"link out":                      {good, {name: "l", kind: tar.TypeSymlink, link: "../evil"}},
		"link to a root":                {good, {name: "l", kind: tar.TypeSymlink, link: "/etc"}},
		"link up after a name":          {{name: "a/b/l", kind: tar.TypeSymlink, link: "../.."}, {name: "m", kind: tar.TypeSymlink, link: "a/b/l/../x"}},
		"deep link out":                 {{name: "a/b/l", kind: tar.TypeSymlink, link: "../../../x"}},
		"through a link":                {{name: "d/", kind: tar.TypeDir}, {name: "l", kind: tar.TypeSymlink, link: "d"}, {name: "l/evil", body: "x"}},
		"over a link":                   {{name: "d", body: "x"}, {name: "l", kind: tar.TypeSymlink, link: "d"}, {name: "l", body: "evil"}},
		"directory over a link":         {{name: "d/", kind: tar.TypeDir}, {name: "l", kind: tar.TypeSymlink, link: "d"}, {name: "l/", kind: tar.TypeDir, mode: 0o777}},
		"twice":                         {good, good},
		"below a file":                  {good, {name: "good/evil", body: "x"}},
		"device":                        {good, {name: "d", kind: tar.TypeChar}},
		"FIFO":                          {good, {name: "f", kind: tar.TypeFifo}},
		"setuid":                        {good, {name: "su", mode: 0o4755, body: "x"}},
		"name of what is being written": {good, {name: ".tako.good.000000000000", body: "x"}},
		"long part":                     {good, {name: strings.Repeat("x", 256), body: "x"}},
		"too deep":                      {good, {name: deep + "f", body: "x"}},
	}
}

func TestHostile(t *testing.T) {
	g := newGround(t)
	r := g.bind(declare.Archive{Path: g.path("app"), From: declare.ArchiveSource{Path: g.sources + "/evil"}})
	only := hostile()
	only["hard link out"] = []entry{{name: "l", kind: tar.TypeLink, link: "../../../../etc/passwd"}}
	only["hard link to a root"] = []entry{{name: "l", kind: tar.TypeLink, link: "/etc/passwd"}}
	only["hard link to nothing"] = []entry{{name: "l", kind: tar.TypeLink, link: "nothing"}}
	only["hard link to a directory"] = []entry{{name: "d/", kind: tar.TypeDir}, {name: "l", kind: tar.TypeLink, link: "d"}}
	only["hard link through a link"] = []entry{{name: "d/f", body: "x"}, {name: "s", kind: tar.TypeSymlink, link: "d"}, {name: "l", kind: tar.TypeLink, link: "s/f"}}
	only["block device"] = []entry{{name: "d", kind: tar.TypeBlock}}
	only["unknown type"] = []entry{{name: "d", kind: 'Z'}}
	for what, entries := range only {
		archives := map[string][]byte{"tar": tarOf(t, entries...)}
		if _, zipped := hostile()[what]; zipped {
			archives["zip"] = zipOf(t, entries...)
		}
		for form, data := range archives {
			g.source("evil", data)
			res := g.converge(r)
			if !reason.Is(res.Err, reason.ArchiveRefused) && !reason.Is(res.Err, reason.ArchiveTooLarge) || res.Changed || len(g.names()) != 0 {
				t.Errorf("%s, %s: %+v, and %v", what, form, res, g.names())
			}
		}
	}
	for form, data := range map[string][]byte{
		"backslash": zipOf(t, entry{name: `a\..\..\evil`, body: "x"}),
		"cut off":   gzipped(t, tarOf(t, entry{name: "f", body: strings.Repeat("random", 1000)}))[:60],
		"no end":    tarOf(t, entry{name: "f", body: strings.Repeat("x", 600)})[:1024],
		"empty":     {},
		"no entry":  tarOf(t),
		"xz":        {0xfd, '7', 'z', 'X', 'Z', 0},
		"zip cut":   zipOf(t, entry{name: "f", body: "x"})[:40],
	} {
		g.source("evil", data)
		res := g.converge(r)
		if !reason.Is(res.Err, reason.ArchiveUnreadable) && !reason.Is(res.Err, reason.ArchiveRefused) || len(g.names()) != 0 {
			t.Errorf("%s: %+v, and %v", form, res, g.names())
		}
	}
}

// zeros is a file of zeros in an archive.
func zeros(w io.Writer, size int64) {
	tw := tar.NewWriter(w)
	if err := tw.WriteHeader(&tar.Header{Name: "zeros", Typeflag: tar.TypeReg, Mode: 0o644, Size: size}); err != nil {
		return
	}
	chunk := make([]byte, 1<<20)
	for ; size > 0; size -= int64(len(chunk)) {
		if _, err := tw.Write(chunk[:min(size, int64(len(chunk)))]); err != nil {
			return // nobody reads any more
		}
	}
	_ = tw.Close()
}

func TestBombs(t *testing.T) {
	g := newGround(t)
	for what, c := range map[string]struct {
		data []byte
		max  int64
	}{
		"directory of a zip": {zipOfNames(t, 65_000), 0},
		"bytes declared":     {tarOf(t, entry{name: "f", body: strings.Repeat("x", 1001)}), 1000},
		"bytes in a zip":     {zipOf(t, entry{name: "f", body: strings.Repeat("x", 1001)}), 1000},
	} {
		r := g.bind(declare.Archive{Path: g.path("app"), From: declare.ArchiveSource{Path: g.source("bomb", c.data)}, SizeBytesMax: c.max})
		if res := g.converge(r); !reason.Is(res.Err, reason.ArchiveTooLarge) || len(g.names()) != 0 {
			t.Errorf("%s: %+v, and %v", what, res, g.names())
		}
	}
}

// zipOfNames makes a zip file with a large directory and nothing else.
func zipOfNames(t *testing.T, n int) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := range n {
		if _, err := w.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("%d%s", i, strings.Repeat("x", 250))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSinkLimits(t *testing.T) {
	open := func() *sink {
		fd, err := unix.Open(t.TempDir(), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return &sink{doing: "test", root: fd, uid: -1, gid: -1, bytesMax: 1 << 40, archive: 10, dirFD: -1}
	}
	s := open()
	s.entries = entriesMax - 5
	deep := tarOf(t, entry{name: "a/b/c/d/e/f", body: "x"})
	if err := unpack(t.Context(), bytes.NewReader(deep), int64(len(deep)), s); !reason.Is(err, reason.ArchiveTooLarge) {
		t.Errorf("directories that are not named count too: %v", err)
	}
	s.close()

	s = open() // of 10 bytes not more than 64 MiB may come
	pipe, w := io.Pipe()
	go func() {
		zeros(w, ratioFree+1<<20)
		w.Close()
	}()
	if err := untar(t.Context(), pipe, s); !reason.Is(err, reason.ArchiveTooLarge) || s.written > s.limit()+copyBuffer {
		t.Errorf("ratio: %v after %d bytes", err, s.written)
	}
	pipe.Close()
	s.close()

	s = open() // one file under many names is as large as many files, for who copies it
	s.bytesMax = 1000
	if err := errors.Join(s.file(t.Context(), "f", 0o644, time.Time{}, strings.NewReader(strings.Repeat("x", 400))), s.hardLink("g", "f"), s.hardLink("h", "f")); err != nil {
		t.Fatal(err)
	}
	if err := s.hardLink("i", "f"); !reason.Is(err, reason.ArchiveTooLarge) {
		t.Errorf("links: %v", err)
	}
	s.close()
}

// TestLarge unpacks what is far larger than what the agent may have in memory.
func TestLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 300 MB")
	}
	g := newGround(t)
	source := g.sources + "/large"
	f, err := os.Create(source)
	g.must(err)
	zeros(f, 300<<20)
	g.must(f.Close())
	r := g.bind(declare.Archive{Path: g.path("app"), From: declare.ArchiveSource{Path: source}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	g.made(r)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 3<<20 {
		t.Errorf("%d bytes of memory were taken", n)
	}
}

// safe says what is wrong with what was unpacked.
func safe(root string) error {
	return filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		if st.Sys().(*syscall.Stat_t).Mode&0o7000 != 0 {
			return fmt.Errorf("%q has mode %v", p, st.Mode())
		}
		switch st.Mode().Type() {
		case 0, fs.ModeDir:
			return nil
		case fs.ModeSymlink:
			// The kernel says whether it leads out.
			fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			rel, _ := filepath.Rel(root, p)
			to, err := unix.Openat2(fd, rel, &unix.OpenHow{Flags: unix.O_PATH, Resolve: unix.RESOLVE_BENEATH})
			if err == nil {
				unix.Close(to)
			}
			if err == unix.EXDEV {
				return fmt.Errorf("%q leads out", p)
			}
			return nil
		}
		return fmt.Errorf("%q is %v", p, st.Mode())
	})
}

func FuzzUnpack(f *testing.F) {
	for _, entries := range hostile() {
		f.Add(tarOf(f, entries...))
		f.Add(zipOf(f, entries...))
	}
	f.Add(gzipped(f, tarOf(f, program("1")...)))
	f.Add(tarOf(f, entry{name: "f", body: "x"}, entry{name: "g", kind: tar.TypeLink, link: "f"}))
	f.Add(zipOf(f, program("1")...))
	top := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		dir, err := os.MkdirTemp(top, "") // t.TempDir is removed by name, which is slow where it is deep
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		root := dir + "/root"
		if err := os.Mkdir(root, 0o700); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		s := &sink{doing: "fuzz", root: fd, umask: 0o022, uid: -1, gid: -1, bytesMax: 1 << 20, archive: int64(len(data)), dirFD: -1}
		err = unpack(t.Context(), bytes.NewReader(data), int64(len(data)), s)
		s.close()
		if err != nil && reason.Of(err).Code == reason.InternalFault {
			t.Errorf("an error without a code: %v", err)
		}
		if err := safe(root); err != nil {
			t.Error(err)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
			t.Errorf("beside it: %v, %v", list, err)
		}
		if s.written > 1<<20 {
			t.Errorf("%d bytes were written", s.written)
		}
	})
}
