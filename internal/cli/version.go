package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/failure"
)

// clientVersion is the version of this program as the build has recorded it.
func clientVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

func (p *program) newVersion() *cobra.Command {
	var client bool
	var form string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the server",
		Example: `  tako version
  tako version --client    without asking a server`,
		Args: taking(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.version(cmd.Context(), client, form) },
	}
	cmd.Flags().BoolVar(&client, "client", false, "this program only")
	cmd.Flags().StringVarP(&form, "output", "o", "", "json")
	complete(cmd, "output", "json")
	return cmd
}

func (p *program) version(ctx context.Context, clientOnly bool, form string) error {
	if form != "" && form != "json" {
		return failure.Usage("read -o "+form, "versions are written as text or json", "")
	}
	versions := map[string]string{"client": clientVersion(), "go": runtime.Version()}
	// The client's version is what a person needs most when the server cannot be reached.
	err := func() error {
		if clientOnly {
			return nil
		}
		server, _, err := p.connect()
		if err != nil {
			return err
		}
		info, err := server.Version(ctx)
		if err != nil {
			return failure.Of(err, "ask the server for its version")
		}
		versions["server"] = info.GitVersion
		return nil
	}()
	if form == "json" {
		if encoded := json.NewEncoder(p.Out).Encode(versions); encoded != nil {
			return encoded
		}
		return err
	}
	fmt.Fprintf(p.Out, "client %s (%s)\n", versions["client"], versions["go"])
	if versions["server"] != "" {
		fmt.Fprintf(p.Out, "server %s\n", versions["server"])
	}
	return err
}
