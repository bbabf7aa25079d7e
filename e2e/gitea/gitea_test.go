package gitea

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"tako.dev/tako/e2e/rig"
)

// TestMain: what tests write into hosts has the modes that they say, whoever runs them.
func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	m.Run()
}

// secret is what the forge and the server know.
const secret = "what-both-sides-know"

// scene is a forge, a server that follows its repository, and a person with a clone.
type scene struct {
	*rig.Rig
	front    *front
	forge    forge
	clone    *clone
	listener *listener
}

// TestForge: a push is applied, and so is a merge, each at once; the forge is told what became of every commit.
func TestForge(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the built programs, which -short leaves out")
	}
	t.Run("Recorded", func(t *testing.T) { newScene(t, false).play() })
	if _, built := builtAt(t); built || os.Getenv("TAKO_SOAK") != "" {
		t.Run("Gitea", func(t *testing.T) { newScene(t, true).play() })
	}
}

func newScene(t *testing.T, gitea bool) *scene {
	t.Helper()
	s := &scene{front: newFront(t)}
	s.front.real = gitea
	s.Rig = rig.New(t)
	config, err := clientcmd.BuildConfigFromFlags("", s.Server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	// The forge is told of the authority of the server, and checks it.
	ofServer := string(config.CAData)
	s.listener = newListener(t, s.Server.URL, trusting(t, ofServer))
	ofListener := authority(s.listener.server)
	if gitea {
		authorities := t.TempDir()
		for name, text := range map[string]string{"server.pem": ofServer, "listener.pem": ofListener} {
			if err := os.WriteFile(filepath.Join(authorities, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.forge = newInstance(t, s.front, authorities)
	} else {
		s.forge = newReplay(t, s.front, trusting(t, ofServer+ofListener))
	}
	s.clone = newClone(t, s.front, s.forge.token("admin"))
	return s
}

// trusting is a client that trusts some authorities, and no others.
func trusting(t *testing.T, authorities string) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(authorities)) {
		t.Fatal("there is no authority")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: gitTime}
}

// play is the whole of it.
func (s *scene) play() {
	first := s.clone.push("first", "text.yaml", text("1"))
	s.post(first)
	s.declare()
	s.applied(first)
	s.told(first, "success", "1 object")

	// What is pushed is applied now: the next look of its own is a day away.
	to := s.Server.URL + "/hooks/sources/ops/fleet"
	s.forge.hook(hook{to, secret}, hook{s.listener.server.URL + "/called", secret})
	second := s.clone.push("second", "text.yaml", text("2"))
	s.applied(second)
	s.told(second, "success", "1 object")
	s.called("push", first, second)

	// A mistake is told with its place, and changes nothing.
	broken := s.clone.push("a slip", "text.yaml", strings.Replace(text("3"), "\ndata:", "\ndate:", 1))
	s.told(broken, "failure", "text.yaml:4")
	s.has("2")

	// It is mended on a branch, which nobody follows, and the pull request is merged.
	s.clone.git("checkout", "--quiet", "-b", "mended")
	s.clone.push("mended", "text.yaml", text("4"))
	merged := s.forge.merge("mended")
	s.applied(merged)
	s.told(merged, "success", "1 object")
	s.has("4")
	s.called("merge", broken, merged)

	s.forged(merged, to)
	for _, e := range s.front.heard() {
		s.front.asRecorded(s.T, "status", "created", e)
	}
	s.Server.Stop(s.T) // before what it asks is gone
}

// forged: a call with another secret is refused, and nothing follows from it; with the right one it does.
func (s *scene) forged(last, to string) {
	s.Helper()
	s.Quiet("tako_source_looks_total", 8*time.Second) // the call for the last one may have it looked at once more
	through := s.listener.server.URL + "/hooks/sources/ops/fleet"
	s.forge.hook(hook{through, "another secret"})
	s.clone.git("checkout", "--quiet", "main")
	s.clone.git("pull", "--quiet", "--ff-only", "origin", "main")
	unseen := s.clone.push("unseen", "text.yaml", text("5"))
	if got := s.listener.answered(s.T, 1); got[0] != http.StatusUnauthorized {
		s.Errorf("a call with another secret is answered by %d", got[0])
	}
	if got := s.source().Status.Seen.ID; got != last {
		s.Errorf("a call with another secret had commit %s looked at", got)
	}
	if got := s.forge.statuses(unseen); len(got) > 0 {
		s.Errorf("the forge is told of a commit that nobody knows of: %v", got)
	}
	s.forge.hook(hook{through, secret})
	seen := s.clone.push("seen", "text.yaml", text("6"))
	if got := s.listener.answered(s.T, 2); got[1] != http.StatusAccepted {
		s.Errorf("a call with the right secret is answered by %d", got[1])
	}
	s.applied(seen)
	s.told(seen, "success", "1 object")
}
