package fleet

import (
	"context"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
)

// NodesHaving are the nodes that have a config, and its ID. The errors are those of the server, and NotFound where there is no such config.
func NodesHaving(ctx context.Context, server *remote.Server, ref remote.Ref) (nodes []string, id string, err error) {
	all, err := Read(ctx, server, "", ref.Namespace)
	if err != nil {
		return nil, "", err
	}
	if c := all.ConfigOf(ref); c != nil {
		return all.HavingConfig(c.ID), c.ID, nil
	}
	return nil, "", failure.NotFound("hold "+ref.Long(), "there is none", "tako get "+ref.Kind.Resource)
}

// NodeNames are the names of all nodes.
func NodeNames(ctx context.Context, server *remote.Server) (names []string, err error) {
	all, err := Read(ctx, server, "", "")
	if err != nil {
		return nil, err
	}
	for i := range all.Nodes {
		names = append(names, all.Nodes[i].Name)
	}
	return names, nil
}
