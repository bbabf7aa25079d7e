package git

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"tako.dev/tako/internal/reason"
)

// withAgent serves an ssh agent that holds one key at a socket in dir while use runs. Without a key there is no agent, and
// the path is "none", as ssh calls it.
func withAgent(ctx context.Context, dir string, a Auth, use func(socket string) error) error {
	if len(a.Identity) == 0 {
		return use("none")
	}
	keys, err := keyring(a)
	if err != nil {
		return err
	}
	socket := filepath.Join(dir, "a")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "make a socket for ssh", Cause: err}
	}
	s := agentServer{keys: keys, open: map[net.Conn]bool{}}
	s.wait.Go(func() { s.accept(listener) })
	defer s.wait.Wait()
	defer s.stop()
	defer func() { _ = listener.Close() }()
	return use(socket)
}

func keyring(a Auth) (agent.Agent, error) {
	refuse := func(why, hint string) error {
		return &reason.Error{Code: reason.RepositoryAuth, Doing: "read the ssh private key", Cause: errors.New(why), Hint: hint}
	}
	key, err := ssh.ParseRawPrivateKey(a.Identity)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		if a.Password == "" {
			return nil, refuse("it is locked with a passphrase, and none is given", "add the passphrase to the Secret as password, or take it off the key")
		}
		key, err = ssh.ParseRawPrivateKeyWithPassphrase(a.Identity, []byte(a.Password))
	}
	if err != nil {
		// The cause may quote the key.
		return nil, refuse("it is not a private key in PEM that opens", "put the file that ssh-keygen wrote (id_ed25519, not id_ed25519.pub) into the Secret as identity")
	}
	keys := agent.NewKeyring()
	if err := keys.Add(agent.AddedKey{PrivateKey: key}); err != nil {
		return nil, refuse(fmt.Sprintf("a key of type %T is not supported", key), "use an ed25519 key")
	}
	return keys, nil
}

// agentServer answers ssh. Its goroutines are one that accepts and one a connection; wait counts them.
type agentServer struct {
	keys agent.Agent
	wait sync.WaitGroup

	mu      sync.Mutex // guards what follows
	stopped bool
	open    map[net.Conn]bool
}

func (s *agentServer) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // the listener was closed
		}
		if !s.add(conn) {
			_ = conn.Close()
			continue
		}
		s.wait.Go(func() {
			// It ends when ssh hangs up, or stop does.
			_ = agent.ServeAgent(s.keys, conn)
			s.remove(conn)
		})
	}
}

// connectionsMax is more than the one that ssh opens.
const connectionsMax = 8

func (s *agentServer) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || len(s.open) >= connectionsMax {
		return false
	}
	s.open[conn] = true
	return true
}

func (s *agentServer) remove(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
	_ = conn.Close()
}

func (s *agentServer) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for conn := range s.open {
		_ = conn.Close()
	}
}

// sshCommand is what git has the shell run for ssh. Each option is given, so that no file decides any.
func sshCommand(knownHosts, socket string) string {
	options := []string{
		"BatchMode=yes", "StrictHostKeyChecking=yes", "UserKnownHostsFile=" + knownHosts, "GlobalKnownHostsFile=/dev/null", "UpdateHostKeys=no",
		"IdentityAgent=" + socket, "IdentityFile=none", "IdentitiesOnly=no", "PreferredAuthentications=publickey",
		"ProxyCommand=none", "ControlPath=none", "ControlMaster=no", "PermitLocalCommand=no", "CanonicalizeHostname=no", "VerifyHostKeyDNS=no",
		"ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes", "ConnectTimeout=15", "ServerAliveInterval=10", "ServerAliveCountMax=3",
	}
	words := []string{"ssh", "-F", "none", "-T"}
	for _, o := range options {
		words = append(words, "-o", shellQuote(o))
	}
	return strings.Join(words, " ")
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func writePrivate(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "write known hosts for ssh", Cause: err}
	}
	return nil
}
