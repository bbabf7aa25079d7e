package account

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	keysLaneParallel = 2  // two files at once, as the lane of files has it
	keysLaneBatch    = 16 // users share a look at the passwd file
	keysMode         = 0o600
	sshDir           = ".ssh"
	sshFile          = "authorized_keys"
	// keysBytesMax bounds what is read of a file of keys, and what is put back: more than can be declared, less than a state file takes.
	keysBytesMax = 2 * declare.BodyBytesMax
)

// Keys is the resource type authorizedKeys.
type Keys struct {
	root      *disk.Root
	databases databases
	uid       uint32         // the agent's own
	store     *content.Store // or nil
	*durable.Sweeper
}

var (
	_ host.Type    = (*Keys)(nil)
	_ host.Sweeper = (*Keys)(nil)
)

// NewKeys makes the Type, for an agent that runs as this process does.
func NewKeys(o Options) *Keys {
	return &Keys{root: o.Root, databases: databases{root: o.Root}, uid: uint32(os.Geteuid()), store: o.Content, Sweeper: durable.NewSweeper(o.Root)}
}

// Lane returns the lane of keys.
func (k *Keys) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypeAuthorizedKeys), Parallel: keysLaneParallel, Batch: keysLaneBatch}
}

// keyFile is one declared file of keys. It keeps no keys: they are read again.
type keyFile struct {
	user    string
	path    string // as declared; empty for the usual one
	minimal bool
	body    func() (declare.Resource, error)
	digest  content.Digest // of the lines as they were bound
	mode    uint32         // permissions
	restore *string        // the whole content, where one is put back

	state   uint64         // of the databases, when at was found
	at      place          // where it was when it was last looked at
	watched string         // the path that tells of it: where it was at the last Follow
	seen    disk.Signature // what was last found to be as declared
	settled bool
}

// place is where a file of keys is, and whose it is.
type place struct {
	path     string
	home     string
	uid, gid uint32
}

var _ host.Following = (*keyFile)(nil)

// Watches names the file, and that of users: it says where the file is, and whose.
func (f *keyFile) Watches() []host.Watch {
	return append(watches("passwd"), watchOf(f.watched)...)
}

// Follow takes over where the last check has found the file: a user's home may be another one.
func (f *keyFile) Follow() (drop, add []host.Watch) {
	if f.at.path == f.watched {
		return nil, nil
	}
	drop, add = watchOf(f.watched), watchOf(f.at.path)
	f.watched = f.at.path
	return drop, add
}

func (f *keyFile) doing() string { return "write the ssh keys of user " + f.user }

// Bind makes a file of keys ready. The user must be there.
func (k *Keys) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	a := d.Resource.AuthorizedKeys
	if a == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("no ssh keys")}
	}
	f := &keyFile{
		user: a.NameOr(d.Resource.Name), path: a.Path, minimal: a.MembershipOrDefault() == declare.MembershipMinimal,
		mode: keysMode, body: d.Body, digest: digestOf(a.Keys),
	}
	for _, line := range a.Keys {
		if _, err := declare.ParseSSHKey(line); err != nil { // one that was expanded here
			return nil, &reason.Error{Code: reason.InvalidValue, Doing: f.doing(), Cause: err, Hint: "see what $(...) stands for on this host"}
		}
	}
	s, err := k.databases.read(false)
	if err != nil {
		return nil, err
	}
	if f.at, err = k.place(f, s); err != nil && !d.Leaving { // Remove looks again, and knows what to make of a user who has gone
		return nil, err
	}
	f.watched = f.at.path
	return f, nil
}

func digestOf(lines []string) content.Digest {
	return content.DigestOf([]byte(strings.Join(lines, "\n")))
}

// lines reads the declared keys again. The declaration may have been replaced since Bind; then the plan that asks for them is void.
func (f *keyFile) lines() ([]string, error) {
	r, err := f.body()
	if err != nil {
		return nil, err
	}
	if r.AuthorizedKeys == nil || digestOf(r.AuthorizedKeys.Keys) != f.digest {
		return nil, &reason.Error{Code: reason.ConcurrentEdit, Doing: f.doing(), Cause: errors.New("its declaration has just been replaced")}
	}
	return r.AuthorizedKeys.Keys, nil
}

// place finds out where the file is.
func (k *Keys) place(f *keyFile, s *snapshot) (place, error) {
	e, ok := s.passwd.user(f.user)
	if !ok {
		return place{}, unknownUser(f.doing(), f.user)
	}
	if k.uid != 0 && e.uid != k.uid {
		return place{}, &reason.Error{Code: reason.OwnerNeedsRoot, Doing: f.doing(), Hint: "run the agent as root"}
	}
	p := place{path: f.path, home: e.home, uid: e.uid, gid: e.gid}
	if p.path == "" {
		if !path.IsAbs(e.home) || path.Clean(e.home) != e.home || e.home == "/" && e.uid != 0 {
			return place{}, &reason.Error{Code: reason.ParentMissing, Doing: f.doing(), Cause: errors.New("the user's home is " + shown(e.home)),
				Hint: "give the user a home, or the file a path of its own"}
		}
		p.path = path.Join(e.home, sshDir, sshFile)
	}
	return p, nil
}

// holder is the directory that holds the file, if it is there.
func (p *place) holder() string { return path.Dir(p.path) }

// usual reports whether the file is where sshd looks in a home, so that its directory is made where it is missing.
func (p *place) usual() bool { return p.path == path.Join(p.home, sshDir, sshFile) }

// found is what a check has seen: the State of a plan.
type found struct {
	at     place
	have   disk.Signature
	holder bool     // the directory is there
	weak   []string // declared keys, for a note
}

// Check looks at the file of each user.
func (k *Keys) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	l := looker{Keys: k, depth: depth, now: disk.Tick()}
	err := ctx.Err()
	if err != nil {
		err = reason.Ended("look at ssh keys", err)
	} else {
		l.state, l.settled, err = k.databases.look()
	}
	for i, res := range rs {
		p := &plans[i]
		p.Resource, p.Err = res, err
		if err == nil {
			p.Err = l.check(res.(*keyFile), p)
		}
	}
	return plans
}

// looker is one call of Check.
type looker struct {
	*Keys
	depth   host.Depth
	now     int64 // the kernel's clock at the start
	state   uint64
	settled bool
	users   *snapshot // read when the first file needs it
}

// locate finds out where a file is, if that may have changed.
func (l *looker) locate(f *keyFile) (moved bool, err error) {
	if l.depth == host.Shallow && l.settled && f.state == l.state {
		return false, nil
	}
	if l.users == nil {
		if l.users, err = l.databases.read(false); err != nil {
			return false, err
		}
	}
	at, err := l.place(f, l.users)
	if err != nil {
		return false, err
	}
	moved = at != f.at
	f.at, f.state = at, l.state
	return moved, nil
}

func (l *looker) check(f *keyFile, p *host.Plan) error {
	moved, err := l.locate(f)
	if err != nil {
		return err
	}
	remembered := false
	v, err := l.see(f, func(now disk.Signature) bool {
		remembered = l.depth == host.Shallow && !moved && now == f.seen
		return remembered && f.settled
	})
	if err != nil {
		return err
	}
	if remembered && f.settled {
		p.Recognised = true
		return nil
	}
	changes, _, err := v.compare()
	if err != nil {
		return err
	}
	f.seen = disk.Signature{}
	if len(changes) > 0 {
		p.Changes, p.State = changes, v.found
		return nil
	}
	p.Recognised = remembered
	f.seen, f.settled = v.have, v.have.Ctime < l.now
	return nil
}

// see looks at a file. Where it looks like enough, it is not read.
func (k *Keys) see(f *keyFile, enough func(disk.Signature) bool) (*view, error) {
	d, err := k.directory(f)
	if err != nil {
		return nil, err
	}
	v := &view{file: f, found: found{at: f.at, holder: d != nil}}
	if d == nil {
		return v, nil
	}
	defer d.Close()
	st, err := d.Stat(path.Base(f.at.path))
	if err == nil && (!st.Exists() || !enough(st.Signature)) {
		err = v.read(d, st)
	}
	return v, err
}

// closely has see read the file, however it looks.
func closely(disk.Signature) bool { return false }

// directory opens the directory that holds the file; nil where it is missing and may be made.
func (k *Keys) directory(f *keyFile) (*disk.Dir, error) {
	d, err := k.root.Dir(f.at.holder())
	switch {
	case err == nil:
		return d, nil
	case reason.Is(err, reason.UntrustedSymlink):
		e := *reason.Of(err)
		e.Hint = "nothing is written through a link that the user can turn elsewhere: have a directory take its place, or declare the path that it leads to"
		return nil, &e
	case !reason.Is(err, reason.ParentMissing) || !f.at.usual():
		return nil, err
	}
	st, homeErr := k.root.Stat(f.at.home)
	if homeErr == nil && !st.Exists() {
		homeErr = &reason.Error{Code: reason.ParentMissing, Doing: f.doing(), Cause: errors.New("the home " + shown(f.at.home) + " is missing"),
			Hint: "declare createHome: true for the user"}
	}
	return nil, homeErr
}
