package git

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The name of the remote in git's configuration, so that its address is in no argument.
const remoteName = "source"

// Where git finds the files that it inherits: the first two after standard input, output and error.
const (
	configPath = "/proc/self/fd/3"
	caPath     = "/proc/self/fd/4"
)

// configuration writes the whole configuration that git has for one command. A nil target is a command that stays on this
// machine: no protocol is allowed, and nothing is missing that could be fetched. filter is the partial clone filter.
func configuration(t *target, filter string) string {
	var b strings.Builder
	section := func(name string, pairs ...string) {
		fmt.Fprintf(&b, "[%s]\n", name)
		for i := 0; i < len(pairs); i += 2 {
			fmt.Fprintf(&b, "\t%s = %s\n", pairs[i], configValue(pairs[i+1]))
		}
	}
	section("core", "hooksPath", "/dev/null", "fsmonitor", "false", "askPass", "", "attributesFile", "/dev/null", "protectHFS", "true", "protectNTFS", "true",
		// Larger blobs are streamed, not held in memory. No file that we read is as large.
		"bigFileThreshold", "8m")
	section("safe", "bareRepository", "explicit")
	section("protocol", "allow", "never")
	section("credential", "helper", "")
	section("gc", "auto", "0")
	section("maintenance", "auto", "false")
	section("pack", "threads", "1")
	section("submodule", "recurse", "false")
	section("receive", "fsckObjects", "true")
	section("transfer", "fsckObjects", "true", "unpackLimit", "1", "bundleURI", "false", "credentialsInUrl", "die")
	section("fetch", "fsckObjects", "true", "unpackLimit", "1", "recurseSubmodules", "false", "writeCommitGraph", "false", "showForcedUpdates", "false")
	// Old programs padded modes with zeros; ls-tree reads them all the same.
	section("fetch "+configValue("fsck"), "zeroPaddedFilemode", "ignore")
	if t == nil {
		return b.String()
	}
	section("protocol "+configValue(string(t.protocol)), "allow", "always")
	remote := []string{"url", t.url, "tagOpt", "--no-tags"}
	if t.reader.command != "" {
		remote = append(remote, "uploadpack", t.reader.command)
	}
	if filter != "" {
		remote = append(remote, "promisor", "true", "partialCloneFilter", filter)
	}
	section("remote "+configValue(remoteName), remote...)
	switch t.protocol {
	case overFile:
		// Who lists a directory in Options.LocalDirs trusts whom its repositories belong to.
		section("safe", "directory", "*")
	case overHTTPS, overHTTP:
		// 1,000 bytes a second for 30 s is what a bad mobile connection does; less is a server that hangs.
		section("http", "followRedirects", "false", "sslVerify", "true", "proxy", "", "lowSpeedLimit", "1000", "lowSpeedTime", "30", "emptyAuth", "false")
		if len(t.auth.CA) > 0 {
			section("http", "sslCAInfo", caPath)
		}
		if h := t.auth.header(); h != "" {
			section("http "+configValue(t.origin), "extraHeader", h)
		}
	case overSSH:
	}
	return b.String()
}

// configValue quotes a value, or the name of a subsection. Line ends were refused before.
func configValue(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// memoryFile returns a file that is in memory only and has no name that others could open.
func memoryFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("git", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "git configuration")
	if _, err := f.Write(content); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
