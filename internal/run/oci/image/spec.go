package image

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// Bounds of the documents of a layout.
const (
	// documentMax is what others take at most, too.
	documentMax = 4 << 20
	layersMax   = 512
	indexDepth  = 3
	indexMax    = 1000 // images in one index
)

// Digest is a SHA-256 in hexadecimal digits, without its algorithm.
type Digest string

// parseDigest reads a digest of the specification.
func parseDigest(text string) (Digest, error) {
	digits, ok := strings.CutPrefix(text, "sha256:")
	if raw, err := hex.DecodeString(digits); !ok || err != nil || len(raw) != 32 || digits != strings.ToLower(digits) {
		return "", fmt.Errorf("the digest %.80q is not sha256: and 64 hexadecimal digits", text)
	}
	return Digest(digits), nil
}

// descriptor says what a document or layer is.
type descriptor struct {
	MediaType string    `json:"mediaType"`
	Digest    string    `json:"digest"`
	Size      int64     `json:"size"`
	Platform  *platform `json:"platform"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// here reports whether an image for a platform runs on this machine. What it does not say fits.
func (p *platform) here() bool {
	return p == nil || (p.OS == "" || p.OS == "linux") && (p.Architecture == "" || p.Architecture == runtime.GOARCH)
}

// index is index.json, or what one names in turn.
type index struct {
	Manifests []descriptor `json:"manifests"`
}

// manifest is what an image consists of.
type manifest struct {
	Config descriptor   `json:"config"`
	Layers []descriptor `json:"layers"`
}

// Config is what an image says of how it is run.
type Config struct {
	User       string
	Env        []string
	Entrypoint []string
	Cmd        []string
	WorkingDir string
}

// document is a configuration as it is written.
type document struct {
	platform
	Config Config `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// kind tells the media types of the specification and those that it has come from.
func kind(mediaType string) string {
	switch mediaType {
	case "application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json":
		return "index"
	case "application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json":
		return "manifest"
	}
	return ""
}

// packing is how a layer is compressed: "", "gzip" or "zstd".
func packing(mediaType string) (string, error) {
	layer := strings.Replace(mediaType, "layer.nondistributable.", "layer.", 1)
	switch layer {
	case "application/vnd.oci.image.layer.v1.tar":
		return "", nil
	case "application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.docker.image.rootfs.diff.tar.gzip":
		return "gzip", nil
	case "application/vnd.oci.image.layer.v1.tar+zstd":
		return "zstd", nil
	}
	return "", fmt.Errorf("a layer is of the kind %.80q, which is not read", mediaType)
}

// parseIndex reads an index.
func parseIndex(text []byte) (index, error) {
	var i index
	if err := json.Unmarshal(text, &i); err != nil {
		return index{}, err
	}
	if len(i.Manifests) > indexMax {
		return index{}, fmt.Errorf("it names more than %d images", indexMax)
	}
	return i, nil
}

// parseManifest reads a manifest.
func parseManifest(text []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return manifest{}, err
	}
	if len(m.Layers) == 0 || len(m.Layers) > layersMax {
		return manifest{}, fmt.Errorf("it has %d layers, 1 to %d are possible", len(m.Layers), layersMax)
	}
	for _, l := range m.Layers {
		if _, err := packing(l.MediaType); err != nil {
			return manifest{}, err
		}
	}
	return m, nil
}

// parseConfig reads the configuration of an image with so many layers.
func parseConfig(text []byte, layers int) (document, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return document{}, err
	}
	if !d.here() {
		return document{}, fmt.Errorf("it is for %.40s/%.40s, and this host is linux/%s", d.OS, d.Architecture, runtime.GOARCH)
	}
	if len(d.RootFS.DiffIDs) != layers {
		return document{}, fmt.Errorf("it names %d layers, and the manifest %d", len(d.RootFS.DiffIDs), layers)
	}
	for _, v := range d.Config.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.IndexByte(v, 0) >= 0 {
			return document{}, errors.New("one of its variables has no name, or holds a zero byte")
		}
	}
	return d, nil
}
