package apt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/packages"
	"tako.dev/tako/internal/reason"
)

const (
	dpkgPath    = "/usr/bin/dpkg"
	getPath     = "/usr/bin/apt-get"
	cachePath   = "/usr/bin/apt-cache"
	markPath    = "/usr/bin/apt-mark"
	debconfPath = "/usr/bin/debconf-set-selections"

	configDir   = "/etc/apt"
	listsDir    = "/var/lib/apt/lists"
	databaseDir = "/var/lib/dpkg"
)

// Apt is the package manager of Debian.
type Apt struct{ database *database }

var _ interface {
	packages.Backend
	packages.Repairer
	packages.Holder
	packages.Purger
	packages.Answerer
} = (*Apt)(nil)

// New makes the back end for this host.
func New() *Apt { return &Apt{database: newDatabase(databaseDir)} }

// Here returns nil where there are dpkg and apt-get.
func (a *Apt) Here() error {
	for _, tool := range []string{dpkgPath, getPath} {
		if _, err := os.Stat(tool); err != nil {
			return &reason.Error{Code: reason.NoPackageManager, Cause: err, Hint: path.Base(tool) + " is needed: packages are those of Debian and its relatives"}
		}
	}
	return nil
}

// Ways says how apt is dealt with. dpkg's directory is watched because a new database takes the place of the old one.
func (a *Apt) Ways() packages.Ways {
	entries := func(dir string) host.Watch { return host.Watch{Kind: host.WatchEntries, Name: dir} }
	return packages.Ways{
		Name: "apt", Conffiles: true,
		Installed: []host.Watch{entries(databaseDir)},
		Lists:     []host.Watch{entries(listsDir), entries(configDir + "/sources.list.d"), entries(configDir + "/preferences.d")},
		Unhold:    "apt-mark unhold", Finish: "dpkg --configure", Sources: configDir + "/sources.list",
	}
}

// Look reads dpkg's database.
func (a *Apt) Look(names []string, fresh bool) (packages.Snapshot, error) {
	now, err := a.database.look(names, fresh)
	if err != nil {
		return packages.Snapshot{}, err
	}
	s := packages.Snapshot{Entries: make([]packages.Entry, len(names)), Held: now.held, Unfinished: now.journal || len(now.unfinished) > 0, Interrupted: now.journal}
	for i, e := range now.entries {
		s.Entries[i] = e.plain()
	}
	if fresh {
		if s.Holder, err = lockHolder(a.database.dir); err != nil {
			return packages.Snapshot{}, &reason.Error{Code: reason.SystemCallFailed, Cause: err}
		}
	}
	return s, nil
}

// Lists tells the files that say where packages come from, and the directory of the lists, from what they are later.
func (a *Apt) Lists() (packages.Lists, error) {
	sources, err := sourcesState(configDir)
	if err != nil {
		return packages.Lists{}, &reason.Error{Code: reason.InputOutput, Cause: fmt.Errorf("read %s: %w", configDir, err)}
	}
	st, err := stampOf(listsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return packages.Lists{}, &reason.Error{Code: reason.InputOutput, Cause: err}
	}
	return packages.Lists{Sources: sources, Fetched: fmt.Sprint(st)}, nil
}

// sourcesState is a text that differs when the files that say where packages come from do.
func sourcesState(dir string) (string, error) {
	files := []string{filepath.Join(dir, "sources.list")}
	for _, pattern := range []string{"sources.list.d/*", "preferences", "preferences.d/*", "trusted.gpg.d/*", "auth.conf.d/*"} {
		matches, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", err
		}
		files = append(files, matches...)
	}
	slices.Sort(files)
	var text strings.Builder
	for _, file := range files {
		st, err := stampOf(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		fmt.Fprintf(&text, "%s %v\n", file, st)
	}
	return text.String(), nil
}

// Offers asks apt-cache. Without a place for its cache it makes one in memory: half a second of work, which the Type remembers.
func (a *Apt) Offers(ctx context.Context, names []string) (map[string]packages.Offer, error) {
	args := append([]string{cachePath, "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "policy"}, names...)
	output, err := run(ctx, questionMax, args...)
	if err != nil {
		return nil, toolError(output, err)
	}
	return parsePolicy(output), nil
}

// Update fetches the lists.
func (a *Apt) Update(ctx context.Context) error {
	// Without the error mode a server that does not answer would count as success.
	output, err := run(ctx, updateMax, getPath, "-q", "-o", "APT::Update::Error-Mode=any", "update")
	return toolError(output, err)
}

// Try has apt-get simulate.
func (a *Apt) Try(ctx context.Context, x packages.Transaction) (packages.Outlook, error) {
	output, err := run(ctx, questionMax, append(arguments(x), "--simulate")...)
	if err != nil {
		return packages.Outlook{}, toolError(output, err)
	}
	return parseSimulation(output), nil
}

// Change runs apt-get.
func (a *Apt) Change(ctx context.Context, x packages.Transaction) error {
	output, err := change(ctx, x.Ways.Replace, arguments(x)...)
	return toolError(output, err)
}

// Repair has dpkg configure what is unpacked, and run the triggers that are due.
func (a *Apt) Repair(ctx context.Context) error {
	output, err := change(ctx, false, dpkgPath, "--force-confold", "--force-confdef", "--configure", "-a")
	return toolError(output, err)
}

// Hold sets dpkg's selections.
func (a *Apt) Hold(ctx context.Context, names []string, held bool) error {
	verb := "unhold"
	if held {
		verb = "hold"
	}
	output, err := run(ctx, questionMax, append([]string{markPath, "-o", "DPkg::Lock::Timeout=0", verb}, names...)...)
	return toolError(output, err)
}

// Purge has dpkg remove the configuration of packages that are gone.
func (a *Apt) Purge(ctx context.Context, names []string) error {
	output, err := change(ctx, false, append([]string{dpkgPath, "--purge"}, names...)...)
	return toolError(output, err)
}

// Answer gives answers to debconf, by standard input. What that prints is shown to nobody, for it quotes them.
func (a *Apt) Answer(ctx context.Context, _, answers string) error {
	output, err := feed(ctx, answers, debconfPath)
	switch {
	case err == nil:
		return nil
	case strings.Contains(string(output), "is locked by another process"):
		return lockError("somebody else, who asks questions of packages")
	}
	e := *reason.Of(toolError(nil, err))
	if e.Code == reason.PackageToolFailed {
		e.Code, e.Hint = reason.PackageAnswersRefused, "try them with `debconf-set-selections --checkonly`"
	}
	return &e
}
