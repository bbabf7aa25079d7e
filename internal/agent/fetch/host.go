package fetch

import (
	"log/slog"

	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/trust"
)

// ForHost makes the Fetcher of a host that has joined a cluster, with what its state directory says.
func ForHost(stateDir string, objects *content.Objects, log *slog.Logger) (*Fetcher, error) {
	return New(Options{Objects: objects, Log: log,
		Identity: func() (client.Identity, error) {
			id, err := held.LoadIdentity(stateDir, trust.Built())
			if err != nil {
				return nil, err
			}
			return id, nil
		},
		Head: func() ([]byte, error) { return held.ShownHead(stateDir) },
	})
}
