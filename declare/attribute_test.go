package declare

import (
	"bytes"
	"strings"
	"testing"
)

func TestValidateAttributes(t *testing.T) {
	const at = "spec.resources[0].file"
	file := func(f File) Resource {
		f.Path = "/etc/f"
		return Resource{Name: "x", File: &f}
	}
	many := map[string]string{}
	for range 33 {
		many["user."+strings.Repeat("x", len(many)+1)] = ""
	}
	no := false
	for _, c := range []struct {
		name string
		r    Resource
		want string
	}{
		{"all", file(File{Mode: "u=rw,g=r,o=", Xattrs: map[string]string{"user.a": "b", "trusted.é": "0x00ff", "security.capability": "0sAQ=="},
			ACL: []string{"u:www-data:r", "group:4:rw-", "m::rwx"}, Selinux: "system_u:object_r:etc_t:s0:c1,c2", Replace: &no}), ""},
		{"no list", file(File{ACL: []string{"none"}}), ""},
		{"names", file(File{Xattrs: map[string]string{"note": "", "user.": "", "system.x": "", "security.selinux": "", "system.posix_acl_access": "", "security.evm": ""}}),
			join(at, ".xattrs['note']", ".xattrs['security.evm']", ".xattrs['security.selinux']", ".xattrs['system.posix_acl_access']", ".xattrs['system.x']", ".xattrs['user.']")},
		{"values", file(File{Xattrs: map[string]string{"user.a": "0xf", "user.b": "0s=", "user.c": strings.Repeat("x", xattrValueMax+1)}}),
			join(at, ".xattrs['user.a']", ".xattrs['user.b']", ".xattrs['user.c']")},
		{"many", file(File{Xattrs: many}), join(at, ".xattrs")},
		{"labels", file(File{Selinux: "etc_t"}), join(at, ".selinux")},
		{"label of two lines", file(File{Selinux: "a:b:c\n"}), join(at, ".selinux")},
		{"entries", file(File{ACL: []string{"u::rw", "o::r", "u:a b:r", "u:a:z", "u:a:", "u:a", "m:x:r", "u:a:rr", "none"}}),
			join(at, ".acl[0]", ".acl[1]", ".acl[2]", ".acl[3]", ".acl[4]", ".acl[5]", ".acl[6]", ".acl[7]", ".acl[8]")},
		{"twice", file(File{ACL: []string{"u:a:r", "user:a:rw"}}), join(at, ".acl[1]")},
		{"a mask alone", file(File{ACL: []string{"m::r"}}), join(at, ".acl")},
		{"a default list of a file", file(File{ACL: []string{"d:u:a:r"}}), join(at, ".acl[0]")},
		{"a default list", Resource{Name: "x", Directory: &Directory{Path: "/d", ACL: []string{"d:u:a:r", "default:m::r", "u:a:r"}}}, ""},
		{"half a mode", file(File{Mode: "u+x", ACL: []string{"u:a:r"}}), join(at, ".acl")},
		{"half a mode without a list", file(File{Mode: "u+x", ACL: []string{"none"}}), ""},
		{"mode", file(File{Mode: "g=u"}), join(at, ".mode")},
		{"mode of a directory", Resource{Name: "x", Directory: &Directory{Path: "/d", Mode: "+x"}}, "TK0414 spec.resources[0].directory.mode"},
	} {
		if got := mistakes(c.r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// join makes the summary of invalid values below a path.
func join(at string, fields ...string) string {
	var all []string
	for _, f := range fields {
		all = append(all, "TK0414 "+at+f)
	}
	return strings.Join(all, ", ")
}

func FuzzACLEntry(f *testing.F) {
	for _, s := range []string{"u:www-data:r", "d:g:4:rw-", "m::x", "mask:rwx", "default:user:a:---", "u::r", ":", "none"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, mistake := ParseACLEntry(s)
		if mistake != "" {
			if e != (ACLEntry{}) {
				t.Errorf("%q is refused (%s), and is %+v", s, mistake, e)
			}
			return
		}
		if e.Perm > 7 || (e.Tag == ACLMask) != (e.Name == "") || e.Name != "" && !isOwner(e.Name) {
			t.Errorf("%q is %+v", s, e)
		}
	})
}

func FuzzXAttrValue(f *testing.F) {
	for _, s := range []string{"", "text", "0x00ff", "0sAAA=", "0x", "0xg"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		value, mistake := ParseXAttrValue(s)
		if (mistake == "") != (value != nil) || !strings.HasPrefix(s, "0") && mistake == "" && !bytes.Equal(value, []byte(s)) {
			t.Errorf("%q: %q, %s", s, value, mistake)
		}
	})
}

// TestEditOfSharedFile: a part of a file may be declared beside the file where that leaves its content to others.
func TestEditOfSharedFile(t *testing.T) {
	no := false
	both := func(f File) string {
		f.Path = "/etc/f"
		return summary(Validate(config(Resource{Name: "whole", File: &f}, Resource{Name: "part", Edit: &Edit{Path: "/etc/f", Line: &LineEdit{Text: "x"}}})))
	}
	if got := both(File{}); got != "TK0421 spec.resources[1].edit.path" && !strings.Contains(got, "spec.resources[1].edit.path") {
		t.Errorf("an edit of a whole file: %q", got)
	}
	if got := both(File{Replace: &no}); got != "" {
		t.Errorf("an edit of a file with replace: false: %s", got)
	}
}

func TestValidateSudoers(t *testing.T) {
	const at = "spec.resources[0]"
	rules := []string{"deploy ALL=(root) NOPASSWD: /usr/bin/systemctl restart app"}
	for _, c := range []struct {
		name string
		r    Resource
		want string
	}{
		{"rules", Resource{Name: "deploy", Sudoers: &Sudoers{Rules: rules}}, ""},
		{"content", Resource{Name: "app.rules", Sudoers: &Sudoers{File: "50-app_x", Content: "# none\n"}}, ""},
		{"a dot", Resource{Name: "app.rules", Sudoers: &Sudoers{Rules: rules}}, "TK0414 " + at + ".name"},
		{"a tilde", Resource{Name: "a", Sudoers: &Sudoers{File: "app~", Rules: rules}}, "TK0414 " + at + ".sudoers.file"},
		{"a way out", Resource{Name: "a", Sudoers: &Sudoers{File: "../x", Rules: rules}}, "TK0414 " + at + ".sudoers.file"},
		{"nothing", Resource{Name: "a", Sudoers: &Sudoers{}}, "TK0413 " + at + ".sudoers"},
		{"both", Resource{Name: "a", Sudoers: &Sudoers{Rules: rules, Content: "x"}}, "TK0415 " + at + ".sudoers.content"},
		{"lines", Resource{Name: "a", Sudoers: &Sudoers{Rules: []string{"a\nb", " ", `a \`, strings.Repeat("x", ruleBytesMax+1)}}},
			"TK0414 " + at + ".sudoers.rules[0], TK0414 " + at + ".sudoers.rules[1], TK0414 " + at + ".sudoers.rules[2], TK0414 " + at + ".sudoers.rules[3]"},
	} {
		if got := mistakes(c.r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	r := Resource{Name: "deploy", Sudoers: &Sudoers{Rules: rules}}
	f := r.Sudoers.AsFile(r.Claim().ID)
	if f.Path != "/etc/sudoers.d/deploy" || f.Content != rules[0]+"\n" || f.ModeOrDefault() != 0o440 || r.Claim().Kind != ClaimPath {
		t.Errorf("as a file: %+v", f)
	}
}
