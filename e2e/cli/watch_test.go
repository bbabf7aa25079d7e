//go:build e2e

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
)

// TestUpWatch: what a person writes into a directory is on the host, and so is what is committed in a repository. A mistake is told
// with its line and changes nothing; an object that is in no file any more is deleted.
func TestUpWatch(t *testing.T) {
	s := newSandbox(t)
	await := func(what, text string) {
		t.Helper()
		host.Eventually(t, stepTime, what, func() (string, bool) {
			got, err := os.ReadFile(filepath.Join(s.up, "host/etc/motd"))
			if err != nil {
				return err.Error(), false
			}
			return string(got), strings.Contains(string(got), text)
		})
	}
	says := func(script string, words ...string) {
		t.Helper()
		out, errs, _ := s.run(t, script)
		for _, w := range words {
			if !strings.Contains(out+errs, w) {
				t.Errorf("%s: %q is not in\n%s%s", script, w, out, errs)
			}
		}
	}
	s.must(t, "mkdir files && cp hello/*.yaml files/ && git init -q -b main repo && cp hello/*.yaml repo/")
	p := s.startUp(t, "--watch", "files")
	await("the files to be applied", "kept as it is declared")
	s.must(t, "sed -i 's/kept as it is/edited and/' files/*.yaml")
	await("an edit to be on the host", "edited and declared")
	says("tako trace file/motd --node one", ".yaml:3", "source/local")
	s.must(t, "cp files/*.yaml before && sed -i 's/resources:/resourzes:/' files/*.yaml")
	host.Eventually(t, stepTime, "the mistake to be told", func() (string, bool) {
		out, errs, _ := s.run(t, "tako why source/local")
		return out + errs, strings.Contains(out, "resourzes")
	})
	await("what was applied to stay", "edited and declared")
	s.must(t, "cp before files/$(cd files && ls)")
	s.must(t, "mkdir -p files/deep/er && printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\n' > files/deep/er/extra.yaml")
	s.must(t, "tako wait cm/extra --for=create --timeout 60s")
	s.must(t, "rm files/deep/er/extra.yaml && tako wait cm/extra --for=delete --timeout 60s")
	s.must(t, "tako down --dir "+s.up)
	p.awaitEnd(t)

	p = s.startUp(t, "--watch", "repo")
	s.must(t, "cd repo && git add . && git -c user.name=Ann -c user.email=ann@example.com commit -qm hello")
	await("the commit to be on the host", "kept as it is declared")
	says("tako trace file/motd --node one", "Ann <ann@example.com>", "hello")
	s.must(t, "tako down --dir "+s.up)
	p.awaitEnd(t)
}
