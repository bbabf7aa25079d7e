package trust

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"tako.dev/tako/internal/reason"
)

func TestSecretIsMadeOnceAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	made, created, err := LoadOrCreateSecret(path)
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	again, created, err := LoadOrCreateSecret(path)
	if err != nil || created || again.ID() != made.ID() {
		t.Fatalf("the second time created %v, id %s, %v; want %s", created, again.ID(), err, made.ID())
	}
	plain, _, err := again.Open(PurposeObject, "n", made.Seal(PurposeObject, "n", []byte("text")))
	if err != nil || string(plain) != "text" {
		t.Errorf("what was sealed before is %q, %v", plain, err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	b, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(b), "Key-Id: "+made.ID()) {
		t.Errorf("the file does not name its key (%v)", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%v is left beside the file (%v)", left, err)
	}
}

// Servers that start at once on one file system agree on one secret.
func TestSecretIsMadeByOneOfMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	const many = 16
	ids, made := make([]string, many), make([]bool, many)
	var group sync.WaitGroup
	for i := range many {
		group.Go(func() {
			r, created, err := LoadOrCreateSecret(path)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i], made[i] = r.ID(), created
		})
	}
	group.Wait()
	count := 0
	for i := range many {
		if made[i] {
			count++
		}
		if ids[i] != ids[0] {
			t.Errorf("two secrets: %s and %s", ids[i], ids[0])
		}
	}
	if count != 1 {
		t.Errorf("%d callers made the secret", count)
	}
}

func TestSecretFileRefused(t *testing.T) {
	good := encodeSecret(NewRing())
	other := encodeSecret(NewRing())
	damaged := bytes.Clone(good)
	at := bytes.Index(damaged, []byte("\n\n")) + 5
	damaged[at] = 'A' + (damaged[at]-'A'+1)%26
	write := func(content []byte, mode fs.FileMode) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, content, mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		make func(*testing.T, string)
		code reason.Code
	}{
		"missing":         {func(*testing.T, string) {}, reason.KeyFileDamaged},
		"group may read":  {write(good, 0o640), reason.KeyFileUnsafe},
		"others may read": {write(good, 0o604), reason.KeyFileUnsafe},
		"others may run":  {write(good, 0o601), reason.KeyFileUnsafe},
		"group may write": {write(good, 0o620), reason.KeyFileUnsafe},
		"empty":           {write(nil, 0o600), reason.KeyFileDamaged},
		"cut off":         {write(good[:len(good)/2], 0o600), reason.KeyFileDamaged},
		"damaged":         {write(damaged, 0o600), reason.KeyFileDamaged},
		"text behind":     {write(append(bytes.Clone(good), "more"...), 0o600), reason.KeyFileDamaged},
		"too large":       {write(bytes.Repeat([]byte("\n"), secretFileMax+1), 0o600), reason.KeyFileDamaged},
		"same key twice":  {write(append(bytes.Clone(good), good...), 0o600), reason.KeyFileDamaged},
		"another key":     {write(NewSigningKey().EncodePEM(), 0o600), reason.KeyFileDamaged},
		"symlink": {func(t *testing.T, path string) {
			write(good, 0o600)(t, path+".real")
			if err := os.Symlink(path+".real", path); err != nil {
				t.Fatal(err)
			}
		}, reason.KeyFileUnsafe},
		"pipe": {func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, reason.KeyFileUnsafe},
		"directory": {func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, reason.KeyFileUnsafe},
		"another owner": {func(t *testing.T, path string) {
			if os.Geteuid() != 0 {
				t.Skip("needs root, to give a file away")
			}
			write(good, 0o600)(t, path)
			if err := os.Chown(path, 65534, -1); err != nil {
				t.Fatal(err)
			}
		}, reason.KeyFileUnsafe},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret")
			c.make(t, path)
			_, err := LoadSecret(path)
			wantCode(t, err, c.code)
			if missing := name == "missing"; errors.Is(err, fs.ErrNotExist) != missing {
				t.Errorf("that it is not there is said as %v", err)
			}
			if name != "missing" {
				// What is there is never replaced.
				if _, created, err := LoadOrCreateSecret(path); created || err == nil {
					t.Errorf("it was made anew (%v)", err)
				}
			}
		})
	}
	two := filepath.Join(t.TempDir(), "two")
	write(append(bytes.Clone(good), other...), 0o600)(t, two)
	if r, err := LoadSecret(two); err != nil || len(r.keys) != 2 {
		t.Errorf("a file with two keys: %v", err)
	}
}

func TestPrivateFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := WritePrivate(path, []byte("one")); err != nil {
		t.Fatal(err)
	}
	err := CreatePrivate(path, []byte("two"))
	wantCode(t, err, reason.StateUnwritable)
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("that it is there is said as %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WritePrivate(path, []byte("three")); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadPrivate(path, 5); err != nil || string(b) != "three" {
		t.Errorf("read %q, %v", b, err)
	}
	_, err = ReadPrivate(path, 4)
	wantCode(t, err, reason.KeyFileDamaged)
	wantCode(t, WritePrivate(filepath.Join(dir, "no", "f"), nil), reason.StateUnwritable)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

func TestSaveSigningKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	key := NewSigningKey()
	if err := SaveSigningKey(key, path); err != nil {
		t.Fatal(err)
	}
	if k, err := LoadSigningKey(path); err != nil || k.Public() != key.Public() {
		t.Errorf("%v, %v", k, err)
	}
	err := SaveSigningKey(NewSigningKey(), path)
	wantCode(t, err, reason.StateUnwritable)
	if k, err := LoadSigningKey(path); err != nil || k.Public() != key.Public() {
		t.Errorf("a key was written over: %v, %v", k, err)
	}
}

// nobody is a user that is not this one.
const nobody = 65534

// TestRootReads: root reads the keys of a server in that server's directory, and nobody else's; it is told no command that would take
// the file away from the server.
func TestRootReads(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	for name, c := range map[string]struct {
		directory, file int
		mode            fs.FileMode
		good            bool
	}{
		"the server's":                {nobody, nobody, 0o600, true},
		"root's in the server's":      {nobody, 0, 0o600, true},
		"another's in the server's":   {nobody, nobody - 1, 0o600, false},
		"another's in root's":         {0, nobody, 0o600, false},
		"the server's, for its group": {nobody, nobody, 0o640, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "key")
			if err := CreatePrivate(path, NewSigningKey().EncodePEM()); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Chmod(path, c.mode), os.Chown(path, c.file, -1), os.Chown(dir, c.directory, -1)); err != nil {
				t.Fatal(err)
			}
			_, err := LoadSigningKey(path)
			if c.good {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantCode(t, err, reason.KeyFileUnsafe)
			if hint := reason.Of(err).Hint; hint == "" || strings.Contains(hint, "chown") {
				t.Errorf("hint %q", hint)
			}
		})
	}
}

// TestRootWrites: what root writes into the directory of a server is that server's, and nothing is written where a link in it leads to.
func TestRootWrites(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	dir, elsewhere := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Symlink(elsewhere, filepath.Join(dir, "trust")), os.Chown(dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	in, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := WritePrivateIn(in, "key", []byte("one")); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	if owner, _ := ownerOf(st); owner != nobody || st.Mode().Perm() != 0o600 {
		t.Errorf("user %d, mode %v", owner, st.Mode())
	}
	wantCode(t, WritePrivateIn(in, "trust/key", []byte("one")), reason.StateUnwritable)
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) != 0 {
		t.Errorf("%v was written elsewhere (%v)", left, err)
	}
}

func FuzzDecodeSecret(f *testing.F) {
	good := encodeSecret(NewRing())
	for _, b := range [][]byte{nil, good, append(bytes.Clone(good), encodeSecret(NewRing())...), good[:40], []byte("-----BEGIN TAKO MACHINE SECRET-----")} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeSecret(b)
		if err != nil {
			return
		}
		back, err := decodeSecret(encodeSecret(r))
		if err != nil || back.ID() != r.ID() || len(back.keys) != len(r.keys) {
			t.Errorf("%q came back as %v, %v", b, back, err)
		}
	})
}

func FuzzDecodeSigningKey(f *testing.F) {
	good := NewSigningKey().EncodePEM()
	for _, b := range [][]byte{nil, good, good[:50], append(bytes.Clone(good), good...), bytes.Repeat([]byte("a"), keyFileMax+1)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := DecodeSigningKey(b)
		if err != nil {
			wantCode(t, err, reason.KeyFileDamaged)
			return
		}
		if back, err := DecodeSigningKey(k.EncodePEM()); err != nil || back.Public() != k.Public() {
			t.Errorf("%q came back as %v, %v", b, back, err)
		}
	})
}
