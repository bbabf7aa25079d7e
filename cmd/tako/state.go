package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/apiserver/state"
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
		if err := p.cluster.Validate(); err != nil {
			return err
		}
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
	f.StringSliceVar(&r.Roots, "root-key", nil, "file with a root key, which is kept there; where several must sign, one flag for each, and none is kept; default: the one in the data directory")
	f.StringVar(&r.Trust, "trust", "", "file with newer trust documents than the backup has (`tako trust show`)")
	return c
}
