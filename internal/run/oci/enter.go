package oci

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/run"
)

// linksMax is how many links the kernel follows in one path.
const linksMax = 40

// enterable says whether there will be a directory in a container, whose root and mounts are these. It follows links as the kernel will when
// everything is mounted.
func enterable(root, dir string, mounts []run.Mount) error {
	at, rest, links := "/", strings.Split(path.Clean(dir), "/"), 0
	for len(rest) > 0 {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		host, made := standsAt(root, next, mounts)
		if made {
			at = next
			continue
		}
		if host == "" {
			return unix.ENOENT
		}
		st, err := os.Lstat(host)
		switch {
		case err != nil:
			return unix.ENOENT
		case st.Mode()&os.ModeSymlink != 0:
			if links++; links > linksMax {
				return unix.ELOOP
			}
			to, err := os.Readlink(host)
			if err != nil {
				return err
			}
			if path.IsAbs(to) {
				at = "/"
			}
			rest = append(strings.Split(to, "/"), rest...)
		case !st.IsDir():
			return unix.ENOTDIR
		default:
			at = next
		}
	}
	return nil
}

// standsAt is where on the host something of a container stands; made: it is a directory that comes with the container. Neither: there is
// nothing.
func standsAt(root, p string, mounts []run.Mount) (host string, made bool) {
	host = filepath.Join(root, p)
	switch {
	case p == "/tmp" || p == "/run" || below(p, "/proc") || below(p, "/sys") || below(p, "/dev"):
		made = true // of the last three the kernel says what there is
	case below(p, "/tmp") || below(p, "/run"):
		host = "" // they are empty
	}
	for _, m := range mounts { // one below another stands behind that
		switch {
		case below(p, m.Path):
			host, made = filepath.Join(m.Source, strings.TrimPrefix(p, m.Path)), false
		case below(m.Path, p):
			made = true // it is made for the mount where it is missing
		}
	}
	return host, made
}
