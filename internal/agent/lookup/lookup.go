// Package lookup finds data, which is delivered to a host and not acted upon: in what the agent of a joined host enforces, or in
// declaration files. It writes nothing, and works beside an agent that runs and without one.
//
// The package owns no goroutine.
package lookup

import (
	"errors"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// In is where data is looked up: in files where there are any, otherwise in what the host of a state directory enforces.
type In struct {
	StateDir string
	Files    []string
}

// swapsMax is how often a look is repeated because the agent has taken another state on meanwhile, and dropped what was looked at.
const swapsMax = 3

// Get returns the data of a key. The errors are ResourceUnknown where there is none, ResourceExpired where its TTL is over, PriorityConflict where two configs of the same
// priority want different things, HostNotJoined, declare.Faults, and those of the disk.
func (in In) Get(key string) (catalog.Datum, error) {
	if len(in.Files) == 0 {
		return enforced(in.StateDir, unknown(key), func(h *held.Store, root catalog.Digest) (catalog.Datum, error) {
			return h.DataOf(root, key, h.Proof(time.Now()))
		})
	}
	entries, err := declared(in.Files)
	if err != nil {
		return catalog.Datum{}, err
	}
	for i := range entries {
		if d := entries[i].Resource.Data; d != nil && d.Key == key {
			return catalog.Datum{Config: entries[i].Config, Data: *d}, nil
		}
	}
	return catalog.Datum{}, unknown(key)
}

// List returns keys in their order that begin with a prefix and come after another key: at most so many, which is 1 or more. The errors are
// those of Get but ResourceUnknown, ResourceExpired and PriorityConflict: keys are listed whatever becomes of their values.
func (in In) List(prefix, after string, atMost int) ([]string, error) {
	if len(in.Files) == 0 {
		return enforced(in.StateDir, nil, func(h *held.Store, root catalog.Digest) ([]string, error) {
			return h.Keys(root, prefix, after, atMost, h.Proof(time.Now()))
		})
	}
	entries, err := declared(in.Files)
	if err != nil {
		return nil, err
	}
	first := held.FirstKeys{AtMost: atMost}
	for i := range entries {
		if d := entries[i].Resource.Data; d != nil && strings.HasPrefix(d.Key, prefix) && d.Key > after {
			first.Add(d.Key)
		}
	}
	return first.Sorted(), nil
}

func unknown(key string) error {
	return &reason.Error{Code: reason.ResourceUnknown, Doing: "look up data " + key, Cause: errors.New("nothing of that key is declared for this host"), Hint: "tako-agent data list shows the keys"}
}

// declared resolves files, as an agent does that keeps a host by them.
func declared(files []string) ([]catalog.Entry, error) {
	documents, err := declare.Load(files)
	if err != nil {
		return nil, err
	}
	entries, faults := catalog.Resolve(documents)
	if len(faults) > 0 {
		return nil, declare.Faults(declare.SortFaults(faults))
	}
	return entries, nil
}

// enforced looks into the state that is enforced; nothing is what comes of it where none is.
func enforced[T any](stateDir string, nothing error, look func(*held.Store, catalog.Digest) (T, error)) (T, error) {
	var none T
	joined, err := held.HasJoined(stateDir)
	if err != nil {
		return none, err
	}
	if !joined {
		return none, &reason.Error{Code: reason.HostNotJoined, Doing: "look up data", Cause: errors.New("a host that stands alone keeps no data but that in its declarations"), Hint: "name them with -f"}
	}
	for try := 1; ; try++ {
		root, err := active(stateDir)
		if err != nil {
			return none, err
		}
		if root == (catalog.Digest{}) {
			return none, nothing
		}
		found, err := at(stateDir, root, look)
		if err == nil || !reason.Is(err, reason.StateCorrupt) || try == swapsMax {
			return found, err
		}
		if now, nowErr := active(stateDir); nowErr != nil || now == root {
			return found, err // it is not for that
		}
	}
}

func at[T any](stateDir string, root catalog.Digest, look func(*held.Store, catalog.Digest) (T, error)) (T, error) {
	var none T
	h, err := held.Inspect(stateDir)
	if err != nil {
		return none, err
	}
	found, err := look(h, root)
	return found, errors.Join(err, h.Close())
}

func active(stateDir string) (catalog.Digest, error) {
	st, err := store.Inspect(stateDir)
	if err != nil {
		return catalog.Digest{}, err
	}
	root := catalog.Digest(st.Active().Root())
	return root, st.Close()
}
