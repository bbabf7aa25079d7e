package facts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// ownHost is the root of a host, whose own facts a test writes.
type ownHost struct {
	t    *testing.T
	root string
	own  *Own
}

func newOwnHost(t *testing.T) *ownHost {
	h := &ownHost{t: t, root: t.TempDir()}
	root, err := disk.OpenRoot(h.root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	h.own = NewOwn(root)
	return h
}

func (h *ownHost) path(name string) string { return filepath.Join(h.root, declare.OwnFactsDir, name) }

func (h *ownHost) write(name, content string) string {
	h.t.Helper()
	p := h.path(name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return p
}

// refused wants one refusal of this code that names the place.
func (h *ownHost) refused(code reason.Code, place string, facts map[string]any, refused []error, want map[string]any) {
	h.t.Helper()
	if len(refused) != 1 || !reason.Is(refused[0], code) || !strings.Contains(refused[0].Error(), place) {
		h.t.Errorf("refused are %v, want %v of %s", refused, code, place)
	}
	if len(facts)+len(want) > 0 && !reflect.DeepEqual(facts, want) {
		h.t.Errorf("facts are %v, want %v", facts, want)
	}
}

func TestOwnFacts(t *testing.T) {
	h := newOwnHost(t)
	if facts, refused := h.own.Read(); len(facts) > 0 || len(refused) > 0 {
		t.Errorf("without a directory: %v, %v", facts, refused)
	}
	h.write("app.yaml", "role: web\n")
	h.write("site.conf", "rack=12\n")
	h.write(".site.conf.swp", "x")
	h.write("site.conf~", "x")
	good := map[string]any{"facts.custom.app.role": "web", "facts.custom.site.rack": int64(12)}
	if facts, refused := h.own.Read(); !reflect.DeepEqual(facts, good) || refused != nil {
		t.Fatalf("got %v, %v", facts, refused)
	}
	for name, c := range map[string]struct {
		code reason.Code
		make func(p string) error
	}{
		"malformed": {reason.OwnFactsMalformed, func(p string) error { return os.WriteFile(p, []byte("a: {b: c}"), 0o644) }},
		"large":     {reason.OwnFactsTooMany, func(p string) error { return os.WriteFile(p, make([]byte, declare.OwnFactsBytesMax+1), 0o644) }},
		"link":      {reason.OwnFactsUnsafe, func(p string) error { return os.Symlink("app.yaml", p) }},
		"fifo":      {reason.OwnFactsUnsafe, func(p string) error { return unix.Mkfifo(p, 0o644) }},
		"directory": {reason.OwnFactsUnsafe, func(p string) error { return os.Mkdir(p, 0o755) }},
		"of others": {reason.OwnFactsUnsafe, func(p string) error {
			if err := os.WriteFile(p, nil, 0o644); err != nil {
				return err
			}
			return os.Chmod(p, 0o664)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h.t = t
			p := h.path("bad.yaml")
			if err := c.make(p); err != nil {
				t.Fatal(err)
			}
			facts, refused := h.own.Read()
			h.refused(c.code, "bad.yaml", facts, refused, good)
			if err := os.Remove(p); err != nil {
				t.Fatal(err)
			}
		})
	}
	h.t = t
	h.write("app.json", `{"role": "db", "more": true}`)
	facts, refused := h.own.Read()
	if len(refused) != 1 || facts["facts.custom.app.role"] != "db" && facts["facts.custom.app.role"] != "web" {
		t.Errorf("of two files of one name: %v, %v", facts, refused)
	}
	if err := os.Chmod(h.path(""), 0o775); err != nil {
		t.Fatal(err)
	}
	facts, refused = h.own.Read()
	h.refused(reason.OwnFactsUnsafe, declare.OwnFactsDir, facts, refused, nil)
}

func TestOwnFactsOfAnotherOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives a file to somebody else")
	}
	h := newOwnHost(t)
	if err := os.Chown(h.write("app.yaml", "role: web\n"), 65534, 0); err != nil {
		t.Fatal(err)
	}
	facts, refused := h.own.Read()
	h.refused(reason.OwnFactsUnsafe, "uid 65534", facts, refused, nil)
}

// TestRefusalIsTakenBackWhenMended: files that are there are watched, though nobody uses what they say, and so are the modes of the
// directories: what is refused is told for as long as it is so, and no longer.
func TestRefusalIsTakenBackWhenMended(t *testing.T) {
	h := newOwnHost(t)
	h.write("app.yaml", "role: web\n")
	ctx, cancel := context.WithCancel(t.Context())
	changed, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		_ = h.own.await(ctx, changed) // that its context has ended
		close(ended)
	}()
	await := func(what string, want int) {
		t.Helper()
		for deadline := time.After(time.Minute); ; {
			_, refused := h.own.Read()
			if len(refused) == want {
				return
			}
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("%s: refused are %v, want %d", what, refused, want)
			}
		}
	}
	await("a good file", 0)
	<-changed // it is watched
	for _, name := range []string{"app.yaml", "", ".."} {
		for _, c := range []struct {
			mode os.FileMode
			want int
		}{{0o777, 1}, {0o755, 0}} {
			if err := os.Chmod(h.path(name), c.mode); err != nil {
				t.Fatal(err)
			}
			await(fmt.Sprintf("%q of mode %o", name, c.mode), c.want)
		}
	}
	h.write("app.yaml", "role\n")
	await("a malformed file", 1)
	h.write("app.yaml", "role: db\n")
	await("a mended file", 0)
	cancel()
	<-ended
}

// TestWatchOwnFacts: nothing is watched before somebody asks; then every change is told, also that the directory comes.
func TestWatchOwnFacts(t *testing.T) {
	h := newOwnHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	changed, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		_ = h.own.await(ctx, changed) // that its context has ended
		close(ended)
	}()
	await := func(want any) {
		t.Helper()
		for deadline := time.After(time.Minute); ; {
			facts, _ := h.own.Read()
			if facts["facts.custom.app.role"] == want {
				return
			}
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("not told of %v", want)
			}
		}
	}
	h.write("app.yaml", "role: early\n")
	select {
	case <-changed:
		t.Error("watches what nobody has asked for")
	default:
	}
	h.own.Ask()
	h.own.Ask()
	<-changed
	await("early")
	h.write("app.yaml", "role: web\n")
	await("web")
	if err := os.RemoveAll(filepath.Join(h.root, "etc")); err != nil {
		t.Fatal(err)
	}
	await(nil)
	h.write("app.yaml", "role: again\n")
	await("again")
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("does not end with its context")
	}
}

// TestOwnFactsThatCannotBeWatched: who has no descriptors left says so, and watches when it is called again.
func TestOwnFactsThatCannotBeWatched(t *testing.T) {
	h := newOwnHost(t)
	h.write("app.yaml", "role: web\n")
	h.own.Ask()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	limit := func(soft uint64) {
		t.Helper()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: soft, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	limit(0)
	err := h.own.await(ctx, changed)
	limit(before.Cur)
	if err == nil || len(changed) != 0 {
		t.Errorf("without descriptors: %v", err)
	}
	go func() { ended <- h.own.await(ctx, changed) }()
	<-changed // it is watched
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
