package workloads

import (
	"testing"

	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
)

// TestImageLocality: of nodes that are alike the one is chosen whose host has the image, as soon as it has said so; one that has lost it is as the others.
func TestImageLocality(t *testing.T) {
	object := declare.ObjectReference{Digest: "sha256:" + hash64, SizeBytes: 1}
	for name, image := range map[string]declared.Image{"object": {Object: &object}, "path": {Path: "/srv/image"}} {
		r := newRig(t)
		r.join("n0", "n1", "n2")
		spec := web(1)
		spec.Template.Runtime, spec.Template.Tasks[0].Image = declared.OCI, &image
		has := func(with string) {
			for _, h := range r.hosts {
				h.offers.Runtimes, h.images = []string{"OCI"}, nil
				if h.name == with {
					h.images = []string{image.Name()}
				}
				h.tell()
				h.speak()
			}
			r.settle()
		}
		for _, with := range []string{"n2", "n1", "n0"} {
			has(with)
			r.declare("web", spec)
			r.is("web", "Complete")
			if on := r.instances("web")[0].Spec.Node; on != with {
				t.Errorf("%s: %s has it, and the instance is on %s", name, with, on)
			}
			r.remove("web")
			r.settle()
		}
	}
}

const hash64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
