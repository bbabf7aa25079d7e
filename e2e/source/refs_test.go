package source

import (
	"fmt"
	"strings"
	"testing"
)

// versions is a repository with a directory for each of the Sources that follow it, each in its own way.
type versions struct {
	*fleet
	repo    *repository
	forge   *forge
	sources []string
}

func newVersions(t *testing.T, sources ...string) *versions {
	t.Helper()
	f := newFleet(t)
	v := &versions{fleet: f, repo: newRepository(t, f.repositories, "versions"), forge: newForge(t, f.repositories, "of-the-forge"), sources: sources}
	f.Apply(v.forge.secret())
	for _, name := range sources {
		f.allow(name, "cluster-admin")
	}
	return v
}

// release commits a value for every Source, and gives the commit a tag of that name.
func (v *versions) release(tag string, flags ...string) string {
	v.Helper()
	commit := v.commit(tag)
	v.tag(tag, commit, flags...)
	return commit
}

// commit commits a value for every Source.
func (v *versions) commit(value string) string {
	v.Helper()
	files := map[string]string{}
	for _, name := range v.sources {
		files[name+"/a.yaml"] = text(name, value)
	}
	return v.repo.commit(value, files)
}

// tag has a tag name a commit, whatever it has named before.
func (v *versions) tag(name, commit string, flags ...string) {
	v.Helper()
	v.repo.git(append(append([]string{"tag", "--force"}, flags...), name, commit)...)
	v.repo.git("push", "--quiet", "--force", "origin", "refs/tags/"+name)
}

// follow declares a Source of its directory, or has it look again.
func (v *versions) follow(name, ref string) {
	v.Helper()
	v.look(name, fmt.Sprintf("{url: %q, ref: {%s}, path: %s, credentials: forge, interval: 24h}", v.forge.url(v.repo), ref, name))
}

// has waits until a Source has applied a commit that ref has led to, and checks what that has made.
func (v *versions) has(name, commit, ref, value string) {
	v.Helper()
	s := v.applies(name, commit)
	if got := s.Status.Applied.Ref; got != ref {
		v.Errorf("source %s says that %q has led to its commit, want %q", name, got, ref)
	}
	v.is(name, value)
}

// TestTag: a tag is followed where it is moved to, and nothing else is.
func TestTag(t *testing.T) {
	t.Parallel()
	v := newVersions(t, "tagged")
	const ref, name = "tag: production", "production"
	look := func() { t.Helper(); v.follow("tagged", ref) }
	v.release("staging")
	look()
	v.refuses("tagged", `"production"`, `"staging"`)
	first := v.release(name)
	look()
	v.has("tagged", first, name, name)
	second := v.commit("second")
	look()
	v.has("tagged", first, name, name) // the branch is not the tag

	v.tag(name, second)
	look()
	v.has("tagged", second, name, "second")
	v.tag(name, first, "--annotate", "--message", "back") // it is an object of its own; what is applied is the commit
	look()
	v.has("tagged", first, name, name)

	v.repo.git("push", "--quiet", "origin", ":refs/tags/"+name)
	look()
	if s := v.refuses("tagged", `"production"`, "stays applied"); s.Status.Applied.ID != first {
		t.Errorf("applied is %+v", s.Status.Applied)
	}
	v.is("tagged", name) // a tag that is gone is no wish to delete
}

// TestRange: the highest version in a range is applied; pre-releases are in it only where it names one.
func TestRange(t *testing.T) {
	t.Parallel()
	v := newVersions(t, "stable", "early")
	look := func() {
		t.Helper()
		v.follow("stable", `semver: ">=1.2.0 <2"`)
		v.follow("early", `semver: ">=1.2.0-0 <2"`)
	}
	v.release("v1.1.9")
	look()
	v.refuses("stable", ">=1.2.0 <2", "1.1.9")
	commits := map[string]string{}
	for _, c := range []struct {
		tag           string
		flags         []string
		stable, early string // what each has then
	}{
		{tag: "v1.2.0", stable: "v1.2.0", early: "v1.2.0"},
		{tag: "v1.10.0", flags: []string{"--annotate", "--message", "ten"}, stable: "v1.10.0", early: "v1.10.0"},
		{tag: "v1.9.9", stable: "v1.10.0", early: "v1.10.0"},
		{tag: "v1.11.0-rc.1", stable: "v1.10.0", early: "v1.11.0-rc.1"},
		{tag: "v2.0.0", stable: "v1.10.0", early: "v1.11.0-rc.1"},
		{tag: "1.99", stable: "v1.10.0", early: "v1.11.0-rc.1"}, // no version
		{tag: "v1.11.0", stable: "v1.11.0", early: "v1.11.0"},
	} {
		commits[c.tag] = v.release(c.tag, c.flags...)
		look()
		v.has("stable", commits[c.stable], c.stable, c.stable)
		v.has("early", commits[c.early], c.early, c.early)
	}
	v.repo.git("push", "--quiet", "origin", ":refs/tags/v1.11.0") // a release that is withdrawn
	look()
	v.has("stable", commits["v1.10.0"], "v1.10.0", "v1.10.0")
	v.has("early", commits["v1.11.0-rc.1"], "v1.11.0-rc.1", "v1.11.0-rc.1")
}

// TestCommit: one commit stays applied whatever comes, until another one is declared; one that is not there is told.
func TestCommit(t *testing.T) {
	t.Parallel()
	v := newVersions(t, "pinned")
	first, second := v.commit("first"), v.commit("second")
	v.follow("pinned", pin(first))
	v.has("pinned", first, "", "first")
	v.commit("third")
	v.follow("pinned", pin(first))
	v.has("pinned", first, "", "first")
	v.follow("pinned", pin(second))
	v.has("pinned", second, "", "second")
	nowhere := strings.Repeat("12", 20)
	v.follow("pinned", pin(nowhere))
	if s := v.refuses("pinned", nowhere, "stays applied"); s.Status.Applied.ID != second {
		t.Errorf("applied is %+v", s.Status.Applied)
	}
	v.is("pinned", "second")
}

// pin is a ref that is a commit.
func pin(commit string) string { return fmt.Sprintf("commit: %q", commit) }
