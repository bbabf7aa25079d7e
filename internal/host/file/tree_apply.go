package file

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// purgeBatch is how many files are removed between two fsyncs of a directory.
const purgeBatch = 256

// work is what is done below one tree.
type work struct {
	t      *Trees
	r      *tree
	result *host.Result
	kept   int   // old contents
	large  int   // files that there was no room to keep
	failed int   // entries that could not be changed
	err    error // of the first of them
}

// carryOutBelow does what was planned below a tree. What is not as it was planned is left for the next check.
func (t *Trees) carryOutBelow(ctx context.Context, r *tree, next treeStep, result *host.Result) {
	if len(next.planned) == 0 {
		result.Err = next.refused
		return
	}
	s, err := t.survey(ctx, r, true)
	if reason.Is(err, reason.TypeInTheWay) || reason.Is(err, reason.ParentMissing) || reason.Is(err, reason.UntrustedSymlink) {
		err = disk.Stale("change what is below", r.path)
	}
	if err != nil {
		result.Err = err
		return
	}
	if s.top.Dev != next.top.Dev || s.top.Ino != next.top.Ino {
		result.Err = disk.Stale("change what is below", r.path)
		return
	}
	w := &work{t: t, r: r, result: result}
	planned := s.actions[:0]
	for _, a := range s.actions {
		if next.planned[a.mark()] && (!a.remove || !s.overLimit()) {
			planned = append(planned, a)
		}
	}
	w.carryOut(ctx, planned)
	w.finish(len(next.planned)-len(planned), next.refused)
}

// carryOut changes entries: first what stays, then files, those of one directory together, and last the directories, the innermost
// first.
func (w *work) carryOut(ctx context.Context, actions []action) {
	var files, dirs []action
	for _, a := range actions {
		switch {
		case !a.remove:
			w.changed(w.set(ctx, &a))
		case isDirectory(a.found):
			dirs = append(dirs, a)
		default:
			files = append(files, a)
		}
	}
	slices.SortStableFunc(files, func(a, b action) int { return strings.Compare(a.dir, b.dir) })
	for some := range slices.Chunk(files, purgeBatch) {
		specs := make([]durable.RemoveSpec, len(some))
		for i := range some {
			specs[i] = durable.RemoveSpec{Path: some[i].path(), Expect: &some[i].found, OnBackup: w.keeper(ctx, some[i].path())}
		}
		for _, err := range durable.RemoveMany(ctx, w.t.root, specs) {
			w.changed(err)
		}
	}
	for _, a := range dirs {
		w.changed(w.removeDirectory(ctx, &a))
	}
}

// changed takes in how a change of one entry ended.
func (w *work) changed(err error) {
	switch {
	case err == nil:
		w.result.Changed = true
	case w.err == nil:
		w.err = err
		fallthrough
	default:
		w.failed++
	}
}

// set sets owner and mode of an entry.
func (w *work) set(ctx context.Context, a *action) error {
	if isDirectory(a.found) { // its entries may have come and gone, by our own hand too
		if err := w.same(a); err != nil {
			return err
		}
	}
	a.spec.Expect = &a.found
	_, err := durable.SetAttributes(ctx, w.t.root, a.spec)
	return err
}

// same takes in the times of a directory that is the one that was seen.
func (w *work) same(a *action) error {
	now, err := w.t.root.Stat(a.path())
	if err != nil {
		return err
	}
	if mark(now.Signature) != mark(a.found) {
		return disk.Stale("change", a.path())
	}
	a.found = now.Signature
	return nil
}

// removeDirectory removes a directory. One that has got an entry since it was planned stays.
func (w *work) removeDirectory(ctx context.Context, a *action) error {
	if err := w.same(a); err != nil {
		return err
	}
	err := durable.Remove(ctx, w.t.root, durable.RemoveSpec{Path: a.path(), Expect: &a.found})
	if reason.Is(err, reason.DirectoryNotEmpty) {
		err = disk.Stale("remove", a.path())
	}
	return err
}

// keeper keeps the old content of a file before it goes.
func (w *work) keeper(ctx context.Context, path string) durable.Backup {
	return func(old *os.File, st disk.Stat) error {
		if w.t.store != nil && !w.t.store.Spares(st.Size) {
			w.large++
			return nil
		}
		j := &job{resource: &resource{path: path}, result: &host.Result{}}
		err := w.t.Type.keep(ctx, j, old, st)
		if err == nil && len(j.notes) > 0 {
			w.kept++
		}
		return err
	}
}

// finish says what became of the plan. gone is how many entries were not as planned any more.
func (w *work) finish(gone int, refused error) {
	if w.kept > 0 {
		w.note(fmt.Sprintf("old contents kept: %d; tako-agent restore PATH puts one back", w.kept))
	}
	if w.large > 0 {
		w.note(fmt.Sprintf("there was no room to keep %d files", w.large))
	}
	switch {
	case w.failed == 1:
		w.result.Err = w.err
	case w.failed > 1:
		first := *reason.Of(w.err)
		first.Hint = strings.TrimPrefix(fmt.Sprintf("%s; so it is with %d more below %s", first.Hint, w.failed-1, disk.Shown(w.r.path)), "; ")
		w.result.Err = &first
	case gone > 0:
		w.result.Err = &reason.Error{Code: reason.ConcurrentEdit, Doing: "change what is below " + disk.Shown(w.r.path),
			Cause: fmt.Errorf("%s changed meanwhile", entriesText(gone))}
	default:
		w.result.Err = refused
	}
}

func (w *work) note(text string) {
	if w.result.Note != "" {
		w.result.Note += "; "
	}
	w.result.Note += text
}
