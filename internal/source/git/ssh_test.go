package git

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/reason"
)

func withCancel(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

// processesWith lists the commands of processes that have all texts in their environment or working directory.
func processesWith(texts ...string) []string {
	var list []string
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range entries {
		environment, _ := os.ReadFile(p + "/environ")
		cwd, _ := os.Readlink(p + "/cwd")
		all := string(environment) + cwd
		found := true
		for _, text := range texts {
			found = found && strings.Contains(all, text)
		}
		if found {
			command, _ := os.ReadFile(p + "/cmdline")
			list = append(list, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return list
}

// wantNoneWith wants no process with all texts in its environment or working directory. What is killed is gone a moment later.
func wantNoneWith(t *testing.T, texts ...string) {
	t.Helper()
	boots.Eventually(t, time.Minute, "no process is left", func() (string, bool) {
		left := processesWith(texts...)
		return fmt.Sprint(left), len(left) == 0
	})
}

type key struct {
	private []byte // PEM
	public  string // as in authorized_keys
}

func newKey(t *testing.T, passphrase string) key {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	var block *pem.Block
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(private, "test")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "test", []byte(passphrase))
	}
	must(t, err)
	p, err := ssh.NewPublicKey(public)
	must(t, err)
	return key{private: pem.EncodeToMemory(block), public: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(p)))}
}

// sshd is a real one, on a port of its own.
type sshd struct {
	address string
	host    key
}

func newSSHD(t *testing.T, allowed ...key) *sshd {
	t.Helper()
	program := "/usr/sbin/sshd"
	if _, err := os.Stat(program); err != nil {
		t.Skip("needs sshd (openssh-server)")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to run sshd")
	}
	dir := t.TempDir()
	s := &sshd{address: boots.FreeAddress(t), host: newKey(t, "")}
	must(t, os.WriteFile(filepath.Join(dir, "host"), s.host.private, 0o600))
	var keys strings.Builder
	for _, k := range allowed {
		keys.WriteString(k.public + "\n")
	}
	write(t, filepath.Join(dir, "authorized"), keys.String())
	write(t, filepath.Join(dir, "config"), fmt.Sprintf("ListenAddress %s\nHostKey %s/host\nAuthorizedKeysFile %s/authorized\nStrictModes no\nPidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nAcceptEnv GIT_PROTOCOL\n", s.address, dir, dir))
	// sshd wants its directory for the separation of privileges.
	must(t, os.MkdirAll("/run/sshd", 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, program, "-D", "-e", "-f", filepath.Join(dir, "config"))
	var said bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &said, 5*time.Second
	must(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	deadline, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		conn, err := (&net.Dialer{}).DialContext(deadline, "tcp", s.address)
		if err == nil {
			must(t, conn.Close())
			return s
		}
		select {
		case <-tick.C:
		case <-deadline.Done():
			t.Fatalf("sshd does not answer: %v", err)
		}
	}
}

func (s *sshd) known(k key) []byte {
	_, port, _ := net.SplitHostPort(s.address)
	return []byte(fmt.Sprintf("[127.0.0.1]:%s %s\n", port, k.public))
}

func TestSSH(t *testing.T) {
	plain, locked, stranger := newKey(t, ""), newKey(t, secret), newKey(t, "")
	s := newSSHD(t, plain, locked)
	o := newOrigin(t)
	id := o.commit(map[string]string{"a": "1"})
	url := fmt.Sprintf("ssh://root@%s%s", s.address, o.dir)
	known := s.known(s.host)
	tests := []struct {
		name string
		url  string
		auth Auth
		code reason.Code // 0: it works
	}{
		{"key", url, Auth{Identity: plain.private, KnownHosts: known}, 0},
		{"key with passphrase", url, Auth{Identity: locked.private, Password: secret, KnownHosts: known}, 0},
		{"no passphrase", url, Auth{Identity: locked.private, KnownHosts: known}, reason.RepositoryAuth},
		{"wrong passphrase", url, Auth{Identity: locked.private, Password: "x", KnownHosts: known}, reason.RepositoryAuth},
		{"no key", url, Auth{KnownHosts: known}, reason.RepositoryAuth},
		{"key of a stranger", url, Auth{Identity: stranger.private, KnownHosts: known}, reason.RepositoryAuth},
		{"public half", url, Auth{Identity: []byte(plain.public), KnownHosts: known}, reason.RepositoryAuth},
		{"other host key", url, Auth{Identity: plain.private, KnownHosts: s.known(stranger)}, reason.RepositoryUntrusted},
		{"host unknown", url, Auth{Identity: plain.private, KnownHosts: []byte("example.org " + s.host.public + "\n")}, reason.RepositoryUntrusted},
		{"known hosts are garbage", url, Auth{Identity: plain.private, KnownHosts: []byte("\x00\xff")}, reason.RepositoryUntrusted},
		{"no such repository", fmt.Sprintf("ssh://root@%s/nonexistent", s.address), Auth{Identity: plain.private, KnownHosts: known}, reason.RepositoryUnknown},
		{"nobody there", fmt.Sprintf("ssh://root@127.0.0.1:1%s", o.dir), Auth{Identity: plain.private, KnownHosts: known}, reason.RepositoryUnreachable},
	}
	g := newGit(t, Limits{})
	for _, tt := range tests {
		remote := Remote{URL: tt.url, Auth: tt.auth}
		refs, err := g.List(t.Context(), remote, Branches)
		if tt.code == 0 {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			r := g.Repository(tt.name)
			if c, err := r.Fetch(t.Context(), remote, find(t, refs, "refs/heads/main"), nil); err != nil || c.ID != id {
				t.Errorf("%s: fetch: %v", tt.name, err)
			}
			continue
		}
		e := reason.Of(err)
		if e == nil || e.Code != tt.code || e.Hint == "" {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.code)
			continue
		}
		if text := fmt.Sprintf("%v %#v %s %s", err, remote, e.Hint, e.Evidence); hasSecret(text) {
			t.Errorf("%s shows a secret: %s", tt.name, text)
		}
	}
	noSecretBelow(t, g.dir)
	wantNoneWith(t, "GIT_SSH_VARIANT=ssh", g.dir)
}

func TestAuthPrintsNothing(t *testing.T) {
	a := Auth{Username: "user", Password: secret, BearerToken: secret, Identity: []byte("PRIVATE KEY"), KnownHosts: []byte(secret)}
	for _, text := range []string{fmt.Sprint(a), fmt.Sprintf("%+v %#v %s %x %d %q", a, a, a, a, a, a), fmt.Sprintf("%+v %#v", Remote{Auth: a}, &Remote{Auth: a}), a.LogValue().String()} {
		if hasSecret(text) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
			t.Errorf("it shows: %s", text)
		}
	}
}

func mountSmall(dir string) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m")
}

func unmount(dir string) { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }
