// Package all lists the host resource types, and opens what they work with. It owns no goroutine.
package all

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/facts"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/account"
	"tako.dev/tako/internal/host/archive"
	"tako.dev/tako/internal/host/edit"
	"tako.dev/tako/internal/host/endpoint"
	"tako.dev/tako/internal/host/exec"
	"tako.dev/tako/internal/host/file"
	"tako.dev/tako/internal/host/fragment"
	"tako.dev/tako/internal/host/mount"
	"tako.dev/tako/internal/host/packages"
	"tako.dev/tako/internal/host/packages/apt"
	"tako.dev/tako/internal/host/packages/dnf"
	"tako.dev/tako/internal/host/repository"
	"tako.dev/tako/internal/host/service"
	"tako.dev/tako/internal/host/setting"
	"tako.dev/tako/internal/host/unit"
	"tako.dev/tako/internal/host/upgrade"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// Options say which host it is.
type Options struct {
	Root     string // absolute; "/", or the directory that stands for it: a sandbox
	StateDir string // absolute; old content is kept below it
	// ReadOnly opens nothing that writes: for previews.
	ReadOnly bool
	// Warden is how a program is started that calls command.Serve. Without it no declared command can be run.
	Warden []string
	// Rehearse is what a program of the agent is called with to plan what is enforced, see upgrade.Summary.
	Rehearse []string
}

// Host is a host as its resource types see it.
type Host struct {
	Root  *disk.Root
	Bus   *systemd.Bus // nil in a sandbox
	Types map[declare.ResourceType]host.Type
	// Objects are the contents that declarations name by digest; nil for previews.
	Objects *content.Objects
	// Upgrade is the resource type agent, which also ends trials.
	Upgrade *upgrade.Type
	own     *facts.Own
}

// Open opens a host. Without ReadOnly it makes the directories that are missing: a sandbox's own, and the one for old
// content.
func Open(o Options) (*Host, error) {
	sandbox := o.Root != "/"
	var store *content.Store
	var objects *content.Objects
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
		if objects, err = content.OpenObjects(filepath.Join(o.StateDir, "objects"), content.Options{}); err != nil {
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
	h := &Host{Root: root, Objects: objects, own: facts.NewOwn(root)}
	if !sandbox {
		if h.Bus, err = systemd.New(systemd.Options{}); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	accounts := account.New(account.Options{Root: root})
	paths := file.NewTrees(file.New(file.Options{Root: root, Content: store, Objects: objects}), filepath.Join("/", strings.TrimPrefix(o.StateDir, o.Root)))
	unitFiles := unit.Options{Root: root, Content: store, StateDir: o.StateDir, Bus: h.Bus}
	h.Types = map[declare.ResourceType]host.Type{
		declare.TypeUser:           accounts,
		declare.TypeGroup:          accounts,
		declare.TypeAuthorizedKeys: account.NewKeys(account.Options{Root: root, Content: store}),
		declare.TypeFile:           paths,
		declare.TypeDirectory:      paths,
		declare.TypeSymlink:        paths,
		declare.TypeSudoers:        paths,
		declare.TypeFragment:       fragment.Type{},
		declare.TypeArchive:        archive.New(archive.Options{Root: root, Objects: objects, StateDir: o.StateDir}),
		declare.TypeEdit:           edit.New(edit.Options{Root: root, Content: store}),
		declare.TypePackage:        packages.New(packages.Options{Sandbox: sandbox, Backends: []packages.Backend{apt.New(), dnf.New(dnf.Options{})}}),
		declare.TypeRepository:     repository.New(repository.Options{Root: root, Content: store}),
		declare.TypeEndpoint:       endpoint.New(endpoint.Options{}),
		declare.TypeExec:           exec.New(exec.Options{Sandbox: sandbox, Root: root, StateDir: o.StateDir, Warden: o.Warden}),
		declare.TypeUnit:           unit.New(unitFiles),
		declare.TypeTimer:          unit.NewTimers(unitFiles),
		declare.TypeService:        service.New(service.Options{Sandbox: sandbox, Bus: h.Bus}),
	}
	upgrades := upgrade.Options{Root: root, Sandbox: sandbox, StateDir: o.StateDir, Objects: objects, Rehearse: o.Rehearse}
	if h.Bus != nil {
		upgrades.Units = h.Bus
	}
	h.Upgrade = upgrade.New(upgrades)
	h.Types[declare.TypeAgent] = h.Upgrade
	maps.Copy(h.Types, setting.Types(setting.Options{Root: root, Content: store}))
	maps.Copy(h.Types, mount.Types(mount.Options{Root: root, Bus: h.Bus, Content: store}))
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

// OnBus runs something while the connection to systemd is open, where there is one. What cannot be asked there is an error of what asks.
func (h *Host) OnBus(ctx context.Context, do func(context.Context) error) error {
	if h.Bus == nil {
		return do(ctx)
	}
	connected, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = h.Bus.Run(connected, func(systemd.Event) {}) })
	err := do(ctx)
	cancel()
	running.Wait()
	return err
}

// Collect reads the facts of the host; it makes a Host the agent's source of facts.
func (h *Host) Collect() (fact func(name string) (any, bool), refused []error, err error) {
	f, refused, err := h.Facts()
	return func(name string) (any, bool) {
		if strings.HasPrefix(name, declare.OwnFactsPrefix) {
			h.own.Ask()
		}
		return f.Get(name)
	}, refused, err
}

// Facts reads the facts of the host. Refused are the files of own facts that are not read; the facts are good without them.
func (h *Host) Facts() (f facts.Facts, refused []error, err error) {
	f, err = facts.Collect(h.Root.Path())
	f.Own, refused = h.own.Read()
	return f, refused, err
}

// Watch tells when a fact may have changed, and of what cannot be watched, until the context ends.
func (h *Host) Watch(ctx context.Context, sink func(), trouble func(error)) {
	facts.Watch(ctx, h.own, sink, trouble)
}
