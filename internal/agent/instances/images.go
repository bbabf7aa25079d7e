package instances

import (
	"sync"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
)

// images are the archives of images that templates name by digest.
type images struct {
	objects *content.Objects

	mu    sync.Mutex              // guards what follows
	named map[content.Digest]bool // true: it was verified in this run of the agent
}

func newImages(objects *content.Objects) *images {
	return &images{objects: objects, named: map[content.Digest]bool{}}
}

// want keeps what templates name, and lets go of what they do not name any more: that is collected with other objects.
func (m *images) want(templates []catalog.Template) {
	if m.objects == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
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
