package repository

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	fileMode = 0o644 // package managers read both files as users of their own
	dirMode  = 0o755
	// textBytesMax bounds a file that is read: keyrings of distributions have less.
	textBytesMax = 1 << 20
	// namesMax bounds a directory that is listed: an apt with many repositories has a thousand lists.
	namesMax = 64 << 10
	// shortDigits is how much of a digest people compare by eye.
	shortDigits = 8
)

// The fields of changes, and words for what is there.
const (
	fieldSources = "sources"
	fieldKey     = "key"
	fieldLists   = "lists"
	wordAbsent   = "absent"
	wordMissing  = "missing"
	wordFetched  = "fetched"
)

// view is one file as it stands there. It is comparable.
type view struct {
	sig  disk.Signature
	text string
}

func (v view) digest() content.Digest { return content.DigestOf([]byte(v.text)) }

// wrong reports whether owner or mode of a file are not as they shall be.
func (v view) wrong(t *Type) bool {
	uid, gid := t.owner()
	return v.sig.Perm() != fileMode || v.sig.UID != uid || v.sig.GID != gid
}

// owner is whom the files belong to: root, or the agent in a sandbox.
func (t *Type) owner() (uid, gid uint32) { return uint32(unix.Geteuid()), uint32(unix.Getegid()) }

// sight is how a repository is. It is comparable.
type sight struct {
	file, key view
	keyUsed   bool   // another file names the keys of one that must be absent
	missing   bool   // not all is fetched
	rival     string // who says otherwise, with line
	double    string // who says the same
}

// call is one look at repositories: what they share is looked at once.
type call struct {
	*Type
	places map[string]*surroundings // by directory
}

// surroundings are the files that say where packages come from, and what is fetched.
type surroundings struct {
	sum      uint64
	newest   int64 // the last change
	files    []string
	names    []string // of what is fetched
	mentions []mention
	read     bool // mentions are
	listed   bool // names are
}

func (t *Type) newCall() *call { return &call{Type: t, places: map[string]*surroundings{}} }

// around looks at what surrounds a repository, by stat only.
func (c *call) around(m manager) (*surroundings, error) {
	single, dir, suffixes := m.others()
	if s := c.places[dir]; s != nil {
		return s, nil
	}
	s := &surroundings{}
	var sum maphash.Hash
	sum.SetSeed(c.seed)
	note := func(st disk.Stat) {
		maphash.WriteComparable(&sum, st.Signature)
		s.newest = max(s.newest, st.Ctime)
	}
	for _, p := range []string{single, dir, m.lists()} {
		if p == "" || p == m.lists() && c.sandbox() {
			continue
		}
		st, err := c.root.Stat(p)
		if err != nil && !reason.Is(err, reason.ParentMissing) {
			return nil, err
		}
		if note(st); p == single && st.Exists() {
			s.files = append(s.files, p)
		}
	}
	d, err := c.root.Dir(dir)
	switch {
	case reason.Is(err, reason.ParentMissing):
	case err != nil:
		return nil, err
	default:
		defer d.Close()
		names, err := d.Names(namesMax)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if !hasSuffix(name, suffixes) {
				continue
			}
			st, err := d.Stat(name)
			if err != nil {
				return nil, err
			}
			note(st)
			s.files = append(s.files, d.Join(name))
		}
	}
	s.sum = sum.Sum64()
	c.places[dir] = s
	return s, nil
}

// mentionsBeside are what other files than the repository's own say.
func (c *call) mentionsBeside(r *resource) ([]mention, error) {
	s, err := c.around(r.manager)
	if err != nil {
		return nil, err
	}
	if !s.read {
		for _, file := range s.files {
			v, err := c.view(file)
			if err != nil {
				continue // a link, or something odd, of somebody else: the package manager tells what it thinks of that
			}
			s.mentions = append(s.mentions, r.parse(file, v.text)...)
		}
		s.read = true
	}
	var others []mention
	for _, m := range s.mentions {
		if m.file != r.file {
			others = append(others, m)
		}
	}
	return others, nil
}

// fetched lists the names of what is fetched.
func (c *call) fetched(m manager) ([]string, error) {
	s, err := c.around(m)
	if err != nil || s.listed {
		return s.names, err
	}
	s.names, err = c.list(m.lists())
	s.listed = err == nil
	return s.names, err
}

// list lists a directory; one that is not there is empty.
func (t *Type) list(dir string) ([]string, error) {
	d, err := t.root.Dir(dir)
	if reason.Is(err, reason.ParentMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Names(namesMax)
}

// view reads a file.
func (t *Type) view(p string) (view, error) {
	d, name, err := t.root.Parent(p)
	if reason.Is(err, reason.ParentMissing) {
		return view{}, nil
	}
	if err != nil {
		return view{}, err
	}
	defer d.Close()
	st, err := d.Stat(name)
	if err != nil || !st.Exists() {
		return view{}, err
	}
	b, st, err := d.ReadFile(name, textBytesMax)
	return view{st.Signature, string(b)}, err
}

// hasKey reports whether keys come with the repository, or would go with it.
func (r *resource) hasKey() bool { return r.absent || !r.want.key.IsZero() }

// signs are what may be compared instead of a repository.
func (c *call) signs(r *resource) (sum uint64, newest int64, err error) {
	s, err := c.around(r.manager)
	if err != nil {
		return 0, 0, err
	}
	var hash maphash.Hash
	hash.SetSeed(c.seed)
	maphash.WriteComparable(&hash, s.sum)
	newest = s.newest
	for _, p := range []string{r.file, r.keyFile} {
		st, err := c.root.Stat(p)
		if err != nil && !reason.Is(err, reason.ParentMissing) {
			return 0, 0, err
		}
		maphash.WriteComparable(&hash, st.Signature)
		newest = max(newest, st.Ctime)
	}
	return hash.Sum64() | 1, newest, nil
}

// look finds out how a repository is.
func (c *call) look(r *resource) (s sight, err error) {
	if s.file, err = c.view(r.file); err != nil {
		return s, err
	}
	if r.hasKey() {
		if s.key, err = c.view(r.keyFile); err != nil {
			return s, err
		}
	}
	others, err := c.mentionsBeside(r)
	if err != nil {
		return s, err
	}
	for _, other := range others {
		s.keyUsed = s.keyUsed || strings.Contains(other.keys, r.keyFile)
		for _, own := range r.own {
			at := fmt.Sprintf("%s:%d", other.file, other.line)
			switch rival, double := r.rival(own, other); {
			case rival:
				s.rival = at
			case double:
				s.double = at
			}
		}
	}
	if r.lists() == "" || r.listless || c.sandbox() {
		return s, nil
	}
	names, err := c.fetched(r.manager)
	for _, own := range r.own {
		s.missing = s.missing || !r.has(own, names)
	}
	return s, err
}

// changes says what Apply would change. It is pure.
func (r *resource) changes(t *Type, s sight) []host.Change {
	var changes []host.Change
	add := func(field, from, to string) { changes = append(changes, host.Change{Field: field, From: from, To: to}) }
	for _, f := range []struct {
		field string
		view  view
		want  content.Digest
		skip  bool
		shown func(v view) string
		to    string
	}{
		{fieldSources, s.file, r.want.file, false, summary, r.want.file.String()[:len("sha256:")+shortDigits]},
		{fieldKey, s.key, r.want.key, !r.hasKey() || r.absent && s.keyUsed, r.keySummary, r.fingerprint},
	} {
		there := f.view.sig.Exists()
		switch {
		case f.skip:
		case r.absent && there:
			add(f.field, f.shown(f.view), wordAbsent)
		case r.absent:
		case !there:
			add(f.field, wordAbsent, f.to)
		case f.view.digest() != f.want:
			add(f.field, f.shown(f.view), f.to)
		}
		if there && !r.absent && !f.skip && f.view.wrong(t) {
			uid, gid := t.owner()
			add(f.field+" mode", fmt.Sprintf("%04o %d:%d", f.view.sig.Perm(), f.view.sig.UID, f.view.sig.GID), fmt.Sprintf("%04o %d:%d", fileMode, uid, gid))
		}
	}
	if s.missing {
		add(fieldLists, wordMissing, wordFetched)
	}
	return changes
}

// summary tells contents apart in a few words.
func summary(v view) string { return v.digest().String()[:len("sha256:")+shortDigits] }

// compare says what there is to do, or what is in the way of it.
func (r *resource) compare(t *Type, s sight) ([]host.Change, error) {
	if s.rival != "" {
		return nil, &reason.Error{Code: reason.PackageSourceConflict, Doing: r.doing(), Cause: errors.New(s.rival + " is about the same repository, and says otherwise of it"),
			Hint: "take it out there, or declare this one under the name of that file: repository: " + stem(s.rival)}
	}
	return r.changes(t, s), nil
}

// stem is the name of a file without directory, suffix and line.
func stem(at string) string {
	name := path.Base(at[:strings.LastIndexByte(at, ':')])
	return strings.TrimSuffix(name, path.Ext(name))
}

// Check looks at repositories.
func (t *Type) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	c, now := t.newCall(), disk.Tick()
	for i, res := range rs {
		p, r := &plans[i], res.(*resource)
		p.Resource = res
		if err := ctx.Err(); err != nil {
			p.Err = reason.Ended(r.doing(), err)
			continue
		}
		c.check(r, depth, now, p)
	}
	return plans
}

func (c *call) check(r *resource, depth host.Depth, now int64, p *host.Plan) {
	sum, newest, err := c.signs(r)
	if err != nil {
		p.Err = err
		return
	}
	known := depth == host.Shallow && sum == r.seen
	if known && r.settled {
		p.Recognised = true
		return
	}
	r.seen = 0
	s, err := c.look(r)
	if err == nil {
		p.Changes, err = r.compare(c.Type, s)
	}
	switch {
	case err != nil:
		p.Err = err
	case len(p.Changes) > 0:
		p.State = s
		if depth == host.Explain {
			r.explain(s, p.Changes)
		}
	default:
		r.seen, r.settled, p.Recognised = sum, newest < now, known
	}
}

// explain adds the texts that a diff shows. What nobody else may read is not shown.
func (r *resource) explain(s sight, changes []host.Change) {
	if s.file.sig.Exists() && s.file.sig.Perm()&0o004 == 0 {
		return
	}
	for i := range changes {
		if changes[i].Field != fieldSources {
			continue
		}
		text := &host.Text{From: []byte(s.file.text)}
		if body, err := r.body(); err == nil && !r.absent {
			if files, err := r.contents(body.Repository, r.keyFile); err == nil {
				text.To = files.file
			}
		}
		changes[i].Text = text
	}
}
