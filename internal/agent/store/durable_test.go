package store

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
)

// deeds are what a driver does, each with the journal's fsyncs and those of other files that it must make.
func deeds() []struct {
	name           string
	do             func(s *Store) error
	journal, other int
} {
	gone := Removal{Claim: path("/gone")}
	return []struct {
		name           string
		do             func(s *Store) error
		journal, other int
	}{
		{"add-notifications", func(s *Store) error {
			return s.Record([]converge.Record{added(1, nginx, nginxCfg), added(2, motd, nginxCfg)}, noon, moment(1))
		}, 1, 0},
		{"confirm", func(s *Store) error { return s.Confirm(nginxCfg, moment(2)) }, 0, 0},
		{"clear", func(s *Store) error { return s.Record([]converge.Record{cleared(2, motd)}, noon, moment(3)) }, 0, 0},
		{"keep-original", func(s *Store) error { return s.SetOriginal(motd, []byte("was")) }, 1, 0},
		{"add-removals", func(s *Store) error { return s.AddRemovals([]Removal{gone, {Claim: path("/taken")}}) }, 1, 0},
		{"finish-removal", func(s *Store) error { return s.RemovalDone(gone.Claim) }, 0, 0},
		// The state's file and its directory; before that the journal, because a removal that is over must not come back.
		{"set-active", func(s *Store) error { return s.SetActive(converge.Digest{1}, entries(3, "one")) }, 1, 2},
		{"void-removals", func(s *Store) error { return s.VoidRemovals(func(declare.Claim) bool { return true }) }, 1, 0},
		{"tell", func(s *Store) error { return s.Append(Happening{At: noon}) }, 0, 0},
	}
}

// TestPromisesAreDurable watches the system calls: what must be durable when a method returns was written and then fsynced.
func TestPromisesAreDurable(t *testing.T) {
	const dirVariable = "TAKO_TEST_TRACED_DIR"
	mark := func(name string) { fmt.Fprintln(os.Stderr, "deed", name) }
	if dir := os.Getenv(dirVariable); dir != "" {
		s := open(t, dir)
		for _, d := range deeds() {
			mark(d.name)
			must(t, d.do(s))
		}
		mark("end")
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace")
	}
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-e", "trace=write,pwrite64,fsync,fdatasync", os.Args[0], "-test.run", "^TestPromisesAreDurable$")
	cmd.Env = append(os.Environ(), dirVariable+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "PTRACE_TRACEME") {
			t.Skip("needs strace to be allowed to trace")
		}
		t.Fatalf("%v\n%s", err, out)
	}
	calls := regexp.MustCompile(`(?s)"deed ([a-z-]+)\\n"(.*)`)
	rest := string(out)
	for _, d := range deeds() {
		m := calls.FindStringSubmatch(rest)
		if m == nil || m[1] != d.name {
			t.Fatalf("no trace of %s in\n%s", d.name, rest)
		}
		rest = m[2]
		during, _, _ := strings.Cut(rest, `"deed `)
		synced := regexp.MustCompile(`f(data)?sync\(\d+<[^>]*>`).FindAllString(during, -1)
		var journal int
		for _, call := range synced {
			if strings.HasSuffix(call, "/"+journalName+">") {
				journal++
			}
		}
		if journal != d.journal || len(synced)-journal != d.other {
			t.Errorf("%s: %d fsyncs of the journal and %d others, want %d and %d:\n%s", d.name, journal, len(synced)-journal, d.journal, d.other, during)
		}
		if write, sync := strings.LastIndex(during, "pwrite64("), strings.LastIndex(during, "sync("); d.journal > 0 && d.other == 0 && sync < write {
			t.Errorf("%s: it is made durable before it is written:\n%s", d.name, during)
		}
	}
}
