// Package join makes a host a member of a cluster, and tells one that is where its servers are. No agent runs meanwhile.
//
// The package owns no goroutine.
package join

import (
	"context"
	"errors"
	"time"

	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/trust"
)

// Options are how a host joins a cluster.
type Options struct {
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
func Join(ctx context.Context, o Options) (j Joined, err error) {
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
	credentials, err := client.Join(ctx, client.Joining{Line: line, Name: o.Name, Host: keys.Host, Sealing: keys.Sealing, Built: trust.Built()})
	if err != nil {
		return j, err
	}
	id, err := held.Join(o.StateDir, held.Membership{Credentials: credentials, Pin: line.Trust, Servers: []string{line.Address}}, trust.Built())
	if err != nil {
		return j, err
	}
	return Joined{Node: id.Node().Name, Cluster: string(id.Node().Cluster)}, nil
}

// Readdress tells a host that has joined other addresses of its servers or relays, HOST:PORT, if one answers there. Nothing else of the host
// changes. The errors are AnotherAgent while an agent runs, and those of held.Readdress.
func Readdress(ctx context.Context, stateDir string, addresses []string) (j Joined, err error) {
	st, err := store.Open(stateDir, time.Now())
	if err != nil {
		return j, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	node, err := held.Readdress(ctx, stateDir, addresses, trust.Built())
	return Joined{Node: node.Name, Cluster: string(node.Cluster)}, err
}
