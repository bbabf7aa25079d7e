package order

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/place"
	"tako.dev/tako/internal/trust"
)

// validFor is how long an order may be begun with, unless something else is said: until somebody has been at all hosts.
const validFor = 7 * 24 * time.Hour

// validMax is the longest: whoever finds an old order can bring it as long.
const validMax = 90 * 24 * time.Hour

// signing are the flags of `tako sign layer`.
type signing struct {
	files         []string
	key, trust    string
	epoch, number uint64
	valid         time.Duration
	out           string
}

// NewSign returns the command with those below it. load reads the files of -f, and namespace is that of what names none.
func (s *Shell) NewSign() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sign",
		Short:   "Sign what hosts are to have, without any server",
		Example: "  tako sign layer -f motd.yaml --key operator-key -o motd.order",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(s.newSignLayer())
	return cmd
}

func (s *Shell) newSignLayer() *cobra.Command {
	var f signing
	cmd := &cobra.Command{
		Use:   "layer [CONFIG]",
		Short: "Sign a config's resources as an order, which hosts take from hand to hand",
		Example: `  tako sign layer -f motd.yaml --key operator-key -o motd.order
  tako sign layer NodeConfig/prod/web -f site.yaml --key operator-key -o /media/stick
  tako sign layer -f motd.yaml --key operator-key -o motd.order && ssh web-7 tako-agent accept - < motd.order`,
		Long: `An order replaces what a config declares, on each host that has that config already, until what the servers declare has caught up:
for when no server answers. It needs a key that the trust documents give the role operator (tako trust set-key), and the trust documents
themselves: what "tako trust show" prints, by default trust.json beside the key.

Where -o names a directory, the order is added to what is there, as "tako export heads" has written it. Values of Secrets cannot be
in it: only servers can seal them for hosts.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return s.signLayer(strings.Join(args, ""), &f) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "file or directory to read, - for standard input; may be repeated")
	flags.StringVar(&f.key, "key", "", "file with the key of an operator")
	flags.StringVar(&f.trust, "trust", "", "file with the trust documents (default trust.json beside the key)")
	flags.Uint64Var(&f.epoch, "epoch", 0, "epoch of the hosts' heads (default that of the trust documents)")
	flags.Uint64Var(&f.number, "number", 0, "number of the order: the highest counts (default the time in seconds)")
	flags.DurationVar(&f.valid, "valid", validFor, "how long a host may begin with it, at most 2160h")
	flags.StringVarP(&f.out, "out", "o", "", "file for the order, or a directory to add it to")
	for _, name := range []string{"filename", "key", "out"} {
		cobra.CheckErr(cmd.MarkFlagRequired(name))
	}
	return cmd
}

func (s *Shell) signLayer(wanted string, f *signing) error {
	if f.valid < time.Minute || f.valid > validMax {
		return failure.Usage("sign with --valid "+f.valid.String(), "it is between a minute and 2160h", "")
	}
	source, err := documents.Load(f.files, false, s.In)
	if err != nil {
		return s.Refused(err, source)
	}
	c, err := find(wanted, s.Namespace(), source.Documents)
	if err != nil {
		return err
	}
	items, err := c.compile()
	if err != nil {
		return err
	}
	now := time.Now()
	st, key, err := f.statement(now)
	if err != nil {
		return err
	}
	st.Layer, st.Root = c.id, catalog.TrieOf(items).Root()
	for i := range items {
		st.Bytes += uint64(len(items[i].Body))
	}
	signed, err := st.Sign(key)
	if err != nil {
		return err
	}
	encoded, err := signed.Encode()
	if err != nil {
		return err
	}
	if err := write(f.out, encoded, &st, items); err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "signed with key %s: statement %d of epoch %d about %s, %d resources; hosts begin with it until %s\n",
		key.Public().ID(), st.Number, st.Epoch, st.Layer, len(items), time.Unix(st.Expires, 0).Format("2006-01-02 15:04 -0700"))
	fmt.Fprintf(s.Err, "next, on each host: tako-agent accept %s\n", filepath.Base(f.out))
	return nil
}

// statement is the statement but for its layer, and the key that is to sign it.
func (f *signing) statement(now time.Time) (st catalog.Statement, key *trust.SigningKey, err error) {
	if key, err = trust.LoadSigningKey(f.key); err != nil {
		return st, nil, err
	}
	path := f.trust
	if path == "" {
		path = filepath.Join(filepath.Dir(f.key), "trust.json")
	}
	chain, err := readTrust(path)
	if err != nil {
		return st, nil, err
	}
	current := chain.Current()
	if !slices.Contains(chain.KeysOf(trust.RoleOperator, now), key.Public()) {
		return st, nil, &reason.Error{Code: reason.TrustRefused, Doing: "sign with " + f.key,
			Cause: fmt.Errorf("trust document %d does not give key %s the role operator now", current.Number, key.Public().ID()),
			Hint:  "on the server's machine: tako trust set-key operator " + key.Public().String() + "; or name newer documents with --trust"}
	}
	st = catalog.Statement{Cluster: current.Cluster, Epoch: f.epoch, Number: f.number, Issued: now.Unix(), Expires: now.Add(f.valid).Unix()}
	if st.Epoch == 0 {
		st.Epoch = current.Epoch
	}
	if st.Number == 0 {
		st.Number = uint64(now.Unix())
	}
	return st, key, nil
}

// trustMax is above what a chain of trust documents may have.
const trustMax = 8 << 20

// readTrust reads the trust documents of a file. Whose they are is not asked: hosts compare the cluster.
func readTrust(path string) (*trust.Chain, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &reason.Error{Code: reason.Usage, Doing: "read the trust documents", Cause: err, Hint: "where the server runs: tako trust show > trust.json; any host has them, too: /var/lib/tako/identity/trust.json"}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, trustMax))
	if err != nil {
		return nil, failure.Of(err, "read "+path)
	}
	return chainOf(text)
}

// write writes an order into a file, or adds it to a directory.
func write(out string, signed []byte, st *catalog.Statement, items []catalog.Item) error {
	info, err := os.Stat(out)
	if err == nil && info.IsDir() {
		w, err := place.NewWriter(out)
		if err != nil {
			return err
		}
		var rows bytes.Buffer
		if err := catalog.WriteRows(&rows, len(items), catalog.RowsOf(items)); err != nil {
			return err
		}
		if err := w.Layer(st.Root, &rows); err != nil {
			return err
		}
		return w.Statement(signed)
	}
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644) // no secret is in it
	if err != nil {
		return failure.Of(err, "write "+out)
	}
	if err := errors.Join(catalog.WriteOrder(f, signed, items), f.Sync(), f.Close()); err != nil {
		return failure.Of(err, "write "+out)
	}
	return nil
}
