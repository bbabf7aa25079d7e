package dnf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/packages"
	"tako.dev/tako/internal/reason"
)

const (
	// toolPath is dnf 4; /usr/bin/dnf may be its successor, whose library is another one.
	toolPath  = "/usr/bin/dnf-3"
	reposDir  = "/etc/yum.repos.d"
	cacheDir  = "/var/cache/dnf"
	stateDir  = "/var/lib/dnf"
	configDir = "/etc/dnf"
)

// databaseDirs are where rpm may have its database: since Fedora 36, before, and as Debian builds it.
var databaseDirs = []string{"/usr/lib/sysimage/rpm", "/var/lib/rpm", "/root/.rpmdb"}

// Options are what New needs. The zero value is for this host.
type Options struct {
	// InstallRoot is a directory with a system in it, whose packages are meant; empty for the host's own.
	InstallRoot string
}

// Dnf is the package manager of Fedora and its relatives.
type Dnf struct {
	root     string // "" for the host's own
	database database
}

var _ interface {
	packages.Backend
	packages.Holder
} = (*Dnf)(nil)

// New makes the back end.
func New(o Options) *Dnf {
	d := &Dnf{root: strings.TrimSuffix(o.InstallRoot, "/")}
	d.database.find = d.databaseDir
	return d
}

// databaseDir is where rpm's database is; where there is none yet, it is expected in the first place that is there.
func (d *Dnf) databaseDir() string {
	for _, dir := range databaseDirs {
		if _, err := os.Stat(d.root + dir + "/" + databaseFile); err == nil {
			return d.root + dir
		}
	}
	return d.root + databaseDirs[1]
}

// Here returns nil where there is dnf 4 with a database that can be read.
func (d *Dnf) Here() error {
	_, err := interpreter()
	if err != nil {
		return &reason.Error{Code: reason.NoPackageManager, Cause: err, Hint: "dnf 4 is needed"}
	}
	if _, err := os.Stat(d.databaseDir() + "/" + databaseFile); err != nil && d.root == "" {
		return &reason.Error{Code: reason.NoPackageManager, Cause: err, Hint: "rpm is needed with a database of SQLite, its default since 4.16: `rpmdb --rebuilddb` converts an older one"}
	}
	return nil
}

// Ways says how dnf is dealt with. The two files of the database are watched by name: reading it touches a third one beside them.
func (d *Dnf) Ways() packages.Ways {
	dir := d.databaseDir()
	return packages.Ways{
		Name:      "dnf",
		Installed: []host.Watch{{Kind: host.WatchPath, Name: dir + "/" + databaseFile}, {Kind: host.WatchPath, Name: dir + "/" + databaseFile + logSuffix}, {Kind: host.WatchPath, Name: d.lockList()}},
		Lists:     []host.Watch{{Kind: host.WatchEntries, Name: d.root + reposDir}, {Kind: host.WatchEntries, Name: d.root + cacheDir}},
		Unhold:    "dnf versionlock delete", Sources: reposDir,
	}
}

// Compare orders two versions as rpm does.
func (d *Dnf) Compare(a, b string) int { return compare(a, b) }

// Look reads rpm's database, and the file of versionlock.
func (d *Dnf) Look(names []string, fresh bool) (packages.Snapshot, error) {
	versions, err := d.database.look(names, fresh)
	if err != nil {
		return packages.Snapshot{}, &reason.Error{Code: reason.InputOutput, Cause: fmt.Errorf("read %s: %w", d.databaseDir(), err)}
	}
	held, err := d.held()
	if err != nil {
		return packages.Snapshot{}, err
	}
	s := packages.Snapshot{Entries: make([]packages.Entry, len(names)), Held: held}
	for i, name := range names {
		_, isHeld := slices.BinarySearch(held, name)
		if s.Entries[i].Held = isHeld; versions[i] != "" {
			s.Entries[i].State, s.Entries[i].Version = packages.Present, versions[i]
		}
	}
	if fresh {
		s.Holder, err = d.holder()
	}
	return s, err
}

// holder says who is at work: who has rpm's lock, or is the dnf that has noted itself; empty for nobody.
func (d *Dnf) holder() (string, error) {
	holder, err := disk.LockHolder(d.databaseDir() + "/.rpm.lock")
	if err != nil {
		return "", &reason.Error{Code: reason.SystemCallFailed, Cause: err}
	}
	if holder != "" {
		return holder, nil
	}
	return livingHolder(d.root + stateDir + "/rpmdb_lock.pid"), nil
}

// Lists tells the files that say where packages come from, and what was fetched, from what they are later.
func (d *Dnf) Lists() (packages.Lists, error) {
	sources, err := stamps(d.root+configDir+"/dnf.conf", d.root+reposDir+"/*.repo", d.root+configDir+"/vars/*", d.root+configDir+"/modules.d/*", d.lockList())
	if err != nil {
		return packages.Lists{}, &reason.Error{Code: reason.InputOutput, Cause: err}
	}
	fetched, err := stamps(d.root + cacheDir + "/*/repodata/repomd.xml")
	if err != nil {
		return packages.Lists{}, &reason.Error{Code: reason.InputOutput, Cause: err}
	}
	return packages.Lists{Sources: sources, Fetched: fetched}, nil
}

// stamps is a text that differs when one of the files does that patterns match.
func stamps(patterns ...string) (string, error) {
	var text strings.Builder
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		for _, file := range files {
			st, err := stampOf(file)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&text, "%s %v\n", file, st)
		}
	}
	return text.String(), nil
}

// stamp is what tells one state of a file from another; zero for none. Whoever reads a database with SQLite as root sets the owner of its log,
// so that what changes with that is not part of it.
type stamp struct {
	dev, ino     uint64
	mtime, bytes int64
}

func stampOf(file string) (stamp, error) {
	fi, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return stamp{}, nil
	}
	if err != nil {
		return stamp{}, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}, errors.ErrUnsupported
	}
	return stamp{dev: st.Dev, ino: st.Ino, mtime: st.Mtim.Nano(), bytes: fi.Size()}, nil
}

// Offers asks what was fetched.
func (d *Dnf) Offers(ctx context.Context, names []string) (map[string]packages.Offer, error) {
	a, err := d.ask(ctx, question{Do: "offers", Names: names})
	if err != nil {
		return nil, err
	}
	offers := make(map[string]packages.Offer, len(a.Offers))
	for name, o := range a.Offers {
		offers[name] = packages.Offer(o)
	}
	return offers, nil
}

// Update fetches what the repositories have.
func (d *Dnf) Update(ctx context.Context) error {
	_, err := d.ask(ctx, question{Do: "update"})
	return err
}

// Try resolves a transaction.
func (d *Dnf) Try(ctx context.Context, x packages.Transaction) (packages.Outlook, error) {
	a, err := d.ask(ctx, questionOf("try", x))
	out := packages.Outlook{Removes: a.Removes}
	for _, m := range a.Changes {
		out.Changes = append(out.Changes, packages.Move(m))
	}
	return out, err
}

// Change carries it out.
func (d *Dnf) Change(ctx context.Context, x packages.Transaction) error {
	_, err := d.ask(ctx, questionOf("change", x))
	return err
}

func questionOf(do string, x packages.Transaction) question {
	q := question{Do: do, Held: x.Held}
	for _, s := range x.Steps {
		q.Steps = append(q.Steps, step(s))
	}
	switch x.Ways.Recommends {
	case packages.RecommendsWanted:
		q.Recommends = new(true)
	case packages.RecommendsLeft:
		q.Recommends = new(false)
	case packages.RecommendsAsConfigured:
	}
	return q
}
