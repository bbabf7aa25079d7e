package declare

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The rules of names, in words for hints.
const (
	subdomainRule  = "up to 253 of a-z, 0-9, - and ., with a letter or digit first and last"
	labelKeyRule   = "up to 63 letters, digits and any of - _ . with a letter or digit first and last; a domain and / may stand before it"
	labelValueRule = "empty, or up to 63 letters, digits and any of - _ . with a letter or digit first and last"
)

// Limits of names that come from elsewhere.
const (
	labelBytesMax       = 63        // RFC 1123, and Kubernetes label names and values
	annotationsBytesMax = 256 << 10 // Kubernetes, all annotations of an object
	ownerBytesMax       = 256       // LOGIN_NAME_MAX, limits.h
	unitBytesMax        = 255       // systemd.unit(5)
	versionBytesMax     = 256       // ours: far above any real one
)

func isLower(c byte) bool    { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool    { return c >= '0' && c <= '9' }
func isAlphanum(c byte) bool { return isLower(c) || isDigit(c) || c >= 'A' && c <= 'Z' }

// isMadeOf reports whether s is not empty and each byte is alphanumeric or one of others.
func isMadeOf(s, others string) bool {
	for i := range len(s) {
		if !isAlphanum(s[i]) && strings.IndexByte(others, s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

func hasAlphanumEnds(s string) bool {
	return s != "" && isAlphanum(s[0]) && isAlphanum(s[len(s)-1])
}

// isDomainLabel is RFC 1123, lower case.
func isDomainLabel(s string) bool {
	return len(s) <= labelBytesMax && isMadeOf(s, "-") && hasAlphanumEnds(s) && s == strings.ToLower(s)
}

// isSubdomain is domain labels of any length joined by dots, as Kubernetes takes names.
func isSubdomain(s string) bool {
	if len(s) > NameBytesMax || s != strings.ToLower(s) {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if !isMadeOf(part, "-") || !hasAlphanumEnds(part) {
			return false
		}
	}
	return true
}

func isLabelName(s string) bool {
	return len(s) <= labelBytesMax && isMadeOf(s, "-_.") && hasAlphanumEnds(s)
}

func isLabelValue(s string) bool { return s == "" || isLabelName(s) }

// labelKeyMistake returns what is wrong with a label key, or "".
func labelKeyMistake(key string) string {
	prefix, name, qualified := strings.Cut(key, "/")
	if !qualified {
		name = key
	}
	if !isLabelName(name) || qualified && !isSubdomain(prefix) {
		return fmt.Sprintf("%q is not a label key", clipText(key))
	}
	return ""
}

// isResourceName is the rule of Resource.Name.
func isResourceName(s string) bool {
	return len(s) <= NameBytesMax && isMadeOf(s, "._-+@:") && isAlphanum(s[0])
}

// isOwner accepts a name that a passwd or group line can hold, or a number. 4294967295 is "leave as it is" for chown(2).
func isOwner(s string) bool {
	if strings.Trim(s, "0123456789") == "" {
		n, err := strconv.ParseUint(s, 10, 32)
		return err == nil && n < 1<<32-1 && (s == "0" || s[0] != '0')
	}
	return len(s) <= ownerBytesMax && s[0] != '-' && strings.IndexFunc(s, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r == ':' || r == '/' || r == ','
	}) < 0
}

// isPackageName is Debian policy 5.6.1, with the large letters and the underscore that names of RPM packages have.
func isPackageName(s string) bool {
	return len(s) >= 2 && len(s) <= NameBytesMax && isMadeOf(s, "+-._") && isAlphanum(s[0])
}

// isPackageVersion is the alphabet of Debian policy 5.6.12, and of RPM's epoch:version-release.
func isPackageVersion(s string) bool {
	return len(s) <= versionBytesMax && isMadeOf(s, ".+-~:^_") && isAlphanum(s[0])
}

// unitMistake returns what is wrong with a unit's full name by systemd.unit(5), or "".
func unitMistake(name string) (message, hint string) {
	dot := strings.LastIndexByte(name, '.')
	stem, suffix := name[:max(dot, 0)], name[max(dot, 0):]
	switch {
	case len(name) > unitBytesMax:
		return fmt.Sprintf("the unit name has %d bytes, at most %d are possible", len(name), unitBytesMax), ""
	case !isMadeOf(stem, `:-_.\@`) || stem[0] == '@' || !slices.Contains(unitSuffixes, suffix):
		return fmt.Sprintf("%q is not a unit name", clipText(name)), `letters, digits and any of : - _ . \ @ with a suffix such as .service; give the unit's own name in ` + "`unit`"
	case strings.HasSuffix(stem, "@"):
		return fmt.Sprintf("%q is a template, which cannot run", name), "name an instance: " + stem + "NAME" + suffix
	case suffix == ".device" || suffix == ".scope":
		return fmt.Sprintf("%q is not started or stopped by name", name), ""
	}
	return "", ""
}
