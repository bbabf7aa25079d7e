package dnf

import (
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
)

// TestConformance runs the suite of the contract over dnf itself.
func TestConformance(t *testing.T) {
	if !apart(t) {
		return
	}
	l := newLab(t)
	l.publish(rpm{name: "one", version: "1.0-1"}, rpm{name: "one", version: "2.0-1"})
	l.made(pinned("one", "2.0-1"))
	file := func(version string) string { return filepath.Join(l.repo, "noarch", "one-"+version+".noarch.rpm") }
	arrange := func(version string) func(testing.TB) {
		return func(t testing.TB) {
			if version != "" {
				run(t, "rpm", "--root", l.root, "-U", "--oldpackage", "--replacepkgs", file(version))
			} else if l.installedVersion("one") != "" {
				run(t, "rpm", "--root", l.root, "-e", "one")
			}
		}
	}
	pin := pinned("one", "1.0-1")
	pin.Options = &declare.PackageOptions{AllowDowngrade: true}
	gone := absent("one")
	for name, c := range map[string]struct {
		p       declare.Package
		from    string
		disturb string
	}{
		"nothing there": {pin, "", "2.0-1"}, "another version there": {pin, "2.0-1", ""}, "there": {gone, "2.0-1", "1.0-1"},
	} {
		t.Run(name, func(t *testing.T) {
			hosttest.Run(t, hosttest.Subject{
				Type:       l.typ,
				Declared:   []host.Declared{{Title: "package/one", Resource: declare.Resource{Package: &c.p}}},
				Situations: []hosttest.Situation{{Name: "arranged", Arrange: arrange(c.from)}},
				Observe:    func(testing.TB, int) any { return l.installedVersion("one") },
				Difference: func(_ int, before, after any) []host.Change {
					return difference(before.(string), after.(string), c.p.Version)
				},
				Gone: []any{""},
				Snapshot: func(t testing.TB) string {
					var kept []string
					for line := range strings.Lines(hosttest.Tree(t, l.root)) {
						if !strings.Contains(line, "-shm\"") && !strings.Contains(line, "-wal\"") { // SQLite's own: it sets their owner
							kept = append(kept, line)
						}
					}
					return strings.Join(kept, "")
				},
				Disturb: arrange(c.disturb),
			})
		})
	}
}

// difference is what a plan calls the way from one version, "" for none, to another.
func difference(before, after, pinned string) []host.Change {
	word := func(v string) string { return map[bool]string{true: "absent", false: "present"}[v == ""] }
	var changes []host.Change
	if word(before) != word(after) {
		changes = append(changes, host.Change{Field: "state", From: word(before), To: word(after)})
	}
	if pinned != "" && before != after {
		changes = append(changes, host.Change{Field: "version", From: before, To: after})
	}
	return changes
}
