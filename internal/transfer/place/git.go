package place

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/reason"
)

// Bounds of bringing a repository over.
const (
	gitMax = 5 * time.Minute
	// gitFileMax is the largest file that git may write: a pack with all that a host has.
	gitFileMax = 2 << 30
	gitSaysMax = 2 << 10
	// gitName is the directory of the state directory that they are brought into.
	gitName = "fallback"
)

// Repository brings the newest commit of a repository's default branch over into a directory of the state directory, and returns the
// place in it. address is a URL that git knows. Each repository has a directory of its own there, and one call at a time is made for it; KeepRepositories
// removes those that are not wanted any more. The errors are GitUnusable, where the host has no git program, and PlaceUnusable.
//
// What comes is a tree of files and nothing more: no hook, no filter, no submodule and no configuration of this host has a part in it.
func Repository(ctx context.Context, address, state string) (*Place, error) {
	doing := "read repository " + address
	if _, err := command.Find("git"); err != nil {
		return nil, &reason.Error{Code: reason.GitUnusable, Doing: doing, Cause: err, Hint: "install git on this host (apt-get install git), or name a location of HTTP(S), too: tako trust set-fallback"}
	}
	dir := filepath.Join(state, gitName, repositoryName(address))
	tree, bare := filepath.Join(dir, "tree"), filepath.Join(dir, "repository")
	for _, d := range []string{dir, tree} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, &reason.Error{Code: reason.StateUnwritable, Doing: doing, Cause: err}
		}
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--bare", bare},
		{"--git-dir=" + bare, "fetch", "--quiet", "--depth=1", "--no-tags", "--force", "--no-recurse-submodules", "--end-of-options", address, "HEAD"},
		{"--git-dir=" + bare, "--work-tree=" + tree, "read-tree", "--reset", "-u", "FETCH_HEAD"},
		{"--git-dir=" + bare, "gc", "--quiet", "--prune=now"},
	} {
		if err := git(ctx, args...); err != nil {
			// Whatever is there may be half of something: the next one begins anew.
			return nil, errors.Join(&reason.Error{Code: reason.PlaceUnusable, Doing: doing, Cause: err}, os.RemoveAll(dir))
		}
	}
	p := Directory(tree)
	p.name = address
	return p, nil
}

// repositoryName is the directory of a repository: no URL can be the name of a file.
func repositoryName(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:16])
}

// KeepRepositories removes what Repository has brought into a state directory, but for some repositories. The error is StateUnwritable.
func KeepRepositories(state string, addresses []string) error {
	dir := filepath.Join(state, gitName)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	keep := map[string]bool{}
	for _, address := range addresses {
		keep[repositoryName(address)] = true
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "remove repositories of fallback locations", Cause: err}
	}
	return nil
}

// git runs git without what this host has configured for it, and within bounds.
func git(ctx context.Context, args ...string) error {
	settings := []string{
		"core.hooksPath=/dev/null", "core.symlinks=false", "core.fsmonitor=false", "core.attributesFile=/dev/null", "credential.helper=", "http.followRedirects=false",
		"protocol.allow=never", "protocol.http.allow=always", "protocol.https.allow=always", "protocol.ssh.allow=always", "transfer.fsckObjects=true", "gc.auto=0",
	}
	line := []string{"prlimit", "--fsize=" + strconv.Itoa(gitFileMax), "git"}
	for _, s := range settings {
		line = append(line, "-c", s)
	}
	home, err := os.UserHomeDir() // of ssh, for who the host is to a server of Git
	if err != nil {
		home = "/"
	}
	tool := command.Tool{
		Args:  append(line, args...),
		Env:   []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "GIT_ATTR_NOSYSTEM=1", "GIT_SSH_COMMAND=ssh -oBatchMode=yes -oStrictHostKeyChecking=accept-new", "HOME=" + home},
		Limit: gitMax, Keep: gitSaysMax,
	}
	out, err := tool.Run(ctx)
	if err == nil {
		return nil
	}
	said := strings.TrimSpace(strings.ToValidUTF8(string(out), "?"))
	return fmt.Errorf("git says %q: %w", said, err)
}
