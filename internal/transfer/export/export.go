// Package export gives what is signed for a host, and what that is made of, to whoever brings it there by hand. It owns no goroutine.
package export

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// Exporter gives it from what a server has. It may be used from several goroutines.
type Exporter struct {
	Members  server.Members
	Catalogs server.Catalogs
}

// exportWait is how long a head is waited for that is signed only when it is asked for.
const exportWait = 5 * time.Second

// Export is what the host of a node is sent, but for the layers: for whoever brings it there by hand. The errors are ObjectUnknown,
// where there is no such node, and TransferBusy, where nothing is signed for it yet.
func (x Exporter) Export(ctx context.Context, node, uid string) (wire.Export, error) {
	doing := "export what node " + node + " is to have"
	ctx, cancel := context.WithTimeout(ctx, exportWait)
	defer cancel()
	documents, _, err := x.Members.Trust(0)
	if err != nil {
		return wire.Export{}, err
	}
	for {
		head, changed, err := x.Catalogs.Head(server.Identity{Name: node, UID: uid})
		if err != nil {
			return wire.Export{}, err
		}
		if len(head) > 0 {
			list, err := x.listOf(doing, head)
			return wire.Export{Trust: documents, Head: head, List: list}, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return wire.Export{}, &reason.Error{Code: reason.TransferBusy, Doing: doing, Cause: errors.New("nothing is signed for it yet"), Hint: "see `tako why node/" + node + "`"}
		}
	}
}

// listOf is the list of a head, encoded.
func (x Exporter) listOf(doing string, head []byte) ([]byte, error) {
	_, h, err := catalog.DecodeHead(head)
	if err != nil {
		return nil, err
	}
	root, known := h.Root()
	list, found := x.Catalogs.List(root)
	if !known || !found {
		return nil, &reason.Error{Code: reason.RootUnknown, Doing: doing, Cause: errors.New("there is another one by now"), Hint: "do it again"}
	}
	return list, nil
}

// ExportLayer writes the rows of a layer that the newest head of a node names, as catalog.WriteRows does. The errors are those of Export, NotListed, RootUnknown, and
// those of w.
func (x Exporter) ExportLayer(ctx context.Context, node, uid string, root catalog.Digest, w io.Writer) error {
	doing := "export a layer of node " + node
	e, err := x.Export(ctx, node, uid)
	if err != nil {
		return err
	}
	list, err := catalog.DecodeList(e.List)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(list, func(l catalog.Layer) bool { return l.Root == root })
	if at < 0 {
		return &reason.Error{Code: reason.NotListed, Doing: doing, Cause: errors.New("root " + root.String())}
	}
	layer, found := x.Catalogs.Layer(list[at].ID, root)
	if !found {
		return &reason.Error{Code: reason.RootUnknown, Doing: doing, Cause: errors.New("there is another one by now"), Hint: "do it again"}
	}
	var unread error
	err = catalog.WriteRows(w, layer.Trie.Len(), rowsOf(layer, func(err error) {
		unread = &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: err}
	}))
	return errors.Join(unread, err)
}

// rowsOf are the rows of a layer; failed is told why they end early.
func rowsOf(l server.Layer, failed func(error)) iter.Seq2[catalog.Digest, []byte] {
	return func(yield func(catalog.Digest, []byte) bool) {
		for row, err := range l.Trie.From(catalog.Digest{}) {
			body, found := []byte(nil), false
			if err == nil {
				if body, found = l.Body(row.Digest); !found {
					err = errors.New("a body of it is missing")
				}
			}
			if err != nil {
				failed(err)
				return
			}
			if !yield(row.Key, body) {
				return
			}
		}
	}
}
