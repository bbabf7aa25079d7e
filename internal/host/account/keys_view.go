package account

import (
	"cmp"
	"errors"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// view is a file of keys as it is found, beside what it shall be.
type view struct {
	found
	file    *keyFile
	text    string
	foreign bool // it is not the user's, and was not read
	large   bool // it has more than is ever read
	stat    disk.Stat
}

// read reads the file, if it is the user's: another one's text is not his to see, and he may have put it there.
func (v *view) read(d *disk.Dir, st disk.Stat) error {
	v.stat, v.have = st, st.Signature
	switch {
	case !st.Exists():
		return nil
	case st.Type() != unix.S_IFREG:
		return &reason.Error{Code: reason.TypeInTheWay, Doing: v.file.doing(), Cause: errors.New("a " + st.Kind() + " is at " + shown(v.at.path)), Hint: "move it away"}
	case st.UID != v.at.uid:
		v.foreign = true
		return nil
	}
	if st.Size > keysBytesMax && !v.file.minimal {
		v.large = true // and must not stay for that
		return nil
	}
	b, now, err := d.ReadFile(path.Base(v.at.path), keysBytesMax)
	if err != nil {
		return err
	}
	if now.Signature != st.Signature {
		return disk.Stale("read file", v.at.path)
	}
	v.text = string(b)
	return nil
}

func (v *view) notHis() error {
	return &reason.Error{Code: reason.PermissionDenied, Doing: v.file.doing(), Cause: errors.New(shown(v.at.path) + " belongs to uid " + numberText(v.stat.UID) + ", not to the user"),
		Hint: "look at it, and give it to the user or remove it; membership exact replaces it"}
}

// compare says what has to change, and what the whole text shall be.
func (v *view) compare() ([]host.Change, string, error) {
	want, lines, err := v.wanted()
	if err != nil {
		return nil, "", err
	}
	var changes []host.Change
	add := func(field, from, to string) {
		if from != to {
			changes = append(changes, host.Change{Field: field, From: from, To: to})
		}
	}
	switch {
	case !v.have.Exists():
		add("file", wordAbsent, wordPresent)
	case v.foreign:
		add("owner", numberText(v.stat.UID), numberText(v.at.uid))
	case v.large:
		add("size", strconv.FormatInt(v.stat.Size, 10)+" B", strconv.Itoa(len(want))+" B")
	}
	changes = append(changes, keyChanges(v.text, want)...)
	if v.have.Exists() && !v.foreign {
		if want != v.text && len(changes) == 0 {
			add("lines", "other options, comments or order", "as declared")
		}
		add("mode", modeText(v.stat.Perm()), modeText(v.file.mode))
		add("group", numberText(v.stat.GID), numberText(v.at.gid))
	}
	v.weak = weaknesses(lines)
	return changes, want, nil
}

// wanted is the whole text as it shall be, and the declared lines.
func (v *view) wanted() (text string, lines []string, err error) {
	if v.file.restore != nil {
		return *v.file.restore, nil, nil
	}
	if lines, err = v.file.lines(); err != nil {
		return "", nil, err
	}
	if !v.file.minimal {
		return exactly(lines), lines, nil
	}
	if v.foreign {
		return "", nil, v.notHis()
	}
	return with(v.text, lines), lines, nil
}

// modeText writes permissions as people declare them.
func modeText(perm uint32) string {
	const digits = 4
	s := "0000" + cmp.Or(octal(perm), "0")
	return s[len(s)-digits:]
}
