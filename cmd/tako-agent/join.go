package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/agent/fetch"
	"tako.dev/tako/internal/agent/join"
	"tako.dev/tako/internal/agent/naming"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run/all"
)

const (
	// joinTime is how long a join may take: two calls to a server that may be far away.
	joinTime = time.Minute
	// joinLineMax is above any join line, with some white space around it.
	joinLineMax = 4 << 10
)

func newJoin(c *common) *cobra.Command {
	var name, file string
	var servers []string
	cmd := &cobra.Command{
		Use:   "join JOIN-LINE|-",
		Short: "Let the servers of a cluster say how this host is to be",
		Long: `join makes this host a node of a cluster. The line for it is printed by "tako token create join" where the
cluster is administered. It is a secret: give it on standard input or in a file, because other users
of this host can see the arguments of commands.

A host that has joined already is told of other addresses of its servers or relays with --server. It stays the
node that it is, with its keys and what it believes: they are only taken if one of its cluster answers.`,
		Example: `  tako-agent join -                        paste the line, and press Enter
  tako-agent join --file line.txt          read it from a file
  tako-agent join - --name web-1 < line    under another name than the host's own
  tako-agent join --server new.example.org:6444
  tako-agent join --server edge-1.example.org:6444,edge-2.example.org:6444`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(servers) > 0 {
				if len(args) > 0 || file != "" || name != "" {
					return &reason.Error{Code: reason.Usage, Doing: "join", Cause: errors.New("--server is for a host that has joined, and stands alone"), Hint: "tako-agent join --help"}
				}
				return c.readdress(cmd.Context(), servers)
			}
			line, err := joinLine(cmd.InOrStdin(), args, file)
			if err != nil {
				return err
			}
			return c.join(cmd.Context(), line, name)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the node (default: this host's name)")
	cmd.Flags().StringVar(&file, "file", "", "file that holds the line")
	cmd.Flags().StringSliceVar(&servers, "server", nil, "HOST:PORT: where a host that has joined finds its servers or relays from now on; may be repeated")
	return cmd
}

// joinLine reads the line from where it stands.
func joinLine(stdin io.Reader, args []string, file string) (string, error) {
	var text []byte
	var err error
	switch {
	case file != "" && len(args) == 0:
		text, err = os.ReadFile(file)
	case file == "" && len(args) == 1 && args[0] == "-":
		text, err = readLine(stdin)
	case file == "" && len(args) == 1:
		text = []byte(args[0])
	default:
		err = errors.New("want the line in one place: as -, with --file, or as the argument")
	}
	if err != nil {
		return "", &reason.Error{Code: reason.Usage, Doing: "read the join line", Cause: err, Hint: "tako-agent join --help"}
	}
	return string(text), nil
}

// readLine reads one line and no more, so that a person need not end the input.
func readLine(r io.Reader) ([]byte, error) {
	var line []byte
	var one [1]byte
	for len(line) < joinLineMax {
		n, err := r.Read(one[:])
		if n == 1 && one[0] == '\n' && len(strings.TrimSpace(string(line))) > 0 {
			return line, nil
		}
		line = append(line, one[:n]...)
		if errors.Is(err, io.EOF) {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("it is too long")
}

func (c *common) join(ctx context.Context, line, name string) error {
	state, err := c.joinState()
	if err != nil {
		return err
	}
	if name == "" {
		name = strings.ToLower(nodeName())
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	j, err := join.Join(ctx, join.Options{StateDir: state, Line: line, Name: name})
	if err != nil {
		return err
	}
	fmt.Printf("✔ Joined  this host is node %s of cluster %s\nnext: %s\n", present.Quote(j.Node), j.Cluster, c.runText("systemctl enable --now tako-agent"))
	return nil
}

// joinState is the state directory, for who may write it.
func (c *common) joinState() (string, error) {
	if os.Getuid() != 0 && c.root == "/" && c.state == "" {
		return "", &reason.Error{Code: reason.RootNeeded, Doing: "join", Hint: "run it as root, or try it in a directory: --root ./sandbox"}
	}
	return c.stateDir()
}

// runText is the command that runs the agent: the unit's, or that of a sandbox.
func (c *common) runText(unit string) string {
	if c.root != "/" || c.state != "" {
		return "tako-agent run" + c.rootFlag()
	}
	return unit
}

// readdress tells a host that has joined where its servers are.
func (c *common) readdress(ctx context.Context, servers []string) error {
	state, err := c.joinState()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	j, err := join.Readdress(ctx, state, servers)
	if err != nil {
		return err
	}
	fmt.Printf("✔ Changed  node %s of cluster %s finds its server at %s\nnext: %s\n", present.Quote(j.Node), j.Cluster, present.Quote(strings.Join(servers, ", ")), c.runText("systemctl start tako-agent"))
	return nil
}

func newRun(c *common) *cobra.Command {
	var audit, peers, answers, endpoints string
	var directories []string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Keep this host as the servers of its cluster say",
		Long: `run keeps a host that has joined a cluster. It begins with what it was told last, from its own disk,
and asks the servers for what is new. Without a network it goes on with what it has.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := c.names(answers, endpoints, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return c.run(cmd.Context(), audit, peers, names, directories)
		},
	}
	cmd.Flags().StringVar(&audit, "audit", "1h", "how often everything is looked at to prove that no event was missed; never is allowed")
	cmd.Flags().StringSliceVar(&directories, "directory", nil, "directory of this host that instances of workloads may mount, an absolute path; may be repeated")
	cmd.Flags().StringVar(&peers, "peers", "", "where other hosts of the cluster ask this one while they reach no server, HOST:PORT, or off (default :6445; off in a sandbox)")
	cmd.Flags().StringVar(&answers, "names", namesDefault, "where the names of workloads are answered by the DNS, ADDRESS:PORT, may be several with commas; empty for nowhere, which is the default in a sandbox")
	cmd.Flags().StringVar(&endpoints, "endpoints", endpointsDefault, "directory where the endpoints of services are written down; empty for nowhere, which is the default in a sandbox")
	return cmd
}

// Where names are answered, unless it is said otherwise.
const namesDefault, endpointsDefault = "127.0.0.88:53", "/run/tako-names"

// names is where names are answered. A sandbox answers where it is told to: there may be others on the machine.
func (c *common) names(answers, endpoints string, changed func(flag string) bool) (w naming.Where, err error) {
	wants := func(flag string) bool { return c.root == "/" || changed(flag) }
	if answers != "" && wants("names") {
		for text := range strings.SplitSeq(answers, ",") {
			address, err := netip.ParseAddrPort(text)
			if err != nil || address.Addr().IsUnspecified() {
				return w, &reason.Error{Code: reason.Usage, Doing: "read --names " + answers, Cause: err, Hint: "write an address of this host and a port, as 127.0.0.88:53"}
			}
			w.Addresses = append(w.Addresses, address)
		}
	}
	if endpoints != "" && wants("endpoints") {
		if !filepath.IsAbs(endpoints) {
			return w, &reason.Error{Code: reason.Usage, Doing: "read --endpoints " + endpoints, Hint: "write an absolute path"}
		}
		w.Endpoints = filepath.Clean(endpoints)
	}
	return w, nil
}

// peersOff is what --peers says of a host that neither asks others nor answers; peersDefault is where one is asked otherwise.
const peersOff, peersDefault = "off", ":6445"

// peersListen is where this host is asked; empty where it is not.
func (c *common) peersListen(flag string) (string, error) {
	switch {
	case flag == peersOff, flag == "" && c.root != "/":
		return "", nil
	case flag == "":
		return peersDefault, nil
	}
	if _, _, err := net.SplitHostPort(flag); err != nil {
		return "", &reason.Error{Code: reason.Usage, Doing: "read --peers " + flag, Cause: err, Hint: "write HOST:PORT or :PORT, or off"}
	}
	return flag, nil
}

func (c *common) run(ctx context.Context, audit, peers string, names naming.Where, directories []string) error {
	if os.Getuid() != 0 && c.root == "/" && c.state == "" {
		return &reason.Error{Code: reason.RootNeeded, Doing: "run", Hint: "run it as root, or try it in a directory: --root ./sandbox"}
	}
	opts, host, err := c.host(false, audit)
	if err != nil {
		return err
	}
	defer host.Close()
	if opts.Peers, err = c.peersListen(peers); err != nil {
		return err
	}
	opts.Names = names
	for _, d := range directories {
		if !filepath.IsAbs(d) {
			return &reason.Error{Code: reason.Usage, Doing: "read --directory " + d, Hint: "write an absolute path"}
		}
		opts.Instances.Directories = append(opts.Instances.Directories, filepath.Clean(d))
	}
	opts.Instances.Runtimes, opts.Objects = c.runtimes(host.Bus), host.Objects
	if c.root == "/" {
		opts.Instances.Devices = all.DeviceDirectories()
	}
	printer := &printer{watch: true}
	opts.OnLine, opts.Watch, opts.Joined = printer.line, true, true
	opts.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	a, err := agent.New(opts)
	if err != nil {
		return err
	}
	objects, err := fetch.ForHost(opts.StateDir, host.Objects, opts.Log)
	if err != nil {
		return err
	}
	err = beside(ctx, objects.Run, a.Run)
	printer.end()
	return err
}

// beside runs one thing as long as another one runs.
func beside(ctx context.Context, one func(context.Context), other func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { one(ctx) })
	err := other(ctx)
	cancel()
	all.Wait()
	return err
}

// withoutTime leaves the time out, which the journal has.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
