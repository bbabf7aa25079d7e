package git

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"tako.dev/tako/internal/reason"
)

func (g *Git) fileTarget(r Remote, u *url.URL) (*target, error) {
	if len(r.Auth.secrets()) > 0 || len(r.Auth.Identity) > 0 {
		return nil, addressError(quote(r.URL), "credentials do not fit file", "take them away")
	}
	if len(g.local) == 0 || u.Host != "" || !filepath.IsAbs(u.Path) {
		return nil, addressError(quote(r.URL), "file is not allowed here", "the server must be told which directories may be read, or use https or ssh")
	}
	path, err := filepath.EvalSymlinks(u.Path)
	if err != nil {
		return nil, &reason.Error{Code: reason.RepositoryUnknown, Doing: "open repository " + quote(r.URL), Cause: fmt.Errorf("no such directory")}
	}
	for _, d := range g.local {
		if path != d && !strings.HasPrefix(path, strings.TrimSuffix(d, "/")+"/") {
			continue
		}
		// In the form of a URL again: git reads %2e%2e as two dots, which may be the name of a directory.
		t := &target{protocol: overFile, url: (&url.URL{Scheme: "file", Path: path}).String()}
		if t.reader, err = readerOf(path, os.Geteuid()); err != nil {
			return nil, addressError(quote(r.URL), err.Error(), "give the repository to the user of the server, or serve it by ssh or https")
		}
		return t, nil
	}
	return nil, addressError(quote(r.URL), "it is in none of the directories that may be read", "move it there, or have the directory allowed")
}

// localReader is who reads a repository on disk. Its links, alternates and configuration lead git to whatever the reader may read, and
// git quotes files that it does not understand: so whoever may write to a repository could read this machine's files with the
// rights of the server.
type localReader struct {
	command string // instead of git-upload-pack; empty where the server reads itself
	foreign bool   // the server reads itself what others write: what git says is not shown
}

// nobody is the user that owns nothing, as Linux has it for what has no user.
const nobody = 65534

// readerOf decides who reads a repository. One that belongs to the server's user, and to which nobody else writes, it reads itself.
// Any other is read with the rights of whom it belongs to, where the server may do that.
func readerOf(path string, self int) (localReader, error) {
	for _, name := range []string{path, filepath.Join(path, ".git")} {
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var owner *syscall.Stat_t
		if err == nil {
			owner, _ = info.Sys().(*syscall.Stat_t)
		}
		if owner == nil {
			return localReader{}, errors.New("nobody can tell whom it belongs to")
		}
		shared := info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o022 != 0
		switch uid := int(owner.Uid); {
		case uid == self && !shared:
			continue
		case self != 0:
			return localReader{foreign: true}, leadsOut(path)
		case uid == 0:
			return readAs(nobody, owner.Gid)
		default:
			return readAs(owner.Uid, owner.Gid)
		}
	}
	return localReader{}, nil
}

// leadsOut refuses what would have the server's own rights lead git elsewhere, in a repository that others write to. It can be put
// there after the look; so whoever lets others write there, and has secrets that the server may read, has the server run as root, or
// takes another protocol.
func leadsOut(path string) error {
	dir := path
	if info, err := os.Lstat(filepath.Join(path, ".git")); err == nil {
		if !info.IsDir() {
			return errors.New("its .git is a link, and others than the server's user write there")
		}
		dir = filepath.Join(path, ".git")
	}
	for _, name := range []string{"HEAD", "config", "config.worktree", "packed-refs", "shallow", "refs", "objects", "objects/info", "objects/pack"} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s in it is a link, and others than the server's user write there", name)
		}
	}
	for _, name := range []string{"commondir", "objects/info/alternates"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("it takes objects of another repository (%s), and others than the server's user write there", name)
		}
	}
	return nil
}

func readAs(user, group uint32) (localReader, error) {
	program, err := exec.LookPath("setpriv")
	if err != nil {
		return localReader{}, fmt.Errorf("it belongs to user %d, and there is no program setpriv to read it with that one's rights", user)
	}
	return localReader{command: fmt.Sprintf("%s --reuid %d --regid %d --clear-groups --no-new-privs -- git-upload-pack", shellQuote(program), user, group)}, nil
}
