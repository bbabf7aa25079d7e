package registry

import (
	"bytes"
	"context"
	"maps"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/internal/fleet/exposed"
)

// keepExposed keeps the list of who has had the values of a Secret: only the server adds to it, whatever a writer sends, and a value
// that has changed is exposed no longer.
func keepExposed(ctx context.Context, obj, old runtime.Object) {
	s, text := obj.(*core.Secret), ""
	if was, is := old.(*core.Secret); is {
		if text = was.Annotations[exposed.Annotation]; byItself(ctx) {
			text = s.Annotations[exposed.Annotation]
		}
		text = exposed.Write(exposed.Changed(exposed.Read(text), func(key string) bool {
			value, there := s.Data[key]
			return !there || !bytes.Equal(value, was.Data[key])
		}, allChanged(s.Data, was.Data)))
	}
	if text == s.Annotations[exposed.Annotation] {
		return
	}
	s.Annotations = maps.Clone(s.Annotations)
	delete(s.Annotations, exposed.Annotation)
	if text == "" {
		return
	}
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[exposed.Annotation] = text
}

// allChanged reports whether no value is what it was.
func allChanged(now, was map[string][]byte) bool {
	for key, value := range was {
		if same, there := now[key]; there && bytes.Equal(same, value) {
			return false
		}
	}
	return true
}

// exposedKeys is for people: how many keys of a Secret have values that somebody else has had.
func exposedKeys(o runtime.Object) any {
	s := o.(*core.Secret)
	keys, some := exposed.Keys(exposed.Read(s.Annotations[exposed.Annotation]))
	if some && keys == nil {
		return len(s.Data)
	}
	return len(keys)
}
