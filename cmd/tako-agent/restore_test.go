package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/reason"
)

// TestRestore: what tako has replaced and what it has purged is put back, stays while it is held, and is as declared again after that.
func TestRestore(t *testing.T) {
	root := t.TempDir()
	site := filepath.Join(t.TempDir(), "site.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) error {
		c := newCommand()
		c.SetArgs(append(args, "--root", root))
		return c.ExecuteContext(t.Context())
	}
	holds := func(path, want string) {
		t.Helper()
		if b, err := os.ReadFile(root + path); string(b) != want || err != nil {
			t.Errorf("%s holds %q, %v; want %q", path, b, err, want)
		}
	}
	is := func(err error, want reason.Code) {
		t.Helper()
		if !reason.Is(err, want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	write(site, `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: web}
spec:
  resources:
    - name: motd
      file: {path: /etc/motd, content: "declared\n"}
    - name: conf
      directory: {path: /etc/conf.d, purge: true}
`)
	is(run("restore", "/etc/motd"), reason.NoOldContent)
	write(root+"/etc/motd", "first\n")
	write(root+"/etc/conf.d/x", "purged\n")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(run("converge", "-f", site))
	write(root+"/etc/motd", "second\n")
	must(run("converge", "-f", site))
	holds("/etc/motd", "declared\n")

	must(run("restore", "/etc/motd", "--list"))
	is(run("restore", "/etc/motd", "--version", "3"), reason.NoOldContent)
	is(run("restore", "/etc/motd", "--version", "sha256:00"), reason.NoOldContent)
	is(run("restore", "/etc/none", "--list"), reason.NoOldContent)
	is(run("restore", "/etc/motd", "--for", "-1h"), reason.HoldInvalid)
	holds("/etc/motd", "declared\n")
	must(run("restore", "/etc/motd"))
	holds("/etc/motd", "second\n")
	must(run("restore", "/etc/motd", "--version", "3", "--reason", "the first was better"))
	holds("/etc/motd", "first\n")
	must(run("restore", "/etc/conf.d/x"))
	holds("/etc/conf.d/x", "purged\n")

	// It is held, and said to be.
	is(run("converge", "-f", site), reason.ResourceHeld)
	holds("/etc/motd", "first\n")
	holds("/etc/conf.d/x", "purged\n")
	state := filepath.Join(root, "var/lib/tako")
	a, _, err := local.WhyOf(context.Background(), state, "file/motd")
	if err != nil || a.Resource.Problem == nil || a.Resource.Problem.Code != reason.ResourceHeld {
		t.Errorf("why: %+v, %v", a, err)
	}
	must(run("resume", "/etc/motd"))
	must(run("resume", "/etc/conf.d/x"))
	must(run("converge", "-f", site))
	holds("/etc/motd", "declared\n")
	if _, err := os.Lstat(root + "/etc/conf.d/x"); !os.IsNotExist(err) {
		t.Errorf("what is not held any more is purged: %v", err)
	}
}
