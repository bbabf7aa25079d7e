package report

import (
	"tako.dev/tako/internal/agent/usage"
	"tako.dev/tako/internal/transfer/wire"
)

// UsageOf is what the agent takes, as the servers get to know it.
func UsageOf(u usage.Usage) *wire.Usage {
	return &wire.Usage{CPU: uint64(u.CPU * 1000), RSS: u.RSS, Anonymous: u.Anonymous, CommandsCPU: uint64(u.Commands.CPU * 1000), CommandsRSS: u.Commands.RSS}
}
