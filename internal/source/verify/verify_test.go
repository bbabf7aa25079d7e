package verify

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

// signer makes keys with gpg and ssh-keygen, and commits and tags with git, in a home of its own.
type signer struct {
	t    *testing.T
	home string
	repo string
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	for _, program := range []string{"git", "gpg", "ssh-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}
	// The socket of gpg's agent has a short path only in a short directory.
	home, err := os.MkdirTemp("", "v")
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{t: t, home: home, repo: filepath.Join(home, "repo")}
	t.Cleanup(func() {
		s.run("", nil, "gpgconf", "--kill", "gpg-agent")
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	s.run("", nil, "git", "init", "-q", "-b", "main", s.repo)
	return s
}

func (s *signer) run(dir string, stdin []byte, args ...string) []byte {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "GNUPGHOME=" + s.home, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org"}
	cmd.Stdin = bytes.NewReader(stdin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%v: %v: %s", args, err, errs.String())
	}
	return out
}

func (s *signer) git(args ...string) []byte {
	s.t.Helper()
	return s.run(s.repo, nil, append([]string{"git"}, args...)...)
}

// gpgKey makes a key and returns its name for -u and its public half.
func (s *signer) gpgKey(name, algorithm string, expire string, faked ...string) (string, []byte) {
	s.t.Helper()
	id := name + "@example.org"
	s.run("", nil, append(append([]string{"gpg", "--batch", "--quiet"}, faked...), "--passphrase", "", "--quick-gen-key", name+" <"+id+">", algorithm, "sign", expire)...)
	return id, s.run("", nil, "gpg", "--batch", "--armor", "--export", id)
}

func (s *signer) sshKey(name string, args ...string) (file string, public []byte) {
	s.t.Helper()
	file = filepath.Join(s.home, name)
	s.run("", nil, append([]string{"ssh-keygen", "-q", "-N", "", "-C", name + "@example.org", "-f", file}, args...)...)
	public, err := os.ReadFile(file + ".pub")
	if err != nil {
		s.t.Fatal(err)
	}
	return file, public
}

func (s *signer) commit(config ...string) []byte {
	s.t.Helper()
	s.git(append(config, "commit", "-q", "--allow-empty", "-m", "signed", "-S")...)
	return s.git("cat-file", "commit", "HEAD")
}

func (s *signer) tag(config ...string) []byte {
	s.t.Helper()
	s.git(append(config, "tag", "-f", "-s", "v1", "-m", "signed\n\n-----BEGIN PGP SIGNATURE-----\nnot one")...)
	return s.git("cat-file", "tag", "v1")
}

func authorities(t *testing.T, openPGP, ssh []byte) *Authorities {
	t.Helper()
	a, err := ParseAuthorities(openPGP, ssh)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// wantRefused checks that an error is of the code, says the words and what to do.
func wantRefused(t *testing.T, what string, err error, words string) {
	t.Helper()
	e := reason.Of(err)
	if e == nil || e.Code != reason.SignatureRefused || !strings.Contains(e.Error(), words) || e.Hint == "" {
		t.Errorf("%s: %v, want an error with %q", what, err, words)
	}
}

func TestOpenPGP(t *testing.T) {
	s := newSigner(t)
	key, public := s.gpgKey("ada", "ed25519", "1y")
	_, other := s.gpgKey("eve", "ed25519", "never")
	rsa, rsaPublic := s.gpgKey("rsa", "rsa3072", "never")
	now := time.Now()
	use := func(key string) []string {
		return []string{"-c", "gpg.format=openpgp", "-c", "user.signingKey=" + key}
	}
	commit, tag := s.commit(use(key)...), s.tag(use(key)...)
	both := authorities(t, append(bytes.Clone(other), public...), nil)
	got, err := both.Commit(commit, now)
	if err != nil || got.Kind != OpenPGP || got.Identity != "ada <ada@example.org>" || len(got.Fingerprint) != 40 {
		t.Errorf("commit: %+v, %v", got, err)
	}
	if got, err := both.Tag(tag, now); err != nil || got.Identity != "ada <ada@example.org>" {
		t.Errorf("tag: %+v, %v", got, err)
	}
	binary := s.run("", nil, "gpg", "--batch", "--export", rsa)
	for _, list := range [][]byte{rsaPublic, binary} {
		if _, err := authorities(t, list, nil).Commit(s.commit(use(rsa)...), now); err != nil {
			t.Errorf("RSA: %v", err)
		}
	}

	_, err = authorities(t, other, nil).Commit(commit, now)
	wantRefused(t, "a key that is not listed", err, "is not in the list")
	_, err = both.Commit(bytes.Replace(commit, []byte("Ada <"), []byte("Eve <"), 1), now)
	wantRefused(t, "another author", err, "not what was signed")
	_, err = both.Tag(bytes.Replace(tag, []byte("tag v1"), []byte("tag v2"), 1), now)
	wantRefused(t, "another tag", err, "not what was signed")
	_, err = both.Commit(commit, now.Add(400*24*time.Hour))
	wantRefused(t, "an expired key", err, "has expired")
	_, err = both.Commit(commit, now.Add(-48*time.Hour))
	wantRefused(t, "a signature of the future", err, "not valid yet")

	weak := s.commit(append(use(rsa), "-c", "gpg.program="+s.wrapper("gpg-sha1", `exec gpg --digest-algo SHA1 "$@"`))...)
	_, err = authorities(t, rsaPublic, nil).Commit(weak, now)
	wantRefused(t, "SHA-1", err, "SHA-1")
	short, shortPublic := s.gpgKey("short", "rsa1024", "never")
	_, err = authorities(t, shortPublic, nil).Commit(s.commit(use(short)...), now)
	wantRefused(t, "RSA of 1024 bits", err, "1024 bits")

	s.run("", []byte("y\n0\n\ny\n"), "gpg", "--command-fd", "0", "--no-tty", "--output", filepath.Join(s.home, "revocation"), "--gen-revoke", key)
	s.run("", nil, "gpg", "--batch", "--quiet", "--import", filepath.Join(s.home, "revocation"))
	revoked := s.run("", nil, "gpg", "--batch", "--armor", "--export", key)
	_, err = authorities(t, revoked, nil).Commit(commit, now.Add(time.Hour))
	wantRefused(t, "a revoked key", err, "was revoked")
}

func (s *signer) wrapper(name, line string) string {
	file := filepath.Join(s.home, name)
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+line+"\n"), 0o700); err != nil {
		s.t.Fatal(err)
	}
	return file
}

func TestSSH(t *testing.T) {
	s := newSigner(t)
	key, public := s.sshKey("ada", "-t", "ed25519")
	_, other := s.sshKey("eve", "-t", "ecdsa")
	use := func(key string) []string { return []string{"-c", "gpg.format=ssh", "-c", "user.signingKey=" + key} }
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	commit, tag := s.commit(use(key)...), s.tag(use(key)...)
	allowed := func(options string) []byte { return []byte("ada@example.org,a@b " + options + " " + string(public)) }
	lists := map[string][]byte{
		"plain keys":      append(append([]byte("# who may\n\n"), other...), public...),
		"allowed signers": allowed(""), "namespaces": allowed(`namespaces="file,git"`),
		"valid": allowed(`valid-after="20260101",valid-before="20261231235959Z"`),
		"twice": append(allowed(`valid-before="20200101"`), allowed("")...),
	}
	for name, list := range lists {
		a := authorities(t, nil, list)
		if got, err := a.Commit(commit, now); err != nil || got.Kind != SSH || !strings.HasPrefix(got.Fingerprint, "SHA256:") || !strings.Contains(got.Identity, "ada@example.org") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if _, err := a.Tag(tag, now); err != nil {
			t.Errorf("%s: tag: %v", name, err)
		}
	}
	for _, kind := range [][]string{{"-t", "ecdsa", "-b", "521"}, {"-t", "rsa", "-b", "3072"}} {
		key, public := s.sshKey(kind[1]+"-good", kind...)
		if _, err := authorities(t, nil, public).Commit(s.commit(use(key)...), now); err != nil {
			t.Errorf("%v: %v", kind, err)
		}
	}
	refusals := map[string]struct{ list, raw []byte }{
		"is not in the list":    {other, commit},
		"valid from 2027":       {allowed(`valid-after="20270101Z"`), commit},
		"has expired at 2026":   {allowed(`valid-before="202601010000"`), commit},
		"not what was signed":   {public, bytes.Replace(commit, []byte("Ada <"), []byte("Eve <"), 1)},
		"it is not signed":      {public, s.plain()},
		"it has several":        {public, bytes.Replace(commit, []byte("\n\n"), []byte("\ngpgsig x\n\n"), 1)},
		"neither OpenPGP":       {public, bytes.Replace(commit, []byte("SSH SIGNATURE"), []byte("SSX SIGNATURE"), 2)},
		"is malformed":          {public, bytes.Replace(commit, []byte("U1NIU0lH"), []byte("U1NIU0lI"), 1)},
		"headers are malformed": {public, []byte("tree 1234\n\nx")},
	}
	for words, r := range refusals {
		_, err := authorities(t, nil, r.list).Commit(r.raw, now)
		wantRefused(t, words, err, words)
	}
	_, err := authorities(t, nil, public).Tag(bytes.Replace(tag, []byte("tag v1"), []byte("tag v2"), 1), now)
	wantRefused(t, "another tag", err, "not what was signed")

	file := filepath.Join(s.home, "text")
	for _, namespace := range []string{"git", "file"} {
		if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(file + ".sig")
		s.run("", nil, "ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", namespace, file)
		sig, err := os.ReadFile(file + ".sig")
		if err != nil {
			t.Fatal(err)
		}
		_, err = authorities(t, nil, public).Verify([]byte("text"), sig, now)
		if namespace == "git" && err != nil {
			t.Errorf("a detached signature: %v", err)
		}
		if namespace != "git" {
			wantRefused(t, "another namespace", err, `made for "file"`)
		}
	}
}

func (s *signer) plain() []byte {
	s.git("commit", "-q", "--allow-empty", "-m", "not signed")
	return s.git("cat-file", "commit", "HEAD")
}

func TestLists(t *testing.T) {
	s := newSigner(t)
	_, public := s.sshKey("ada", "-t", "ed25519")
	_, short := s.sshKey("short", "-t", "rsa", "-b", "1024")
	_, dsa := s.sshKey("dsa", "-t", "dsa")
	key, _ := s.gpgKey("ada", "ed25519", "1y")
	private := s.run("", nil, "gpg", "--batch", "--armor", "--export-secret-keys", key)
	tests := map[string]struct{ openPGP, ssh []byte }{
		"there is none":                     {nil, []byte("# nobody\n")},
		"line 2: it is no public key":       {nil, append(bytes.Clone(public), "ssh-ed25519 AAAA\n"...)},
		`"cert-authority" is not supported`: {nil, []byte("a cert-authority " + string(public))},
		`"tomorrow" is not a time`:          {nil, []byte(`a valid-after="tomorrow" ` + string(public))},
		"less than 2048 bits":               {nil, short},
		`keys of type "ssh-dss"`:            {nil, dsa},
		"it holds a private key":            {private, nil},
		"read the list of OpenPGP keys":     {[]byte("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAAAA\n-----END PGP PUBLIC KEY BLOCK-----\n"), nil},
		"there is none ":                    {nil, []byte(`a namespaces="file" ` + string(public))},
	}
	for words, list := range tests {
		_, err := ParseAuthorities(list.openPGP, list.ssh)
		if e := reason.Of(err); e == nil || e.Code != reason.InvalidValue || e.Hint == "" || !strings.Contains(e.Error(), strings.TrimSpace(words)) {
			t.Errorf("%v, want an error with %q", err, words)
		}
	}
}

// What git itself takes as payload is what is taken here: git verifies these too.
func TestPayload(t *testing.T) {
	s := newSigner(t)
	key, public := s.sshKey("ada", "-t", "ed25519")
	now := time.Now()
	config := []string{"-c", "gpg.format=ssh", "-c", "user.signingKey=" + key}
	list := authorities(t, nil, public)
	s.commit(config...)
	// A merge of a signed tag carries the tag, signature and all.
	s.git("checkout", "-q", "-b", "side")
	s.commit(config...)
	s.tag(config...)
	s.git("checkout", "-q", "main")
	s.git(append(config, "merge", "-q", "--no-ff", "-S", "-m", "merge", "v1")...)
	merge := s.git("cat-file", "commit", "HEAD")
	if !bytes.Contains(merge, []byte("\nmergetag ")) {
		t.Fatalf("no mergetag in %s", merge)
	}
	if _, err := list.Commit(merge, now); err != nil {
		t.Errorf("a merge of a signed tag: %v", err)
	}
	// The signature for the other kind of ids is not part of what is signed.
	other := bytes.Replace(merge, []byte("\ngpgsig "), []byte("\ngpgsig-sha256 -----BEGIN x\n more\n end\ngpgsig "), 1)
	if _, err := list.Commit(other, now); err != nil {
		t.Errorf("with a gpgsig-sha256 header: %v", err)
	}
	id := strings.TrimSpace(string(s.run(s.repo, other, "git", "hash-object", "-t", "commit", "-w", "--stdin")))
	if err := os.WriteFile(filepath.Join(s.home, "allowed"), []byte("ada "+string(public)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.git("-c", "gpg.ssh.allowedSignersFile="+filepath.Join(s.home, "allowed"), "verify-commit", id)

	sha256 := filepath.Join(s.home, "sha256")
	s.run("", nil, "git", "init", "-q", "--object-format=sha256", sha256)
	s.repo = sha256
	commit := s.commit(config...)
	if !bytes.Contains(commit, []byte("\ngpgsig-sha256 ")) {
		t.Fatalf("no gpgsig-sha256 in %s", commit)
	}
	if _, err := list.Commit(commit, now); err != nil {
		t.Errorf("a commit with ids of SHA-256: %v", err)
	}
}

// No input makes it fall over, and what is not what was signed is never taken.
func FuzzVerify(f *testing.F) {
	const public = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4ctMDZH8zjGx8JxqjJx3jV5lFGZCvGUNTsWIoYuLyJ test"
	list, err := ParseAuthorities(nil, []byte(public))
	if err != nil {
		f.Fatal(err)
	}
	tree := "tree " + strings.Repeat("a", 40) + "\n"
	f.Add([]byte(tree + "gpgsig " + beginSSH + "\n U1NIU0lH\n -----END SSH SIGNATURE-----\n\nx"))
	f.Add([]byte(tree + "gpgsig " + beginOpenPGP + "\n \n iHUEABYKAB0\n =abcd\n -----END PGP SIGNATURE-----\n\nx"))
	f.Add([]byte("object x\n\n" + beginOpenPGP + "\n"))
	f.Add([]byte(tree + " \n\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, check := range []func([]byte, time.Time) (Signer, error){list.Commit, list.Tag} {
			if s, err := check(raw, time.Unix(1700000000, 0)); err == nil || !reason.Is(err, reason.SignatureRefused) {
				t.Errorf("%+v, %v", s, err)
			}
		}
		payload, signature, err := splitCommit(raw)
		if err == nil && len(payload)+len(signature) > len(raw) {
			t.Errorf("payload and signature have more than the object")
		}
	})
}

func FuzzAuthorities(f *testing.F) {
	f.Add([]byte("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZ\n-----END PGP PUBLIC KEY BLOCK-----"), []byte("a@b namespaces=\"git\" ssh-ed25519 AAAA"))
	f.Add([]byte{0x98, 0x33, 4}, []byte("a valid-after=20200101Z ssh-rsa AAAA\n#\n"))
	f.Fuzz(func(t *testing.T, openPGP, ssh []byte) {
		a, err := ParseAuthorities(openPGP, ssh)
		if (err == nil) != (a != nil) || err != nil && !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%v, %v", a, err)
		}
		_ = fmt.Sprint(err)
	})
}
