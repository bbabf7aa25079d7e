package instances

import (
	"os"
	"path/filepath"
	"slices"
	"sync"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// images are the archives of images that templates name by digest.
type images struct {
	objects *content.Objects

	mu    sync.Mutex              // guards what follows
	named map[content.Digest]bool // true: it was verified in this run of the agent
	used  []string                // what templates have named, as they do, the last ones first; at most wire.ImagesMax
}

func newImages(objects *content.Objects) *images {
	return &images{objects: objects, named: map[content.Digest]bool{}}
}

// want keeps what templates name, and lets go of what they do not name any more: that is collected with other objects.
func (m *images) want(templates []catalog.Template) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used = lastUsed(m.used, templates)
	if m.objects == nil {
		return
	}
	named := map[content.Digest]bool{}
	for i := range templates {
		for _, o := range templates[i].Spec.Objects() {
			if d, err := content.ParseDigest(o.Digest); err == nil { // validation lets no other through
				named[d] = m.named[d]
			}
		}
	}
	for d := range named {
		if _, had := m.named[d]; !had {
			m.objects.Use(d)
		}
	}
	for d := range m.named {
		if _, has := named[d]; !has {
			m.objects.Release(d)
		}
	}
	m.named = named
}

// path is where an image is on the host. One that is named by digest and not here yet is asked for, and is ObjectComing; that which is here was
// verified, once in each run of the agent: an image may have a gigabyte, and probes are run from it every few seconds.
func (m *images) path(i *workload.Image, of *catalog.Template) (string, error) {
	if i.Object == nil {
		return i.Path, nil
	}
	d, err := content.ParseDigest(i.Object.Digest)
	if err != nil {
		return "", err
	}
	if m.objects == nil {
		return "", &reason.Error{Code: reason.ObjectMissing, Doing: "fetch image " + d.String(), Hint: "name the image by a path"}
	}
	if m.verified(d) {
		if f, err := m.objects.Look(d); err == nil {
			return f.Name(), f.Close()
		}
	}
	f, err := m.objects.Open(content.Wanted{Digest: d, Size: i.Object.SizeBytes, Claim: of.Claim()})
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	if _, wanted := m.named[d]; wanted {
		m.named[d] = true
	}
	m.mu.Unlock()
	return f.Name(), f.Close()
}

func (m *images) verified(d content.Digest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.named[d]
}

// lastUsed are the images that were used last: those of the templates that there are, and then those of before.
func lastUsed(before []string, templates []catalog.Template) []string {
	var all []string
	for i := range templates {
		for k := range templates[i].Spec.Tasks {
			if image := templates[i].Spec.Tasks[k].Image; image != nil {
				all = append(all, image.Name())
			}
		}
	}
	slices.Sort(all) // templates are in no order, and what is told must not change with it
	all = slices.Compact(all)
	for _, name := range before {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all[:min(len(all), wire.ImagesMax)]
}

// here are the images that need not be fetched, in order: of those that were used last what is here still.
func (m *images) here() []string {
	m.mu.Lock()
	used := slices.Clone(m.used)
	m.mu.Unlock()
	return slices.Sorted(func(yield func(string) bool) {
		for _, name := range used {
			if len(name) <= wire.ImageNameMax && m.has(name) && !yield(name) {
				return
			}
		}
	})
}

func (m *images) has(name string) bool {
	if filepath.IsAbs(name) {
		_, err := os.Lstat(name)
		return err == nil
	}
	d, err := content.ParseDigest(name)
	return err == nil && m.objects != nil && m.objects.Has(d)
}

// Images are those that instances can be started from without fetching one, as templates name them.
func (k *Keeper) Images() []string { return k.images.here() }
