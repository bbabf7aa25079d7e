package repository

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

const (
	rpmFile = "/etc/yum.repos.d/lab.repo"
	rpmKey  = "/etc/pki/rpm-gpg/lab.asc"
)

func dnfRepository(url, key string) declare.Resource {
	d := &declare.DnfRepository{BaseURL: []string{url}, Key: key}
	if key == "" {
		d.Options = map[string]string{"gpgcheck": "0"}
	}
	return declare.Resource{Name: "lab", Repository: &declare.Repository{Dnf: d}}
}

// rpm adds a package to the server's directory, and publishes it.
func (s *server) rpm(name, version string, by *signer) {
	s.Helper()
	top := s.TempDir()
	spec := filepath.Join(top, "x.spec")
	text := fmt.Sprintf("Name: %s\nVersion: %s\nRelease: 1\nSummary: x\nLicense: x\nBuildArch: noarch\n%%description\nx\n%%files\n", name, version)
	if err := os.WriteFile(spec, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	run(s, "rpmbuild", "-bb", "--quiet", "--define", "_topdir "+top, "--define", "_rpmdir "+s.dir, "--define", "_build_id_links none", spec)
	file := filepath.Join(s.dir, "noarch", name+"-"+version+"-1.noarch.rpm")
	if by != nil {
		run(s, "rpmsign", "--define", "_gpg_name "+by.name, "--define", "_gpg_path "+by.home, "--define", "__gpg /usr/bin/gpg", "--addsign", file)
	}
	run(s, "createrepo_c", "-q", s.dir)
}

func needsDnf(t testing.TB) {
	t.Helper()
	for _, tool := range []string{"dnf", "rpm", "rpmbuild", "rpmsign", "createrepo_c"} {
		needs(t, tool)
	}
}

func TestDnfConformance(t *testing.T) {
	needsDnf(t)
	if !inside(t) {
		return
	}
	g, s, us, other := newGround(t, "/"), newServer(t), newSigner(t, "us"), newSigner(t, "other")
	s.rpm("one", "1.0", us)
	r := dnfRepository(s.url, us.armored)
	g.Made(r)
	file, key := g.see(rpmFile), g.see(rpmKey)
	arrange := func(file, key string, more ...string) func(testing.TB) {
		return func(t testing.TB) {
			run(t, "rm", "-rf", "/etc/yum.repos.d", "/etc/pki")
			if file != "" {
				g.put(rpmFile, file)
			}
			if key != "" {
				g.put(rpmKey, key)
			}
			for _, m := range more {
				run(t, "sh", "-ec", m)
			}
		}
	}
	hosttest.Run(t, hosttest.Subject{
		Type:     g.Type,
		Declared: []host.Declared{hosttest.Declared(r)},
		Situations: []hosttest.Situation{
			{Name: "nothing there", Arrange: arrange("", "")},
			{Name: "something else there", Arrange: arrange("[lab]\nname=x\nbaseurl=http://x/\n", "")},
			{Name: "another key", Arrange: arrange(file, other.armored)},
			{Name: "changed by hand", Arrange: arrange(strings.Replace(file, "gpgcheck=1", "gpgcheck=0", 1), key)},
			{Name: "removed by hand", Arrange: arrange("", key)},
			{Name: "modes", Arrange: arrange(file, key, "chmod 600 "+rpmFile+" "+rpmKey)},
		},
		Observe:    func(testing.TB, int) any { return g.observe(rpmFile, rpmKey, "") },
		Difference: quiet,
		Gone:       []any{fields{fieldSources: wordAbsent, fieldKey: wordAbsent}},
		Snapshot:   func(t testing.TB) string { return hosttest.Tree(t, "/etc", "/run", "/var/cache") },
		Disturb:    func(testing.TB) { g.put(rpmFile, "# another\n") },
		Remembers:  true,
	})
}

// TestDnf takes repositories as they are in the world.
func TestDnf(t *testing.T) {
	needsDnf(t)
	if !inside(t) {
		return
	}
	us, other := newSigner(t, "us"), newSigner(t, "other")
	install := func(g *ground) (string, error) {
		root := g.TempDir()
		out, err := attempt(g, "dnf", "-y", "--noplugins", "--installroot="+root, "--setopt=reposdir=/etc/yum.repos.d", "--releasever=9", "install", "one")
		return out, err
	}
	for name, test := range map[string]func(*ground, *server){
		"used by dnf": func(g *ground, s *server) {
			g.Made(dnfRepository(s.url, us.armored))
			if out, err := install(g); err != nil {
				g.Errorf("%v\n%s", err, out)
			}
		},
		"signed by another": func(g *ground, s *server) {
			g.Made(dnfRepository(s.url, other.armored)) // the index is signed by nobody: dnf looks at packages when they come
			if out, err := install(g); err == nil {
				g.Errorf("installed all the same:\n%s", out)
			}
		},
		"an index that is not signed": func(g *ground, s *server) {
			r := dnfRepository(s.url, us.armored)
			r.Repository.Dnf.Options = map[string]string{"repo_gpgcheck": "1"}
			res := g.Converge(r)
			if !reason.Is(res.Err, reason.PackageSourceUnreachable) && !reason.Is(res.Err, reason.PackageSourceUntrusted) || g.see(rpmFile) != "" {
				g.Errorf("%s", hosttest.Told(res.Err))
			}
			us.gpg(g, "--armor", "--detach-sign", "--output", s.dir+"/repodata/repomd.xml.asc", s.dir+"/repodata/repomd.xml")
			g.Made(r)
			r.Repository.Dnf.Key = other.armored
			g.Refused(r, reason.PackageSourceUntrusted)
		},
		"does not answer": func(g *ground, s *server) {
			s.set(503, nil)
			g.Refused(dnfRepository(s.url, us.armored), reason.PackageSourceUnreachable, "503")
			g.Refused(dnfRepository("http://nowhere.invalid/", us.armored), reason.PackageSourceUnreachable, "lab")
			if g.see(rpmFile)+g.see(rpmKey) != "" {
				g.Error("its file is there all the same")
			}
			s.set(0, nil)
			g.Made(dnfRepository(s.url, us.armored))
		},
		"not checked": func(g *ground, s *server) {
			if res := g.Made(dnfRepository(s.url, "")); !strings.Contains(res.Note, "gpgcheck: 0") {
				g.Errorf("not told: %+v", res)
			}
		},
		"contradicted and doubled": func(g *ground, s *server) {
			r := dnfRepository(s.url, us.armored)
			g.put("/etc/yum.repos.d/vendor.repo", "# by hand\n\n[lab]\nname=x\nbaseurl=http://x/\n")
			g.Refused(r, reason.PackageSourceConflict, "vendor.repo:3")
			g.put("/etc/yum.repos.d/vendor.repo", "[main]\nkeepcache=1\n[other]\nbaseurl = "+s.url+"\ngpgkey=file://"+rpmKey+"\n")
			if res := g.Made(r); !strings.Contains(res.Note, "vendor.repo:3") {
				g.Errorf("%+v", res)
			}
			if err := g.Remove(g.Context(), g.bind(r), declare.OnRemoveDelete, nil); err != nil {
				g.Fatal(hosttest.Told(err))
			}
			if g.see(rpmKey) == "" || g.see(rpmFile) != "" {
				g.Error("the key that another file names is removed, or the file is not")
			}
		},
		"absent": func(g *ground, s *server) {
			r := dnfRepository(s.url, us.armored)
			g.Made(r)
			if cached, _ := filepath.Glob("/var/cache/dnf/lab*"); len(cached) == 0 {
				g.Error("nothing was fetched")
			}
			run(g, "mkdir", "-p", "/var/cache/dnf/lab-two-0123456789abcdef")
			g.Made(declare.Resource{Name: "lab", Repository: &declare.Repository{State: declare.EditAbsent, Dnf: &declare.DnfRepository{}}})
			if g.see(rpmFile)+g.see(rpmKey) != "" {
				g.Error("a file is left")
			}
			if left, _ := filepath.Glob("/var/cache/dnf/lab*"); !slices.Equal(left, []string{"/var/cache/dnf/lab-two-0123456789abcdef"}) {
				g.Errorf("left of what was fetched: %v", left)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, "sh", "-ec", "rm -rf /etc/yum.repos.d /etc/pki /var/cache/dnf "+stageDir)
			s := newServer(t)
			s.rpm("one", "1.0", us)
			test(newGround(t, "/"), s)
		})
	}
}
