package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/relay"
	"tako.dev/tako/internal/trust"
)

const (
	defaultRelayListen = "0.0.0.0:6444"
	// relayJoinTime is how long a join may take: two calls to a server that may be far away.
	relayJoinTime = time.Minute
	// joinLineMax is above any join line, with some white space around it.
	joinLineMax = 4 << 10
	// metricsTime bounds one call for the metrics.
	metricsTime = 10 * time.Second
)

// relayFlags are those of the process.
type relayFlags struct {
	listen, metrics, state string
	upstream               []string
	cacheBytes             int64
}

// relayCommand runs a relay.
func relayCommand() *cobra.Command {
	f := &relayFlags{}
	c := &cobra.Command{
		Use:   "relay",
		Short: "Serve hosts that cannot reach a server",
		Long: `relay serves hosts what servers have signed for them: for hosts that have no way to a server, or for many
hosts behind one line. It keeps what it has fetched, and fetches it once for all. It holds no key but its own, and hosts
verify all that they get from it.

It joins once, with a line that "tako token create relay NAME" prints. "tako token list" shows the relays that there are, and
"tako token revoke NAME" removes one.`,
		Example: `  tako relay join -                                  paste the line, and press Enter
  tako relay --listen 0.0.0.0:6444
  tako relay --upstream a.example.org:6444,b.example.org:6444 --cache-bytes 53687091200`,
		Args:              cobra.NoArgs,
		PersistentPreRunE: withoutSettings,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil)))
		},
	}
	c.PersistentFlags().StringVar(&f.state, "state", defaultRelayState(), "where the relay keeps who it is, and what it has fetched")
	c.Flags().StringVar(&f.listen, "listen", defaultRelayListen, "where hosts are served, HOST:PORT; port 0 takes a free one")
	c.Flags().StringSliceVar(&f.upstream, "upstream", nil, "HOST:PORT of a server; may be repeated: one after the other is tried. Default: where the relay has joined")
	c.Flags().Int64Var(&f.cacheBytes, "cache-bytes", 0, "most that is kept of what was fetched; default 10 GiB")
	c.Flags().StringVar(&f.metrics, "metrics-listen", "", "where metrics are served to anybody, over HTTP at /metrics, HOST:PORT; default: nowhere")
	c.AddCommand(relayJoinCommand(f))
	return c
}

func relayJoinCommand(f *relayFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "join -",
		Short:   "Make this a relay of a cluster, with the line that is read from standard input",
		Example: `  tako token create relay edge-1 | ssh edge-1 runuser -u tako -- tako relay join -`,
		Args:    cobra.MatchAll(cobra.ExactArgs(1), onlyStandardInput),
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := io.ReadAll(io.LimitReader(c.InOrStdin(), joinLineMax))
			if err != nil {
				return err
			}
			id, err := joinRelay(c.Context(), f.state, string(text))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "✔ Joined  this is relay %s of cluster %s\nnext: systemctl enable --now tako-relay\n", id.Name(), id.Cluster())
			return err
		},
	}
}

// onlyStandardInput: the line is a secret, and other users see the arguments of commands.
func onlyStandardInput(_ *cobra.Command, args []string) error {
	if args[0] != "-" {
		return errors.New("give the line on standard input: tako relay join -")
	}
	return nil
}

func joinRelay(ctx context.Context, state, text string) (*relay.Identity, error) {
	line, err := trust.ParseJoinLine(strings.TrimSpace(text))
	if err != nil {
		return nil, err
	}
	key, err := relay.Prepare(state)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, relayJoinTime)
	defer cancel()
	c, err := client.Join(ctx, client.Joining{Line: line, Host: key, Built: trust.Built()})
	if err != nil {
		return nil, err
	}
	return relay.Join(state, key, &c, line.Trust, []string{line.Address}, trust.Built())
}

func (f *relayFlags) run(ctx context.Context, log *slog.Logger) error {
	for _, address := range f.upstream {
		if err := trust.CheckAddress(address); err != nil {
			return &reason.Error{Code: reason.Usage, Doing: "read --upstream " + address, Cause: err, Hint: "write HOST:PORT of a server, as hosts reach it"}
		}
	}
	id, err := relay.LoadIdentity(f.state, trust.Built())
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	r, err := relay.New(relay.Options{Identity: id, Servers: f.upstream, CacheDir: filepath.Join(f.state, "cache"), CacheBytes: f.cacheBytes, Metrics: registry, Log: log})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "listen for hosts on " + f.listen, Cause: err, Hint: "choose another address with --listen"}
	}
	stop, err := serveMetrics(f.metrics, registry, log)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer stop()
	log.Info("ready", "relay", id.Name(), "address", l.Addr().String())
	_, _ = daemon.SdNotify(true, daemon.SdNotifyReady) // without systemd there is nobody to tell
	return r.Run(ctx, l)
}

// serveMetrics serves metrics until stop is called.
func serveMetrics(address string, registry *prometheus.Registry, log *slog.Logger) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: "listen for who asks for metrics on " + address, Cause: err, Hint: "choose another address with --metrics-listen"}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Timeout: metricsTime}))
	h := &http.Server{Handler: mux, ReadTimeout: metricsTime, WriteTimeout: 2 * metricsTime, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serve metrics", "err", err)
		}
	}()
	log.Info("metrics are served", "address", l.Addr().String())
	return func() {
		_ = h.Close() // it closes connections: what it could say about them nobody can use
		<-ended
	}, nil
}

// defaultRelayState is systemd's state directory, or the one that it would be.
func defaultRelayState() string {
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" {
		return dir
	}
	return "/var/lib/tako/relay"
}
