// Package cdi knows the hardware that a host has for containers, by the Container Device Interface (github.com/cncf-tags/container-device-interface,
// SPEC.md): files of JSON, which vendors' programs write, say what a container is given for each device of a kind. Of that it takes device nodes,
// mounts and variables; hooks are programs of the host's, and are left out.
//
// It owns no goroutine.
package cdi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

// Directories are where the specification has its files; of two that know the same device the later one counts.
func Directories() []string { return []string{"/etc/cdi", "/run/cdi"} }

const (
	// fileMax and filesMax bound what is read: the file of a host with eight GPUs has some 100 KiB.
	fileMax, filesMax = 1 << 20, 64
	// nameMax bounds the name of a device: that of a GPU by its UUID has 40 signs.
	nameMax = 63
	// editsMax bounds the nodes, mounts and variables of one device each: there are as many of a task.
	editsMax = 64
)

// Piece is a device of a kind, with what a task is given that has it.
type Piece struct {
	Name    string
	Devices []string // paths
	Mounts  []run.Mount
	Env     []string // NAME=VALUE
	own     []string // of Devices, those that are not of all pieces of its file
}

// Pieces are those of a host by kind, such as nvidia.com/gpu, and by name.
type Pieces map[string][]Piece

type (
	file struct {
		Version string `json:"cdiVersion"`
		Kind    string `json:"kind"`
		Devices []struct {
			Name  string `json:"name"`
			Edits edits  `json:"containerEdits"`
		} `json:"devices"`
		Edits edits `json:"containerEdits"`
	}
	edits struct {
		Env   []string `json:"env"`
		Nodes []struct {
			Path     string `json:"path"`
			HostPath string `json:"hostPath"`
		} `json:"deviceNodes"`
		Mounts []struct {
			HostPath      string   `json:"hostPath"`
			ContainerPath string   `json:"containerPath"`
			Options       []string `json:"options"`
		} `json:"mounts"`
	}
)

// Read reads the files of directories. What cannot be read is left out, and is in the error; the pieces are right all the same.
func Read(directories []string) (Pieces, error) {
	all := map[string]map[string]Piece{}
	var errs []error
	for _, dir := range directories {
		names, err := filepath.Glob(filepath.Join(dir, "*.json")) // in order
		if err != nil {
			return nil, disk.Fault("list", dir, err)
		}
		if len(names) > filesMax {
			errs = append(errs, fault(dir, fmt.Errorf("it has more than %d files", filesMax)))
			names = names[:filesMax]
		}
		for _, name := range names {
			kind, pieces, err := readFile(name)
			if err != nil {
				errs = append(errs, fault(name, err))
				continue
			}
			if all[kind] == nil {
				all[kind] = map[string]Piece{}
			}
			for _, p := range pieces {
				if !slices.ContainsFunc(p.Devices, missing) {
					all[kind][p.Name] = p
				}
			}
		}
	}
	found := Pieces{}
	for kind, pieces := range all {
		if list := distinct(slices.Collect(maps.Values(pieces))); len(list) > 0 {
			found[kind] = list
		}
	}
	return found, errors.Join(errs...)
}

// missing reports whether the host has no such node: the hardware is gone, or its driver is not loaded.
func missing(node string) bool {
	st, err := os.Stat(node)
	return err != nil || st.Mode()&os.ModeDevice == 0
}

func fault(name string, err error) error {
	return &reason.Error{Code: reason.InvalidValue, Doing: "read the devices of " + name, Cause: err}
}

func readFile(name string) (string, []Piece, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, fileMax+1))
	if err != nil {
		return "", nil, err
	}
	return parse(text)
}

// parse reads a file: the kind of its devices, and those.
func parse(text []byte) (kind string, pieces []Piece, err error) {
	if len(text) > fileMax {
		return "", nil, fmt.Errorf("it has more than %d bytes", fileMax)
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return "", nil, err
	}
	if f.Version == "" || !strings.Contains(f.Kind, "/") || declare.CheckLabelKey("kind", f.Kind) != nil {
		return "", nil, errors.New("it has no cdiVersion, or no kind as VENDOR/CLASS")
	}
	for _, d := range f.Devices {
		p := Piece{Name: d.Name}
		if d.Name == "" || len(d.Name) > nameMax || strings.ContainsFunc(d.Name, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return "", nil, fmt.Errorf("the name %.80q of a device is none", d.Name)
		}
		for i, e := range []*edits{&d.Edits, &f.Edits} {
			if err := p.take(e, i == 0); err != nil {
				return "", nil, fmt.Errorf("device %s: %w", d.Name, err)
			}
		}
		pieces = append(pieces, p)
	}
	return f.Kind, pieces, nil
}

// take adds what a task is given; own: because of this device, not of every one of the file.
func (p *Piece) take(e *edits, own bool) error {
	for _, n := range e.Nodes {
		if !clean(n.Path) || n.HostPath != "" && n.HostPath != n.Path {
			return fmt.Errorf("the node %.80q has no clean absolute path, or another one on the host", n.Path)
		}
		if slices.Contains(p.Devices, n.Path) {
			continue
		}
		p.Devices = append(p.Devices, n.Path)
		if own {
			p.own = append(p.own, n.Path)
		}
	}
	for _, m := range e.Mounts {
		if !clean(m.HostPath) || !clean(m.ContainerPath) {
			return fmt.Errorf("the mount of %.80q has no clean absolute paths", m.HostPath)
		}
		p.Mounts = append(p.Mounts, run.Mount{Source: m.HostPath, Path: m.ContainerPath, ReadOnly: slices.Contains(m.Options, "ro")})
	}
	for _, v := range e.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.IndexByte(v, 0) >= 0 {
			return errors.New("a variable has no name")
		}
		p.Env = append(p.Env, v)
	}
	if len(p.Devices) > editsMax || len(p.Mounts) > editsMax || len(p.Env) > editsMax {
		return fmt.Errorf("it has more than %d nodes, mounts or variables", editsMax)
	}
	return nil
}

func clean(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && p != "/" && strings.IndexByte(p, 0) < 0
}

// distinct are devices that are different pieces of hardware, by name. Vendors name the same one several times, by number and by UUID, and all of them
// together as one: what has a node of a device before it is no other.
func distinct(list []Piece) []Piece {
	slices.SortFunc(list, func(a, b Piece) int { return cmp.Or(cmp.Compare(len(a.own), len(b.own)), byName(a, b)) })
	seen := map[string]bool{}
	list = slices.DeleteFunc(list, func(p Piece) bool {
		if slices.ContainsFunc(p.own, func(node string) bool { return seen[node] }) {
			return true
		}
		for _, node := range p.own {
			seen[node] = true
		}
		return false
	})
	slices.SortFunc(list, byName)
	return list
}

// byName orders numbers, and what is no number behind them.
func byName(a, b Piece) int {
	return cmp.Or(cmp.Compare(number(a.Name), number(b.Name)), strings.Compare(a.Name, b.Name))
}

func number(name string) int {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		return n
	}
	return math.MaxInt
}
