package setting

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"

	"tako.dev/tako/internal/reason"
)

const (
	localeDir     = "/usr/lib/locale"
	localeArchive = localeDir + "/locale-archive"
	// archiveMagic begins the archive, and archiveHead is how much of its head is read: glibc's locale/locarchive.h.
	archiveMagic = 0xde020109
	archiveHead  = 56
	// archiveNamesMax bounds its table of names; the archive of all of glibc's locales has about 900.
	archiveNamesMax = 1 << 16
	archiveEntry    = 12
	localeDirsMax   = 10_000
)

// normalLocale writes the character set of a locale as glibc stores it: UTF-8 is utf8.
func normalLocale(name string) string {
	base, modifier, modified := strings.Cut(name, "@")
	language, set, has := strings.Cut(base, ".")
	if has {
		set = strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return -1
		}, strings.ToLower(set))
		language += "." + set
	}
	if modified {
		language += "@" + modifier
	}
	return language
}

// compiledLocales lists the locales that the host has, as glibc has them: in directories, and in an archive.
func (t *Type) compiledLocales() (map[string]bool, error) {
	have := map[string]bool{"C": true, "POSIX": true}
	d, err := t.root.Dir(localeDir)
	if reason.Is(err, reason.ParentMissing) {
		return have, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Names(localeDirsMax)
	if err != nil {
		return nil, err
	}
	archived := false
	for _, name := range names {
		if have[normalLocale(name)] = true; name == "locale-archive" {
			archived = true
		}
	}
	if !archived {
		return have, nil
	}
	f, _, err := d.Open("locale-archive")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// An archive that cannot be made sense of holds nothing, and locale-gen makes another.
	list, err := archiveNames(f)
	if err == nil {
		for _, name := range list {
			have[normalLocale(name)] = true
		}
	}
	return have, nil
}

var errArchive = errors.New("no locale archive")

// archiveNames reads the names of the locales in an archive. Its head is of 32-bit numbers: magic, serial, and of the table of names where it
// begins, how many there are, and how many fit. An entry of that table is a hash, where the name is, and where the locale is.
func archiveNames(r io.ReaderAt) ([]string, error) {
	head := make([]byte, archiveHead)
	if _, err := r.ReadAt(head, 0); err != nil || binary.NativeEndian.Uint32(head) != archiveMagic {
		return nil, errArchive
	}
	start, size := binary.NativeEndian.Uint32(head[8:]), binary.NativeEndian.Uint32(head[16:])
	if size > archiveNamesMax {
		return nil, errArchive
	}
	table := make([]byte, int(size)*archiveEntry)
	if _, err := r.ReadAt(table, int64(start)); err != nil {
		return nil, errArchive
	}
	var names []string
	for ; len(table) > 0; table = table[archiveEntry:] {
		at, locale := binary.NativeEndian.Uint32(table[4:]), binary.NativeEndian.Uint32(table[8:])
		if locale == 0 {
			continue
		}
		text := make([]byte, 64)
		n, err := r.ReadAt(text, int64(at))
		name, _, ok := strings.Cut(string(text[:n]), "\x00")
		if err != nil && !errors.Is(err, io.EOF) || !ok {
			return nil, errArchive
		}
		names = append(names, name)
	}
	return names, nil
}
