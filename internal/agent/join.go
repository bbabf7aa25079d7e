package agent

import (
	"context"
	"errors"
	"time"

	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/trust"
)

// Joining is how a host joins a cluster.
type Joining struct {
	StateDir string
	Line     string // as `tako token create join` prints it: a secret
	Name     string // that its node is to have
}

// Joined is what a join has come to.
type Joined struct {
	Node    string
	Cluster string
}

// Join makes this host a member of a cluster. Broken off, it has not joined, and the next join uses the same keys. The errors are
// HostJoined, AnotherAgent while an agent runs on the state directory, and those of client.Join.
func Join(ctx context.Context, o Joining) (j Joined, err error) {
	line, err := trust.ParseJoinLine(o.Line)
	if err != nil {
		return j, err
	}
	st, err := store.Open(o.StateDir, time.Now())
	if err != nil {
		return j, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	keys, err := held.Prepare(o.StateDir)
	if err != nil {
		return j, err
	}
	credentials, err := client.Join(ctx, client.Joining{Line: line, Name: o.Name, Host: keys.Host, Sealing: keys.Sealing, Built: built()})
	if err != nil {
		return j, err
	}
	id, err := held.Join(o.StateDir, held.Membership{Credentials: credentials, Pin: line.Trust, Servers: []string{line.Address}}, built())
	if err != nil {
		return j, err
	}
	node := id.Node()
	return Joined{Node: node.Name, Cluster: string(node.Cluster)}, nil
}
