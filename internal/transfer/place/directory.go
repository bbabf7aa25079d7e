package place

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// directory reads a directory. Each file is opened anew, so that a stick is only in use while it is read.
type directory struct{ path string }

// Directory is the place at a path.
func Directory(path string) *Place { return &Place{files: directory{path}, name: path, twice: true} }

// open opens a regular file, also where a link leads to it; nothing outside of the directory is followed.
func (d directory) open(_ context.Context, name string) (io.ReadCloser, error) {
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New(name+" is no file"), f.Close())
	}
	return f, nil
}

// Writer writes a place into a directory. What others read meanwhile is the old file or the new one, whole; write what is named before
// what names it.
type Writer struct{ path string }

// NewWriter makes the directory where it is missing. The error is StateUnwritable.
func NewWriter(path string) (*Writer, error) {
	w := &Writer{path: path}
	for _, dir := range []string{"", headsName, listsName, layersName} {
		if err := os.Mkdir(filepath.Join(path, dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, w.failed(dir, err)
		}
	}
	return w, nil
}

func (w *Writer) failed(name string, err error) error {
	return &reason.Error{Code: reason.StateUnwritable, Doing: "write " + filepath.Join(w.path, name), Cause: err}
}

// Trust writes the trust documents.
func (w *Writer) Trust(chain *trust.Chain) error {
	text, err := chain.Encode()
	if err != nil {
		return err
	}
	return w.write(trustName, bytes.NewReader(text))
}

// Head writes the signed head of a node.
func (w *Writer) Head(uid string, signed []byte) error {
	if !plain(uid) {
		return w.failed(headsName, fmt.Errorf("%.64q is no UID", uid))
	}
	return w.write(path.Join(headsName, uid), bytes.NewReader(signed))
}

// List writes an encoded list.
func (w *Writer) List(encoded []byte) error {
	return w.write(path.Join(listsName, catalog.ListRoot(encoded).String()), bytes.NewReader(encoded))
}

// HasLayer tells whether a layer is there. Files are replaced as a whole, so that one that is there is complete.
func (w *Writer) HasLayer(root catalog.Digest) bool {
	_, err := os.Lstat(filepath.Join(w.path, layersName, root.String()))
	return err == nil
}

// Layer writes the rows of a layer, as catalog.WriteRows has written them.
func (w *Writer) Layer(root catalog.Digest, rows io.Reader) error {
	return w.write(path.Join(layersName, root.String()), rows)
}

// Statement adds a signed statement to those that are there, in place of one about the same layer with a lower number.
func (w *Writer) Statement(signed []byte) error {
	_, st, err := catalog.DecodeStatement(signed)
	if err != nil {
		return err
	}
	all, err := Directory(w.path).Statements(context.Background())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all = slices.DeleteFunc(all, func(b []byte) bool {
		_, old, err := catalog.DecodeStatement(b)
		return err != nil || old.Cluster == st.Cluster && old.Layer == st.Layer && (old.Epoch < st.Epoch || old.Epoch == st.Epoch && old.Number <= st.Number)
	})
	data, err := EncodeStatements(append(all, signed))
	if err != nil {
		return err
	}
	return w.write(statementsName, bytes.NewReader(data))
}

func (w *Writer) write(name string, content io.Reader) error {
	root, err := os.OpenRoot(w.path)
	if err != nil {
		return w.failed(name, err)
	}
	defer root.Close()
	name = filepath.FromSlash(name)
	temporary := filepath.Join(filepath.Dir(name), ".tako-"+rand.Text())
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) // nothing in it is for one reader alone
	if err != nil {
		return w.failed(name, err)
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Sync() // sticks are pulled out
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temporary, name)
	}
	if err == nil {
		err = trust.SyncDirectory(root, filepath.Dir(name))
	}
	if err != nil {
		return w.failed(name, errors.Join(err, ignoreMissing(root.Remove(temporary))))
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
