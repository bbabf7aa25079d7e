package process

import (
	"context"
	"maps"
	"os"

	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/shim"
)

// Options of a Runtime.
type Options struct {
	// Dir is where everything is kept: absolute, and of nobody else. It is made where it is missing.
	Dir string
	// Shim starts a program that calls Serve and exits with what that returns.
	Shim []string
	// Users is where the users of instances are kept. Runtimes of one host share it. Default: DIR/users.
	Users string
}

// Runtime is the runtime; see the package comment.
type Runtime struct {
	*shim.Shims
	can run.Capabilities
}

var _ run.Runtime = (*Runtime)(nil)

// New makes a Runtime. Close gives back what it holds; what it runs goes on.
func New(o Options) (*Runtime, error) {
	shims, err := shim.New(shim.Options{Dir: o.Dir, Program: o.Shim, Users: o.Users})
	if err != nil {
		return nil, err
	}
	r := &Runtime{Shims: shims, can: run.Capabilities{Lacks: maps.Clone(shims.Lacks()), DefaultUser: "a user of its instance, that has nothing else"}}
	for _, feature := range []run.Feature{run.Mounts, run.ConfigFiles, run.Images, run.OwnNetwork, run.Devices} {
		r.can.Lacks[feature] = "the runtime Process shows tasks the host as it is"
	}
	if os.Geteuid() != 0 {
		r.can.DefaultUser = "the agent's user"
		r.can.Lacks[run.OtherUsers] = "the agent does not run as root"
	}
	return r, nil
}

// Capabilities says what this runtime can do here.
func (r *Runtime) Capabilities() run.Capabilities {
	return run.Capabilities{Lacks: maps.Clone(r.can.Lacks), DefaultUser: r.can.DefaultUser}
}

// Start starts an attempt by a shim of its own.
func (r *Runtime) Start(ctx context.Context, t run.Task) (run.Status, error) {
	if err := t.Valid(); err != nil {
		return run.Status{}, err
	}
	return r.Shims.Start(ctx, t.ID, func() (*shim.Order, error) {
		if err := r.can.Refuse(&t); err != nil {
			return nil, err
		}
		as, err := r.account(&t)
		if err != nil {
			return nil, err
		}
		return &shim.Order{
			Command: shim.Bytes(t.Command), Env: shim.Bytes(t.Env), WorkDir: t.Dir, As: as, Limits: t.Limits, Log: t.Log.OrDefault(), Until: t.Until,
		}, nil
	})
}
