package declare

// File is a regular file with given content.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type File struct {
	// Path is absolute, clean, and not /.
	Path string `json:"path"`
	// Content is the whole content, UTF-8. Default empty.
	Content string `json:"content,omitempty"`
	// ContentFrom takes the content from a Secret, a ConfigMap, an object or another file instead. Alone, without a server, a host has files
	// only, and the objects that it got before.
	ContentFrom *ContentSource `json:"contentFrom,omitempty"`
	// Owner is a user's name or number. Default root; without root rights, the caller.
	Owner string `json:"owner,omitempty"`
	// Group is a group's name or number. Default root; without root rights, the caller's.
	Group string `json:"group,omitempty"`
	// Mode is octal text, or in the symbols of chmod(1) with who before each change: "u=rw,g=r,o=", "o-rwx", which leaves the other bits as
	// they are. Default "0644", and "0600" with content from a Secret. A file that only its owner may read (no bit of 0077 may be set)
	// is private: its content appears in no diff, log or history.
	Mode Mode `json:"mode,omitempty"`
	// Replace false makes the file only where nothing is, and leaves the content of one that is there to others; owner, group, mode
	// and attributes are still kept. Default true.
	Replace *bool `json:"replace,omitempty"`
	// Fragments says that the file is made of pieces, which resources of the type fragment declare; Content stands before them.
	Fragments bool `json:"fragments,omitempty"`
	// Check is a command, without a shell, that must accept the new content before it replaces the old. {} in its arguments is the
	// path of the new content; one argument must hold it.
	// +listType=atomic
	Check []string `json:"check,omitempty"`
	// Force allows to replace something of another type at Path; a directory only when it is empty.
	Force bool `json:"force,omitempty"`
	// InPlace writes into the existing inode instead of replacing it: for a bind-mounted single file, which cannot be
	// replaced. A reader may then see a torn file.
	InPlace bool `json:"inPlace,omitempty"`
	// Xattrs are extended attributes by name, such as user.origin; attributes that are not named are left as they are. A value that begins
	// with 0x is hexadecimal, with 0s base64, as setfattr(1) has them.
	Xattrs map[string]string `json:"xattrs,omitempty"`
	// ACL is the access list beside owner, group and others, whose rights are the mode's: "u:www-data:r", "g:adm:rw", "m::rw".
	// The one entry "none" says that there is no list. Left out, the list is left as it is.
	// +listType=atomic
	ACL []string `json:"acl,omitempty"`
	// Selinux is the label, "system_u:object_r:etc_t:s0". Left out, it is left as it is.
	Selinux string `json:"selinux,omitempty"`
}

// fileContentFrom is the one field from which a content may be more than a text.
const fileContentFrom = "file.contentFrom"

func (f *File) claim(string) Claim { return Claim{ClaimPath, f.Path} }

func (f *File) claimField() string { return "file.path" }

func (f *File) texts() []expandableText {
	texts := []expandableText{{"file.content", &f.Content}, {"file.owner", &f.Owner}, {"file.group", &f.Group}}
	for i := range f.Check {
		texts = append(texts, expandableText{indexPath("file.check", i), &f.Check[i]})
	}
	return texts
}

// ModeOrDefault returns the mode bits of the file where it is new: what the mode makes of the default, which is 0644, and 0600 where the
// content is from a Secret.
func (f *File) ModeOrDefault() uint32 { return f.ModeRule().Of(f.modeDefault()) }

// ModeRule returns what the mode makes of that of a file that is there.
func (f *File) ModeRule() ModeRule { return f.Mode.ruleOr(f.modeDefault(), false) }

func (f *File) modeDefault() uint32 {
	if f.FromSecret() {
		return secretModeDefault
	}
	return fileModeDefault
}

// sharedContent reports whether the resource is a file whose content others may change.
func (r *Resource) sharedContent() bool { return r.File != nil && !r.File.Replaces() }

// Replaces reports whether a content that is there is made the declared one.
func (f *File) Replaces() bool { return f.Replace == nil || *f.Replace }

// FromSecret reports whether the content is a value of a Secret.
func (f *File) FromSecret() bool { return f.ContentFrom.secret() }

func (f *File) source() *ContentSource {
	if !f.ContentFrom.ofCluster() {
		return nil
	}
	return f.ContentFrom
}

// Object returns the object that is the content; nil where the content is none.
func (f *File) Object() *ObjectReference {
	if f.ContentFrom == nil {
		return nil
	}
	return f.ContentFrom.Object
}

// SourcePath returns the path of the file that the content is taken from; empty where it is from elsewhere.
func (f *File) SourcePath() string {
	if f.ContentFrom == nil {
		return ""
	}
	return f.ContentFrom.Path
}

func (f *File) fill(text string, from *ContentSource) (body, error) {
	out := *f
	out.Content, out.ContentFrom = text, from
	return &out, nil
}

// Private reports whether the content is shown nowhere: only the owner may use the file, or the content is from a Secret.
func (f *File) Private() bool { return f.FromSecret() || f.ModeRule().Clear&modeOthers == modeOthers }

// Public reports whether everybody may read the file, whatever mode it had.
func (f *File) Public() bool {
	const readable = 0o004
	return !f.FromSecret() && f.ModeRule().Set&readable != 0
}

func (f *File) validate(v *validator) {
	v.fsPath("file.path", f.Path)
	v.mode("file.mode", f.Mode)
	v.owners("file", f.Owner, f.Group)
	v.attributes("file", f.Xattrs, f.Selinux)
	v.accessList("file.acl", f.ACL, f.ModeRule(), false)
	v.contentSource(fileContentFrom, f.ContentFrom, f.Content != "")
	if f.Path != "" && f.SourcePath() == f.Path {
		v.invalid(v.path(fileContentFrom+".path"), "the file is its own source", "write where its content is to come from")
	}
	v.checkCommand("file.check", f.Check)
	v.fragments(f)
}
