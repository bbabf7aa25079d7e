package dnf

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"tako.dev/tako/internal/reason"
)

// signer makes a key, and returns what signs a package with it, and the public half.
func signer(t testing.TB, name string) (sign func(file string), public string) {
	t.Helper()
	home, err := os.MkdirTemp("", "gpg") // a short path, for the agent's socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run(), os.RemoveAll(home)); err != nil {
			t.Error(err)
		}
	})
	run(t, "gpg", "--batch", "--homedir", home, "--passphrase", "", "--quick-generate-key", name, "rsa2048", "sign", "never")
	public = filepath.Join(home, "public.asc")
	run(t, "gpg", "--batch", "--homedir", home, "--armor", "--output", public, "--export", name)
	return func(file string) {
		run(t, "rpmsign", "--define", "_gpg_name "+name, "--define", "_gpg_path "+home, "--define", "__gpg /usr/bin/gpg", "--addsign", file)
	}, public
}

// TestSignatures wants packages of a repository with keys to be signed by one of these.
func TestSignatures(t *testing.T) {
	for _, tool := range []string{"gpg", "gpg-agent", "rpmsign"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs " + tool)
		}
	}
	if !apart(t) {
		return
	}
	l := newLab(t)
	ours, key := signer(t, "ours@example.com")
	others, _ := signer(t, "others@example.com")
	for _, name := range []string{"signed", "bare", "foreign"} {
		l.build(rpm{name: name, version: "1-1"})
	}
	ours(filepath.Join(l.repo, "noarch/signed-1-1.noarch.rpm"))
	others(filepath.Join(l.repo, "noarch/foreign-1-1.noarch.rpm"))
	l.publish()
	l.put("etc/yum.repos.d/lab.repo", "[lab]\nname=lab\nbaseurl="+l.url+"\ngpgcheck=1\ngpgkey=file://"+key+"\n")
	rs := l.apply(present("signed"), present("bare"), present("foreign"))
	if rs[0].Err != nil || l.installedVersion("signed") == "" {
		t.Errorf("signed by its key: %s", told(rs[0].Err))
	}
	for i, name := range []string{"", "bare", "foreign"} {
		if i > 0 && (!reason.Is(rs[i].Err, reason.PackageToolFailed) || l.installedVersion(name) != "") {
			t.Errorf("%s: %s", name, told(rs[i].Err))
		} else if i > 0 {
			t.Log(told(rs[i].Err))
		}
	}
}
