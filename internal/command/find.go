package command

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Path is where programs are looked for, whatever the agent was started with: where Debian and Fedora have them.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ErrNotFound says that no directory of Path has a program.
var ErrNotFound = exec.ErrNotFound

// Find finds a program by name in Path, or takes a path as it is. The error is an ErrNotFound.
func Find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(Path) {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", &fs.PathError{Op: "find", Path: name, Err: ErrNotFound}
}
