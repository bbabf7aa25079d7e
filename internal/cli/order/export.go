package order

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/place"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// NewExport returns the command with those below it.
func (s *Shell) NewExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "export",
		Short:   "Write what hosts are to have into a directory, for when no server answers",
		Example: "  tako export heads --all -o /media/stick",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(s.newExportHeads())
	return cmd
}

func (s *Shell) newExportHeads() *cobra.Command {
	var nodes []string
	var all bool
	var out string
	cmd := &cobra.Command{
		Use:   "heads",
		Short: "Write the signed heads of hosts with all that they name, and the trust documents",
		Example: `  tako export heads --node web-7 -o /media/stick
  tako export heads --all -o /srv/www/tako         to be served at a fallback location`,
		Long: `On a host, "tako-agent accept DIRECTORY" takes what is for it, and verifies it as what a server sends. The same directory, served over
HTTP(S), is a fallback location: see tako trust set-fallback. What is there already is not fetched again.

Values of Secrets are in it in the form that their host alone can open. The rest of what hosts have is in it in clear: keep it
as you keep the declarations.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all == (len(nodes) > 0) {
				return failure.Usage("export heads", "which nodes are meant is not said, or twice", "write --node NAME, which may be repeated, or --all")
			}
			return s.exportHeads(cmd.Context(), nodes, out)
		},
	}
	cmd.Flags().StringArrayVar(&nodes, "node", nil, "name of a node; may be repeated")
	cmd.Flags().BoolVar(&all, "all", false, "all nodes")
	cmd.Flags().StringVarP(&out, "out", "o", "", "directory to write to; it is made where it is missing")
	cobra.CheckErr(cmd.MarkFlagRequired("out"))
	return cmd
}

// exportHeads writes what some nodes are to have; all of them where none is named.
func (s *Shell) exportHeads(ctx context.Context, nodes []string, out string) error {
	server, _, err := s.Connect()
	if err != nil {
		return err
	}
	kind, err := server.KindOf(ctx, v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindNode))
	if err != nil {
		return failure.Of(err, "find nodes")
	}
	if len(nodes) == 0 {
		_, err := server.List(ctx, remote.Query{Kind: kind}, func(o *unstructured.Unstructured) error {
			nodes = append(nodes, o.GetName())
			return nil
		})
		if err != nil {
			return failure.Of(err, "list the nodes")
		}
	}
	w, err := place.NewWriter(out)
	if err != nil {
		return err
	}
	var left []error
	for _, name := range nodes {
		if err := exportNode(ctx, server, remote.Ref{Kind: kind, Name: name}, w); err != nil {
			left = append(left, err)
			fmt.Fprintf(s.Err, "left out: node/%s: %v\n", name, err)
		}
	}
	fmt.Fprintf(s.Err, "%d of %d nodes are in %s\nnext, on each host: tako-agent accept %s\n", len(nodes)-len(left), len(nodes), out, out)
	if len(left) > 0 {
		return failure.Of(left[0], "export heads")
	}
	return nil
}

// exportNode writes what one node is to have. Its head comes last: what it names is there then.
func exportNode(ctx context.Context, server *remote.Server, ref remote.Ref, w *place.Writer) error {
	var e wire.Export
	if err := fetch(ctx, server, ref, nil, func(r io.Reader) error { return wire.ReadAll(r, wire.ExportMax, &e) }); err != nil {
		return err
	}
	_, h, err := catalog.DecodeHead(e.Head)
	if err != nil {
		return err
	}
	list, err := catalog.DecodeList(e.List)
	if err != nil {
		return err
	}
	chain, err := chainOf(e.Trust)
	if err != nil {
		return err
	}
	if err := w.Trust(chain); err != nil {
		return err
	}
	for _, l := range list {
		if w.HasLayer(l.Root) {
			continue
		}
		err := fetch(ctx, server, ref, map[string]string{"layer": l.Root.String()}, func(r io.Reader) error { return w.Layer(l.Root, r) })
		if err != nil {
			return err
		}
	}
	return errors.Join(w.List(e.List), w.Head(h.UID, e.Head))
}

// chainOf reads trust documents that a server has sent to a person who is known to it.
func chainOf(text []byte) (*trust.Chain, error) {
	documents, err := trust.DecodeDocuments(text)
	if err != nil {
		return nil, err
	}
	if len(documents) == 0 {
		return nil, &reason.Error{Code: reason.TrustRefused, Doing: "read the trust documents", Cause: errors.New("there are none")}
	}
	pin, err := documents[0].Document.Hash()
	if err != nil {
		return nil, err
	}
	return trust.Verify(documents, pin, trust.Built())
}

func fetch(ctx context.Context, server *remote.Server, ref remote.Ref, query map[string]string, take func(io.Reader) error) error {
	r, err := server.Stream(ctx, ref, v1alpha1.NodeExport, query)
	if err != nil {
		return err
	}
	return errors.Join(take(r), r.Close())
}
