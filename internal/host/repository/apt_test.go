package repository

import (
	"os"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
)

const (
	labFile = "/etc/apt/sources.list.d/lab.sources"
	labKey  = "/etc/apt/keyrings/lab.gpg"
)

func aptRepository(uri, suite, key string) declare.Resource {
	a := &declare.AptRepository{Uris: []string{uri}, Suites: []string{suite}, Key: key}
	if !strings.HasSuffix(suite, "/") {
		a.Components = []string{"main"}
	}
	return declare.Resource{Name: "lab", Repository: &declare.Repository{Apt: a}}
}

// fields is what a test sees of a repository: field by field what is there.
type fields map[string]string

func difference(_ int, before, after any) []host.Change {
	var changes []host.Change
	for name, to := range after.(fields) {
		if from := before.(fields)[name]; from != to {
			changes = append(changes, host.Change{Field: name, From: from, To: to})
		}
	}
	return changes
}

// observe looks at the files of the repository lab by other means than the type's.
func (g *ground) observe(file, key, list string) fields {
	f := fields{fieldSources: wordAbsent, fieldKey: wordAbsent}
	if sum := strings.Fields(run(g, "sh", "-c", "sha256sum "+file+" 2>/dev/null || true")); len(sum) > 0 {
		f[fieldSources] = "sha256:" + sum[0][:8]
	}
	if g.see(key) != "" {
		for line := range strings.Lines(run(g, "gpg", "--batch", "--homedir", g.TempDir(), "--with-colons", "--show-keys", key)) {
			if part := strings.Split(line, ":"); part[0] == "fpr" && f[fieldKey] == wordAbsent {
				f[fieldKey] = part[9]
			}
		}
	}
	if list != "" {
		f[fieldLists] = wordMissing
		if _, err := os.Stat(list); err == nil {
			f[fieldLists] = wordFetched
		}
	}
	for field, p := range map[string]string{fieldSources: file, fieldKey: key} {
		if st, err := os.Stat(p); err == nil && st.Mode().Perm() != 0o644 {
			f[field+" mode"] = "0600 0:0"
		} else if err == nil {
			f[field+" mode"] = "0644 0:0"
		}
	}
	return f
}

// quiet takes out of observations what did not change: a mode that comes with its file is none of its own.
func quiet(i int, before, after any) []host.Change {
	return slices.DeleteFunc(difference(i, before, after), func(c host.Change) bool {
		return strings.HasSuffix(c.Field, " mode") && (c.From == "" || c.To == "")
	})
}

func TestAptConformance(t *testing.T) {
	if !inside(t) {
		return
	}
	g, s, us, other := newGround(t, "/"), newServer(t), newSigner(t, "us"), newSigner(t, "other")
	s.deb("one", "1.0")
	s.suite("stable", us)
	r := aptRepository(s.url, "stable", us.armored)
	prefix := mention{place: s.url, suite: "stable"}.prefix()
	list := aptLists + "/" + prefix + "InRelease"
	g.Made(r)
	file, key := g.see(labFile), g.see(labKey)
	lists := t.TempDir()
	run(t, "cp", "-a", aptLists, lists)
	arrange := func(file, key string, fetched bool, more ...string) func(testing.TB) {
		return func(t testing.TB) {
			g.put("/etc/apt/sources.list.d", "")
			g.put("/etc/apt/keyrings", "")
			if file != "" {
				g.put(labFile, file)
			}
			if key != "" {
				g.put(labKey, key)
			}
			run(t, "sh", "-ec", "rm -rf "+aptLists+"/*")
			if fetched {
				run(t, "cp", "-a", lists+"/lists/.", aptLists)
			}
			for _, m := range more {
				run(t, "sh", "-ec", m)
			}
		}
	}
	otherKey := other.gpg(t, "--export", other.name)
	hosttest.Run(t, hosttest.Subject{
		Type:     g.Type,
		Declared: []host.Declared{hosttest.Declared(r)},
		Situations: []hosttest.Situation{
			{Name: "nothing there", Arrange: arrange("", "", false)},
			{Name: "something else there", Arrange: arrange("# nothing\n", "", false)},
			{Name: "another key", Arrange: arrange(file, otherKey, true)},
			{Name: "changed by hand", Arrange: arrange(strings.Replace(file, "Signed-By", "Trusted: yes\nSigned-By", 1), key, true)},
			{Name: "removed by hand", Arrange: arrange("", key, false)},
			{Name: "modes", Arrange: arrange(file, key, true, "chmod 600 "+labFile+" "+labKey)},
		},
		Observe:    func(testing.TB, int) any { return g.observe(labFile, labKey, list) },
		Difference: quiet,
		Gone:       []any{fields{fieldSources: wordAbsent, fieldKey: wordAbsent, fieldLists: wordMissing}},
		Snapshot: func(t testing.TB) string {
			return hosttest.Tree(t, "/etc/apt", aptLists, "/run", "/var/cache")
		},
		Disturb:   func(testing.TB) { g.put(labFile, "# another\n") },
		Remembers: true,
	})
}
