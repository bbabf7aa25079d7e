package facts

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
)

// parseOSRelease reads os-release(5). Lines that are no assignments are skipped, the last assignment of a name counts.
func parseOSRelease(b []byte) OS {
	values := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(key, "#") {
			values[key] = unquoteShell(value)
		}
	}
	id := values["ID"]
	if id == "" && len(values) > 0 {
		id = "linux" // the default that os-release(5) gives
	}
	return OS{
		ID:       id,
		Family:   familyOf(id, strings.Fields(values["ID_LIKE"])),
		Version:  values["VERSION_ID"],
		Codename: values["VERSION_CODENAME"],
		Name:     values["NAME"],
	}
}

// unquoteShell takes the quotes off a value as a shell would, without expansions, which os-release(5) forbids.
func unquoteShell(s string) string {
	var b strings.Builder
	var quote byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// families maps a distribution to the name of its family; ID_LIKE leads derived ones here.
var families = map[string]string{
	"debian": "debian", "ubuntu": "debian",
	"rhel": "rhel", "fedora": "rhel", "centos": "rhel",
	"suse": "suse", "opensuse": "suse", "sles": "suse",
	"arch": "arch", "alpine": "alpine", "gentoo": "gentoo",
}

// familyOf returns the family of a distribution; one of no known family is a family of its own.
func familyOf(id string, like []string) string {
	for _, name := range slices.Concat([]string{id}, like) {
		if family, ok := families[name]; ok {
			return family
		}
	}
	return id
}

// parseCPUList counts the processors of a kernel list such as "0-3,8"; 0 if it is malformed.
func parseCPUList(b []byte) int64 {
	var count int64
	for part := range strings.SplitSeq(firstLine(b), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		// 16 bits: the kernel's limit on processors is 8192.
		low, err1 := strconv.ParseUint(from, 10, 16)
		high, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || high < low {
			return 0
		}
		count += int64(high-low) + 1
	}
	return count
}

// parseMemTotal returns MemTotal of /proc/meminfo in bytes, 0 if it is not there.
func parseMemTotal(b []byte) int64 {
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte("MemTotal:"))
		if !ok {
			continue
		}
		fields := strings.Fields(string(rest))
		if len(fields) != 2 || fields[1] != "kB" {
			return 0
		}
		kib, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || kib < 0 || kib > math.MaxInt64/1024 {
			return 0
		}
		return kib * 1024
	}
	return 0
}
