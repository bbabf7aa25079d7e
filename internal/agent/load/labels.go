package load

import (
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

// Labelled knows the labels that the cluster has given the host, beside what the host sees of itself.
func Labelled(own catalog.Own, rest declare.Lookup) declare.Lookup {
	return func(name string) (declare.Value, bool) {
		if key, ok := declare.LabelKey(name); ok {
			return declare.TextValue(own.Labels[key]), true
		}
		return rest(name)
	}
}
