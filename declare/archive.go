package declare

import (
	"fmt"
	"strings"

	"tako.dev/tako/internal/reason"
)

const (
	// stripMax is ours: far above the depth of any real archive's top.
	stripMax = 64
	// archiveUmaskDefault is what a plain umask of 022 takes away.
	archiveUmaskDefault = 0o022
	// UnpackedBytesDefault bounds what comes out of an archive, in bytes, where nothing is declared: ours, above what most programs have.
	UnpackedBytesDefault = 4 << 30
	// UnpackedBytesMax is the most bytes that may be declared to come out of an archive: ours, a disk that a host has.
	UnpackedBytesMax = 64 << 30
)

// Archive is a directory with what an archive holds: tar, tar.gz, tar.bz2 or zip, known by its content. All of the directory is the
// archive's: it is replaced as a whole, with everything that others have put there.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Archive struct {
	// Path is the directory, absolute, clean, and not /.
	Path string `json:"path"`
	// From is where the archive is.
	From ArchiveSource `json:"from"`
	// Strip is how many leading parts of the names in the archive are left out, 0 to 64. What has no more parts than that is left out.
	Strip int `json:"strip,omitempty"`
	// Owner is the user's name or number that everything belongs to, whatever the archive says. Default root; without root rights, the
	// caller.
	Owner string `json:"owner,omitempty"`
	// Group is the group's name or number that everything belongs to. Default root; without root rights, the caller's.
	Group string `json:"group,omitempty"`
	// Umask is what is taken away of the modes in the archive, octal text. Default "0022".
	Umask Mode `json:"umask,omitempty"`
	// SizeBytesMax is how many bytes may come out of it, up to 64 GiB. Default 4 GiB.
	SizeBytesMax int64 `json:"sizeBytesMax,omitempty"`
	// Force allows to replace a directory with entries that this resource has not made, which are lost; and something of another type.
	Force bool `json:"force,omitempty"`
}

// ArchiveSource is where an archive is. Exactly one of the fields is set.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type ArchiveSource struct {
	// Object is what was put on the servers by `tako content put`.
	Object *ObjectReference `json:"object,omitempty"`
	// Path is a file of the host. Nobody but root and the agent's user may be able to change it.
	Path string `json:"path,omitempty"`
}

func (a *Archive) claim(string) Claim { return Claim{ClaimPath, a.Path} }

func (a *Archive) claimField() string { return "archive.path" }

func (a *Archive) texts() []expandableText {
	return []expandableText{{"archive.owner", &a.Owner}, {"archive.group", &a.Group}}
}

func (a *Archive) autoEdges(Claim) []AutoEdge {
	edges := append(pathAutoEdges(a.Path), accountEdges("owner of an archive", a.Owner, a.Group)...)
	return append(edges, sourceEdges(a.From.Path)...)
}

// UmaskOrDefault returns the bits that are taken away of modes, 0022 when none are declared.
func (a *Archive) UmaskOrDefault() uint32 { return a.Umask.bitsOr(archiveUmaskDefault) }

// SizeBytesMaxOrDefault returns how many bytes may come out of the archive.
func (a *Archive) SizeBytesMaxOrDefault() int64 {
	if a.SizeBytesMax == 0 {
		return UnpackedBytesDefault
	}
	return a.SizeBytesMax
}

func (a *Archive) validate(v *validator) {
	v.fsPath("archive.path", a.Path)
	v.owners("archive", a.Owner, a.Group)
	v.bytesSource("archive.from", a.From.Object, a.From.Path)
	switch {
	case a.From.Object == nil && a.From.Path == "":
		v.fault(v.path("archive.from"), reason.MissingField, v.path("archive.from")+` has neither "object" nor "path"`, "write for example {path: /srv/app.tar.gz}")
	case a.From.Object != nil && a.From.Path != "":
		v.fault(v.path("archive.from.path"), reason.FieldNotAllowed, "the archive is an object already", "keep one of object and path")
	case a.Path != "" && (a.From.Path == a.Path || strings.HasPrefix(a.From.Path, a.Path+"/")):
		v.invalid(v.path("archive.from.path"), "the archive lies where it is to be unpacked", "keep it elsewhere: that directory is replaced as a whole")
	}
	if a.Strip < 0 || a.Strip > stripMax {
		v.invalid(v.path("archive.strip"), fmt.Sprintf("strip is %d, 0 to %d are possible", a.Strip, stripMax), "")
	}
	if bits, ok := a.Umask.Bits(); a.Umask != "" && (!ok || bits > umaskMax) {
		v.invalid(v.path("archive.umask"), fmt.Sprintf("%q is not an octal mode up to 0777", clipText(string(a.Umask))), `write octal digits, for example "0027"`)
	}
	if n := a.SizeBytesMax; n < 0 || n > UnpackedBytesMax {
		v.invalid(v.path("archive.sizeBytesMax"), fmt.Sprintf("%d is not a size from 1 to %d bytes", n, UnpackedBytesMax), "")
	}
}

// insideArchives refuses paths below those of archives: who unpacks one replaces all that is there.
func (v *validator) insideArchives(byClaim map[Claim]int) {
	all := v.config.Spec.Resources
	archives := false
	for i := range all {
		archives = archives || all[i].Archive != nil
	}
	if !archives {
		return
	}
	for i := range all {
		claim := all[i].Claim()
		if claim.Kind != ClaimPath {
			continue
		}
		for at := strings.LastIndexByte(claim.ID, '/'); at > 0; at = strings.LastIndexByte(claim.ID[:at], '/') {
			other, found := byClaim[Claim{ClaimPath, claim.ID[:at]}]
			if !found || all[other].Archive == nil {
				continue
			}
			v.index, v.resource = i, &all[i]
			f := v.fault(v.path(all[i].claimField()), reason.FieldNotAllowed, fmt.Sprintf("it lies in what %s unpacks, which is replaced as a whole", all[other].Title()),
				"keep it outside, or put it into the archive")
			f.Related = []Place{{Path: ResourcePath(other) + ".archive.path", Note: "unpacked here"}}
		}
	}
}
