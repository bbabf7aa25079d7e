package declare

import (
	"fmt"
	"path"
	"slices"
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
	if r.When != "" {
		if _, err := parseWhen(r.When); err != nil {
			v.expression(v.path("when"), "condition", err)
		}
	}
	if r.Expand {
		for _, t := range r.expandable() {
			if _, err := expandNames(*t.text); err != nil {
				v.expression(v.path(t.field), "expansion", err)
			}
		}
		v.claimExpansion()
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

// types checks that there is exactly one type, and that one.
func (v *validator) types() {
	r := v.resource
	var given []string
	add := func(t ResourceType, set bool) {
		if set {
			given = append(given, string(t))
		}
	}
	add(TypeFile, r.File != nil)
	add(TypeDirectory, r.Directory != nil)
	add(TypeSymlink, r.Symlink != nil)
	add(TypePackage, r.Package != nil)
	add(TypeService, r.Service != nil)
	switch {
	case len(given) == 0:
		v.fault(v.path(""), reason.NotExactlyOneType, "the resource has no type", "add one of: file, directory, symlink, package, service")
	case len(given) > 1:
		v.fault(v.path(given[1]), reason.NotExactlyOneType, "the resource has several types: "+joinWords(given), "make one resource of each; `require` orders them")
	}
	if r.File != nil {
		v.file(r.File)
	}
	if r.Directory != nil {
		v.fsPath("directory.path", r.Directory.Path)
		v.mode("directory.mode", r.Directory.Mode)
		v.owners("directory", r.Directory.Owner, r.Directory.Group)
	}
	if r.Symlink != nil {
		v.symlink(r.Symlink)
	}
	if r.Package != nil {
		v.packageType(r.Package)
	}
	if r.Service != nil {
		v.service(r.Service)
	}
}

func (v *validator) file(f *File) {
	v.fsPath("file.path", f.Path)
	v.mode("file.mode", f.Mode)
	v.owners("file", f.Owner, f.Group)
	if f.ContentFrom != nil {
		v.contentFrom(f)
	}
	if len(f.Check) == 0 || !v.atMost(v.path("file.check"), len(f.Check), ArgumentsMax, "arguments", "") {
		return
	}
	const rule = `{} stands for the path of the new content, for example ["/usr/sbin/nginx", "-t", "-c", "{}"]`
	if f.Check[0] == "" || strings.Contains(f.Check[0], checkPlaceholder) {
		v.invalid(v.path("file.check[0]"), "the check command begins with no program", rule)
	}
	if !slices.ContainsFunc(f.Check[1:], func(s string) bool { return strings.Contains(s, checkPlaceholder) }) {
		v.invalid(v.path("file.check"), "no argument of the check command holds {}", rule)
	}
	for i, argument := range f.Check {
		if strings.Contains(argument, "\x00") {
			v.invalid(v.path(indexPath("file.check", i)), "an argument holds a NUL byte, which no program can be given", "")
		}
	}
}

func (v *validator) symlink(l *Symlink) {
	v.fsPath("symlink.path", l.Path)
	v.owners("symlink", l.Owner, l.Group)
	at := v.path("symlink.target")
	switch {
	case l.Target == "":
		v.fault(at, reason.MissingField, v.path("symlink")+` has no "target"`, "")
	case strings.Contains(l.Target, "\x00"):
		v.invalid(at, "the target holds a NUL byte", "")
	case len(l.Target) >= PathBytesMax:
		v.invalid(at, fmt.Sprintf("the target has %d bytes, at most %d are possible", len(l.Target), PathBytesMax-1), "")
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

func (v *validator) mode(field string, m Mode) {
	if _, ok := m.Bits(); m == "" || ok {
		return
	}
	hint := `write octal digits, for example "0644"`
	if rest, found := strings.CutPrefix(string(m), "0o"); found {
		hint = fmt.Sprintf("write %q", clipText("0"+rest))
	} else if strings.ContainsAny(string(m), "rwx") {
		hint = `write octal digits: rw-r--r-- is "0644"`
	}
	v.invalid(v.path(field), fmt.Sprintf("%q is not an octal mode up to 07777", clipText(string(m))), hint)
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

func (v *validator) packageType(p *Package) {
	name := v.resource.PackageName()
	if name != "" && !isPackageName(name) {
		v.invalid(v.path("package.package"), fmt.Sprintf("%q is not a package name", clipText(name)), "at least two of a-z, 0-9, + - and ., with a letter or digit first; give the package's own name in `package`")
	}
	switch p.State {
	case "", PackagePresent, PackageAbsent:
	default:
		v.unknownWord(v.path("package.state"), "package state", string(p.State), []string{string(PackagePresent), string(PackageAbsent)})
	}
	if p.Version == "" {
		return
	}
	if p.State == PackageAbsent {
		v.fault(v.path("package.version"), reason.FieldNotAllowed, "a package that must be absent has no version", "leave it out")
	}
	if expands := v.resource.Expand && strings.Contains(p.Version, "$("); !expands && !isPackageVersion(p.Version) {
		v.invalid(v.path("package.version"), fmt.Sprintf("%q is not a package version", clipText(p.Version)), "one exact version, as `apt-cache policy` prints it: letters, digits and any of . + - ~ :")
	}
}

func (v *validator) service(s *Service) {
	if name := v.resource.UnitName(); v.resource.Name != "" || s.Unit != "" {
		if message, hint := unitMistake(name); message != "" {
			v.invalid(v.path("service.unit"), message, hint)
		}
	}
	switch s.State {
	case "", ServiceRunning, ServiceStopped:
	default:
		v.unknownWord(v.path("service.state"), "service state", string(s.State), []string{string(ServiceRunning), string(ServiceStopped)})
	}
	switch s.OnNotify {
	case "", NotifyRestart, NotifyReload:
	default:
		v.unknownWord(v.path("service.onNotify"), "answer to a notification", string(s.OnNotify), []string{string(NotifyRestart), string(NotifyReload)})
	}
}

// onRemove checks the answer to a removal. Everything can be kept or restored; what cannot be deleted is said here.
func (v *validator) onRemove() {
	r := v.resource
	switch r.OnRemove {
	case "", OnRemoveKeep, OnRemoveRestore:
	case OnRemoveDelete:
		if r.Service != nil {
			v.fault(v.path("onRemove"), reason.FieldNotAllowed, "a service cannot be deleted", "write onRemove: restore to have it as it was before, or delete its unit file or package")
		}
		if r.Package != nil && r.Package.State == PackageAbsent {
			v.fault(v.path("onRemove"), reason.FieldNotAllowed, "a package that is absent cannot be deleted", "leave it out, or write onRemove: restore")
		}
	default:
		v.unknownWord(v.path("onRemove"), "onRemove", string(r.OnRemove), []string{string(OnRemoveKeep), string(OnRemoveRestore), string(OnRemoveDelete)})
	}
}

// textBytes is the size of the resource's texts: all that can make a body large.
func (r *Resource) textBytes() int {
	n := len(r.Name) + len(r.When) + len(r.Claim().ID)
	for _, list := range [][]string{r.Require, r.Notify} {
		for _, s := range list {
			n += len(s)
		}
	}
	for _, t := range r.expandable() {
		n += len(*t.text)
	}
	return n
}
