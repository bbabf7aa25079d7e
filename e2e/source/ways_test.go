package source

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestSSH: a repository behind ssh, whose key is known, is followed; with another key there it is not.
func TestSSH(t *testing.T) {
	t.Parallel()
	allowed := newKey(t)
	address, known := sshd(t, allowed)
	f := newFleet(t)
	r := newRepository(t, f.repositories, "secure")
	commit := r.commit("first", map[string]string{"a.yaml": text("a", "over ssh")})
	f.allow("secure", "cluster-admin")
	credentials := func(known string) {
		f.Apply(fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: ssh, namespace: ops}\nstringData: {identity: %q, known_hosts: %q}\n", allowed.private, known))
	}
	spec := fmt.Sprintf("{url: %q, credentials: ssh}", "ssh://root@"+address+r.bare)
	host, _, _ := strings.Cut(known, " ")
	credentials(host + " " + newKey(t).public + "\n")
	f.declare("secure", spec)
	f.refuses("secure", "known_hosts")
	credentials(known)
	f.look("secure", spec)
	f.applies("secure", commit)
	f.is("a", "over ssh")
}

// TestCredentialsAreNowhereElse: what opens a repository is in the Secret and in the request to the forge, and nowhere else, whether it is
// right, wrong or taken away.
func TestCredentialsAreNowhereElse(t *testing.T) {
	t.Parallel()
	const right, wrong, token = "c4n4ry+right/of it", "c4n4ry+wrong/of it", "c4n4ry-of-the-hook"
	f := newFleet(t)
	r := newRepository(t, f.repositories, "closed")
	g := newForge(t, f.repositories, right)
	forms := func(s string) []string {
		return []string{s, url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s)), base64.StdEncoding.EncodeToString([]byte(user + ":" + s))}
	}
	var canaries []string
	for _, s := range []string{right, wrong, token} {
		canaries = append(canaries, forms(s)...)
	}
	var processes atomic.Int64
	g.during = func() { processes.Add(int64(inProcesses(t, canaries))) }

	commit := r.commit("first", map[string]string{"a.yaml": text("a", "1")})
	f.allow("closed", "cluster-admin")
	credentials := func(password string) {
		f.Apply(fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: forge, namespace: ops}\nstringData: {username: %s, password: %q, ca.crt: %q}\n", user, password, g.authority()))
		f.Apply(fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: hook, namespace: ops}\nstringData: {token: %q}\n", token))
		must(t, os.Remove(filepath.Join(f.Dir, "declared.yaml"))) // the test's own copy
	}
	spec := fmt.Sprintf("{url: %q, credentials: forge, webhook: {type: GitLab, secret: hook}}", g.url(r))
	credentials(wrong)
	f.declare("closed", spec)
	f.refuses("closed", g.address)
	credentials(right)
	f.look("closed", spec)
	f.applies("closed", commit)
	if processes.Load() == 0 {
		t.Error("no process was looked at while git talked to the forge")
	}
	g.stop()
	f.look("closed", spec)
	f.refuses("closed", g.address)

	said := map[string]string{"the log of the server": f.Server.Run.Log.Tail(), "the metrics": f.Metrics()}
	for _, args := range [][]string{{"get", "sources", "-A", "-o", "yaml"}, {"get", "events", "-A", "-o", "yaml"}, {"describe", "source/closed", "-n", "ops"}, {"status"}} {
		said["tako "+strings.Join(args, " ")], _ = f.Try(args...) // its exit code says that something is wrong
	}
	f.Server.Stop(t) // so that all is written
	for _, canary := range canaries {
		for by, text := range said {
			if text == "" || strings.Contains(text, canary) {
				t.Errorf("%s shows %q, or says nothing:\n%s", by, canary, text)
			}
		}
		swept(t, f.Server.Dir, canary)
	}
	f.Server.Start(t)
}

// inProcesses looks for texts in the arguments and the environment of all processes, and returns how many it has looked at.
func inProcesses(t *testing.T, texts []string) int {
	looked := 0
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Error(err)
	}
	for _, dir := range all {
		for _, name := range []string{"cmdline", "environ"} {
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue // it has ended, or is not ours
			}
			looked++
			for _, text := range texts {
				if bytes.Contains(content, []byte(text)) {
					t.Errorf("%s/%s has %q: %q", dir, name, text, content)
				}
			}
		}
	}
	return looked
}

// swept looks for a text in all files of a directory.
func swept(t *testing.T, dir, text string) {
	t.Helper()
	files := 0
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			t.Errorf("%s has %q", path, text)
		}
		return err
	}))
	if files == 0 {
		t.Errorf("%s has no files", dir)
	}
}
