package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// updateEvery bounds how often package lists are fetched for a package that no list has: a mistake in a declaration is tried
// again for ever, and repositories are other people's machines. Fetching that failed does not count, the engine's
// back-off spaces it.
const updateEvery = 10 * time.Minute

// update fetches the package lists. Unless forced it does so only if the sources have changed or the last time is long ago,
// and otherwise returns nil, because the lists are as new as they should be.
func (t *Type) update(ctx context.Context, forced bool) error {
	const doing = "fetch package lists"
	sources, err := sourcesState(aptDir)
	if err != nil {
		return &reason.Error{Code: reason.InputOutput, Doing: "read " + aptDir, Cause: err}
	}
	t.mu.Lock()
	recent := !t.updated.IsZero() && time.Since(t.updated) < updateEvery && t.sources == sources
	t.mu.Unlock()
	if recent && !forced {
		return nil
	}
	// Without the error mode a server that does not answer would count as success.
	output, err := run(ctx, command{args: []string{aptPath, "-q", "-o", "APT::Update::Error-Mode=any", "update"}, max: updateMax})
	if err != nil {
		return toolError(doing, output, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.updated, t.sources = time.Now(), sources
	return nil
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

// isStale reports whether apt-get could not fetch what its lists name.
func isStale(output []byte) bool {
	return strings.Contains(string(output), "Unable to fetch some archives")
}
