package disk

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	// A leading dot is ignored by conf.d globs, systemd and cron.
	tempPrefix = ".tako."
	// 60 random bits: two temporaries of one name never meet.
	tempRandom = 12
	nameMax    = 255 // NAME_MAX of every file system that Linux has
	// tempTries bounds the search for a free name; one is enough unless somebody plays with us.
	tempTries = 4
)

// tempCoding writes random bytes in digits and small letters, five bits each, safe in every file name.
var tempCoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// tempName makes the temporary name of a name, cut so that the whole is a name again.
func tempName(name string) string {
	if room := nameMax - len(tempPrefix) - 1 - tempRandom; len(name) > room {
		cut := room
		// Some file systems refuse half a character.
		for cut > room-utf8.UTFMax && !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut]
	}
	var b [8]byte
	rand.Read(b[:]) // never fails, crypto/rand
	return tempPrefix + name + "." + strings.ToLower(tempCoding.EncodeToString(b[:]))[:tempRandom]
}

// isTemporary reports whether tempName could have made a name.
func isTemporary(name string) bool {
	rest, ok := strings.CutPrefix(name, tempPrefix)
	if !ok || len(rest) < 1+1+tempRandom {
		return false
	}
	random := rest[len(rest)-tempRandom:]
	if rest[len(rest)-tempRandom-1] != '.' {
		return false
	}
	for i := range len(random) {
		if c := random[i]; (c < '0' || c > '9') && (c < 'a' || c > 'v') {
			return false
		}
	}
	return true
}

// tryTemporary calls create with temporary names until it succeeds or fails for another reason than a name that is taken.
func tryTemporary(name string, create func(temp string) error) (string, error) {
	var err error
	for range tempTries {
		temp := tempName(name)
		if err = create(temp); err != unix.EEXIST {
			return temp, err
		}
	}
	return "", err
}

// SweepTemporaries removes what a killed run left in directories: entries with the exact form of our temporary names that
// are regular files, symlinks or empty directories. A file may be an old one that had not been backed up yet, so backup, if
// set, gets each first, and one that it refuses stays. It must not run beside a write; one agent for each state directory,
// and calling it at start only, see to that. Directories that are not there are passed over. It returns how many entries it
// removed, also with an error, which joins all.
func (r *Root) SweepTemporaries(ctx context.Context, dirs []string, backup Backup) (removed int, err error) {
	var errs []error
	for _, p := range dirs {
		if err := ctx.Err(); err != nil {
			errs = append(errs, stopped("sweep directory", p, err))
			break
		}
		n, err := r.sweep(p, backup)
		removed += n
		if err != nil {
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}

func (r *Root) sweep(p string, backup Backup) (removed int, err error) {
	d, err := r.Dir(p)
	if err != nil {
		return 0, ignoreMissing(err)
	}
	defer d.Close()
	f, err := d.list()
	if err != nil {
		return 0, fault("list directory", p, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return 0, fault("list directory", p, err)
	}
	var errs []error
	for _, name := range names {
		if !isTemporary(name) {
			continue
		}
		gone, err := d.sweepOne(name, backup)
		if err != nil {
			errs = append(errs, err)
		}
		if gone {
			removed++
		}
	}
	return removed, errors.Join(errs...)
}

// sweepOne removes one temporary, and reports whether it did. An ordinary user leaves alone what belongs to another.
func (d *Dir) sweepOne(name string, backup Backup) (bool, error) {
	st, err := d.Stat(name)
	if err != nil || !st.Exists() || os.Geteuid() != 0 && st.UID != uint32(os.Geteuid()) {
		return false, err
	}
	flags := 0
	switch st.Type() {
	case unix.S_IFREG:
		if backup != nil {
			if err := d.backup("sweep", name, st, backup); err != nil {
				return false, err
			}
		}
	case unix.S_IFLNK:
	case unix.S_IFDIR:
		flags = unix.AT_REMOVEDIR
	default:
		return false, nil
	}
	// A directory that is not empty is not ours, and what cannot be removed now is tried again at the next start.
	return unix.Unlinkat(d.fd, name, flags) == nil, nil
}
