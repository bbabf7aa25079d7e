package trust

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"tako.dev/tako/internal/reason"
)

const (
	privateMode = 0o600
	othersMode  = 0o077
)

// ReadPrivate reads a file that only its owner may read, of at most sizeMax bytes. Root may also read what belongs to the owner of
// the directory that it is in: a server has a user of its own, and root works on its directory. Errors: KeyFileUnsafe when it is a
// symlink or no regular file, when its group or others have any right, or when it belongs to somebody else; KeyFileDamaged when it
// is missing, too large, or cannot be read.
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
	if hint, cause := exposed(path, st); cause != nil {
		return nil, &reason.Error{Code: reason.KeyFileUnsafe, Doing: doing, Cause: cause, Hint: hint}
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

// exposed says why others could read or replace the content of a file, and what to do about it; nil when they cannot.
func exposed(path string, st fs.FileInfo) (hint string, cause error) {
	me := os.Geteuid()
	owner, known := ownerOf(st)
	switch {
	case !st.Mode().IsRegular():
		return "name a file", errors.New("it is no regular file")
	case st.Mode().Perm()&othersMode != 0:
		return fmt.Sprintf("if nobody else has read it: chmod %04o %s", privateMode, path), fmt.Errorf("its mode is %04o, want %04o", st.Mode().Perm(), privateMode)
	case !known || owner == me || me == 0 && ownsDirectory(owner, filepath.Dir(path)):
		return "", nil
	case me == 0:
		return "copy it to where nobody else can write, and name the copy", fmt.Errorf("it belongs to %s, and its directory does not", UserName(owner))
	}
	return fmt.Sprintf("if nobody else has read it, as root: chown %d %s", me, path), fmt.Errorf("it belongs to %s and is read by %s", UserName(owner), UserName(me))
}

func ownsDirectory(user int, path string) bool {
	st, err := os.Stat(path)
	if err != nil {
		return false
	}
	owner, known := ownerOf(st)
	return known && owner == user
}

func ownerOf(st fs.FileInfo) (uid int, known bool) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(sys.Uid), true
}

// UserName names a user for a person: by name and number, or by number alone where no name is known.
func UserName(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return fmt.Sprintf("user %d", uid)
	}
	return fmt.Sprintf("%s (user %d)", u.Username, uid)
}

// WritePrivate writes a file that only its owner may read, mode 0600, in the place of what is there: after a crash the old or the
// new content is there, whole. The directory must exist. Errors: StateUnwritable.
func WritePrivate(path string, content []byte) error {
	return writePrivateAt(path, content, (*os.Root).Rename)
}

// CreatePrivate is WritePrivate for a file that must not be there yet: a key is never written over. Errors: StateUnwritable, with
// the cause fs.ErrExist when it is there.
func CreatePrivate(path string, content []byte) error {
	return writePrivateAt(path, content, (*os.Root).Link) // link refuses what exists, in one step with making it
}

func writePrivateAt(path string, content []byte, place func(in *os.Root, temporary, name string) error) error {
	in, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return unwritable(path, err)
	}
	err = writePrivate(in, filepath.Base(path), content, place)
	if err = errors.Join(err, in.Close()); err != nil {
		return unwritable(path, err)
	}
	return nil
}

// WritePrivateIn is WritePrivate for a file in a directory that may belong to another user than this process, which is root then:
// the file gets the owner of the directory, and nothing outside of the directory is touched, whatever its owner has put there.
func WritePrivateIn(in *os.Root, name string, content []byte) error {
	give := func(f *os.File) error { return giveToOwner(in, f) }
	if err := writePrivate(in, name, content, (*os.Root).Rename, give); err != nil {
		return unwritable(filepath.Join(in.Name(), name), err)
	}
	return nil
}

// giveToOwner gives a file that root has made to the owner of the directory.
func giveToOwner(in *os.Root, f *os.File) error {
	st, err := in.Stat(".")
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || sys.Uid == 0 {
		return nil
	}
	return f.Chown(int(sys.Uid), int(sys.Gid))
}

func unwritable(path string, err error) error {
	return &reason.Error{Code: reason.StateUnwritable, Doing: "write private file " + path, Cause: err}
}

// writePrivate writes beside, prepares what it has written, and places it.
func writePrivate(in *os.Root, name string, content []byte, place func(in *os.Root, temporary, name string) error, prepare ...func(*os.File) error) error {
	temporary := filepath.Join(filepath.Dir(name), ".tako-"+rand.Text())
	err := writeSynced(in, temporary, content, prepare)
	if err == nil {
		err = place(in, temporary, name)
	}
	if e := in.Remove(temporary); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	if err == nil {
		err = SyncDirectory(in, filepath.Dir(name))
	}
	return err
}

func writeSynced(in *os.Root, name string, content []byte, prepare []func(*os.File) error) error {
	f, err := in.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateMode)
	if err != nil {
		return err
	}
	err = f.Chmod(privateMode) // the umask may have taken bits of the owner's
	for _, p := range prepare {
		if err == nil {
			err = p(f)
		}
	}
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// SyncDirectory makes durable what was made, renamed or removed in a directory; "." is the root itself.
func SyncDirectory(in *os.Root, name string) error {
	d, err := in.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// SaveSigningKey writes a signing key to a new file, and reads it back. Errors: those of LoadSigningKey and CreatePrivate.
func SaveSigningKey(key *SigningKey, path string) error {
	if err := CreatePrivate(path, key.EncodePEM()); err != nil {
		return err
	}
	back, err := LoadSigningKey(path)
	if err != nil {
		return err
	}
	if back.Public() != key.Public() {
		return &reason.Error{Code: reason.KeyFileDamaged, Doing: "read back key file " + path, Cause: errors.New("it holds another key than was written")}
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
