package declare

import (
	"fmt"
	"slices"

	"tako.dev/tako/internal/reason"
)

// ignorable lists the fields of a type that may be left to others once it is there, as a plan of the type names them. Of a type that is
// not here, each field is all of it, or can be left out.
func ignorable(t ResourceType) []string {
	switch t {
	case TypeFile:
		return []string{"content", "mode", "owner", "group"}
	case TypeDirectory:
		return []string{"mode", "owner", "group"}
	case TypeSymlink:
		return []string{"owner", "group"}
	case TypeService:
		return []string{"state", "enabled", "masked"}
	case TypeUser:
		return []string{"comment", "home", "shell", "group", "groups", "password", "locked", "expires"}
	}
	return nil
}

// Ignores reports whether a field, as a plan names it, is left to others once the resource is there.
func (r *Resource) Ignores(field string) bool { return slices.Contains(r.Ignore, field) }

// ignore checks which fields of the resource at hand are left to others.
func (v *validator) ignore() {
	r := v.resource
	if len(r.Ignore) == 0 {
		return
	}
	t := r.Type()
	names := ignorable(t)
	if d := r.Directory; d != nil && (d.Recurse != nil || d.Purge) {
		v.fault(v.path("ignore"), reason.FieldNotAllowed, "a directory that answers for what is below it ignores nothing of itself", "leave out of recurse what is others', and name entries in directory.ignore")
		return
	}
	if t == "" || len(names) == 0 {
		if t != "" {
			v.fault(v.path("ignore"), reason.FieldNotAllowed, fmt.Sprintf("of a resource of type %s nothing can be ignored", t), "write drift: observe to be told of its drift only")
		}
		return
	}
	if !v.atMost(v.path("ignore"), len(r.Ignore), len(names), "fields", "") {
		return
	}
	for i, name := range r.Ignore {
		at := v.path(indexPath("ignore", i))
		switch {
		case !slices.Contains(names, name):
			v.unknownWord(at, fmt.Sprintf("field of a %s that can be ignored:", t), name, names)
		case slices.Contains(r.Ignore[:i], name):
			v.invalid(at, fmt.Sprintf("%q is there already", clipText(name)), "remove one of them")
		}
	}
}
