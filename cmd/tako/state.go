package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/apiserver/state"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// place is where the state of a server is, as flags say it.
type place struct {
	dir     string
	cluster etcd.Connection
}

func (p *place) flags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringVar(&p.dir, "data-dir", defaultDataDir(), "data directory of the server, which runs")
	f.StringSliceVar(&p.cluster.Endpoints, "etcd-servers", nil, "the etcd cluster that the server uses; default: the one in the data directory")
	f.StringVar(&p.cluster.CAFile, "etcd-ca", "", "file with the CA of that cluster, PEM")
	f.StringVar(&p.cluster.CertFile, "etcd-cert", "", "file with a certificate for that cluster, PEM")
	f.StringVar(&p.cluster.KeyFile, "etcd-key", "", "file with the key of that certificate, PEM")
}

// with runs something on the state of a server.
func (p *place) with(do func(c *cobra.Command, a *state.Admin, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) (err error) {
		dir, err := filepath.Abs(p.dir)
		if err != nil {
			return err
		}
		a, err := state.OpenAdmin(c.Context(), dir, p.cluster)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, a.Close()) }()
		return do(c, a, args)
	}
}

// backupCommand saves what a server keeps.
func backupCommand() *cobra.Command {
	var p place
	c := &cobra.Command{
		Use: "backup FILE", Short: "Save everything that the server keeps, while it runs",
		Long: `Saves objects, sealed keys and trust documents. The machine secret is not in it: keep a copy of that file, and of the root key,
somewhere else. Without them the backup is of no use, to you or to a thief.`,
		Example: "  tako server backup --data-dir /var/lib/tako/server /backup/tako-2026-11-21.tar",
		Args:    cobra.ExactArgs(1),
		RunE: p.with(func(c *cobra.Command, a *state.Admin, args []string) error {
			m, err := a.Backup(c.Context(), args[0], time.Now())
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "saved cluster %s, epoch %d; it opens with machine secret %s\n", m.Cluster, m.Epoch, m.KeyID)
			return nil
		}),
	}
	p.flags(c)
	return c
}

// restoreCommand makes a data directory of a backup.
func restoreCommand() *cobra.Command {
	var r state.Restore
	c := &cobra.Command{
		Use: "restore FILE", Short: "Make a data directory of a backup",
		Long: `Makes a new data directory and gives the fleet a new epoch, which makes void what was signed before: hosts may have states that
the backup does not know. The new epoch is signed by a root key, so without one nothing is restored.`,
		Example: "  tako server restore --data-dir /var/lib/tako/server --machine-secret /safe/machine-secret --root-key /safe/root-key /backup/tako-2026-11-21.tar",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			r.From = args[0]
			if r.Dir, err = filepath.Abs(r.Dir); err != nil {
				return err
			}
			m, err := r.Run(c.Context(), time.Now())
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "restored cluster %s as of %s; epoch %d is over\n", m.Cluster, m.Taken.Format(time.RFC3339), m.Epoch)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&r.Dir, "data-dir", defaultDataDir(), "the new data directory")
	f.StringVar(&r.Secret, "machine-secret", "", "file with the machine secret of that time; default: the one in the data directory")
	f.StringVar(&r.Root, "root-key", "", "file with a root key; default: the one in the data directory")
	f.StringVar(&r.Trust, "trust", "", "file with newer trust documents than the backup has (`tako trust show`)")
	return c
}

// trustCommand changes whom the fleet trusts.
func trustCommand() *cobra.Command {
	var p place
	c := &cobra.Command{
		Use: "trust", Short: "Show and change the keys that the fleet trusts, on the server's machine",
		Long: `Hosts trust what numbered documents say, each signed by enough root keys of the one before. A new cluster has one root key, in
its server's data directory. These commands take it offline, add others, and make new numbers.`,
		Example: `  tako trust show
  tako trust export-root /media/safe/root-key --remove
  tako trust add-root ed25519:... --threshold 2 --out proposal.json
  tako trust sign proposal.json --key /media/safe/root-key
  tako trust accept proposal.json`,
		Args:              cobra.NoArgs,
		PersistentPreRunE: withoutSettings,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	p.flags(c)
	c.AddCommand(showTrust(&p), exportRoot(&p), addRoot(&p), rotateRoot(&p), bumpEpoch(&p), signTrust(), acceptTrust(&p))
	return c
}

func showTrust(p *place) *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Print the trust documents, as hosts get them", Args: cobra.NoArgs,
		Example: "  tako trust show > trust.json",
		RunE: p.with(func(c *cobra.Command, a *state.Admin, _ []string) error {
			chain, err := a.Chain(c.Context())
			if err != nil {
				return err
			}
			b, err := chain.Encode()
			if err != nil {
				return err
			}
			current := chain.Current()
			fmt.Fprintf(c.ErrOrStderr(), "number %d, epoch %d, %d root keys of which %d sign; hosts pin %s\n", current.Number, current.Epoch, len(current.Root.Keys), current.Root.Threshold, chain.Pin())
			_, err = c.OutOrStdout().Write(b)
			return err
		}),
	}
}

func exportRoot(p *place) *cobra.Command {
	var remove bool
	c := &cobra.Command{
		Use: "export-root FILE", Short: "Write the root key to a file, to take it offline", Args: cobra.ExactArgs(1),
		Example: "  tako trust export-root /media/safe/root-key --remove",
		RunE:    p.with(func(_ *cobra.Command, a *state.Admin, args []string) error { return a.ExportRoot(args[0], remove) }),
	}
	c.Flags().BoolVar(&remove, "remove", false, "take it away from the data directory")
	return c
}

func addRoot(p *place) *cobra.Command {
	var threshold int
	var out string
	c := &cobra.Command{
		Use: "add-root PUBLIC-KEY", Short: "Trust one more root key", Args: cobra.ExactArgs(1),
		Example: "  tako trust add-root ed25519:Zm9v... --threshold 2",
		RunE: p.with(func(c *cobra.Command, a *state.Admin, args []string) error {
			key, err := trust.ParsePublicKey(args[0])
			if err != nil {
				return err
			}
			return change(c, a, out, trust.AddRoot(key, threshold))
		}),
	}
	c.Flags().IntVar(&threshold, "threshold", 0, "how many root keys must sign from now on; default as before")
	c.Flags().StringVar(&out, "out", "", "file for the proposal, when more signatures are needed")
	return c
}

func rotateRoot(p *place) *cobra.Command {
	return &cobra.Command{
		Use: "rotate", Short: "Put a fresh root key into the place of the one in the data directory", Args: cobra.NoArgs,
		Example: "  tako trust rotate",
		RunE:    p.with(func(c *cobra.Command, a *state.Admin, _ []string) error { return a.RotateRoot(c.Context(), time.Now()) }),
	}
}

func bumpEpoch(p *place) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: "bump-epoch", Short: "Make void everything that was signed for hosts before", Args: cobra.NoArgs,
		Example: "  tako trust bump-epoch",
		RunE:    p.with(func(c *cobra.Command, a *state.Admin, _ []string) error { return change(c, a, out, trust.BumpEpoch()) }),
	}
	c.Flags().StringVar(&out, "out", "", "file for the proposal, when more signatures are needed")
	return c
}

// change makes the next number. What others must sign first is written to a file.
func change(c *cobra.Command, a *state.Admin, out string, edits ...trust.Edit) error {
	proposal, err := a.Change(c.Context(), time.Now(), edits...)
	if err == nil {
		fmt.Fprintf(c.ErrOrStderr(), "trust document %d is in force\n", proposal.Document.Number)
		return nil
	}
	if out == "" || !reason.Is(err, reason.SignaturesMissing) {
		return err
	}
	b, err := proposal.Encode()
	if err == nil {
		err = os.WriteFile(out, b, 0o644) // no secret is in it
	}
	if err == nil {
		fmt.Fprintf(c.ErrOrStderr(), "more signatures are needed: `tako trust sign %s --key FILE` with other root keys, then `tako trust accept %s`\n", out, out)
	}
	return err
}

func signTrust() *cobra.Command {
	var keyFile string
	c := &cobra.Command{
		Use: "sign FILE", Short: "Add a signature to a proposed trust document; no server is needed", Args: cobra.ExactArgs(1),
		Example: "  tako trust sign proposal.json --key /media/safe/root-key",
		RunE: func(c *cobra.Command, args []string) error {
			key, err := trust.LoadSigningKey(keyFile)
			if err != nil {
				return err
			}
			proposal, err := readProposal(args[0])
			if err != nil {
				return err
			}
			shown, err := json.MarshalIndent(proposal.Document, "", "  ")
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "%s\nsigned with key %s\n", shown, key.Public().ID())
			if proposal, err = proposal.Sign(key); err != nil {
				return err
			}
			b, err := proposal.Encode()
			if err != nil {
				return err
			}
			return os.WriteFile(args[0], b, 0o644)
		},
	}
	c.Flags().StringVar(&keyFile, "key", "", "file with a root key")
	cobra.CheckErr(c.MarkFlagRequired("key"))
	return c
}

func acceptTrust(p *place) *cobra.Command {
	return &cobra.Command{
		Use: "accept FILE", Short: "Put a trust document into force that enough root keys have signed", Args: cobra.ExactArgs(1),
		Example: "  tako trust accept proposal.json",
		RunE: p.with(func(c *cobra.Command, a *state.Admin, args []string) error {
			proposal, err := readProposal(args[0])
			if err != nil {
				return err
			}
			return a.Accept(c.Context(), proposal, time.Now())
		}),
	}
}

func readProposal(path string) (trust.Signed, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return trust.Signed{}, err
	}
	return trust.DecodeSigned(b)
}
