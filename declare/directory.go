package declare

import (
	"fmt"
	"strings"

	"tako.dev/tako/internal/reason"
)

// Directory is a directory: itself, and with recurse or purge also what is below it.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Directory struct {
	// Path is absolute, clean, and not /.
	Path string `json:"path"`
	// Owner is a user's name or number. Default root; without root rights, the caller.
	Owner string `json:"owner,omitempty"`
	// Group is a group's name or number. Default root; without root rights, the caller's.
	Group string `json:"group,omitempty"`
	// Mode is octal text, or in the symbols of chmod(1) with who before each change. Default "0755".
	Mode Mode `json:"mode,omitempty"`
	// Force allows to replace something of another type at Path.
	Force bool `json:"force,omitempty"`
	// Xattrs are extended attributes by name, such as user.origin; attributes that are not named are left as they are. A value that begins
	// with 0x is hexadecimal, with 0s base64, as setfattr(1) has them.
	Xattrs map[string]string `json:"xattrs,omitempty"`
	// ACL is the access list beside owner, group and others, whose rights are the mode's: "u:www-data:r", "g:adm:rw", "m::rw"; "d:" before an entry
	// makes it one of the default list, for what is made in the directory.
	// The one entry "none" says that there is no list. Left out, the list is left as it is.
	// +listType=atomic
	ACL []string `json:"acl,omitempty"`
	// Selinux is the label, "system_u:object_r:etc_t:s0". Left out, it is left as it is.
	Selinux string `json:"selinux,omitempty"`
	// Recurse is what everything below is to have. What others declare below is theirs, a directory there that has recurse or purge itself
	// with everything below it. Symlinks are not followed, and no mount point is entered.
	Recurse *Recurse `json:"recurse,omitempty"`
	// Purge removes everything below that nothing declares. Default false.
	Purge bool `json:"purge,omitempty"`
	// Ignore are patterns for paths below the directory, which recurse and purge leave alone with all that is below them: *.bak, cache/**,
	// **/*.log.
	// +listType=atomic
	Ignore []string `json:"ignore,omitempty"`
	// Limit is how many entries purge may remove at once. More are refused, and none is removed. Default 100, or a tenth of the entries if
	// that is more.
	Limit int `json:"limit,omitempty"`
	// Depth is how many levels below the directory recurse and purge are about; 1 is what is right in it. Default 100.
	Depth int `json:"depth,omitempty"`
}

// Symlink is a symbolic link.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Symlink struct {
	// Path is absolute, clean, and not /.
	Path string `json:"path"`
	// Target is what the link holds, absolute or relative; it need not exist.
	Target string `json:"target"`
	// Owner is the name or number of the user whose the link is. Default root; without root rights, the caller.
	Owner string `json:"owner,omitempty"`
	// Group is the name or number of the link's group. Default root; without root rights, the caller's.
	Group string `json:"group,omitempty"`
	// Force allows to replace something of another type at Path; a directory only when it is empty.
	Force bool `json:"force,omitempty"`
}

func (d *Directory) claim(string) Claim { return Claim{ClaimPath, d.Path} }

func (d *Directory) claimField() string { return "directory.path" }

func (d *Directory) texts() []expandableText {
	return append([]expandableText{{"directory.owner", &d.Owner}, {"directory.group", &d.Group}}, d.belowTexts()...)
}

// ModeOrDefault returns the mode bits of the directory where it is new: what the mode makes of the default, 0755.
func (d *Directory) ModeOrDefault() uint32 { return d.ModeRule().Of(directoryModeDefault) }

// ModeRule returns what the mode makes of that of a directory that is there.
func (d *Directory) ModeRule() ModeRule { return d.Mode.ruleOr(directoryModeDefault, true) }

func (d *Directory) validate(v *validator) {
	v.fsPath("directory.path", d.Path)
	v.mode("directory.mode", d.Mode)
	v.owners("directory", d.Owner, d.Group)
	v.attributes("directory", d.Xattrs, d.Selinux)
	v.accessList("directory.acl", d.ACL, d.ModeRule(), true)
	d.validateBelow(v)
}

func (l *Symlink) claim(string) Claim { return Claim{ClaimPath, l.Path} }

func (l *Symlink) claimField() string { return "symlink.path" }

func (l *Symlink) texts() []expandableText {
	return []expandableText{{"symlink.target", &l.Target}, {"symlink.owner", &l.Owner}, {"symlink.group", &l.Group}}
}

func (l *Symlink) validate(v *validator) {
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
