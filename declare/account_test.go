package declare

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// blob is a key of a type in the form of RFC 4253.
func blob(kind string, fields ...string) string {
	var b []byte
	for _, f := range append([]string{kind}, fields...) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return base64.StdEncoding.EncodeToString(b)
}

var (
	ed25519Blob = blob("ssh-ed25519", strings.Repeat("k", 32))
	ed25519Key  = "ssh-ed25519 " + ed25519Blob + " alice@laptop"
)

const (
	privateKey = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n-----END OPENSSH PRIVATE KEY-----\n"
	sampleHash = "$y$j9T$saltsalt$qFmFH.bQmmtXzJVY0s9v7Z4D2momEPF81HgIG160"
)

func TestParseSSHKey(t *testing.T) {
	mpint := "\x00" + strings.Repeat("\xff", 256)
	for _, c := range []struct {
		line    string
		options string
		kind    string
		comment string
	}{
		{ed25519Key, "", "ssh-ed25519", "alice@laptop"},
		{"  ssh-ed25519\t" + ed25519Blob + "\t two words ", "", "ssh-ed25519", "two words"},
		{"ssh-ed25519 " + ed25519Blob, "", "ssh-ed25519", ""},
		{`from="10.0.0.0/8,!10.1.*",command="echo \"a b\" ssh-rsa",no-pty ` + ed25519Key, `from="10.0.0.0/8,!10.1.*",command="echo \"a b\" ssh-rsa",no-pty`, "ssh-ed25519", "alice@laptop"},
		{"cert-authority ssh-rsa " + blob("ssh-rsa", "\x01\x00\x01", mpint) + " ca", "cert-authority", "ssh-rsa", "ca"},
		{"ecdsa-sha2-nistp256 " + blob("ecdsa-sha2-nistp256", "nistp256", "p"), "", "ecdsa-sha2-nistp256", ""},
		{"sk-ssh-ed25519@openssh.com " + blob("sk-ssh-ed25519@openssh.com", strings.Repeat("k", 32), "ssh:"), "", "sk-ssh-ed25519@openssh.com", ""},
		{"sk-ecdsa-sha2-nistp256@openssh.com " + blob("sk-ecdsa-sha2-nistp256@openssh.com", "nistp256", "p", "ssh:"), "", "sk-ecdsa-sha2-nistp256@openssh.com", ""},
		{"ssh-dss " + blob("ssh-dss", "p", "q", "g", "y"), "", "ssh-dss", ""},
	} {
		k, err := ParseSSHKey(c.line)
		if err != nil || k.Options != c.options || k.Type != c.kind || k.Comment != c.comment || !strings.HasPrefix(k.Fingerprint(), "SHA256:") {
			t.Errorf("%q: %+v, %v", c.line, k, err)
		}
	}
	for _, bad := range []string{
		"", " ", "# comment", "ssh-ed25519", "ssh-ed25519 ", "ed25519 " + ed25519Blob, "ssh-rsa " + ed25519Blob, "ssh-ed25519 " + ed25519Blob[:40], "ssh-ed25519 !!!!",
		`command="echo ` + ed25519Key, "no-pty", "ssh-ed25519 " + blob("ssh-ed25519", "short"), "ssh-ed25519 " + blob("ssh-ed25519", strings.Repeat("k", 32), "more"),
		ed25519Key + "\n" + ed25519Key, ed25519Key + "\x1b[31m", ed25519Key + strings.Repeat("x", SSHKeyBytesMax), "ssh-ed25519 AAAA", "ssh-ed25519 /////w==",
	} {
		if k, err := ParseSSHKey(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, k)
		}
	}
	for _, private := range []string{privateKey, "-----BEGIN RSA PRIVATE KEY-----", "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU", "PuTTY-User-Key-File-3: ssh-ed25519"} {
		if _, err := ParseSSHKey(private); err != ErrPrivateKey {
			t.Errorf("%q: %v", private, err)
		}
	}
	for line, weak := range map[string]bool{
		ed25519Key: false, "ssh-dss " + blob("ssh-dss", "p", "q", "g", "y"): true, "ssh-rsa " + blob("ssh-rsa", "e", mpint): false,
		"ssh-rsa " + blob("ssh-rsa", "e", mpint[:129]): true,
	} {
		k, err := ParseSSHKey(line)
		if err != nil || (k.Weakness() != "") != weak {
			t.Errorf("%s: %q, %v", line, k.Weakness(), err)
		}
	}
}

// FuzzParseSSHKey checks that what is read can be read again from its parts, and that no mistake repeats what was read.
func FuzzParseSSHKey(f *testing.F) {
	for _, s := range []string{ed25519Key, "no-pty " + ed25519Key, privateKey, `a="\"" ` + ed25519Key, "#", "ssh-rsa AAAAB3NzaC1yc2E", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := ParseSSHKey(s)
		if err != nil {
			if word := strings.TrimSpace(s); len(word) > 20 && strings.Contains(err.Error(), word) {
				t.Fatalf("the mistake repeats the key: %v", err)
			}
			return
		}
		again, err := ParseSSHKey(strings.TrimLeft(k.Options+" "+k.Type+" "+k.Blob+" "+k.Comment, " "))
		if err != nil || again.Options != k.Options || again.Type != k.Type || again.Blob != k.Blob || again.Comment != k.Comment || again.Fingerprint() != k.Fingerprint() {
			t.Fatalf("%q is read as %+v, and its parts as %+v, %v", s, k, again, err)
		}
		k.Weakness()
	})
}

func TestAccountNames(t *testing.T) {
	for _, good := range []string{"a", "alice", "_apt", "www-data", "systemd-network", "a.b", "A", "0ad", "1a", "pc$", strings.Repeat("a", 32)} {
		if !isAccountName(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{"", "-a", ".a", "+a", "~a", "1000", "a b", "a:b", "a,b", "a/b", "a$b", "$", "é", "a\n", strings.Repeat("a", 33), "..", "a@b"} {
		if isAccountName(bad) {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestExpiryDay(t *testing.T) {
	for text, want := range map[string]int64{"never": -1, "1970-01-02": 1, "2027-01-31": 20849, "2000-02-29": 11016} {
		if day, ok := (&User{Expires: text}).ExpiryDay(); !ok || day != want {
			t.Errorf("%s: %d, %v", text, day, ok)
		}
	}
	for _, bad := range []string{"1970-01-01", "1969-12-31", "2027-02-29", "2027-1-31", "31.1.2027", "tomorrow", "-1", "10000-01-01", "2027-01-31T00:00:00Z"} {
		if day, ok := (&User{Expires: bad}).ExpiryDay(); ok {
			t.Errorf("%s: %d", bad, day)
		}
	}
}

func TestValidateAccounts(t *testing.T) {
	id := func(n int64) *int64 { return &n }
	yes, no := true, false
	text := func(s string) *string { return &s }
	user := func(u User) []Resource { return []Resource{{Name: "alice", User: &u}} }
	group := func(g Group) []Resource { return []Resource{{Name: "staff", Group: &g}} }
	keys := func(keys ...string) []Resource {
		return []Resource{{Name: "alice", AuthorizedKeys: &AuthorizedKeys{Keys: keys}}}
	}
	const u, g, k = "spec.resources[0].user.", "spec.resources[0].group.", "spec.resources[0].authorizedKeys."
	for _, c := range []struct {
		name      string
		resources []Resource
		want      string
	}{
		{"default", user(User{}), ""},
		{"all", user(User{UID: id(1001), Group: "1000", Groups: []string{"a", "b"}, Membership: MembershipExact, Comment: text("Älice, room 1"), Home: "/srv/a b", CreateHome: &no,
			Shell: "/bin/zsh", System: true, PasswordHash: sampleHash, Locked: &no, Expires: "2027-01-31", RemoveHome: true}), ""},
		{"hashes", []Resource{{Name: "a", User: &User{PasswordHash: "!"}}, {Name: "b", User: &User{PasswordHash: "*", Locked: &yes}}, {Name: "c", User: &User{PasswordHash: "$1$salt$hash"}},
			{Name: "d", User: &User{PasswordHash: "$2b$12$abcdefghijklmnopqrstuv"}}, {Name: "e", User: &User{PasswordHash: "$6$rounds=5000$salt$hash"}}}, ""},
		{"root", []Resource{{Name: "root", User: &User{UID: id(0), PasswordHash: "*"}}, {Name: "r", Group: &Group{Group: "root", GID: id(0)}}}, ""},
		{"absent", user(User{State: AccountAbsent, RemoveHome: true}), ""},

		{"name", []Resource{{Name: "Alice Smith", User: &User{}}}, "TK0414 spec.resources[0].name, TK0414 " + u + "user"},
		{"name of its own", user(User{User: "1000"}), "TK0414 " + u + "user"},
		{"words", user(User{State: "gone", Membership: "all", Expires: "soon"}), "TK0414 " + u + "state, TK0414 " + u + "membership, TK0414 " + u + "expires"},
		{"numbers", user(User{UID: id(-1), Group: "4294967295"}), "TK0414 " + u + "uid, TK0414 " + u + "group"},
		{"large number", user(User{UID: id(1<<32 - 1)}), "TK0414 " + u + "uid"},
		{"another root", user(User{UID: id(0)}), "TK0415 " + u + "uid"},
		{"root with another number", user(User{User: "root", UID: id(1000)}), "TK0415 " + u + "uid"},
		{"root absent", user(User{User: "root", State: AccountAbsent}), "TK0415 " + u + "state"},
		{"root deleted", []Resource{{Name: "root", User: &User{}, OnRemove: OnRemoveDelete}}, "TK0415 spec.resources[0].onRemove"},
		{"groups", user(User{Groups: []string{"a", "a:b", "a"}}), "TK0414 " + u + "groups[1], TK0414 " + u + "groups[2]"},
		{"comment", user(User{Comment: text("a:b")}), "TK0414 " + u + "comment"},
		{"comment of two lines", user(User{Comment: text("a\nroot::0:0")}), "TK0414 " + u + "comment"},
		{"long comment", user(User{Comment: text(strings.Repeat("x", commentBytesMax+1))}), "TK0414 " + u + "comment"},
		{"paths", user(User{Home: "home", Shell: "/bin/sh:"}), "TK0414 " + u + "home, TK0414 " + u + "shell"},
		{"home at the root", user(User{Home: "/"}), ""},
		{"shell at the root", user(User{Shell: "/"}), "TK0414 " + u + "shell"},
		{"line in a home", user(User{Home: "/home/a\nb"}), "TK0414 " + u + "home"},
		{"expanded later", []Resource{{Name: "alice", Expand: true, User: &User{Home: "$(node.labels['home'])"}}}, ""},
		{"password", user(User{PasswordHash: "secret"}), "TK0414 " + u + "passwordHash"},
		{"password that looks like a hash", user(User{PasswordHash: "$ecret"}), "TK0414 " + u + "passwordHash"},
		{"lock in the hash", user(User{PasswordHash: "!" + sampleHash}), "TK0414 " + u + "passwordHash"},
		{"line in a hash", user(User{PasswordHash: sampleHash + "\nroot:"}), "TK0414 " + u + "passwordHash"},
		{"nothing to unlock", user(User{PasswordHash: "!", Locked: &no}), "TK0415 " + u + "locked"},
		{"absent and more", user(User{State: AccountAbsent, UID: id(1), Groups: []string{"a"}, PasswordHash: sampleHash, System: true}),
			"TK0415 " + u + "uid, TK0415 " + u + "groups, TK0415 " + u + "system, TK0415 " + u + "passwordHash"},
		{"delete what is absent", []Resource{{Name: "alice", User: &User{State: AccountAbsent}, OnRemove: OnRemoveDelete}, {Name: "staff", Group: &Group{State: AccountAbsent}, OnRemove: OnRemoveDelete}},
			"TK0415 spec.resources[0].onRemove, TK0415 spec.resources[1].onRemove"},

		{"group", group(Group{}), ""},
		{"group's all", group(Group{GID: id(1<<32 - 2), System: true, Members: []string{"a", "b"}, Membership: MembershipExact}), ""},
		{"group's mistakes", group(Group{Group: "a b", GID: id(-5), Members: []string{"x", "x", ""}, Membership: "most", State: "here"}),
			"TK0414 " + g + "group, TK0414 " + g + "state, TK0414 " + g + "gid, TK0414 " + g + "members[1], TK0414 " + g + "members[2], TK0414 " + g + "membership"},
		{"group absent and more", group(Group{State: AccountAbsent, GID: id(7), Members: []string{"a"}, Membership: MembershipExact}),
			"TK0415 " + g + "gid, TK0415 " + g + "members, TK0415 " + g + "membership"},
		{"group root", group(Group{Group: "root", State: AccountAbsent}), "TK0415 " + g + "state"},
		{"gid 0", group(Group{GID: id(0)}), "TK0415 " + g + "gid"},

		{"keys", keys(ed25519Key, "no-pty ssh-rsa "+blob("ssh-rsa", "e", "n")), ""},
		{"no keys", keys(), ""},
		{"no keys at least", []Resource{{Name: "alice", AuthorizedKeys: &AuthorizedKeys{Membership: MembershipMinimal}}}, "TK0413 " + k + "keys"},
		{"private key", keys(ed25519Key, privateKey), "TK0414 " + k + "keys[1]"},
		{"broken key", keys("ssh-ed25519 AAAA"), "TK0414 " + k + "keys[0]"},
		{"key twice", keys(ed25519Key, "no-pty "+ed25519Key), "TK0414 " + k + "keys[1]"},
		{"path", []Resource{{Name: "alice", AuthorizedKeys: &AuthorizedKeys{Keys: []string{ed25519Key}, Path: "keys"}}}, "TK0414 " + k + "path"},
		{"expanded key", []Resource{{Name: "alice", Expand: true, AuthorizedKeys: &AuthorizedKeys{Keys: []string{"$(node.labels['key'])"}, Path: "/etc/ssh/$(node.name)"}}}, ""},
		{"much text", keys(slices.Repeat([]string{ed25519Key + strings.Repeat(" x", 4000)}, 140)...)[:1], "TK0429"},
	} {
		got := summary(Validate(config(c.resources...)))
		if c.want == "TK0429" {
			if !strings.Contains(got, "TK0429 spec.resources[0]") {
				t.Errorf("%s: got %.200s", c.name, got)
			}
			continue
		}
		if got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// TestValidateOpposites declares two things of one account that cannot both be.
func TestValidateOpposites(t *testing.T) {
	id := func(n int64) *int64 { return &n }
	one := func(u *User, g *Group) []Resource {
		return []Resource{{Name: "file", File: &File{Path: "/a"}}, {Name: "alice", User: u}, {Name: "f", File: &File{Path: "/b"}}, {Name: "staff", Group: g}}
	}
	const u, g = "TK0415 spec.resources[1].user.", "TK0415 spec.resources[3].group."
	for _, c := range []struct {
		name      string
		resources []Resource
		want      string
	}{
		{"nothing in common", one(&User{Groups: []string{"other"}, Membership: MembershipExact}, &Group{Members: []string{"bob"}, Membership: MembershipExact}), ""},
		{"said by the user", one(&User{Groups: []string{"staff"}}, &Group{Members: []string{"bob"}}), ""},
		{"said by the group", one(&User{Groups: []string{"other"}}, &Group{Members: []string{"alice"}}), ""},
		{"primary", one(&User{Group: "staff"}, &Group{Members: []string{"bob"}, Membership: MembershipExact}), ""},
		{"said by both", one(&User{Groups: []string{"staff"}}, &Group{Members: []string{"bob", "alice"}}), u + "groups[0]"},
		{"exact without the user", one(&User{Groups: []string{"x", "staff"}}, &Group{Membership: MembershipExact}), u + "groups[1]"},
		{"exact without the group", one(&User{Membership: MembershipExact}, &Group{Members: []string{"bob", "alice"}}), g + "members[1]"},
		{"primary and member", one(&User{Group: "staff"}, &Group{Members: []string{"alice"}}), g + "members[0]"},
		{"own and member", []Resource{{Name: "alice", User: &User{}}, {Name: "g", Group: &Group{Group: "alice", Members: []string{"alice"}}}}, "TK0415 spec.resources[1].group.members[0]"},
		{"group absent", one(&User{Groups: []string{"staff"}}, &Group{State: AccountAbsent}), u + "groups[0]"},
		{"primary group absent", one(&User{Group: "staff"}, &Group{State: AccountAbsent}), u + "group"},
		{"user absent", one(&User{State: AccountAbsent}, &Group{Members: []string{"alice"}}), g + "members[0]"},
		{"both absent", one(&User{State: AccountAbsent}, &Group{State: AccountAbsent}), ""},
		{"one number", []Resource{{Name: "a", User: &User{UID: id(7)}}, {Name: "b", User: &User{UID: id(7)}}, {Name: "c", Group: &Group{GID: id(7)}}, {Name: "d", Group: &Group{GID: id(7)}}},
			"TK0415 spec.resources[1].user.uid, TK0415 spec.resources[3].group.gid"},
		{"keys of who is absent", []Resource{{Name: "a", AuthorizedKeys: &AuthorizedKeys{}}, {Name: "b", User: &User{User: "a", State: AccountAbsent}}}, "TK0415 spec.resources[0].authorizedKeys.user"},
		{"on different hosts", []Resource{{Name: "a", When: "node.name == 'x'", User: &User{User: "u", State: AccountAbsent}}, {Name: "b", Group: &Group{Members: []string{"u"}}}}, ""},
	} {
		faults := Validate(config(c.resources...))
		if got := summary(faults); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
		for _, f := range faults {
			if len(f.Related) != 1 || f.Hint == "" {
				t.Errorf("%s: %+v", c.name, f)
			}
		}
	}
	// Each account looks back no further than to the one before it.
	many := make([]Resource, 0, 20_000)
	for i := range cap(many) / 2 {
		many = append(many, Resource{Name: fmt.Sprint("u", i), User: &User{}}, Resource{Name: fmt.Sprint("f", i), File: &File{Path: fmt.Sprint("/f", i)}})
	}
	if faults := Validate(config(many...)); len(faults) > 0 {
		t.Error(faults[0])
	}
}

// TestNoSecretInFaults: what may be a password or a private key is repeated by no mistake.
func TestNoSecretInFaults(t *testing.T) {
	const secret = "correct horse battery"
	for _, r := range []Resource{
		{Name: "a", User: &User{PasswordHash: secret}}, {Name: "a", User: &User{PasswordHash: "!" + secret}},
		{Name: "a", AuthorizedKeys: &AuthorizedKeys{Keys: []string{privateKey + secret}}}, {Name: "a", AuthorizedKeys: &AuthorizedKeys{Keys: []string{secret}}},
		{Name: "a", AuthorizedKeys: &AuthorizedKeys{Keys: []string{"ssh-ed25519 " + secret}}}, {Name: "a", AuthorizedKeys: &AuthorizedKeys{Keys: []string{`command="` + secret}}},
	} {
		faults := Validate(config(r))
		if len(faults) != 1 {
			t.Errorf("%+v: %v", r, faults)
		}
		for _, f := range faults {
			if s := fmt.Sprintf("%+v", f); strings.Contains(s, "horse") || strings.Contains(s, "b3Blbn") {
				t.Errorf("a secret is repeated: %s", s)
			}
		}
	}
}

// TestAccountEdges: what comes before what.
func TestAccountEdges(t *testing.T) {
	edges := func(r Resource) string {
		var out []string
		for _, e := range r.AutoEdges() {
			word := " after "
			if e.Before {
				word = " before "
			}
			out = append(out, e.Why+word+e.Other.String())
		}
		return strings.Join(out, "; ")
	}
	for _, c := range []struct {
		resource Resource
		want     string
	}{
		{Resource{Name: "alice", User: &User{}}, "primary group of a user after group:alice"},
		{Resource{Name: "alice", User: &User{Group: "staff", Groups: []string{"a"}}}, "primary group of a user after group:staff; group of a user after group:a"},
		{Resource{Name: "alice", User: &User{Group: "1000"}}, ""},
		{Resource{Name: "alice", User: &User{State: AccountAbsent}}, "own group of a user before group:alice"},
		{Resource{Name: "staff", Group: &Group{Members: []string{"alice", "root"}}}, "member of a group after user:alice"},
		{Resource{Name: "alice", AuthorizedKeys: &AuthorizedKeys{}}, "user of ssh keys after user:alice"},
	} {
		if got := edges(c.resource); got != c.want {
			t.Errorf("%s: got %q, want %q", c.resource.Title(), got, c.want)
		}
	}
}
