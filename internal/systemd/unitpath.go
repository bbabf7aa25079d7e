package systemd

import (
	"strings"

	"github.com/godbus/dbus/v5"
)

// unitPathPrefix is where systemd exports units.
const unitPathPrefix = "/org/freedesktop/systemd1/unit/"

const hexDigits = "0123456789abcdef"

// unitPath returns the object path of a unit: every byte but letters and digits becomes _xx (two lower case hex digits),
// a leading digit too, because object path elements may hold nothing else and systemd escapes so.
func unitPath(name string) dbus.ObjectPath {
	var b strings.Builder
	b.Grow(len(unitPathPrefix) + len(name) + 8)
	b.WriteString(unitPathPrefix)
	if name == "" {
		b.WriteByte('_')
	}
	for i := range len(name) {
		c := name[i]
		if plainInPath(c) && (i > 0 || c < '0' || c > '9') {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('_')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&0xf])
	}
	return dbus.ObjectPath(b.String())
}

// unitOfPath is the inverse of unitPath. It accepts only what unitPath makes, so that one unit has one path.
func unitOfPath(path dbus.ObjectPath) (name string, ok bool) {
	label, ok := strings.CutPrefix(string(path), unitPathPrefix)
	if !ok || label == "" || label == "_" {
		return "", false
	}
	b := make([]byte, 0, len(label))
	for i := 0; i < len(label); i++ {
		if label[i] != '_' {
			b = append(b, label[i])
			continue
		}
		if i+2 >= len(label) {
			return "", false
		}
		hi, lo := strings.IndexByte(hexDigits, label[i+1]), strings.IndexByte(hexDigits, label[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	name = string(b)
	return name, unitPath(name) == path
}

func plainInPath(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
