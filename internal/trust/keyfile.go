package trust

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"tako.dev/tako/internal/reason"
)

const (
	privateMode = 0o600
	othersMode  = 0o077
)

// ReadPrivate reads a file that only its owner may read, of at most sizeMax bytes. Errors: KeyFileUnsafe when it is a symlink or
// no regular file, when its group or others have any right, or when it belongs to somebody else; KeyFileDamaged when it is
// missing, too large, or cannot be read.
func ReadPrivate(path string, sizeMax int64) ([]byte, error) {
	doing := "read key file " + path
	// O_NONBLOCK so that a pipe in its place is refused and not waited for.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, &reason.Error{Code: reason.KeyFileUnsafe, Doing: doing, Cause: errors.New("it is a symlink"), Hint: "name the file itself"}
	}
	if err != nil {
		return nil, fileError(doing, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fileError(doing, err)
	}
	if err := private(st); err != nil {
		return nil, &reason.Error{
			Code: reason.KeyFileUnsafe, Doing: doing, Cause: err,
			Hint: fmt.Sprintf("if nobody else has read it: chown %d %s && chmod 0600 %s", os.Geteuid(), path, path),
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, sizeMax+1))
	if err != nil {
		return nil, fileError(doing, err)
	}
	if int64(len(b)) > sizeMax {
		return nil, &reason.Error{Code: reason.KeyFileDamaged, Doing: doing, Cause: fmt.Errorf("it has more than %d bytes", sizeMax)}
	}
	return b, nil
}

// private says why others could read or replace the content of a file.
func private(st fs.FileInfo) error {
	if !st.Mode().IsRegular() {
		return errors.New("it is no regular file")
	}
	if st.Mode().Perm()&othersMode != 0 {
		return fmt.Errorf("its mode is %04o, want %04o", st.Mode().Perm(), privateMode)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to user %d and is read by user %d", sys.Uid, os.Geteuid())
	}
	return nil
}

// WritePrivate writes a file that only its owner may read, mode 0600, in the place of what is there: after a crash the old or the
// new content is there, whole. The directory must exist. Errors: StateUnwritable.
func WritePrivate(path string, content []byte) error {
	return writePrivate("write key file "+path, path, content, os.Rename)
}

// CreatePrivate is WritePrivate for a file that must not be there yet: a key is never written over. Errors: StateUnwritable, with
// the cause fs.ErrExist when it is there.
func CreatePrivate(path string, content []byte) error {
	return writePrivate("create key file "+path, path, content, os.Link) // link refuses what exists, in one step with making it
}

func writePrivate(doing, path string, content []byte, place func(temporary, path string) error) error {
	temporary := filepath.Join(filepath.Dir(path), ".tako-"+rand.Text())
	err := writeSynced(temporary, content)
	if err == nil {
		err = place(temporary, path)
	}
	if e := os.Remove(temporary); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	if err == nil {
		err = syncDirectory(filepath.Dir(path))
	}
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: doing, Cause: err}
	}
	return nil
}

func writeSynced(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateMode)
	if err != nil {
		return err
	}
	err = f.Chmod(privateMode) // the umask may have taken bits of the owner's
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MoveKey copies the signing key in file from to a new file, and removes the first one when asked to, after the copy is durable
// and was read back. Errors: those of LoadSigningKey and CreatePrivate.
func MoveKey(from, to string, remove bool) error {
	key, err := LoadSigningKey(from)
	if err != nil {
		return err
	}
	if err := CreatePrivate(to, key.EncodePEM()); err != nil {
		return err
	}
	back, err := LoadSigningKey(to)
	if err != nil {
		return err
	}
	if back.Public() != key.Public() {
		return &reason.Error{Code: reason.KeyFileDamaged, Doing: "read back key file " + to, Cause: errors.New("it holds another key than was written")}
	}
	if !remove {
		return nil
	}
	err = os.Remove(from)
	if err == nil {
		err = syncDirectory(filepath.Dir(from))
	}
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "remove key file " + from, Cause: err}
	}
	return nil
}

// fileError gives an error of the operating system its code.
func fileError(doing string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return &reason.Error{Code: reason.PermissionDenied, Doing: doing, Cause: err}
	}
	return &reason.Error{Code: reason.KeyFileDamaged, Doing: doing, Cause: err}
}
