package declare

import (
	"path"
	"strings"
)

// ResourceType is the name of a resource's type field.
type ResourceType string

// The resource types.
const (
	TypeFile      ResourceType = "file"
	TypeDirectory ResourceType = "directory"
	TypeSymlink   ResourceType = "symlink"
	TypePackage   ResourceType = "package"
	TypeService   ResourceType = "service"
)

// ClaimKind is a name space of things on a host.
type ClaimKind string

// The claim kinds. File, directory and symlink share ClaimPath: there can be only one thing at a path.
const (
	ClaimPath    ClaimKind = "path"
	ClaimPackage ClaimKind = "package"
	ClaimUnit    ClaimKind = "unit"
)

// Claim is what a resource is about: the key of its entry, whatever it is called. Two resources with one claim manage one
// thing.
type Claim struct {
	Kind ClaimKind `json:"kind"`
	ID   string    `json:"id"`
}

// String is the claim's text form, kind:id, which ParseClaim reads back.
func (c Claim) String() string { return string(c.Kind) + ":" + c.ID }

// ParseClaim reads the text form of a claim.
func ParseClaim(s string) (Claim, bool) {
	kind, id, ok := strings.Cut(s, ":")
	switch ClaimKind(kind) {
	case ClaimPath, ClaimPackage, ClaimUnit:
		return Claim{ClaimKind(kind), id}, ok && id != ""
	}
	return Claim{}, false
}

// Type returns which type field is set; empty if none is. Validation has refused a resource with several.
func (r *Resource) Type() ResourceType {
	switch {
	case r.File != nil:
		return TypeFile
	case r.Directory != nil:
		return TypeDirectory
	case r.Symlink != nil:
		return TypeSymlink
	case r.Package != nil:
		return TypePackage
	case r.Service != nil:
		return TypeService
	}
	return ""
}

// Title is how people see the resource: TYPE/NAME.
func (r *Resource) Title() string { return string(r.Type()) + "/" + r.Name }

// Claim returns what the resource is about. The resource must have passed Validate.
func (r *Resource) Claim() Claim {
	switch {
	case r.File != nil:
		return Claim{ClaimPath, r.File.Path}
	case r.Directory != nil:
		return Claim{ClaimPath, r.Directory.Path}
	case r.Symlink != nil:
		return Claim{ClaimPath, r.Symlink.Path}
	case r.Package != nil:
		return Claim{ClaimPackage, r.PackageName()}
	case r.Service != nil:
		return Claim{ClaimUnit, r.UnitName()}
	}
	return Claim{}
}

// PackageName is the declared package name, or its default.
func (r *Resource) PackageName() string {
	if r.Package != nil && r.Package.Package != "" {
		return r.Package.Package
	}
	return r.Name
}

// unitSuffixes are the unit types of systemd.unit(5).
var unitSuffixes = []string{".service", ".socket", ".device", ".mount", ".automount", ".swap", ".target", ".path", ".timer", ".slice", ".scope"}

// UnitName is the declared unit name, or its default.
func (r *Resource) UnitName() string {
	name := r.Name
	if r.Service != nil && r.Service.Unit != "" {
		name = r.Service.Unit
	}
	for _, s := range unitSuffixes {
		if strings.HasSuffix(name, s) {
			return name
		}
	}
	return name + ".service"
}

// AutoEdge is an order that follows from what two resources are, not from what somebody wrote: this resource comes after
// the one that has Claim Other, if there is one, or before it. It yields to explicit edges.
type AutoEdge struct {
	Other  Claim
	Before bool   // this resource comes before Other; otherwise after it
	Why    string // "parent directory", "package of a file", ...
}

// ParentDirectory is the Why of the automatic edge from a directory to what is in it.
const ParentDirectory = "parent directory"

// AutoEdges returns the automatic edges that the resource wants. They depend on the declaration alone, so that the order is
// the same wherever it is computed: packages and units are matched to paths by the distribution's naming conventions.
func (r *Resource) AutoEdges() []AutoEdge {
	switch c := r.Claim(); c.Kind {
	case ClaimPath:
		return pathAutoEdges(c.ID)
	case ClaimUnit:
		return unitAutoEdges(c.ID)
	}
	return nil
}

func pathAutoEdges(p string) []AutoEdge {
	var edges []AutoEdge
	for dir := path.Dir(p); dir != "/" && dir != "."; dir = path.Dir(dir) {
		edges = append(edges, AutoEdge{Other: Claim{ClaimPath, dir}, Why: ParentDirectory})
	}
	for _, root := range []string{"/etc/", "/etc/default/", "/usr/lib/", "/usr/share/", "/var/lib/", "/var/log/", "/var/cache/"} {
		rest, ok := strings.CutPrefix(p, root)
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, "/")
		name = strings.TrimSuffix(strings.TrimSuffix(name, ".conf"), ".d")
		if name != "" {
			edges = append(edges, AutoEdge{Other: Claim{ClaimPackage, name}, Why: "package of a file"})
		}
	}
	for _, dir := range unitDirs {
		// A drop-in, DIR/UNIT.d/NAME.conf, is part of its unit, systemd.unit(5).
		if rest, ok := strings.CutPrefix(p, dir+"/"); ok {
			if unit, _, ok := strings.Cut(rest, ".d/"); ok && strings.Contains(unit, ".") {
				edges = append(edges, AutoEdge{Other: Claim{ClaimUnit, unit}, Before: true, Why: "drop-in of a service"})
			}
		}
	}
	return edges
}

// unitDirs are where unit files live, systemd.unit(5), the ones a person may write to first.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

func unitAutoEdges(unit string) []AutoEdge {
	names := []string{unit}
	stem, suffix := strings.TrimSuffix(unit, path.Ext(unit)), path.Ext(unit)
	if at := strings.IndexByte(stem, '@'); at >= 0 {
		names = append(names, stem[:at+1]+suffix)
		stem = stem[:at]
	}
	var edges []AutoEdge
	for _, dir := range unitDirs {
		for _, n := range names {
			edges = append(edges, AutoEdge{Other: Claim{ClaimPath, dir + "/" + n}, Why: "unit file of a service"})
		}
	}
	return append(edges, AutoEdge{Other: Claim{ClaimPackage, stem}, Why: "package of a service"})
}
