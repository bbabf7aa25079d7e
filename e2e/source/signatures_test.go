package source

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// signer is somebody who signs what he commits.
type signer struct {
	public   string
	identity string   // by which a Source names him
	config   []string // of git
}

// keys makes keys of one kind, as people make them. The home is a directory of its own.
type keys func(t *testing.T, home, name string) signer

// TestSignedCommits: with spec.verify a commit is applied that somebody trusted has signed, and no other.
func TestSignedCommits(t *testing.T) {
	t.Parallel()
	signed(t, "branch: main", "{keys: trusted}", func(r *repository, value string, by *signer) string {
		r.write(map[string]string{"a.yaml": text("a", value)})
		r.git("add", "--all")
		if by == nil {
			r.git("commit", "--quiet", "--message", value)
		} else {
			r.git(append(by.config, "commit", "--quiet", "--gpg-sign", "--message", value)...)
		}
		return r.push()
	})
}

// TestSignedTags: with the mode Tag it is the tag that somebody trusted has signed. A tag that is just a name is nobody's word.
func TestSignedTags(t *testing.T) {
	t.Parallel()
	n := 0
	signed(t, `semver: "1.x"`, "{keys: trusted, mode: Tag}", func(r *repository, value string, by *signer) string {
		commit := r.commit(value, map[string]string{"a.yaml": text("a", value)})
		n++
		tag := fmt.Sprintf("v1.%d.0", n)
		switch {
		case by != nil:
			r.git(append(by.config, "tag", "--sign", "--message", value, tag)...)
		case n%2 == 0:
			r.git("tag", "--annotate", "--message", value, tag)
		default:
			r.git("tag", tag)
		}
		r.git("push", "--quiet", "origin", "refs/tags/"+tag)
		return commit
	})
}

// signed is the life of a Source that wants signatures, of ssh and then of OpenPGP. release makes the newest commit, signed by somebody
// or by nobody, and returns it.
func signed(t *testing.T, ref, verify string, release func(r *repository, value string, by *signer) string) {
	for _, kind := range []struct {
		name     string
		keys     keys
		stranger string // what is said of one
	}{{"ssh", sshKeys, "SSH key"}, {"openpgp", gpgKeys, "OpenPGP key"}} {
		t.Run(kind.name, func(t *testing.T) {
			f := newFleet(t)
			home := shortDirectory(t)
			ann, eve := kind.keys(t, home, "ann"), kind.keys(t, home, "eve")
			r := newRepository(t, f.repositories, "signed")
			g := newForge(t, f.repositories, "of-the-forge")
			f.Apply(g.secret())
			f.allow("signed", "cluster-admin")
			trust := func(public ...string) {
				f.Apply(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: trusted, namespace: ops}\ndata: {keys: %q}\n", strings.Join(public, "\n")))
			}
			trust(ann.public)
			look := func() {
				t.Helper()
				f.look("signed", fmt.Sprintf("{url: %q, ref: {%s}, credentials: forge, verify: %s, interval: 24h}", g.url(r), ref, verify))
			}
			release(r, "by nobody", nil)
			look()
			if s := f.refuses("signed", "signed"); s.Status.Applied != nil || f.object("configmap/a", "prod") != nil {
				t.Errorf("what nobody has signed is applied: %+v", s.Status.Applied)
			}
			first := release(r, "by ann", &ann)
			look()
			if s := f.applies("signed", first); !strings.Contains(s.Status.Applied.Signer, ann.identity) {
				t.Errorf("it is said to be signed by %q, and it is by %q", s.Status.Applied.Signer, ann.identity)
			}
			f.is("a", "by ann")

			stays := func(words ...string) {
				t.Helper()
				look()
				s := f.refuses("signed", append(words, "stays applied")...)
				if s.Status.Applied.ID != first || s.Status.Seen.ID == first || s.Status.Seen.Signer != "" {
					t.Errorf("applied is %+v, seen %+v", s.Status.Applied, s.Status.Seen)
				}
				f.is("a", "by ann")
			}
			release(r, "by eve", &eve)
			stays(kind.stranger, "not in the list")
			release(r, "by nobody again", nil)
			stays("signed")

			second := release(r, "by eve again", &eve)
			trust(ann.public, eve.public)
			look()
			if s := f.applies("signed", second); !strings.Contains(s.Status.Applied.Signer, eve.identity) {
				t.Errorf("it is said to be signed by %q, and it is by %q", s.Status.Applied.Signer, eve.identity)
			}
			f.is("a", "by eve again")
		})
	}
}

// shortDirectory is one whose name is short enough for the socket of gpg's agent.
func shortDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

func sshKeys(t *testing.T, home, name string) signer {
	t.Helper()
	file := filepath.Join(home, name)
	tool(t, home, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name+"@example.com", "-f", file)
	public, err := os.ReadFile(file + ".pub")
	must(t, err)
	return signer{string(public), name + "@example.com", []string{"-c", "gpg.format=ssh", "-c", "user.signingKey=" + file}}
}

func gpgKeys(t *testing.T, home, name string) signer {
	t.Helper()
	if _, err := exec.LookPath("gpg-agent"); err != nil {
		t.Skip("needs gpg-agent: apt-get install gpg-agent")
	}
	address := name + "@example.com"
	// git starts gpg with its own environment, which is no place for a home of a test.
	program := filepath.Join(home, "gpg")
	must(t, writeProgram(program, "#!/bin/sh\nGNUPGHOME="+home+" exec gpg \"$@\"\n"))
	t.Cleanup(func() { tool(t, home, "gpgconf", "--kill", "gpg-agent") })
	tool(t, home, "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", name+" <"+address+">", "ed25519", "sign", "never")
	public := tool(t, home, "gpg", "--batch", "--armor", "--export", address)
	return signer{public, address, []string{"-c", "gpg.format=openpgp", "-c", "gpg.program=" + program, "-c", "user.signingKey=" + address}}
}

// tool runs a program with a home of its own, and returns what it prints.
func tool(t *testing.T, home, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("needs %s", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), gitTime) // cleanups use it too
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), "HOME="+home, "GNUPGHOME="+home)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, errs.String())
	}
	return string(out)
}
