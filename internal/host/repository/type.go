package repository

import (
	"context"
	"errors"
	"hash/maphash"
	"path"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/openpgp"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// laneBatch is how many repositories are looked at with one look at what they share; a host has a handful.
const laneBatch = 64

// Options are what New needs.
type Options struct {
	// Root is the host's own root; or a sandbox, where there are files, and nothing is fetched.
	Root *disk.Root
	// Content takes what is replaced or removed. Nil keeps nothing.
	Content *content.Store
}

// Type is the resource type repository.
type Type struct {
	root  *disk.Root
	store *content.Store // may be nil
	seed  maphash.Seed
	*durable.Sweeper
}

var (
	_ host.Type    = (*Type)(nil)
	_ host.Sweeper = (*Type)(nil)
)

// New makes the Type.
func New(o Options) *Type {
	return &Type{root: o.Root, store: o.Content, seed: maphash.MakeSeed(), Sweeper: durable.NewSweeper(o.Root)}
}

// Lane returns the lane of repositories: one is fetched at a time, because they share the lock of what is fetched.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypeRepository), Parallel: 1, Batch: laneBatch}
}

// sandbox reports whether there are files only.
func (t *Type) sandbox() bool { return t.root.Path() != "/" }

// manager is what differs between package managers.
type manager interface {
	form
	store
}

// form is how a package manager wants its files.
type form interface {
	// text is the file of a repository whose keys are at keyPath.
	text(r *declare.Repository, name, keyPath string) string
	// keyring is its keys as the package manager reads them.
	keyring(armored string, keys openpgp.Keys) []byte
	// others are the files that say where packages come from: one, or empty, and all with a suffix in a directory.
	others() (file, dir string, suffixes []string)
	// parse finds in such a file what is said of repositories.
	parse(file, text string) []mention
	// rival reports whether a mention contradicts a repository, and double whether it says the same once more.
	rival(own, other mention) (rival, double bool)
}

// store is what a package manager has fetched of repositories.
type store interface {
	// here returns what is missing on a host that does not have it.
	here() error
	// lists is where it keeps what it has fetched, empty where that does not count; has reports whether what it needs of a mention
	// is there.
	lists() string
	has(m mention, names []string) bool
	// fetch fetches the repository whose file is given, and nothing else; fault is its error.
	fetch(ctx context.Context, file, name string) ([]byte, error)
	fault(doing string, output []byte, err error) error
	// trusted are paths below which keys are kept that were taken from an earlier declaration.
	trusted(t *Type, name string) ([]string, error)
	// leftovers are what it has fetched of mentions and of no other one: paths, directories after what is in them.
	leftovers(t *Type, name string, gone, others []mention) ([]string, error)
}

// mention is what a file says of one place of packages.
type mention struct {
	file  string
	line  int
	id    string // its name, for dnf
	place string // URI
	suite string // for apt
	// trust is how it is checked, as far as two files must agree on it.
	trust string
	keys  string // what names its keys: paths, among other words
}

// resource is one declared repository.
type resource struct {
	manager
	name    string
	absent  bool
	file    string // where it is
	keyFile string
	want    digests
	// own are the places, for what is fetched and for what others say; empty for one that must be absent.
	own         []mention
	fingerprint string
	unchecked   string // by which option nothing of it is checked
	body        func() (declare.Resource, error)

	listless bool   // after it was fetched, nothing was there under the names that are looked for
	seen     uint64 // the signs under which it was last found as declared; 0 for never
	settled  bool   // every later change shows in the signs
}

// digests are of the files as they shall be; zero for none.
type digests struct{ file, key content.Digest }

// Bind makes a repository ready.
func (t *Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	declared := d.Resource.Repository
	if declared == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not a repository")}
	}
	name := d.Resource.Name
	r := &resource{
		manager: managerOf(declared), name: declared.NameOr(name), absent: declared.Absent(), file: declared.Path(name), keyFile: declared.KeyPath(name),
		unchecked: declared.Unchecked(), body: d.Body,
	}
	if !t.sandbox() {
		if err := r.here(); err != nil {
			return nil, &reason.Error{Code: reason.NoPackageManager, Doing: r.doing(), Cause: err, Hint: "restrict the resource with `when: facts.os.family == ...`"}
		}
	}
	if r.absent {
		return r, nil
	}
	if d.Resource.Expand {
		if err := expanded(r.doing(), declared); err != nil {
			return nil, err
		}
	}
	files, err := r.contents(declared, r.keyFile)
	if err != nil {
		return nil, err
	}
	r.fingerprint = files.fingerprint
	r.want = digests{file: content.DigestOf(files.file)}
	if files.key != nil {
		r.want.key = content.DigestOf(files.key)
	}
	r.own = r.parse(r.file, string(files.file))
	return r, nil
}

func managerOf(r *declare.Repository) manager {
	if r.Dnf != nil {
		return dnf{}
	}
	return apt{}
}

// expanded looks at what has become of texts that were expanded here.
func expanded(doing string, r *declare.Repository) error {
	look := func(texts []string, mistake func(string) (message, hint string)) error {
		for _, text := range texts {
			if message, hint := mistake(text); message != "" {
				return &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: errors.New(message), Hint: "see what $(...) stands for on this host; " + hint}
			}
		}
		return nil
	}
	if d := r.Dnf; d != nil {
		places := d.BaseURL
		if d.Mirrorlist != "" {
			places = []string{d.Mirrorlist}
		}
		return look(places, declare.DnfURLMistake)
	}
	err := look(r.Apt.Uris, declare.AptURIMistake)
	for _, list := range [][]string{r.Apt.Suites, r.Apt.Components, r.Apt.Architectures} {
		if err == nil {
			err = look(list, declare.AptWordMistake)
		}
	}
	return err
}

// contents are the files of a repository; key is nil without keys of its own.
type contents struct {
	file, key   []byte
	fingerprint string // of the first key
}

// contents makes the files, whose keys will be at a path.
func (r *resource) contents(declared *declare.Repository, keyFile string) (contents, error) {
	var c contents
	if armored := declared.Key(); armored != "" {
		keys, err := openpgp.Parse(armored)
		if err != nil {
			return c, &reason.Error{Code: reason.InvalidValue, Doing: r.doing(), Cause: err}
		}
		c.key, c.fingerprint = r.keyring(armored, keys), keys.Fingerprints[0]
	} else {
		keyFile = ""
	}
	c.file = []byte(r.text(declared, r.name, keyFile))
	return c, nil
}

// doing says what is tried with the repository.
func (r *resource) doing() string {
	if r.absent {
		return "remove repository " + r.name
	}
	return "add repository " + r.name
}

// Watches names the repository's files, those of others and what is fetched.
func (r *resource) Watches() []host.Watch {
	single, dir, _ := r.others()
	watches := []host.Watch{{Kind: host.WatchEntries, Name: dir}, {Kind: host.WatchPath, Name: r.keyFile}}
	if single != "" {
		watches = append(watches, host.Watch{Kind: host.WatchPath, Name: single})
	}
	if lists := r.lists(); lists != "" && !r.absent {
		watches = append(watches, host.Watch{Kind: host.WatchEntries, Name: lists})
	}
	return watches
}

// hasSuffix reports whether a file in a directory of others counts.
func hasSuffix(name string, suffixes []string) bool {
	for _, s := range suffixes {
		if strings.HasSuffix(name, s) && !strings.HasPrefix(path.Base(name), ".") {
			return true
		}
	}
	return false
}
