package declare

import (
	"path"
	"slices"
	"strings"
)

// ClaimKind is a name space of things on a host.
type ClaimKind string

// The claim kinds. File, directory, symlink and archive share ClaimPath: there can be only one thing at a path.
const (
	ClaimPath           ClaimKind = "path"
	ClaimPackage        ClaimKind = "package"
	ClaimUnit           ClaimKind = "unit"
	ClaimUser           ClaimKind = "user"
	ClaimGroup          ClaimKind = "group"
	ClaimAuthorizedKeys ClaimKind = "authorizedKeys" // by user
	ClaimTimer          ClaimKind = "timer"
	ClaimEdit           ClaimKind = "edit"
	ClaimSysctl         ClaimKind = "sysctl"
	ClaimKernelModule   ClaimKind = "kernelModule"
	ClaimHostname       ClaimKind = "hostname"
	ClaimHostEntry      ClaimKind = "hostEntry"
	ClaimTimezone       ClaimKind = "timezone"
	ClaimLocale         ClaimKind = "locale"
	ClaimMount          ClaimKind = "mount"
	ClaimSwap           ClaimKind = "swap"
	ClaimRepository     ClaimKind = "repository"
	ClaimFragment       ClaimKind = "fragment" // by file and name
	// ClaimExec is a command, which is about nothing that can be named: two configs may have one of the same name.
	ClaimExec ClaimKind = "exec"
	// ClaimEndpoint is what a config needs of others: two configs may need the same.
	ClaimEndpoint ClaimKind = "endpoint"
	// ClaimAgent is the program of the agent itself, of which a host has one.
	ClaimAgent ClaimKind = "agent"
	// ClaimData is a value by its key, which is delivered and not acted upon.
	ClaimData ClaimKind = "data"
)

// claimKinds are all of them.
var claimKinds = []ClaimKind{ClaimPath, ClaimPackage, ClaimUnit, ClaimUser, ClaimGroup, ClaimAuthorizedKeys, ClaimExec, ClaimEndpoint,
	ClaimTimer, ClaimEdit, ClaimSysctl, ClaimKernelModule, ClaimHostname, ClaimHostEntry, ClaimTimezone, ClaimLocale, ClaimMount, ClaimSwap, ClaimRepository, ClaimFragment,
	ClaimAgent, ClaimData}

// Own reports whether claims of that kind are their config's own: no other config can have the same.
func (k ClaimKind) Own() bool { return k == ClaimExec || k == ClaimEndpoint }

// Of returns the claim as it is between configs, where config, as KIND/NAMESPACE/NAME, has it.
func (c Claim) Of(config string) Claim {
	if c.Kind.Own() && config != "" {
		c.ID = config + "/" + c.ID
	}
	return c
}

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
	if !ok || id == "" || !slices.Contains(claimKinds, ClaimKind(kind)) {
		return Claim{}, false
	}
	return Claim{ClaimKind(kind), id}, true
}

// AutoEdge is an order that follows from what two resources are, not from what somebody wrote: this resource comes after
// the one that has Claim Other, if there is one, or before it. It yields to explicit edges. A Claim without ID stands for all of its kind.
type AutoEdge struct {
	Other  Claim
	Before bool   // this resource comes before Other; otherwise after it
	Why    string // "parent directory", "package of a file", ...
	// Loose says that it orders only: when the one before has failed, the other is acted upon all the same.
	Loose bool
}

// ParentDirectory is the Why of the automatic edge from a directory to what is in it.
const ParentDirectory = "parent directory"

// AutoEdges returns the automatic edges that the resource wants. They depend on the declaration alone, so that the order is
// the same wherever it is computed: packages and units are matched to paths by the distribution's naming conventions.
func (r *Resource) AutoEdges() []AutoEdge {
	_, b := r.typed()
	if o, ok := b.(sequenced); ok {
		return o.autoEdges(b.claim(r.Name))
	}
	return nil
}

func (f *File) autoEdges(Claim) []AutoEdge {
	edges := append(pathAutoEdges(f.Path), accountEdges("owner of a file", f.Owner, f.Group)...)
	return append(edges, sourceEdges(f.SourcePath())...)
}

func (d *Directory) autoEdges(Claim) []AutoEdge {
	edges := append(pathAutoEdges(d.Path), accountEdges("owner of a directory", d.Owner, d.Group)...)
	if r := d.Recurse; r != nil {
		edges = append(edges, accountEdges("owner of what is in a directory", r.Owner, r.Group)...)
	}
	return edges
}

func (l *Symlink) autoEdges(Claim) []AutoEdge {
	return append(pathAutoEdges(l.Path), accountEdges("owner of a link", l.Owner, l.Group)...)
}

func (s *Service) autoEdges(claim Claim) []AutoEdge { return unitAutoEdges(claim.ID) }

// sourceEdges is that to a file which something is made of.
func sourceEdges(source string) []AutoEdge {
	if source == "" {
		return nil
	}
	return []AutoEdge{{Other: Claim{ClaimPath, source}, Why: "content of a file"}}
}

// accountEdges are those to a user and a group that something needs by name; what is a number needs none, and root is always there.
func accountEdges(why, user, group string) []AutoEdge {
	var edges []AutoEdge
	for _, c := range []Claim{{ClaimUser, user}, {ClaimGroup, group}} {
		if c.ID != "" && c.ID != "root" && !isDigit(c.ID[0]) && !strings.Contains(c.ID, "$(") {
			edges = append(edges, AutoEdge{Other: c, Why: why})
		}
	}
	return edges
}

// aboveEdges are those to directories and mounts above a path, the nearest first.
func aboveEdges(p string) []AutoEdge {
	var edges []AutoEdge
	for dir := path.Dir(p); dir != "/" && dir != "."; dir = path.Dir(dir) {
		edges = append(edges, AutoEdge{Other: Claim{ClaimPath, dir}, Why: ParentDirectory}, AutoEdge{Other: Claim{ClaimMount, dir}, Why: fileSystemOf})
	}
	return edges
}

func pathAutoEdges(p string) []AutoEdge {
	edges := aboveEdges(p)
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
