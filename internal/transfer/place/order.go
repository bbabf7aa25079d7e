package place

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// order is a place that has one layer: that of an order.
type order struct {
	file *os.File
	root catalog.Digest
}

// Order is an order that was read and is whole: its layer has the root that its statement says. The statement is not to be believed yet.
type Order struct {
	*Place
	Signed    []byte
	Statement catalog.Statement
	file      *os.File
}

// orderMax is far above what any layer has: the statement says how much of it is read.
const orderMax = 1 << 40

// NewOrder reads an order, and keeps what it says in a file of a directory that has no name there. Close gives it back. The errors are StateCorrupt, TransferWrong where its layer
// is not the one that its statement is about, and PlaceUnusable.
func NewOrder(dir, name string, r io.Reader) (*Order, error) {
	signed, layer, err := catalog.ReadOrder(r)
	if err != nil {
		return nil, readable(name, err)
	}
	_, st, err := catalog.DecodeStatement(signed)
	if err != nil {
		return nil, err
	}
	f, err := Spool(dir, layer, layerMax(min(st.Bytes, orderMax)))
	if err != nil {
		return nil, readable(name, err)
	}
	if err := verify(f, st.Root, st.Bytes); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = &reason.Error{Code: reason.TransferWrong, Doing: "read order " + name, Cause: errors.New("its layer is not the one that its statement is about"),
				Hint: "it was damaged on the way: bring it again"}
		}
		return nil, errors.Join(readable(name, err), f.Close())
	}
	return &Order{
		Place: &Place{files: order{file: f, root: st.Root}, name: name, twice: true}, Signed: signed, Statement: st, file: f,
	}, nil
}

// readable is an error of reading an order, with a code.
func readable(name string, err error) error {
	if e := new(reason.Error); errors.As(err, &e) {
		return err
	}
	return &reason.Error{Code: reason.PlaceUnusable, Doing: "read order " + name, Cause: err}
}

// Close gives the file back. What is being read from it ends with an error.
func (o *Order) Close() error { return o.file.Close() }

func (o order) open(_ context.Context, name string) (io.ReadCloser, error) {
	if name != path.Join(layersName, o.root.String()) {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(io.NewSectionReader(o.file, 0, orderMax)), nil
}
