package account

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// Positions in the lines of passwd(5), group(5), shadow(5) and gshadow(5).
const (
	passwdFields, passwdPassword, passwdUID, passwdGID, passwdComment, passwdHome, passwdShell = 7, 1, 2, 3, 4, 5, 6
	groupFields, groupGID, groupMembers                                                        = 4, 2, 3
	shadowFieldsMin, shadowHash, shadowExpire                                                  = 8, 1, 7
)

// table is one of the files of accounts, as it was read. Lines that are no account (comments, those of NIS, torn ones) are passed over,
// and of several with one name the first counts, as for the C library.
type table []byte

// lines yields the lines that hold a text, in order, without their ends. Of the others nothing is made: a file may have many lines, and is
// asked about many accounts.
func (t table) lines(text string, yield func(line []byte) bool) {
	for from := 0; from < len(t); {
		at := bytes.Index(t[from:], []byte(text))
		if at < 0 {
			return
		}
		begin := from + bytes.LastIndexByte(t[from:from+at], '\n') + 1
		end := len(t)
		if n := bytes.IndexByte(t[from+at:], '\n'); n >= 0 {
			end = from + at + n
		}
		from = end + 1
		if !yield(t[begin:end]) {
			return
		}
	}
}

// entries yields the fields of each line that holds a text and has at least so many.
func (t table) entries(text string, least int, yield func(fields []string) bool) {
	t.lines(text, func(line []byte) bool {
		fields := fieldsOf(line)
		return len(fields) < least || yield(fields)
	})
}

// fieldsOf splits a line. The C library passes over blanks in front of it. What is no account has no fields.
func fieldsOf(line []byte) []string {
	line = bytes.TrimLeft(line, " \t")
	if len(line) == 0 || bytes.IndexByte([]byte("#+-:"), line[0]) >= 0 {
		return nil
	}
	return strings.Split(string(line), ":")
}

// find returns the fields of the line of a name.
func (t table) find(name string, least int) []string {
	var found []string
	t.entries(name+":", least, func(fields []string) bool {
		if fields[0] == name {
			found = fields
		}
		return found == nil
	})
	return found
}

// has reports whether there is a line of a name.
func (t table) has(name string) bool {
	found := false
	t.lines(name+":", func(line []byte) bool {
		found = bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte(name+":"))
		return !found
	})
	return found
}

// withNumber returns the name of the first line that has a number in a field.
func (t table) withNumber(field, least int, id uint32) (name string, ok bool) {
	t.entries(numberText(id), least, func(fields []string) bool {
		n, err := number(fields[field])
		ok = err == nil && n == id
		if ok {
			name = fields[0]
		}
		return !ok
	})
	return name, ok
}

func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// entry is an account as passwd(5) has it.
type entry struct {
	uid, gid             uint32
	comment, home, shell string
	password             string
}

// user returns the account of a name.
func (t table) user(name string) (entry, bool) {
	f := t.find(name, passwdFields)
	if f == nil {
		return entry{}, false
	}
	uid, err := number(f[passwdUID])
	gid, err2 := number(f[passwdGID])
	return entry{uid, gid, f[passwdComment], f[passwdHome], f[passwdShell], f[passwdPassword]}, err == nil && err2 == nil
}

// group returns the number and the members of a group.
func (t table) group(name string) (gid uint32, members []string, ok bool) {
	f := t.find(name, groupFields)
	if f == nil {
		return 0, nil, false
	}
	gid, err := number(f[groupGID])
	return gid, splitMembers(f[groupMembers]), err == nil
}

// splitMembers reads the last field of a group: names with commas in between, sorted, each once.
func splitMembers(s string) []string {
	var names []string
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// groupsOf returns the groups that a user is a member of, sorted: all but his primary one, unless he stands there too.
func (t table) groupsOf(user string) []string {
	var names []string
	t.lines(user, func(line []byte) bool {
		list := line[bytes.LastIndexByte(line, ':')+1:]
		if !hasMember(list, user) {
			return true
		}
		if fields := fieldsOf(line); len(fields) == groupFields {
			names = append(names, fields[0])
		}
		return true
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// hasMember looks for a name in the last field of a group, which may be long.
func hasMember(list []byte, name string) bool {
	for member := range bytes.SplitSeq(list, []byte(",")) {
		if string(bytes.TrimSpace(member)) == name {
			return true
		}
	}
	return false
}

// usersOf returns the users whose primary group has a number, at most limit.
func (t table) usersOf(gid uint32, limit int) []string {
	var names []string
	t.entries(numberText(gid), passwdFields, func(fields []string) bool {
		if n, err := number(fields[passwdGID]); err == nil && n == gid {
			names = append(names, fields[0])
		}
		return len(names) < limit
	})
	return names
}

// othersAt returns a user other than name whose home is dir or lies in it, "" for none.
func (t table) othersAt(dir, name string) string {
	other := ""
	t.entries(dir, passwdFields, func(fields []string) bool {
		home := fields[passwdHome]
		if fields[0] != name && (home == dir || strings.HasPrefix(home, dir+"/")) {
			other = fields[0]
		}
		return other == ""
	})
	return other
}

// never is the day on which an account without an end ends.
const never = -1

// shadow returns the hash of a user, and the day on which the account ends.
func (t table) shadow(name string) (hash string, expires int64, ok bool) {
	f := t.find(name, shadowFieldsMin)
	if f == nil {
		return "", never, false
	}
	expires, err := strconv.ParseInt(f[shadowExpire], 10, 64)
	if err != nil || expires < 0 {
		expires = never
	}
	return f[shadowHash], expires, true
}
