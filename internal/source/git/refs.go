package git

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"tako.dev/tako/internal/reason"
)

// ID names an object: 40 or 64 lower-case hexadecimal digits.
type ID string

// Valid tells whether it has the form of an id.
func (id ID) Valid() bool {
	return (len(id) == 40 || len(id) == 64) && strings.Trim(string(id), "0123456789abcdef") == ""
}

// Ref is a branch, a tag or the default branch of a repository.
type Ref struct {
	Name   string // "refs/heads/main", "refs/tags/v1.0.0", "HEAD"
	ID     ID     // what it points at: a commit, or the object of an annotated tag
	Peeled ID     // of an annotated tag: the commit; empty otherwise
	Target string // of HEAD: the name of the default branch
}

// Commit returns the commit that the ref leads to, as far as a list of refs says.
func (r Ref) Commit() ID {
	if r.Peeled != "" {
		return r.Peeled
	}
	return r.ID
}

// Scope is what List asks for. The server sends no more than that, so it is worth naming.
type Scope uint8

// The scopes, which may be combined.
const (
	Branches Scope = 1 << iota
	Tags
	// Everything includes HEAD, and all that servers keep beside branches and tags, which List drops.
	Everything Scope = 0
)

// listMemoryMax bounds git while it lists: it keeps what a server says until the end, and a million refs take a quarter of it.
const listMemoryMax = 1 << 30

// List asks a remote for its refs: one run of ls-remote, and no write. HEAD comes only with Everything. The order is the
// server's. Names that are not valid UTF-8, or have control characters, are left out.
func (g *Git) List(ctx context.Context, r Remote, scope Scope) ([]Ref, error) {
	t, err := g.target(r)
	if err != nil {
		return nil, err
	}
	args := []string{"ls-remote", "--symref"}
	if scope&Branches != 0 {
		args = append(args, "--heads")
	}
	if scope&Tags != 0 {
		args = append(args, "--tags")
	}
	list := &refList{max: g.limits.Refs}
	err = g.run(ctx, command{doing: "list the refs of " + quote(r.URL), target: t, args: append(args, remoteName), memoryBytes: min(g.limits.MemoryBytes, listMemoryMax),
		stdout: &records{separator: '\n', each: list.line}})
	if err != nil {
		return nil, err
	}
	return list.refs, nil
}

// refList collects the lines of ls-remote.
type refList struct {
	max    int
	refs   []Ref
	target string // of HEAD
}

// line reads "ID<tab>NAME", "ID<tab>NAME^{}" after the tag that it peels, or "ref: NAME<tab>HEAD".
func (l *refList) line(line []byte) error {
	left, right, ok := bytes.Cut(line, []byte{'\t'})
	if !ok {
		return odd("ls-remote", line)
	}
	if target, isSymbolic := bytes.CutPrefix(left, []byte("ref: ")); isSymbolic {
		if string(right) == "HEAD" && printable(string(target)) {
			l.target = string(target)
		}
		return nil
	}
	id, name := ID(left), string(right)
	if !id.Valid() {
		return odd("ls-remote", line)
	}
	if peeled, isPeeled := strings.CutSuffix(name, "^{}"); isPeeled {
		if n := len(l.refs); n > 0 && l.refs[n-1].Name == peeled {
			l.refs[n-1].Peeled = id
		}
		return nil
	}
	if !printable(name) || name != "HEAD" && !strings.HasPrefix(name, "refs/heads/") && !strings.HasPrefix(name, "refs/tags/") {
		return nil
	}
	if len(l.refs) >= l.max {
		return &reason.Error{Code: reason.RepositoryLimit, Doing: "list refs", Cause: fmt.Errorf("more than %d branches and tags", l.max), Hint: "remove branches and tags that nobody needs, or raise the limit"}
	}
	ref := Ref{Name: name, ID: id}
	if name == "HEAD" {
		ref.Target = l.target
	}
	l.refs = append(l.refs, ref)
	return nil
}

func printable(s string) bool { return utf8.ValidString(s) && !unprintable(s) }

func odd(what string, text []byte) error {
	return &reason.Error{Code: reason.RepositoryUnreachable, Doing: "read what git " + what + " prints", Cause: fmt.Errorf("not understood: %s", quote(string(text)))}
}
