package hosttest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Tree describes everything below directories, one line for each entry with all that stat tells but the access time, and
// the hash of what is in it. Two equal descriptions mean that nothing was written in between.
func Tree(t testing.TB, dirs ...string) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			st, err := os.Lstat(p)
			if err != nil {
				return err
			}
			sys := st.Sys().(*syscall.Stat_t)
			fmt.Fprintf(&b, "%q %v %d:%d ino %d links %d size %d mtime %d.%09d ctime %d.%09d", p, st.Mode(), sys.Uid, sys.Gid, sys.Ino,
				sys.Nlink, sys.Size, sys.Mtim.Sec, sys.Mtim.Nsec, sys.Ctim.Sec, sys.Ctim.Nsec)
			switch st.Mode().Type() {
			case 0:
				content, err := os.ReadFile(p)
				if err != nil {
					return err
				}
				fmt.Fprintf(&b, " %x", sha256.Sum256(content))
			case fs.ModeSymlink:
				target, err := os.Readlink(p)
				if err != nil {
					return err
				}
				fmt.Fprintf(&b, " %q", target)
			}
			b.WriteByte('\n')
			return nil
		})
		if err != nil {
			t.Fatalf("describe %s: %v", dir, err)
		}
	}
	return b.String()
}

// differentLines shows the lines that only one of two descriptions has.
func differentLines(before, after string) string {
	a, b := slices.Collect(strings.Lines(before)), slices.Collect(strings.Lines(after))
	var out strings.Builder
	for _, line := range a {
		if !slices.Contains(b, line) {
			out.WriteString("- " + line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			out.WriteString("+ " + line)
		}
	}
	return out.String()
}
