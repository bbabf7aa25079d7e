package agent

import (
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/reason"
)

// source is where what is desired of the host comes from. It belongs to the loop's goroutine.
type source interface {
	// desired compiles what is desired now for what the host is now. Its error says why that cannot be enforced; what is enforced stays
	// then.
	desired(st *store.Store, lookup declare.Lookup, lane load.Lane) (*load.State, error)
	// complete fills in, once the state is committed, what is on no disk.
	complete(d *load.State)
	// files are the files and directories that it is declared in, which are watched.
	files() []string
}

// declared are declaration files and directories.
type declared []string

func (paths declared) desired(st *store.Store, lookup declare.Lookup, lane load.Lane) (*load.State, error) {
	return load.Declared(paths, st, lookup, lane)
}

func (paths declared) complete(*load.State) {}

func (paths declared) files() []string { return paths }

// belongs refuses to keep a host by files that a cluster keeps, and the other way round.
func (o *Options) belongs() error {
	joined, err := held.HasJoined(o.StateDir)
	switch {
	case err != nil:
		return err
	case joined && !o.Joined:
		return &reason.Error{Code: reason.HostJoined, Doing: "converge",
			Hint: "tako-agent run keeps it as its cluster declares; to try declarations in files, use a directory: --root ./sandbox"}
	}
	return nil
}
