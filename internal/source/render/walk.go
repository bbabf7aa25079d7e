package render

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/render/ignore"
	"tako.dev/tako/internal/source/render/kustomize"
)

// walk finds what is to be read.
func (p *pass) walk() {
	root := p.request.Path
	info, err := fs.Stat(p.view, root)
	switch {
	case err != nil:
		p.fault(kustomize.Unread(root, err))
		return
	case !info.IsDir():
		p.found = append(p.found, found{name: root})
		return
	}
	rules, ok := p.rules()
	if !ok {
		return
	}
	w := walker{pass: p, rules: rules}
	w.dir(root, 0)
	w.lacks()
}

// rules reads the ignore rules of the tree and of the request.
func (p *pass) rules() (ignore.Rules, bool) {
	name := path.Join(p.request.Path, IgnoreFile)
	data, err := kustomize.ReadFile(p.view, name, p.renderer.limits.FileBytes)
	if err != nil && (!isAbsent(err) || p.hasEntry(name)) {
		p.fault(kustomize.Unread(name, err))
		return ignore.Rules{}, false
	}
	ofTree, err := ignore.Parse(string(data))
	p.ruleFault(name, err)
	ofRequest, err := ignore.Parse(p.request.Ignore)
	p.ruleFault("spec.ignore", err)
	return ofTree.With(ofRequest), len(p.faults) == 0
}

// hasEntry tells whether something stands under a name although it is not there: a link that leads nowhere. Rules that are behind it
// keep things from being applied, and they are not to be lost in silence.
func (p *pass) hasEntry(name string) bool {
	entries, err := fs.ReadDir(p.view, path.Dir(name))
	return err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == path.Base(name) })
}

func (p *pass) ruleFault(file string, err error) {
	var m *ignore.Mistake
	if errors.As(err, &m) {
		p.fault(declare.Fault{Code: reason.InvalidValue, File: file, Line: m.Line, Column: 1, Message: m.Message})
	}
}

// walker goes down a tree.
type walker struct {
	*pass
	rules ignore.Rules
	full  bool // a limit was told; nothing more is looked at
}

func (w *walker) dir(dir string, depth int) {
	if names := kustomize.FileOf(w.view, dir); len(names) > 0 {
		w.found = append(w.found, found{name: dir, build: true})
		return
	}
	if depth > w.renderer.limits.Depth {
		w.stop(dir, fmt.Sprintf("directories are more than %d deep", w.renderer.limits.Depth))
		return
	}
	entries, err := fs.ReadDir(w.view, dir) // sorted by name
	if err != nil {
		w.fault(kustomize.Unread(dir, err))
	}
	for _, e := range entries {
		if w.entries++; w.entries > w.renderer.limits.Entries {
			w.stop(dir, fmt.Sprintf("there are more than %d files", w.renderer.limits.Entries))
		}
		if w.full {
			return
		}
		if !strings.HasPrefix(e.Name(), ".") {
			w.entry(path.Join(dir, e.Name()), e, depth)
		}
	}
}

func (w *walker) entry(name string, e fs.DirEntry, depth int) {
	mode := e.Type()
	if mode&fs.ModeSymlink != 0 {
		if w.ignored(name, false) || w.ignored(name, true) {
			return
		}
		info, err := fs.Stat(w.view, name)
		switch {
		case isAbsent(err) && !documents.IsDocument(e.Name()) && !kustomize.IsFile(e.Name()):
			return // where it leads is nothing that could be read
		case err != nil:
			f := kustomize.Unread(name, err)
			f.Hint = "a link may lead to a file of the same tree; leave it out with " + IgnoreFile + " where nothing is declared behind it"
			w.fault(f)
			return
		case info.IsDir():
			w.fault(declare.Fault{Code: reason.InvalidValue, File: name, Message: "a link to a directory is not followed",
				Hint: "leave it out with " + IgnoreFile + ", or make the directory that it leads to the path of the Source"})
			return
		}
		mode = info.Mode().Type()
	}
	switch {
	case w.ignored(name, mode.IsDir()):
	case mode.IsDir():
		w.dir(name, depth+1)
	case mode.IsRegular() && documents.IsDocument(e.Name()):
		w.found = append(w.found, found{name: name})
	}
}

// lacks tells of what the view does not offer: a submodule may hold anything, and nobody is to believe that it was read. What a
// kustomization names says itself what it misses.
func (w *walker) lacks() {
	view, ok := w.view.(Lacking)
	if !ok {
		return
	}
	all := view.Lacks()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if w.seen(name) {
			e := reason.Of(all[name])
			w.fault(declare.Fault{Code: e.Code, File: name, Message: cmp.Or(e.Cause, error(e)).Error(), Hint: e.Hint})
		}
	}
}

// seen tells whether the walk would have come to a path.
func (w *walker) seen(name string) bool {
	at := w.request.Path
	rest := name
	if at != "." {
		var below bool
		if rest, below = strings.CutPrefix(name, at+"/"); !below {
			return false
		}
	}
	parts := strings.Split(rest, "/")
	for i, part := range parts {
		at = path.Join(at, part)
		if strings.HasPrefix(part, ".") || w.ignored(at, i < len(parts)-1) || w.ignored(at, true) {
			return false
		}
		if slices.ContainsFunc(w.found, func(f found) bool { return f.build && (f.name == "." || strings.HasPrefix(at+"/", f.name+"/")) }) {
			return false
		}
	}
	return true
}

// ignored asks the rules, which know paths below the path of the request.
func (w *walker) ignored(name string, isDir bool) bool {
	if w.request.Path != "." {
		name = strings.TrimPrefix(name, w.request.Path+"/")
	}
	return w.rules.Match(name, isDir)
}

func (w *walker) stop(name, message string) {
	if !w.full {
		w.full = true
		w.over(name, message)
	}
}
