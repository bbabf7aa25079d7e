package repository

import (
	"context"
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

// policy is the version of a package that apt itself would install.
func policy(t testing.TB, name string) string {
	t.Helper()
	for line := range strings.Lines(run(t, "apt-cache", "policy", name)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Candidate: "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// names are the lists that are there.
func names(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(aptLists)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if e.Type().IsRegular() && e.Name() != "lock" {
			all = append(all, e.Name())
		}
	}
	return all
}

// TestApt takes repositories as they are in the world.
func TestApt(t *testing.T) {
	if !inside(t) {
		return
	}
	us, other := newSigner(t, "us"), newSigner(t, "other")
	for name, test := range map[string]func(*ground, *server){
		"used by apt": func(g *ground, s *server) {
			res := g.Made(aptRepository(s.url, "stable", us.armored))
			if !res.Changed || policy(g, "one") != "1.0" {
				g.Errorf("%+v; apt would install %q", res, policy(g, "one"))
			}
			said := run(g, "apt-get", "update")
			if strings.Contains(said, "W:") || strings.Contains(said, "E:") {
				g.Errorf("apt-get update:\n%s", said)
			}
			// Newer packages are fetched when the declaration changes, and not otherwise.
			before := s.requests()
			g.Made(aptRepository(s.url, "stable", us.armored))
			if s.requests() != before {
				g.Error("a repository that is as declared is fetched")
			}
		},
		"flat": func(g *ground, s *server) {
			s.flat(us)
			g.Made(aptRepository(s.url, "./", us.armored))
			if policy(g, "one") != "1.0" {
				g.Error("not used")
			}
		},
		"file": func(g *ground, s *server) {
			g.Made(aptRepository("file://"+s.dir, "stable", us.armored))
			if policy(g, "one") != "1.0" {
				g.Error("not used")
			}
		},
		"two keys in one text": func(g *ground, s *server) {
			g.Made(aptRepository(s.url, "stable", other.armored+us.armored))
		},
		"keys of the host": func(g *ground, s *server) {
			g.put("/etc/apt/trusted.gpg.d/us.asc", us.armored)
			g.Made(aptRepository(s.url, "stable", ""))
			g.put("/etc/apt/trusted.gpg.d/us.asc", "")
			if g.see(labKey) != "" {
				g.Error("there is a key")
			}
		},
		"lists removed by hand": func(g *ground, s *server) {
			r := aptRepository(s.url, "stable", us.armored)
			g.Made(r)
			run(g, "sh", "-c", "rm -rf "+aptLists+"/*")
			p := g.Check(g.Context(), []host.Resource{g.bind(r)}, host.Shallow)[0]
			if want := []host.Change{{Field: fieldLists, From: wordMissing, To: wordFetched}}; !slices.Equal(p.Changes, want) {
				g.Errorf("planned %v", p.Changes)
			}
			if res := g.Made(r); !res.Changed || policy(g, "one") != "1.0" {
				g.Errorf("%+v", res)
			}
		},
		"does not answer": func(g *ground, s *server) {
			s.set(503, nil)
			g.Refused(aptRepository(s.url, "stable", us.armored), reason.PackageSourceUnreachable, "503")
			g.Refused(aptRepository("http://127.0.0.1:1/", "stable", us.armored), reason.PackageSourceUnreachable, "127.0.0.1")
			g.Refused(aptRepository("http://nowhere.invalid/", "stable", us.armored), reason.PackageSourceUnreachable, "nowhere.invalid")
			if g.see(labFile)+g.see(labKey) != "" {
				g.Error("its file is there all the same")
			}
			if said := run(g, "apt-get", "-o", "APT::Update::Error-Mode=any", "update"); strings.Contains(said, "E:") {
				g.Errorf("apt-get update:\n%s", said)
			}
			s.set(0, nil)
			g.Made(aptRepository(s.url, "stable", us.armored))
		},
		"not there": func(g *ground, s *server) {
			g.Refused(aptRepository(s.url, "nowhere", us.armored), reason.PackageSourceUnreachable, "does not have a Release file")
			r := aptRepository(s.url, "stable", us.armored)
			r.Repository.Apt.Components = []string{"nowhere"}
			if err := g.Converge(r).Err; err != nil && !reason.Is(err, reason.PackageSourceUnreachable) { // apt only warns
				g.Errorf("a component that is not there: %s", hosttest.Told(err))
			}
		},
		"signed by another": func(g *ground, s *server) {
			r := aptRepository(s.url, "stable", us.armored)
			g.Made(r)
			before := names(g)
			s.deb("one", "2.0")
			s.suite("stable", other)
			// The declaration is as it was: nothing is fetched. A change of it is not made while the signature is wrong.
			r.Repository.Apt.Options = map[string]string{"Languages": "none"}
			file := g.see(labFile)
			g.Refused(r, reason.PackageSourceUntrusted, "NO_PUBKEY")
			if g.see(labFile) != file || !slices.Equal(names(g), before) || policy(g, "one") != "1.0" {
				g.Errorf("something is other than it was: %v, %v", names(g), before)
			}
			r.Repository.Apt.Key = other.armored
			g.Made(r)
			if policy(g, "one") != "2.0" {
				g.Errorf("with the new key: %s", policy(g, "one"))
			}
		},
		"not signed": func(g *ground, s *server) {
			s.suite("stable", nil)
			r := aptRepository(s.url, "stable", us.armored)
			g.Refused(r, reason.PackageSourceUntrusted, "is not signed")
			r.Repository.Apt.Key, r.Repository.Apt.Options = "", map[string]string{"Trusted": "yes"}
			if res := g.Made(r); !strings.Contains(res.Note, "Trusted: yes") {
				g.Errorf("what is not checked is not told: %+v", res)
			}
		},
		"no Release at all": func(g *ground, s *server) {
			s.flat(nil)
			s.shell(s.dir, "rm Release", "")
			r := aptRepository(s.url, "./", "")
			r.Repository.Apt.Options = map[string]string{"Trusted": "yes"}
			bound := g.bind(r)
			p := g.Check(g.Context(), []host.Resource{bound}, host.Deep)[0]
			if res := g.Apply(g.Context(), []host.Plan{p})[0]; res.Err != nil {
				g.Fatal(hosttest.Told(res.Err))
			}
			if p := g.Check(g.Context(), []host.Resource{bound}, host.Deep)[0]; !p.Empty() {
				g.Errorf("fetched, and there is still %+v", p.Changes)
			}
		},
		"contradicted": func(g *ground, s *server) {
			r := aptRepository(s.url, "stable", us.armored)
			other := "/etc/apt/sources.list.d/vendor.list"
			g.put(other, "# by hand\ndeb [signed-by=/usr/share/keyrings/vendor.gpg arch=amd64] "+strings.TrimSuffix(s.url, "/")+" stable main\n")
			g.Refused(r, reason.PackageSourceConflict, other+":2", "repository: vendor")
			if g.see(labFile) != "" {
				g.Error("written all the same")
			}
			g.put(other, "")
			g.Made(r)
			g.put("/etc/apt/sources.list", "deb "+s.url+" stable main\n")
			p := g.Check(g.Context(), []host.Resource{g.bind(r)}, host.Shallow)[0]
			if !reason.Is(p.Err, reason.PackageSourceConflict) {
				g.Errorf("a file that came later: %v", p.Err)
			}
		},
		"named twice": func(g *ground, s *server) {
			r := aptRepository(s.url, "stable", us.armored)
			g.put("/etc/apt/sources.list.d/z.sources", "# x\n\nTypes: deb\nURIs: http://other/\n "+s.url+"\nSuites: stable\nComponents: main\nSigned-By: "+labKey+"\n")
			g.put(labKey, us.armored) // so that the other file can be used by itself
			if res := g.Made(r); !strings.Contains(res.Note, "z.sources:3") {
				g.Errorf("%+v", res)
			}
			if err := g.Remove(g.Context(), g.bind(r), declare.OnRemoveDelete, nil); err != nil {
				g.Fatal(hosttest.Told(err))
			}
			if g.see(labKey) == "" || len(names(g)) == 0 {
				g.Errorf("what another file names is removed: %v", names(g))
			}
		},
		"absent": func(g *ground, s *server) {
			s.suite("stable/updates", us)
			second := aptRepository(s.url, "stable/updates", us.armored)
			second.Name = "second"
			g.Made(aptRepository(s.url, "stable", us.armored))
			alone := names(g)
			g.Made(second)
			g.Made(declare.Resource{Name: "lab", Repository: &declare.Repository{State: declare.EditAbsent, Apt: &declare.AptRepository{}}})
			left := names(g)
			if g.see(labFile)+g.see(labKey) != "" || slices.ContainsFunc(alone, func(n string) bool { return slices.Contains(left, n) }) || len(left) == 0 {
				g.Errorf("left: %v", left)
			}
			if err := g.Remove(g.Context(), g.bind(second), declare.OnRemoveDelete, nil); err != nil {
				g.Fatal(hosttest.Told(err))
			}
			if len(names(g)) != 0 {
				g.Errorf("left in the end: %v", names(g))
			}
		},
		"locked": func(g *ground, s *server) {
			hold := make(chan struct{})
			s.set(0, hold)
			g.put("/etc/apt/sources.list.d/slow.sources", "Types: deb\nURIs: "+s.url+"\nSuites: other\nComponents: main\nTrusted: yes\n")
			ended := make(chan struct{})
			ctx, cancel := context.WithCancel(g.Context())
			go func() {
				defer close(ended)
				_, _ = apt{}.fetch(ctx, "/etc/apt/sources.list.d/slow.sources", "")
			}()
			until(g, "apt-get asks", func() bool { return s.requests() > 0 })
			g.Refused(aptRepository(s.url, "stable", us.armored), reason.PackageLock, "apt-get", "pid ")
			cancel()
			<-ended
			s.set(0, nil)
			close(hold)
			g.Made(aptRepository(s.url, "stable", us.armored))
		},
		"interrupted": func(g *ground, s *server) {
			hold := make(chan struct{})
			defer close(hold)
			s.set(0, hold)
			ctx, cancel := context.WithCancel(g.Context())
			r := g.bind(aptRepository(s.url, "stable", us.armored))
			p := g.Check(ctx, []host.Resource{r}, host.Deep)
			go func() {
				until(g, "apt-get asks", func() bool { return s.requests() > 0 })
				cancel()
			}()
			res := g.Apply(ctx, p)[0]
			if !reason.Is(res.Err, reason.Interrupted) || res.Changed {
				g.Errorf("%+v", res)
			}
			if left, _ := filepath.Glob(stageDir + "/*"); len(left) > 0 {
				g.Errorf("left of the try: %v", left)
			}
		},
		"something in the way": func(g *ground, s *server) {
			run(g, "mkdir", "-p", labFile)
			g.Refused(aptRepository(s.url, "stable", us.armored), reason.TypeInTheWay)
			run(g, "rmdir", labFile)
			run(g, "ln", "-s", "/etc/passwd", labFile)
			g.Refused(aptRepository(s.url, "stable", us.armored), reason.TypeInTheWay)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, "sh", "-ec", "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/keyrings "+aptLists+"/* "+stageDir)
			s := newServer(t)
			s.deb("one", "1.0")
			s.suite("stable", us)
			test(newGround(t, "/"), s)
		})
	}
}

// TestAptNames compares the names of lists with those that apt itself gives.
func TestAptNames(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	for uri, suite := range map[string]string{
		"http://deb.example.org/debian": "bookworm", "https://x:8443/a~b/c%20d/": "s/updates", "http://h/x_y+z": "./", "http://h/p": "sub/dir/", "http://h": "/", "https://h.example.com/a=b&c:d": "x",
	} {
		if message, _ := declare.AptURIMistake(uri); message != "" {
			t.Errorf("%s: %s", uri, message)
		}
		r := aptRepository(uri, suite, "")
		g.put(labFile, apt{}.text(r.Repository, "lab", ""))
		m := apt{}.parse(labFile, g.see(labFile))
		if len(m) != 1 {
			t.Fatalf("%s %s: %+v", uri, suite, m)
		}
		said := run(t, "apt-get", "indextargets", "--no-release-info", "--format", "$(METAKEY) $(FILENAME)", "Created-By: Packages")
		key, file, _ := strings.Cut(strings.Split(said, "\n")[0], " ")
		list := strings.TrimPrefix(file, aptLists+"/")
		if want := m[0].prefix() + strings.ReplaceAll(key, "/", "_"); list != want {
			t.Errorf("%s %s: apt has %q, want %q", uri, suite, list, want)
		}
	}
}
