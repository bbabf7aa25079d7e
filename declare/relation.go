package declare

import "slices"

// Relation is how a resource relates to others of its config, by their names: as it says itself, then as they say. A name may stand
// in a list twice, where both say so.
type Relation struct {
	Require   []string // must be converged first
	Notify    []string // are told when it has changed
	OnFailure []string // are wanted only while it has failed
}

// Relations returns how each of a config's resources relates to the others, whichever of two says so: `before` is `require` from the
// other end, and `subscribe` is `notify`. It shares memory with the resources.
func Relations(resources []Resource) []Relation {
	all := make([]Relation, len(resources))
	mirrored := false
	for i := range resources {
		r := &resources[i]
		all[i] = Relation{slices.Clip(r.Require), slices.Clip(r.Notify), r.OnFailure}
		mirrored = mirrored || len(r.Before)+len(r.Subscribe) > 0
	}
	if !mirrored {
		return all
	}
	byName := make(map[string]int, len(resources))
	for i := range resources {
		byName[resources[i].Name] = i
	}
	for i := range resources {
		r := &resources[i]
		for _, name := range r.Before {
			if after, known := byName[name]; known {
				all[after].Require = append(all[after].Require, r.Name)
			}
		}
		for _, name := range r.Subscribe {
			if source, known := byName[name]; known {
				all[source].Notify = append(all[source].Notify, r.Name)
			}
		}
	}
	return all
}

// Unrelated returns the resource without its name and what it says of others: what is wanted of its claim, whatever it is called and
// whenever its turn is.
func (r *Resource) Unrelated() Resource {
	out := *r
	out.Name = ""
	for _, list := range out.references() {
		*list.names = nil
	}
	return out
}

// reference is a list of names of other resources.
type reference struct {
	field string
	names *[]string
}

// references are the lists of names of other resources, in the order in which they are documented.
func (r *Resource) references() []reference {
	return []reference{{"require", &r.Require}, {"before", &r.Before}, {"notify", &r.Notify}, {"subscribe", &r.Subscribe}, {"onFailure", &r.OnFailure}}
}

// Ordered returns the resource with its lists of names of other resources sorted: they are sets.
func (r *Resource) Ordered() Resource {
	out := *r
	for _, list := range out.references() {
		*list.names = slices.Sorted(slices.Values(*list.names))
	}
	return out
}
