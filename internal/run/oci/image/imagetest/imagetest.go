// Package imagetest writes OCI image layouts for tests, right ones and such as nobody ought to write.
//
// The package starts no goroutine.
package imagetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// File is an entry of a layer.
type File struct {
	tar.Header
	Body string
}

// Dir, Plain and Link are the entries that most layers have.
func Dir(name string) File {
	return File{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}}
}

// Plain is a regular file.
func Plain(name, body string) File {
	return File{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, Body: body}
}

// Link is a symlink.
func Link(name, target string) File {
	return File{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}}
}

// Image is what a layout is made of.
type Image struct {
	Layers [][]File
	// Packing of all layers: "", "gzip" or "zstd".
	Packing string
	// Config is the part of the configuration that says how it is run.
	Config map[string]any
	// Architecture is whom it is for. Default this machine.
	Architecture string
	// DiffID is what the configuration says that every layer unpacks to. Default what it does.
	DiffID string
	// Change may change the descriptor of a layer, or its bytes, before they are written; nil: it does not.
	Change func(n int, descriptor map[string]any, packed []byte) []byte
}

// Layer is the bytes of a layer that is not compressed.
func Layer(t testing.TB, files []File) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		f.Size = int64(len(f.Body))
		if err := w.WriteHeader(&f.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.Body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Digest is that of bytes, as the specification writes it.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Blob puts bytes into a layout, and describes them.
func Blob(t testing.TB, dir, mediaType string, b []byte) map[string]any {
	t.Helper()
	digest := Digest(b)
	write(t, filepath.Join(dir, "blobs/sha256", digest[len("sha256:"):]), b)
	return map[string]any{"mediaType": mediaType, "digest": digest, "size": len(b)}
}

func write(t testing.TB, name string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// JSON is a value as text.
func JSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Write writes a layout with the image alone, and returns the digest of its manifest.
func (i Image) Write(t testing.TB, dir string) string {
	t.Helper()
	d := i.Manifest(t, dir)
	Index(t, dir, d)
	return d["digest"].(string)
}

// Index writes the index of a layout.
func Index(t testing.TB, dir string, manifests ...map[string]any) {
	t.Helper()
	write(t, filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`))
	write(t, filepath.Join(dir, "index.json"), JSON(t, map[string]any{"schemaVersion": 2, "manifests": manifests}))
}

// Manifest writes the image into a layout, and describes it.
func (i Image) Manifest(t testing.TB, dir string) map[string]any {
	t.Helper()
	var layers []map[string]any
	var sums []string
	for n, files := range i.Layers {
		plain := Layer(t, files)
		packed, mediaType := pack(t, plain, i.Packing), "application/vnd.oci.image.layer.v1.tar"
		if i.Packing != "" {
			mediaType += "+" + i.Packing
		}
		d := Blob(t, dir, mediaType, packed)
		if i.Change != nil {
			changed := i.Change(n, d, packed)
			write(t, filepath.Join(dir, "blobs/sha256", d["digest"].(string)[len("sha256:"):]), changed)
		}
		sum := Digest(plain)
		if i.DiffID != "" {
			sum = i.DiffID
		}
		layers, sums = append(layers, d), append(sums, sum)
	}
	architecture := i.Architecture
	if architecture == "" {
		architecture = runtime.GOARCH
	}
	config := Blob(t, dir, "application/vnd.oci.image.config.v1+json", JSON(t, map[string]any{
		"architecture": architecture, "os": "linux", "config": i.Config, "rootfs": map[string]any{"type": "layers", "diff_ids": sums},
	}))
	const manifest = "application/vnd.oci.image.manifest.v1+json"
	return Blob(t, dir, manifest, JSON(t, map[string]any{"schemaVersion": 2, "mediaType": manifest, "config": config, "layers": layers}))
}

func pack(t testing.TB, plain []byte, how string) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch how {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zstd":
		z, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		w = z
	default:
		return plain
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Archive puts a layout into an archive.
func Archive(t testing.TB, dir, file string) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, file, b.Bytes())
}
