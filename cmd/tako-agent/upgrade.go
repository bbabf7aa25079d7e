package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/agent/rehearse"
	"tako.dev/tako/internal/host/upgrade"
)

// rehearseName is the command by which one program of the agent is compared with another.
const rehearseName = "rehearse"

// rehearseArgs are what a program is called with to plan what this agent enforces.
func (c *common) rehearseArgs(root, state string) []string {
	return []string{rehearseName, "--root", root, "--state", state}
}

// newRehearse is that command. It is not for people: agents of other versions call it, and read the last line that it prints.
func newRehearse(c *common) *cobra.Command {
	return &cobra.Command{
		Use: rehearseName, Short: "Plan what the agent of this host enforces, for another program of it", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.rehearse(cmd.Context()) },
	}
}

func (c *common) rehearse(ctx context.Context) error {
	opts, host, err := c.host(true, "never")
	if err != nil {
		return err
	}
	defer host.Close()             // nothing was written
	fact, _, err := host.Collect() // what is refused is told by the agent
	if err != nil {
		return err
	}
	var lines []string
	var would []bool
	err = host.OnBus(ctx, func(ctx context.Context) error {
		planned, err := rehearse.Of(ctx, rehearse.Options{StateDir: opts.StateDir, NodeName: nodeName(), Types: host.Types, Fact: fact})
		for i := range planned {
			line, some := rehearse.Line(&planned[i])
			lines, would = append(lines, line), append(would, some)
		}
		return err
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(upgrade.Summary(lines, would))
}

// newPutBack is what tako-agent-trial.service runs. It is not for people.
func newPutBack(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "put-back", Short: "Put this program back if the one on trial does not keep the host", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, host, err := c.host(true, "never")
			if err != nil {
				return err
			}
			defer host.Close()
			return host.OnBus(cmd.Context(), host.Upgrade.PutBack)
		},
	}
}
