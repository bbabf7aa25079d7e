package main

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"tako.dev/tako/internal/apiserver"
)

// notifySocket is the variable of sd_notify(3).
const notifySocket = "NOTIFY_SOCKET"

// serverCommand runs the control plane.
func serverCommand() *cobra.Command {
	var o apiserver.Options
	c := &cobra.Command{
		Use:   "server",
		Short: "Run the control plane",
		Long: `server runs the control plane: the API for people and programs, its store, the controllers, and the port that hosts come to.

With --etcd-servers several of them are one control plane, of which one leads and any other takes over when that dies. Another one
needs a data directory of its own with a copy of the first one's machine-secret in it, and --listen or --name where the others reach it.`,
		Example: `  tako server --data-dir /var/lib/tako/server
  tako server --data-dir /tmp/tako --listen 127.0.0.1:0
  tako server --etcd-servers https://10.0.0.1:2379,https://10.0.0.2:2379 --etcd-ca ca.pem --etcd-cert tako.pem --etcd-key tako-key.pem`,
		Args:              cobra.NoArgs,
		PersistentPreRunE: withoutSettings,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.DataDir, err = filepath.Abs(o.DataDir); err != nil {
				return err
			}
			o.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
			// The library tells systemd that it is ready as soon as it listens, which is before it answers; so it is not to find it.
			systemd := os.Getenv(notifySocket)
			_ = os.Unsetenv(notifySocket)
			o.Kustomize = kustomizeChild()
			o.OnReady = func(url, kubeconfig string) {
				o.Log.Info("ready", "url", url, "kubeconfig", kubeconfig)
				// Without systemd there is nobody to tell.
				_ = os.Setenv(notifySocket, systemd)
				_, _ = daemon.SdNotify(true, daemon.SdNotifyReady)
			}
			s, err := apiserver.New(o)
			if err != nil {
				return err
			}
			return s.Run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&o.DataDir, "data-dir", defaultDataDir(), "where everything is kept")
	f.StringVar(&o.Listen, "listen", apiserver.DefaultListen, "where the API is served, HOST:PORT; port 0 takes a free one")
	f.StringVar(&o.TransferListen, "transfer-listen", "", "where hosts are served, HOST:PORT; default: the port after that of --listen; port 0 takes a free one")
	f.StringSliceVar(&o.Names, "name", nil, "further name or address that clients and hosts know the server by; hosts are told the first")
	f.StringSliceVar(&o.DNS, "names", nil, "where names of workloads are answered by the DNS, ADDRESS:PORT by UDP and TCP; may be repeated; default: nowhere, agents do")
	f.StringSliceVar(&o.SourceDirs, "source-dir", nil, "directory of this machine below which Sources may take repositories (file://); default: none")
	f.StringToStringVar(&o.Prometheus, "prometheus", nil, "NAME=URL of a Prometheus that workloads may be scaled by; may be repeated; those who declare workloads may ask it anything; default: none")
	f.StringSliceVar(&o.Etcd.Endpoints, "etcd-servers", nil, "an etcd cluster that others run; which several servers may share; default: one in the data directory")
	f.StringVar(&o.Etcd.CAFile, "etcd-ca", "", "file with the CA of that cluster, PEM")
	f.StringVar(&o.Etcd.CertFile, "etcd-cert", "", "file with this server's certificate for that cluster, PEM")
	f.StringVar(&o.Etcd.KeyFile, "etcd-key", "", "file with the key of that certificate, PEM")
	f.Int64Var(&o.QuotaBytes, "quota-bytes", 0, "most that the server's own etcd may hold; default 2 GiB")
	c.AddCommand(backupCommand(), restoreCommand())
	return c
}

// withoutSettings stands in for the reading of a person's settings, which a service has none of.
func withoutSettings(*cobra.Command, []string) error { return nil }

// defaultDataDir is systemd's state directory, or the one that it would be.
func defaultDataDir() string {
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" {
		return dir
	}
	return "/var/lib/tako/server"
}
