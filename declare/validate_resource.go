package declare

import (
	"fmt"
	"path"
	"strings"

	"tako.dev/tako/internal/reason"
)

const (
	checkPlaceholder = "{}"     // stands for the path of the new content in a check command
	temporaryPrefix  = ".tako." // names of files that are being written; stale ones are removed
)

// path is a path below the resource at hand.
func (v *validator) path(field string) string {
	if field == "" {
		return ResourcePath(v.index)
	}
	return ResourcePath(v.index) + "." + field
}

// one validates the resource at hand by itself.
func (v *validator) one() {
	r := v.resource
	if r.Name == "" {
		v.fault(v.path("name"), reason.MissingField, ResourcePath(v.index)+` has no "name"`, "")
	} else if !isResourceName(r.Name) {
		v.invalid(v.path("name"), fmt.Sprintf("%q is not a name of a resource", clipText(r.Name)), "a letter or digit, then letters, digits and any of . _ - + @ : up to 253 bytes")
	}
	v.types()
	if size := r.textBytes(); size > BodyBytesMax {
		v.fault(v.path(""), reason.BodyTooLarge, fmt.Sprintf("the resource has %d bytes of text, at most %d are allowed", size, BodyBytesMax), "")
	}
	v.onRemove()
	if message, hint := TTLMistake(r.TTL); message != "" {
		v.invalid(v.path("ttl"), message, hint)
	}
	v.drift(v.path("drift"), r.Drift)
	v.ownWindows()
	v.ignore()
	if r.When != "" {
		if _, err := parseWhen(r.When); err != nil {
			v.expression(v.path("when"), "condition", err)
		}
	}
	if r.Expand {
		for _, t := range r.texts() {
			if _, err := expandNames(*t.text); err != nil {
				v.expression(v.path(t.field), "expansion", err)
			}
		}
		v.claimExpansion()
	}
}

// types checks that there is exactly one type, and that one.
func (v *validator) types() {
	var set []string
	for _, f := range typeFields {
		if b := f.body(v.resource); b != nil {
			set = append(set, string(f.name))
			b.validate(v)
		}
	}
	switch {
	case len(set) == 0:
		v.fault(v.path(""), reason.NotExactlyOneType, "the resource has no type", "add one of: "+typeNames())
	case len(set) > 1:
		v.fault(v.path(set[1]), reason.NotExactlyOneType, "the resource has several types: "+joinWords(set), "make one resource of each; `require` orders them")
	}
}

func typeNames() string {
	var names []string
	for _, name := range ResourceTypes() {
		names = append(names, string(name))
	}
	return strings.Join(names, ", ")
}

// onRemove checks the answer to a removal. Everything can be kept or restored; what cannot be deleted says so.
func (v *validator) onRemove() {
	r := v.resource
	switch r.OnRemove {
	case "", OnRemoveKeep, OnRemoveRestore:
	case OnRemoveDelete:
		_, b := r.typed()
		if p, ok := b.(permanent); ok {
			if message, hint := p.permanent(); message != "" {
				v.fault(v.path("onRemove"), reason.FieldNotAllowed, message, hint)
			}
		}
	default:
		v.unknownWord(v.path("onRemove"), "onRemove", string(r.OnRemove), []string{string(OnRemoveKeep), string(OnRemoveRestore), string(OnRemoveDelete)})
	}
}

func (v *validator) expression(path, what string, err *expressionError) {
	v.fault(path, err.code, fmt.Sprintf("%s, column %d: %s", what, err.column, err.message), err.hint)
}

// claimExpansion refuses an expansion in what the resource is about: a claim is compared before any host is known.
func (v *validator) claimExpansion() {
	if strings.Contains(v.resource.Claim().ID, "$(") {
		v.fault(v.path(v.resource.claimField()), reason.FieldNotAllowed, "no expansion is allowed here: it says what the resource is about", "write one resource for each case, with `when`")
	}
}

// fsPath checks a path that a resource claims. Odd names are fine: what the kernel takes, a person may declare.
func (v *validator) fsPath(field, p string) {
	at := v.path(field)
	if p == "" {
		parent, name, _ := strings.Cut(field, ".")
		v.fault(at, reason.MissingField, fmt.Sprintf("%s has no %q", v.path(parent), name), "")
		return
	}
	if message, hint := pathMistake(p); message != "" {
		v.invalid(at, message, hint)
	}
}

// pathMistake returns what is wrong with a claimed path, or "".
func pathMistake(p string) (message, hint string) {
	const componentBytesMax = 255 // NAME_MAX, limits.h
	switch {
	case strings.Contains(p, "\x00"):
		return "the path holds a NUL byte, which no file name can", ""
	case !strings.HasPrefix(p, "/"):
		return fmt.Sprintf("path %q is not absolute", clipText(p)), "begin it with /"
	case p == "/":
		return "the path is /, which is not to be managed", ""
	case path.Clean(p) != p:
		return fmt.Sprintf("path %q is not in its shortest form", clipText(p)), fmt.Sprintf("write %q", clipText(path.Clean(p)))
	case len(p) >= PathBytesMax:
		return fmt.Sprintf("the path has %d bytes, at most %d are possible", len(p), PathBytesMax-1), ""
	}
	for component := range strings.SplitSeq(p[1:], "/") {
		if len(component) > componentBytesMax {
			return fmt.Sprintf("a name in the path has %d bytes, at most %d are possible", len(component), componentBytesMax), ""
		}
		if strings.HasPrefix(component, temporaryPrefix) {
			return fmt.Sprintf("names that begin with %s are kept for files that are being written", temporaryPrefix), "choose another name"
		}
	}
	return "", ""
}

// mode checks a mode of a file or directory, octal or in symbols. Both take the same symbols.
func (v *validator) mode(field string, m Mode) {
	if _, ok := m.Rule(false); m == "" || ok {
		return
	}
	hint := `write octal digits, for example "0644", or symbols, for example "u=rw,g=r,o="`
	if rest, found := strings.CutPrefix(string(m), "0o"); found {
		hint = fmt.Sprintf("write %q", clipText("0"+rest))
	} else if strings.ContainsAny(string(m), "+=") {
		hint = "symbols are who (u, g, o, a), then + - or =, then any of r w x s t: without who, X and copies (g=u) depend on more than the mode itself"
	} else if strings.ContainsAny(string(m), "rwx") {
		hint = `write octal digits: rw-r--r-- is "0644"`
	}
	v.invalid(v.path(field), fmt.Sprintf("%q is not a mode: octal up to 07777, or symbols", clipText(string(m))), hint)
}

func (v *validator) owners(parent, owner, group string) {
	for _, o := range []struct{ field, name string }{{"owner", owner}, {"group", group}} {
		if v.resource.Expand && strings.Contains(o.name, "$(") {
			continue
		}
		if o.name != "" && !isOwner(o.name) {
			v.invalid(v.path(parent+"."+o.field), fmt.Sprintf("%q is neither a name nor a number of a user or group", clipText(o.name)), ownerHint(o.name))
		}
	}
}

func ownerHint(name string) string {
	if strings.Contains(name, ":") {
		return "write owner and group apart: owner: www-data, group: adm"
	}
	return ""
}
