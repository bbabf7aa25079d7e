// Package all lists the host resource types, and opens what they work with. It owns no goroutine.
package all

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/facts"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/file"
	"tako.dev/tako/internal/host/packages"
	"tako.dev/tako/internal/host/service"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// Options say which host it is.
type Options struct {
	Root     string // absolute; "/", or the directory that stands for it: a sandbox
	StateDir string // absolute; old content is kept below it
	// ReadOnly opens nothing that writes: for previews.
	ReadOnly bool
}

// Host is a host as its resource types see it.
type Host struct {
	Root  *disk.Root
	Bus   *systemd.Bus // nil in a sandbox
	Types map[declare.ResourceType]host.Type
}

// Open opens a host. Without ReadOnly it makes the directories that are missing: a sandbox's own, and the one for old
// content.
func Open(o Options) (*Host, error) {
	sandbox := o.Root != "/"
	var store *content.Store
	if !o.ReadOnly {
		for _, dir := range []string{o.Root, filepath.Dir(o.StateDir)} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, unwritable(dir, err)
			}
		}
		if err := os.Mkdir(o.StateDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, unwritable(o.StateDir, err)
		}
		var err error
		if store, err = content.Open(filepath.Join(o.StateDir, "content"), content.Options{}); err != nil {
			return nil, err
		}
	}
	root, err := disk.OpenRoot(o.Root)
	if err != nil {
		if e := reason.Of(err); o.ReadOnly && e.Code == reason.ParentMissing {
			e.Hint = "make it first (mkdir -p " + o.Root + "): a preview makes nothing"
		}
		return nil, err
	}
	h := &Host{Root: root}
	if !sandbox {
		if h.Bus, err = systemd.New(systemd.Options{}); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	paths := file.New(file.Options{Root: root, Content: store})
	h.Types = map[declare.ResourceType]host.Type{
		declare.TypeFile:      paths,
		declare.TypeDirectory: paths,
		declare.TypeSymlink:   paths,
		declare.TypePackage:   packages.New(packages.Options{Sandbox: sandbox}),
		declare.TypeService:   service.New(service.Options{Sandbox: sandbox, Bus: h.Bus}),
	}
	return h, nil
}

func unwritable(dir string, err error) error {
	code, hint := reason.StateUnwritable, "run it as root, or try it in a directory of your own: --root ./sandbox"
	if errors.Is(err, os.ErrPermission) {
		code = reason.RootNeeded
	}
	return &reason.Error{Code: code, Doing: "make the directory " + dir, Cause: err, Hint: hint}
}

// Close gives back what Open opened.
func (h *Host) Close() error { return h.Root.Close() }

// Collect reads the facts of the host; it makes a Host the agent's source of facts.
func (h *Host) Collect() (func(name string) (any, bool), error) {
	f, err := facts.Collect(h.Root.Path())
	return f.Get, err
}

// Watch tells when a fact may have changed, until the context ends.
func (h *Host) Watch(ctx context.Context, sink func()) error { return facts.Watch(ctx, sink) }
