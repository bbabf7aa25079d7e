package declare

import (
	"fmt"
	"strings"

	"tako.dev/tako/declare/glob"
	"tako.dev/tako/internal/reason"
)

// Recurse is what everything below a directory is to have. What is left out stays as it is.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Recurse struct {
	// Owner is a user's name or number.
	Owner string `json:"owner,omitempty"`
	// Group is a group's name or number.
	Group string `json:"group,omitempty"`
	// FileMode is the mode of the files, octal or in symbols.
	FileMode Mode `json:"fileMode,omitempty"`
	// DirectoryMode is the mode of the directories, octal or in symbols.
	DirectoryMode Mode `json:"directoryMode,omitempty"`
}

const (
	// ignoreMax bounds the patterns of one directory: each is tried with each path below.
	ignoreMax = 64
	// PurgeLimitMax bounds what may be removed at once: as much as a host may have resources.
	PurgeLimitMax = 100_000
	// TreeDepthMax is how deep below a directory is looked at most: a path of 4,095 bytes is hardly deeper where people make it.
	TreeDepthMax = 100
)

// Below reports whether the directory is about what is below it, and not only about itself.
func (d *Directory) Below() bool { return d.Recurse != nil || d.Purge }

// belowTexts are the texts of what is said of everything below.
func (d *Directory) belowTexts() []expandableText {
	if d.Recurse == nil {
		return nil
	}
	return []expandableText{{"directory.recurse.owner", &d.Recurse.Owner}, {"directory.recurse.group", &d.Recurse.Group}}
}

// validateBelow checks what is said of everything below.
func (d *Directory) validateBelow(v *validator) {
	if r := d.Recurse; r != nil {
		if *r == (Recurse{}) {
			v.fault(v.path("directory.recurse"), reason.MissingField, v.path("directory.recurse")+" says nothing", "write at least one of owner, group, fileMode and directoryMode")
		}
		v.owners("directory.recurse", r.Owner, r.Group)
		v.mode("directory.recurse.fileMode", r.FileMode)
		if rule, ok := r.FileMode.Rule(false); ok && rule.Set&modeSetIDs != 0 {
			v.fault(v.path("directory.recurse.fileMode"), reason.FieldNotAllowed, "set-id bits would be those of every file that anybody puts there", "declare such a file by itself")
		}
		v.mode("directory.recurse.directoryMode", r.DirectoryMode)
	}
	if d.Purge {
		if message := purgeMistake(d.Path); message != "" {
			v.fault(v.path("directory.purge"), reason.FieldNotAllowed, message, "purge a directory that is all yours, deeper down")
		}
	}
	if d.Below() && v.resource.OnRemove == OnRemoveRestore {
		v.fault(v.path("onRemove"), reason.FieldNotAllowed, "what was changed below a directory is not put back as a whole", "leave it out; `tako-agent restore PATH` puts back one file")
	}
	if d.Limit != 0 {
		switch at := v.path("directory.limit"); {
		case !d.Purge:
			v.fault(at, reason.FieldNotAllowed, "limit bounds what purge removes", "add purge: true, or leave limit out")
		case d.Limit < 1 || d.Limit > PurgeLimitMax:
			v.invalid(at, fmt.Sprintf("%d is not from 1 to %d", d.Limit, PurgeLimitMax), "")
		}
	}
	if d.Depth != 0 {
		switch at := v.path("directory.depth"); {
		case !d.Below():
			v.fault(at, reason.FieldNotAllowed, "depth bounds recurse and purge", "add one of them, or leave depth out")
		case d.Depth < 1 || d.Depth > TreeDepthMax:
			v.invalid(at, fmt.Sprintf("%d is not from 1 to %d", d.Depth, TreeDepthMax), "1 is what is right in the directory")
		}
	}
	at := v.path("directory.ignore")
	if len(d.Ignore) > 0 && !d.Below() {
		v.fault(at, reason.FieldNotAllowed, "ignore takes out of what recurse and purge are about", "add one of them, or leave ignore out")
	}
	if !v.atMost(at, len(d.Ignore), ignoreMax, "patterns", "one pattern may stand for many names: cache/**") {
		return
	}
	for i, text := range d.Ignore {
		if _, mistake := glob.Parse(text); mistake != "" {
			v.invalid(v.path(indexPath("directory.ignore", i)), mistake, "write for example *.bak, cache/**, **/*.log")
		}
	}
}

// shared are directories that the system and its packages fill.
var shared = []string{"/etc/systemd", "/etc/systemd/system", "/etc/apt", "/etc/pam.d", "/etc/ssl", "/etc/ssl/certs", "/etc/alternatives", "/usr/bin", "/usr/include", "/usr/lib",
	"/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/lib/systemd", "/usr/lib/systemd/system", "/usr/local", "/usr/sbin", "/usr/share", "/var/cache", "/var/lib", "/var/lib/dpkg",
	"/var/lib/systemd", "/var/log", "/var/run", "/var/spool"}

// kernels are directories that are none of anybody's files, and the agent's own.
var kernels = []string{"/proc", "/sys", "/dev", "/var/lib/tako"}

// purgeMistake says why a directory is not to be purged, or is empty.
func purgeMistake(p string) string {
	if strings.Count(p, "/") == 1 {
		return fmt.Sprintf("%q is full of what the system itself needs", clipText(p))
	}
	for _, dir := range shared {
		if p == dir {
			return fmt.Sprintf("%q is full of what the system itself needs", p)
		}
	}
	for _, dir := range kernels {
		if strings.HasPrefix(p+"/", dir+"/") {
			return fmt.Sprintf("what is in %s is not to be purged", dir)
		}
	}
	return ""
}
