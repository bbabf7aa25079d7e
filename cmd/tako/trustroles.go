package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/apiserver/state"
	"tako.dev/tako/internal/trust"
)

// keyValid is how long a key has its role, unless something else is said.
const keyValid = 365 * 24 * time.Hour

func newKey() *cobra.Command {
	return &cobra.Command{
		Use: "new-key FILE", Short: "Make a key for a role in a new file, and print its public key; no server is needed", Args: cobra.ExactArgs(1),
		Long: `Makes a key for somebody who is to sign something, such as orders for hosts. Only the public key goes to the server's machine, where
"tako trust set-key" gives it its role. Until then the key is nothing.`,
		Example: "  tako trust new-key operator-key",
		RunE: func(c *cobra.Command, args []string) error {
			return makeKey(c, args[0], "`tako trust set-key ROLE` takes this on the server's machine")
		},
	}
}

// makeKey makes a key in a new file, and says what is next.
func makeKey(c *cobra.Command, path, next string) error {
	key := trust.NewSigningKey()
	if err := trust.SaveSigningKey(key, path); err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "made key %s in %s; %s:\n", key.Public().ID(), path, next)
	_, err := fmt.Fprintln(c.OutOrStdout(), key.Public())
	return err
}

func setKey(p *place) *cobra.Command {
	var f proposing
	valid := keyValid
	c := &cobra.Command{
		Use: "set-key ROLE PUBLIC-KEY", Short: "Give a key a role, or set until when it has it", Args: cobra.ExactArgs(2),
		Long: `ROLE is operator: who may sign orders for hosts (tako sign layer). The public key is what "tako trust new-key" prints. Hosts believe
what it signs as soon as they have the new document: give it out while servers answer.`,
		Example: `  tako trust set-key operator ed25519:Zm9v...
  tako trust set-key operator ed25519:Zm9v... --valid 2160h`,
		RunE: p.with(func(c *cobra.Command, a *state.Admin, args []string) error {
			key, err := trust.ParsePublicKey(args[1])
			if err != nil {
				return err
			}
			return f.change(c, a, trust.SetKey(trust.Role(args[0]), key, time.Now().Add(valid)))
		}),
	}
	c.Flags().DurationVar(&valid, "valid", keyValid, "how long it has the role")
	f.outFlag(c)
	return c
}

func revokeKey(p *place) *cobra.Command {
	var f proposing
	c := &cobra.Command{
		Use: "revoke-key KEY", Short: "Take all roles from a key, for ever", Args: cobra.ExactArgs(1),
		Long:    `KEY is a public key, or the id of one. What it has signed counts nowhere any more, as soon as hosts have the new document.`,
		Example: "  tako trust revoke-key 0f3c5d5f8d0a4c7e9b1d2f3a4b5c6d7e",
		RunE: p.with(func(c *cobra.Command, a *state.Admin, args []string) error {
			id, err := keyID(args[0])
			if err != nil {
				return err
			}
			return f.change(c, a, trust.Revoke(id))
		}),
	}
	f.outFlag(c)
	return c
}

func setFallback(p *place) *cobra.Command {
	var f proposing
	c := &cobra.Command{
		Use: "set-fallback [URL...]", Short: "Say where hosts look when no server answers, in the order to try", Args: cobra.ArbitraryArgs,
		Long: `Each URL is where a directory is served that "tako export heads" has written: http or https, or git+https, git+http and git+ssh for a
repository whose default branch has it. A host asks them when it has heard no server for a minute. What it finds there it verifies as what a server sends: who
serves it need not be trusted. Without a URL, hosts look nowhere.`,
		Example: "  tako trust set-fallback https://mirror.example.com/tako git+https://git.example.com/ops/tako-heads",
		RunE: p.with(func(c *cobra.Command, a *state.Admin, args []string) error {
			return f.change(c, a, trust.SetFallback(args...))
		}),
	}
	f.outFlag(c)
	return c
}
