package repository

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/openpgp"
	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/reason"
)

const (
	dnfPath = "/usr/bin/dnf"
	dnfDir  = "/etc/yum.repos.d"
	// cacheDepth is how deep a repository's directory in a cache is, at most: repodata and packages, and one more.
	cacheDepth = 4
	// hashDigits is how many digits of the hash of its place follow a repository's name in a cache, libdnf.
	hashDigits = 16
)

// caches are where dnf, its successor and microdnf keep what they have fetched.
var caches = []string{"/var/cache/dnf", "/var/cache/libdnf5", "/var/cache/yum"}

// dnf is the package manager of Fedora and its like: dnf.conf(5).
type dnf struct{}

func (dnf) here() error {
	_, err := os.Stat(dnfPath)
	return err
}

func (dnf) text(r *declare.Repository, name, keyPath string) string {
	d := r.Dnf
	title := d.Title
	if title == "" {
		title = name
	}
	var b strings.Builder
	b.WriteString(madeBy)
	fmt.Fprintf(&b, "[%s]\nname=%s\nenabled=1\n", name, title)
	if len(d.BaseURL) > 0 {
		fmt.Fprintf(&b, "baseurl=%s\n", strings.Join(d.BaseURL, "\n  "))
	} else {
		fmt.Fprintf(&b, "mirrorlist=%s\n", d.Mirrorlist)
	}
	if _, said := d.Options["gpgcheck"]; !said {
		b.WriteString("gpgcheck=1\n")
	}
	if keyPath != "" {
		fmt.Fprintf(&b, "gpgkey=file://%s\n", keyPath)
	}
	for _, option := range declare.OptionNames(d.Options) {
		fmt.Fprintf(&b, "%s=%s\n", option, d.Options[option])
	}
	return b.String()
}

func (dnf) keyring(armored string, _ openpgp.Keys) []byte {
	return []byte(strings.TrimSpace(armored) + "\n")
}

func (dnf) others() (file, dir string, suffixes []string) { return "", dnfDir, []string{".repo"} }

// parse reads the sections of a file; main is of dnf itself.
func (dnf) parse(file, text string) []mention {
	var all []mention
	var m *mention
	field, n := "", 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			id, _, _ := strings.Cut(line[1:], "]")
			if m = nil; id != "main" {
				all = append(all, mention{file: file, line: n, id: id})
				m = &all[len(all)-1]
			}
			field = ""
		case m == nil:
		case line[0] == ' ' || line[0] == '\t':
			m.add(field, trimmed)
		default:
			name, value, _ := strings.Cut(line, "=")
			field = strings.ToLower(strings.TrimSpace(name))
			m.add(field, strings.TrimSpace(value))
		}
	}
	return all
}

func (m *mention) add(field, value string) {
	switch field {
	case "baseurl", "mirrorlist", "metalink":
		m.place = strings.TrimSpace(m.place + " " + value)
	case "gpgkey":
		m.keys += " " + value
	}
}

// rival: dnf takes the last of two repositories of one name.
func (dnf) rival(own, other mention) (rival, double bool) {
	return own.id == other.id, own.id != other.id && own.place == other.place
}

func (dnf) lists() string { return "" }

func (dnf) has(mention, []string) bool { return true }

// fetch has dnf read the repositories of the directory of a file: what is staged.
func (dnf) fetch(ctx context.Context, file, name string) ([]byte, error) {
	return command.Tool{
		Args: []string{dnfPath, "-y", "--refresh", "--setopt=reposdir=" + path.Dir(file), "--setopt=" + name + ".skip_if_unavailable=0", "--setopt=exit_on_lock=1", "makecache"},
		Env:  []string{"HOME=/root"}, Limit: fetchMax, Keep: outputMax,
	}.Run(ctx)
}

// lockedStatus is how dnf ends when somebody else is at work, with exit_on_lock.
const lockedStatus = 200

func (dnf) fault(doing string, output []byte, err error) error {
	var exit *command.ExitError
	switch e := fetchFault(doing, output, err); {
	case e == nil:
		return nil
	case errors.As(err, &exit) && exit.Status.ExitStatus() == lockedStatus:
		return lockedBy(doing, output)
	case e.Code != reason.PackageToolFailed:
		return e
	case containsAny(output, "GPG", "gpg", "signature", "Signature"):
		e.Code = reason.PackageSourceUntrusted
		return e
	case containsAny(output, "Failed to download metadata", "Cannot download", "Curl error", "Cannot prepare internal mirrorlist"):
		e.Code = reason.PackageSourceUnreachable
		return e
	default:
		return e
	}
}

// trusted are the keys of those who have signed its index, which a cache keeps even when others are declared.
func (m dnf) trusted(t *Type, name string) ([]string, error) {
	all, err := m.leftovers(t, name, nil, nil)
	return slices.DeleteFunc(all, func(p string) bool { return !strings.Contains(p, "/pubring") }), err
}

// leftovers are the directories of the repository in the caches, and the files beside them.
func (dnf) leftovers(t *Type, name string, _, others []mention) ([]string, error) {
	if slices.ContainsFunc(others, func(m mention) bool { return m.id == name }) {
		return nil, nil
	}
	var paths []string
	for _, dir := range caches {
		names, err := t.list(dir)
		if err != nil {
			return nil, err
		}
		for _, entry := range names {
			if !isCacheOf(name, entry) {
				continue
			}
			p := dir + "/" + entry
			st, err := t.root.Stat(p)
			if err != nil {
				return nil, err
			}
			if st.Type() != unix.S_IFDIR {
				paths = append(paths, p)
				continue
			}
			more, err := t.below(p, cacheDepth)
			if err != nil {
				return nil, err
			}
			paths = append(paths, more...)
		}
	}
	return paths, nil
}

// isCacheOf reports whether an entry of a cache is of a repository: NAME-HASH, NAME.solv, NAME-filenames.solvx.
func isCacheOf(name, entry string) bool {
	rest, ok := strings.CutPrefix(entry, name)
	if !ok {
		return false
	}
	if hash, ok := strings.CutPrefix(rest, "-"); ok && len(hash) == hashDigits && strings.Trim(hash, "0123456789abcdef") == "" {
		return true
	}
	return rest == ".solv" || rest == "-filenames.solvx" || rest == "-updateinfo.solvx" || rest == "-presto.solvx" || rest == "-other.solvx"
}
