package disk

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
	"unicode/utf8"
)

// TempPrefix is what the name of every temporary begins with. A leading dot is ignored by conf.d globs, systemd and cron.
const TempPrefix = ".tako."

const (
	// 60 random bits: two temporaries of one name never meet.
	tempRandom = 12
	nameMax    = 255 // NAME_MAX of every file system that Linux has
)

// tempCoding writes random bytes in digits and small letters, five bits each, safe in every file name.
var tempCoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// TempName makes a temporary name for a name, another one each time, cut so that the whole is a name again.
func TempName(name string) string {
	if room := nameMax - len(TempPrefix) - 1 - tempRandom; len(name) > room {
		cut := room
		// Some file systems refuse half a character.
		for cut > room-utf8.UTFMax && !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut]
	}
	var b [8]byte
	rand.Read(b[:]) // never fails, crypto/rand
	return TempPrefix + name + "." + strings.ToLower(tempCoding.EncodeToString(b[:]))[:tempRandom]
}

// IsTemporary reports whether TempName could have made a name.
func IsTemporary(name string) bool {
	rest, ok := strings.CutPrefix(name, TempPrefix)
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
