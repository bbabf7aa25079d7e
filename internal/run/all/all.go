// Package all lists the runtimes that there are: what a new one is added to. It owns no goroutine.
package all

import (
	"path/filepath"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/cdi"
	"tako.dev/tako/internal/run/oci"
	"tako.dev/tako/internal/run/process"
	"tako.dev/tako/internal/run/systemd"
	bus "tako.dev/tako/internal/systemd"
)

// Options say what runtimes have to work with.
type Options struct {
	// Shim starts a program that calls ServeProcess. Empty: there is none, and no runtime Process.
	Shim []string
	// Unit starts a program that calls ServeUnit with the arguments behind it, from wherever systemd is.
	Unit []string
	// Bus is the host's systemd; nil: there is none, and no runtime Systemd.
	Bus *bus.Bus
	// Container starts a program that calls ServeContainer. Empty: there is none, and no runtime OCI.
	Container []string
	// Memory is a directory on a file system in memory, for what may be secret.
	Memory string
}

// What is beside the directories of the runtimes: the users of instances, which they share so that no two instances have one, the images
// that are unpacked, and the networks of instances.
const (
	users  = "users"
	images = "images"
	nets   = "networks"
)

// Kinds are the runtimes that this program has on this host.
func Kinds(o Options) []run.Kind {
	var kinds []run.Kind
	if len(o.Shim) > 0 {
		kinds = append(kinds, run.Kind{Name: workload.Process, Open: func(dir string) (run.Runtime, func() error, error) {
			rt, err := process.New(process.Options{Dir: dir, Shim: o.Shim, Users: filepath.Join(filepath.Dir(dir), users)})
			if err != nil {
				return nil, nil, err
			}
			return rt, rt.Close, nil
		}})
	}
	if o.Bus != nil && len(o.Unit) > 0 {
		kinds = append(kinds, run.Kind{Name: workload.Systemd, Open: func(dir string) (run.Runtime, func() error, error) {
			rt, err := systemd.New(systemd.Options{Bus: o.Bus, Dir: dir, Memory: o.Memory, Program: o.Unit, Users: filepath.Join(filepath.Dir(dir), users)})
			if err != nil {
				return nil, nil, err
			}
			return rt, func() error { return nil }, nil
		}})
	}
	if len(o.Container) > 0 {
		kinds = append(kinds, run.Kind{Name: workload.OCI, Unfit: oci.Unfit, NoNetworks: oci.NoNetworks, Open: func(dir string) (run.Runtime, func() error, error) {
			beside := func(name string) string { return filepath.Join(filepath.Dir(dir), name) }
			rt, err := oci.New(oci.Options{Dir: dir, Images: beside(images), Shim: o.Container, Users: beside(users), Networks: beside(nets)})
			if err != nil {
				return nil, nil, err
			}
			return rt, rt.Close, nil
		}})
	}
	return kinds
}

// DeviceDirectories are where a host says which hardware it has for instances.
func DeviceDirectories() []string { return cdi.Directories() }

// ServeProcess is what Options.Shim starts: it minds one attempt of a task, and returns the exit code of the program when that has ended.
func ServeProcess() int { return process.Serve() }

// ServeContainer is what Options.Container starts: it makes the container of one attempt and minds it, and returns the exit code of the program
// when that has ended.
func ServeContainer() int { return oci.Serve() }

// ServeUnit is what Options.Unit starts, with the arguments behind it; it returns the exit code of the program.
func ServeUnit(args []string) int { return systemd.Serve(args) }
