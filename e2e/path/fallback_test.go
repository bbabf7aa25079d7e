package path

import (
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
)

// published is a repository of Git that is served over HTTP.
type published struct {
	ground *ground
	dir    string
	url    string
}

func (g *ground) published() *published {
	g.Helper()
	served := filepath.Join(g.Dir, "served")
	p := &published{ground: g, dir: filepath.Join(served, "heads.git")}
	p.git("init", "--quiet", "--bare", p.dir)
	backend := filepath.Join(p.git("--exec-path"), "git-http-backend")
	server := httptest.NewServer(&cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + served, "GIT_HTTP_EXPORT_ALL=1"}})
	g.Cleanup(server.Close)
	p.url = server.URL + "/heads.git"
	return p
}

func (p *published) git(args ...string) string {
	p.ground.Helper()
	out, err := exec.CommandContext(p.ground.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"}, args...)...).CombinedOutput()
	if err != nil {
		p.ground.Fatalf("git %s: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit makes a directory what the repository has.
func (p *published) commit(dir string) {
	p.ground.Helper()
	for _, args := range [][]string{{"add", "--all"}, {"commit", "--quiet", "--message", "heads"}} {
		p.git(append([]string{"-C", dir, "--git-dir=" + p.dir, "--work-tree=" + dir}, args...)...)
	}
}

// assigns declares another content, waits until a host that is away is to have it, and writes what hosts are to have into a directory.
func (s *sandbox) assigns(text, dir string) {
	g := s.ground
	g.Helper()
	before := s.Node().Status.AssignedHead.Version
	g.Apply(site(text))
	s.reports("there is a newer state", func(n *v1alpha1.Node) bool {
		return n.Status.AssignedHead != nil && n.Status.AssignedHead.Version > before
	})
	g.Tako("export", "heads", "--all", "-o", dir)
}

// TestFallbackLocations: every server is dead, and the trust documents name a repository of Git and a location of HTTPS. The repository is behind, and the host
// takes what is newer from the location; then that is gone too, and the host takes what was pushed to the repository since.
func TestFallbackLocations(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	repository, mirror, old, newest := g.published(), filepath.Join(g.Dir, "mirror"), filepath.Join(g.Dir, "old"), filepath.Join(g.Dir, "newest")
	must(t, os.MkdirAll(mirror, 0o755))
	location := httptest.NewTLSServer(http.FileServer(http.Dir(mirror)))
	defer location.Close()
	s := g.join("web-1")
	s.Start()
	g.Apply(site("one\n"))
	s.converges()
	git, https := "git+"+repository.url, location.URL+"/tako"
	g.Tako("trust", "set-fallback", git, https, "--data-dir", g.Server.Dir)
	s.Until("it knows the locations", func() (string, bool) {
		text := s.Read("var/lib/tako/identity/trust.json")
		return text, strings.Contains(text, git) && strings.Contains(text, https)
	})
	g.Tako("export", "heads", "--all", "-o", old)
	repository.commit(old)
	s.Stop()
	s.assigns("two\n", filepath.Join(mirror, "tako"))
	s.assigns("three\n", newest)
	g.Server.Kill()

	s.Start()
	s.Keeps("etc/motd", "one\n")
	s.Has("etc/motd", "two\n")
	s.tookFrom(https)

	location.Close()
	repository.commit(newest)
	s.Stop() // one that begins asks after a minute, and one that runs after two at the latest
	s.Start()
	s.Keeps("etc/motd", "two\n")
	s.Has("etc/motd", "three\n")
	s.tookFrom(git)
}

// tookFrom waits until its agent has said where it has a head from.
func (s *sandbox) tookFrom(location string) {
	s.ground.Helper()
	s.Until("it says that it has a head from "+location, func() (string, bool) {
		text, err := os.ReadFile(s.Log)
		must(s.ground.T, err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "take a head from a fallback location") && strings.Contains(line, location) {
				return "", true
			}
		}
		return "its log does not", false
	})
}
