//go:build e2e

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// adopted is what two hosts are to have; what is private, expanded or from elsewhere is in it too.
const adopted = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {text: "from a ConfigMap\n"}
---
apiVersion: v1
kind: Secret
metadata: {name: db}
stringData: {password: "correct horse battery staple"}
---
apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: site}
spec:
  rollout: {maxUnavailable: 100%}
  resources:
  - {name: motd, file: {path: /motd, content: "ours\n"}}
  - {name: other, file: {path: /other, content: "other\n"}}
  - {name: current, symlink: {path: /current, target: "1"}}
  - {name: srv, directory: {path: /srv, mode: "0755"}}
  - {name: each, expand: true, file: {path: /each, content: "I am $(node.name)\n"}}
  - {name: taken, file: {path: /taken, contentFrom: {configMap: {name: settings, key: text}}}}
  - {name: private, file: {path: /private, mode: "0600", content: "ours\n"}}
  - {name: password, file: {path: /password, mode: "0644", contentFrom: {secret: {name: db, key: password}}}}
  - {name: leak, file: {path: /leak, content: "ours\n"}}
`

// TestAdopt: what a person has changed on a host that is held becomes what is declared: it stays there when the hold ends, and the
// other host gets it. What is private, from elsewhere, or another on each host is refused, and changes nothing.
func TestAdopt(t *testing.T) {
	s := newSandbox(t)
	if err := os.WriteFile(filepath.Join(s.dir, "site.yaml"), []byte(adopted), 0o600); err != nil {
		t.Fatal(err)
	}
	s.startUp(t, "-f", "site.yaml")
	one, two := filepath.Join(s.up, "host"), filepath.Join(s.dir, "two")
	s.must(t, "mkdir two && tako token create join --environment default --name two > line && tako-agent join - --root two --name two < line")
	s.start(t, "tako-agent", "run", "--root", two)
	s.must(t, "tako wait node/one node/two --for=converged")

	s.must(t, "tako hold node/one --reason 'trying a text' --for 1h")
	s.must(t, "tako wait assignment/one --for=jsonpath='{.spec.own.holds[*].reason}'='trying a text' && tako wait node/one --for=converged")
	theirs := "theirs\nwith a $(literal) and ünïcode\n"
	if err := errors.Join(
		os.WriteFile(filepath.Join(one, "motd"), []byte(theirs), 0o644),
		os.Chmod(filepath.Join(one, "motd"), 0o755),
		os.Remove(filepath.Join(one, "current")),
		os.Symlink("2", filepath.Join(one, "current")),
		os.Chmod(filepath.Join(one, "srv"), 0o750),
		os.Remove(filepath.Join(one, "other")),
		os.WriteFile(filepath.Join(one, "each"), []byte("somebody\n"), 0o644),
		os.WriteFile(filepath.Join(one, "taken"), []byte("theirs\n"), 0o644),
		os.WriteFile(filepath.Join(one, "private"), []byte("my diary\n"), 0o600),
		os.WriteFile(filepath.Join(one, "password"), []byte("my password\n"), 0o644),
		os.WriteFile(filepath.Join(one, "leak"), []byte("password=correct horse battery staple\n"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	if out := s.must(t, "tako why file/motd --node one"); !strings.Contains(out, "there is content ") || !strings.Contains(out, "there is mode 0755, declared 0644") ||
		!strings.Contains(out, "tako adopt file/motd --node one") {
		t.Errorf("why says\n%s", out)
	}
	s.refusesToAdopt(t)
	s.adoptsMotd(t, one)
	for _, file := range []string{"symlink/current", "directory/srv"} {
		s.must(t, "tako adopt "+file+" --node one")
	}
	s.must(t, "tako wait nodeconfig/site --for=jsonpath={.status.rollout.phase}=Rolling --timeout=5s || true")
	s.must(t, "tako resume node/one && tako wait nodeconfig/site --for=condition=Ready && tako wait node/one node/two --for=converged")
	for _, host := range []string{one, two} {
		text, err := os.ReadFile(filepath.Join(host, "motd"))
		motd, statErr := os.Stat(filepath.Join(host, "motd"))
		target, linkErr := os.Readlink(filepath.Join(host, "current"))
		srv, dirErr := os.Stat(filepath.Join(host, "srv"))
		if err := errors.Join(err, statErr, linkErr, dirErr); err != nil {
			t.Fatal(err)
		}
		if string(text) != theirs || motd.Mode().Perm() != 0o755 || target != "2" || srv.Mode().Perm() != 0o750 {
			t.Errorf("%s has %q with mode %v, a link to %s, a directory with mode %v", host, text, motd.Mode(), target, srv.Mode())
		}
		s.awaitFile(t, filepath.Join(host, "other"), "other\n") // it was not adopted
	}
	if out, errs, code := s.run(t, "tako adopt file/motd --node one"); code != 0 || out != "" || !strings.Contains(errs, "unchanged") {
		t.Errorf("what is as declared: exit %d: %s%s", code, out, errs)
	}
	if out := s.must(t, "tako rollout history nodeconfig/site"); strings.Count(out, "\n") != 5 || !strings.Contains(out, "2: one, two") {
		t.Errorf("the revisions are\n%s", out)
	}
	if out := s.must(t, "tako logs node/one; tako logs node/two --lines 1"); !strings.Contains(out, "file/motd") || strings.Contains(out, `"at"`) {
		t.Errorf("the log is\n%s", out)
	}
}

// refusesToAdopt tries what must not be adopted.
func (s *sandbox) refusesToAdopt(t *testing.T) {
	t.Helper()
	before := s.must(t, "tako get nodeconfig/site -o jsonpath={.spec}")
	for resource, says := range map[string]string{
		"file/other":    "there is nothing on the host",
		"file/each":     "another one on each host",
		"file/taken":    "tako edit configmap/settings",
		"file/private":  "not told: it is private",
		"file/password": "tako edit secret/db",
		"file/leak":     "it holds the value of a Secret",
		"file/nowhere":  "TK",
	} {
		out, errs, code := s.run(t, "tako adopt "+resource+" --node one")
		if code == 0 || out != "" || !strings.Contains(errs, says) {
			t.Errorf("adopt %s: exit %d, want a refusal that says %q: %s%s", resource, code, says, out, errs)
		}
		evidence, _, _ := s.run(t, "tako why "+resource+" --node one -o json")
		for _, secret := range []string{"correct horse", "my diary", "my password"} {
			if strings.Contains(out+errs+evidence, secret) {
				t.Errorf("adopt %s tells %q:\n%s%s%s", resource, secret, out, errs, evidence)
			}
		}
	}
	if after := s.must(t, "tako get nodeconfig/site -o jsonpath={.spec}"); after != before {
		t.Errorf("refused, and it was\n%sand is\n%s", before, after)
	}
}

// adoptsMotd looks first, and then does it.
func (s *sandbox) adoptsMotd(t *testing.T, one string) {
	t.Helper()
	dry := s.must(t, "tako adopt file/motd --node one --dry-run=server")
	if !strings.Contains(dry, "\n-") || !strings.Contains(dry, "with a $(literal) and ünïcode") || !strings.Contains(dry, "0755") {
		t.Errorf("what would be declared is shown as\n%s", dry)
	}
	if out := s.must(t, "tako get nodeconfig/site -o yaml"); strings.Contains(out, "literal") {
		t.Errorf("a dry run has declared it:\n%s", out)
	}
	out, errs, code := s.run(t, "tako adopt /motd --node node/one") // by its path
	if code != 0 || !strings.Contains(out, "nodeconfig.tako.dev/site declares the content, mode of file/motd as on node/one") || !strings.Contains(errs, "tako resume node/one") {
		t.Errorf("adopt: exit %d: %s%s", code, out, errs)
	}
	s.awaitFile(t, filepath.Join(one, "motd"), "literal") // as it was
}
