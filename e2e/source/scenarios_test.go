package source

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/rig"
)

// story is a repository behind a forge that a fleet follows.
type story struct {
	*fleet
	hosts []*rig.Host
	forge *forge
	repo  *repository
	spec  string
	last  string // commit
}

// TestFleetFollows is the life of a repository; each chapter leaves it as the next one needs it.
func TestFleetFollows(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	s := &story{fleet: f, hosts: f.hosts(), forge: newForge(t, f.repositories, "of-the-forge"), repo: newRepository(t, f.repositories, "fleet")}
	s.spec = fmt.Sprintf("{url: %q, path: clusters/all, credentials: forge, interval: 10s}", s.forge.url(s.repo))
	for _, chapter := range []struct {
		name string
		run  func(*testing.T, *story)
	}{
		{"nothing can be done without rights, and it says so", withoutRights},
		{"what is merged reaches three hosts", merged},
		{"a commit that nobody calls for is found in an interval", found},
		{"a broken commit changes nothing, and its fix is applied", broken},
		{"what is reverted goes back", reverted},
		{"a force push is followed", forced},
		{"a file that is moved keeps its objects", moved},
		{"a file that is deleted takes its objects along", deleted},
		{"the repository is away, and comes back", away},
		{"what a person changes is put back", drifted},
		{"a suspension survives restarts", suspended},
	} {
		if !t.Run(chapter.name, func(t *testing.T) { s.T = t; chapter.run(t, s) }) {
			t.Fatal("the chapters after this one stand on it")
		}
	}
}

// follows waits until a commit is applied, and all hosts have a message of the day.
func (s *story) follows(commit, want string) {
	s.Helper()
	s.last = commit
	s.look("fleet", s.spec)
	s.applies("fleet", commit)
	for _, h := range s.hosts {
		h.Has("etc/motd", want)
	}
}

func withoutRights(t *testing.T, s *story) {
	s.Apply(s.forge.secret())
	s.last = s.repo.commit("first", map[string]string{"clusters/all/motd.yaml": motd("first\n"), "clusters/all/a.yaml": text("a", "1"), "README.md": "not applied\n", "elsewhere/b.yaml": "not: applied\n"})
	s.declare("fleet", s.spec)
	s.refuses("fleet", "system:source:ops:fleet", "clusternodeconfigs")
	if s.object("configmap/a", "prod") != nil {
		t.Error("something was applied without any right to")
	}
	s.allow("fleet", "cluster-admin")
}

func merged(t *testing.T, s *story) {
	s.follows(s.last, "first\n")
	s.is("a", "1")
	src := s.source("fleet")
	if a := src.Status.Applied; a.Author != "Ann Example <ann@example.com>" || a.Subject != "first" || a.Ref != "main" || src.Status.Objects != 2 {
		t.Errorf("it says %+v of %d objects", a, src.Status.Objects)
	}
	// A pull request, as a forge merges it.
	s.repo.git("checkout", "--quiet", "-b", "change")
	s.repo.write(map[string]string{"clusters/all/motd.yaml": motd("second\n")})
	s.repo.git("commit", "--quiet", "--all", "--message", "change the message")
	s.repo.push()
	s.look("fleet", s.spec)
	s.applies("fleet", s.last) // a branch is not what is applied
	s.repo.git("checkout", "--quiet", "main")
	s.repo.git("merge", "--quiet", "--no-ff", "--message", "merge the change", "change")
	s.follows(s.repo.push(), "second\n")
	if _, err := s.Try("get", "clusternodeconfig/motd", "-o", "jsonpath={.metadata.annotations}"); err != nil {
		t.Error(err)
	}
}

func found(_ *testing.T, s *story) {
	s.last = s.repo.commit("nobody calls", map[string]string{"clusters/all/motd.yaml": motd("found\n")})
	s.applies("fleet", s.last)
	for _, h := range s.hosts {
		h.Has("etc/motd", "found\n")
	}
}

func broken(t *testing.T, s *story) {
	s.repo.commit("a mistake", map[string]string{
		"clusters/all/a.yaml":    text("a", "of the broken commit"),
		"clusters/all/motd.yaml": strings.Replace(motd("broken\n"), "file:", "flie:", 1),
	})
	s.look("fleet", s.spec)
	src := s.refuses("fleet", "clusters/all/motd.yaml:8", "stays applied")
	if src.Status.Applied.ID != s.last || src.Status.Seen.ID == s.last {
		t.Errorf("applied is %s, seen %s, and the last good one is %s", src.Status.Applied.ID, src.Status.Seen.ID, s.last)
	}
	s.is("a", "1")
	for _, h := range s.hosts {
		h.Keeps("etc/motd", "found\n")
	}
	s.follows(s.repo.commit("its fix", map[string]string{"clusters/all/motd.yaml": motd("mended\n")}), "mended\n")
	s.is("a", "of the broken commit")
	if f := s.source("fleet").Status.Faults; len(f) > 0 {
		t.Errorf("it still says %+v", f)
	}
}

func reverted(_ *testing.T, s *story) {
	s.follows(s.repo.commit("to be reverted", map[string]string{"clusters/all/motd.yaml": motd("wrong\n"), "clusters/all/new.yaml": text("new", "1")}), "wrong\n")
	s.is("new", "1")
	s.repo.git("revert", "--no-edit", "HEAD")
	s.follows(s.repo.push(), "mended\n")
	s.gone("new")
}

// gone checks that a config map is not there.
func (s *story) gone(name string) {
	s.Helper()
	if s.object("configmap/"+name, "prod") != nil {
		s.Errorf("configmap %s is still there", name)
	}
}

func forced(_ *testing.T, s *story) {
	s.repo.write(map[string]string{"clusters/all/motd.yaml": motd("of another history\n")})
	s.repo.git("checkout", "--quiet", "--orphan", "other")
	s.repo.git("add", "--all")
	s.repo.git("commit", "--quiet", "--message", "another history")
	s.repo.git("branch", "--force", "main", "HEAD")
	s.repo.git("checkout", "--quiet", "main")
	s.follows(s.repo.push("--force"), "of another history\n")
}

func moved(t *testing.T, s *story) {
	before := s.object("configmap/a", "prod")
	s.repo.write(map[string]string{"clusters/all/deeper/.keep": ""})
	s.repo.git("mv", "clusters/all/a.yaml", "clusters/all/deeper/renamed.yaml")
	s.follows(s.repo.commit("moved", nil), "of another history\n")
	after := s.object("configmap/a", "prod")
	if before == nil || after == nil || before.GetUID() != after.GetUID() {
		t.Fatalf("the object was made anew: %v, %v", before, after)
	}
	if origin := after.GetAnnotations()["tako.dev/origin"]; !strings.Contains(origin, "clusters/all/deeper/renamed.yaml") {
		t.Errorf("it says that it is from %s", origin)
	}
}

func deleted(_ *testing.T, s *story) {
	s.Apply(text("theirs", "1")) // what others have made stays
	s.repo.git("rm", "--quiet", "clusters/all/deeper/renamed.yaml")
	s.follows(s.repo.commit("deleted", nil), "of another history\n")
	s.gone("a")
	s.is("theirs", "1")
}

func away(t *testing.T, s *story) {
	s.forge.stop()
	s.look("fleet", s.spec)
	src := s.refuses("fleet", s.forge.address, "stays applied")
	if src.Status.Applied.ID != s.last {
		t.Errorf("applied is %s", src.Status.Applied.ID)
	}
	for _, h := range s.hosts {
		h.Keeps("etc/motd", "of another history\n")
	}
	next := s.repo.commit("while nobody could see it", map[string]string{"clusters/all/motd.yaml": motd("after the outage\n")})
	s.forge.start()
	s.last = next
	s.applies("fleet", next) // nobody has to ask
	for _, h := range s.hosts {
		h.Has("etc/motd", "after the outage\n")
	}
}

func drifted(_ *testing.T, s *story) {
	// Whoever declares something else takes the field from the Source: it must force that.
	s.Apply(text("theirs", "2"))
	path := s.Dir + "/drift.yaml"
	must(s.T, writeFile(path, motd("by hand\n")))
	s.Tako("apply", "--force-conflicts", "-f", path)
	s.until("fleet", "the change is put back", func(*v1alpha1.Source) bool {
		o := s.object("clusternodeconfig/motd", "")
		return o != nil && strings.Contains(fmt.Sprint(o.Object["spec"]), "after the outage")
	})
	s.is("theirs", "2")
}

func suspended(t *testing.T, s *story) {
	held := fmt.Sprintf(`%s, suspend: {reason: "a freeze", owner: ann, until: %q}}`, strings.TrimSuffix(s.spec, "}"), time.Now().AddDate(0, 1, 0).UTC().Format(time.RFC3339))
	s.look("fleet", held)
	says := func(what string) v1alpha1.Source {
		return s.until("fleet", what, func(src *v1alpha1.Source) bool {
			for _, c := range src.Status.Conditions {
				if c.Type == "Suspended" && c.Status == "True" && strings.Contains(c.Message, "a freeze") && strings.Contains(c.Message, "ann") {
					return true
				}
			}
			return false
		})
	}
	says("it is suspended")
	next := s.repo.commit("during the freeze", map[string]string{"clusters/all/motd.yaml": motd("thawed\n")})
	for range 2 {
		s.Server.Stop(t)
		s.Server.Start(t)
		// What the other Source does is done after what this one would have done: they begin together.
		other := newRepository(t, s.repositories, fmt.Sprintf("witness-%d", s.asked))
		commit := other.commit("first", map[string]string{"w.yaml": text(fmt.Sprintf("witness-%d", s.asked), "1")})
		name := fmt.Sprintf("witness-%d", s.asked)
		s.allow(name, "cluster-admin")
		s.look(name, fmt.Sprintf("{url: %q}", "file://"+other.bare))
		s.applies(name, commit)
		if src := says("it is still suspended"); src.Status.Applied.ID != s.last {
			t.Errorf("commit %s was applied during the suspension", src.Status.Applied.ID)
		}
	}
	s.follows(next, "thawed\n")
}
