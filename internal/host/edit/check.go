package edit

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/command/check"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	wordAbsent   = "absent"
	wordHidden   = "not shown"
	wordDeclared = "as declared, not shown"
)

// Check looks at the file of each edit, and reads it once for all of them where one may differ.
func (t *Type) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	l := looker{Type: t, depth: depth, now: disk.Tick()}
	defer l.close()
	order := make([]int, len(rs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(rs[a].(*resource).path, rs[b].(*resource).path) })
	for _, i := range order {
		p := &plans[i]
		p.Resource = rs[i]
		if err := ctx.Err(); err != nil {
			p.Err = ended("look at", rs[i].(*resource).path, err)
			continue
		}
		p.Err = l.check(rs[i].(*resource), p)
	}
	return plans
}

// looker is one call of Check. It holds the file that it has read last.
type looker struct {
	*Type
	depth host.Depth
	now   int64 // the kernel's clock at the start
	path  string
	last  *sight

	dir     *disk.Dir // of the path that was looked at last; nil where it is missing
	dirPath string
	at      string // that path
	found   disk.Stat
}

// look looks at a file. Neighbours share their directory, and edits of one file the look.
func (l *looker) look(path string) (now disk.Stat, err error) {
	if path == l.at {
		return l.found, nil
	}
	dir, name := disk.Split(path)
	if dir != l.dirPath {
		l.close()
		if l.dir, err = l.root.Dir(dir); err != nil && !reason.Is(err, reason.ParentMissing) {
			l.dir = nil
			return now, err
		}
		l.dirPath = dir
	}
	if l.dir != nil {
		now, err = l.dir.Stat(name)
	}
	if err == nil || reason.Is(err, reason.ParentMissing) {
		l.at, l.found, err = path, now, nil
	}
	return now, err
}

func (l *looker) close() {
	if l.dir != nil {
		l.dir.Close()
	}
	l.dir, l.dirPath = nil, ""
}

// see reads a file, or takes it as it was read for the edit before.
func (l *looker) see(r *resource, now disk.Stat) (*sight, error) {
	if l.last != nil && l.path == r.path && l.last.Signature == now.Signature {
		return l.last, nil
	}
	s, err := l.read(r, now)
	l.path, l.last = r.path, s
	if err != nil {
		l.last = nil
	}
	return s, err
}

func (l *looker) check(r *resource, p *host.Plan) error {
	now, err := l.look(r.path)
	if err != nil {
		return err
	}
	if err := r.fits(now); err != nil {
		return err
	}
	remembered := l.depth == host.Shallow && now.Exists() && now.Signature == r.seen
	if remembered && r.settled {
		p.Recognised = true
		return nil
	}
	r.remember(disk.Signature{}, false)
	if !now.Exists() && r.absent {
		return nil
	}
	s, err := l.see(r, now)
	if err != nil {
		return err
	}
	w, err := r.declared()
	if err != nil {
		return err
	}
	to, err := w.Edit(s.text)
	if err != nil {
		return r.refused(err)
	}
	if to == s.text && now.Exists() {
		p.Recognised = remembered
		r.remember(now.Signature, now.Ctime < l.now)
		return nil
	}
	if now.MountRoot {
		return &reason.Error{Code: reason.MountPointFile, Doing: r.doing(), Hint: "a mounted file cannot be replaced: unmount it, or edit the one that is mounted here"}
	}
	p.Changes, p.State = l.changes(s, w, to), now.Signature
	return nil
}

// changes says what an edit does.
func (l *looker) changes(s *sight, w wish, to string) []host.Change {
	var changes []host.Change
	if !s.Exists() {
		changes = append(changes, host.Change{From: wordAbsent, To: "file"})
	}
	have, want := w.Shown(s.text)
	c := host.Change{Field: w.Field(), From: shownOr(have, s.isPrivate(), wordHidden), To: shownOr(want, s.isPrivate(), wordDeclared)}
	if l.depth == host.Explain && !s.isPrivate() && len(to) <= declare.BodyBytesMax {
		c.Text = &host.Text{From: []byte(s.text), To: []byte(to)}
	}
	changes = append(changes, c)
	if s.Nlink > 1 {
		changes = append(changes, host.Change{Field: "links", From: strconv.FormatUint(uint64(s.Nlink), 10), To: "1"})
	}
	if len(w.check) > 0 {
		changes = append(changes, host.Change{Field: "check", To: "must accept it: " + check.Shown(w.check)})
	}
	return changes
}

func shownOr(text string, private bool, instead string) string {
	switch {
	case text == "":
		return wordAbsent
	case private:
		return instead
	}
	return text
}

// ended is the error of what its context has ended.
func ended(op, p string, err error) *reason.Error { return reason.Ended(op+" "+disk.Shown(p), err) }
