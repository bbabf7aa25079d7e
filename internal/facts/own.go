package facts

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/watch"
	"tako.dev/tako/internal/reason"
)

// Bounds of the directory of own facts: everything in it is held in memory, and compared at each change.
const (
	ownFilesMax = 64
	ownFactsMax = 512
)

// writableByOthers are the permissions by which somebody other than the owner could change a file.
const writableByOthers = 0o022

// Own are the facts that the administrator of the host has written down in files of declare.OwnFactsDir. Its methods may be
// called from several goroutines.
type Own struct {
	root  *disk.Root
	once  sync.Once
	asked chan struct{} // closed when there is a reason to watch
}

// NewOwn makes the own facts of the host that is below root.
func NewOwn(root *disk.Root) *Own { return &Own{root: root, asked: make(chan struct{})} }

// Ask notes that an own fact is used. Only from then on, or from when Read has found files, Watch keeps an eye on the directory: most
// hosts have none.
func (o *Own) Ask() { o.once.Do(func() { close(o.asked) }) }

// Read reads all files. Those that are refused are told one by one, as *reason.Error; the facts are those of the others.
func (o *Own) Read() (facts map[string]any, refused []error) {
	dir, err := o.open()
	if dir != nil || err != nil {
		o.Ask() // what is refused is told until it is mended, also where nothing uses it
	}
	if err != nil {
		return nil, []error{err}
	}
	if dir == nil {
		return nil, nil
	}
	defer dir.Close() // nothing was written
	names, err := dir.Names(ownFilesMax)
	if reason.Is(err, reason.BodyTooLarge) {
		return nil, []error{tooMany(declare.OwnFactsDir, fmt.Sprintf("more than %d files", ownFilesMax))}
	}
	if err != nil {
		return nil, []error{err}
	}
	facts = map[string]any{}
	for _, name := range names {
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") {
			continue // what editors leave
		}
		some, err := readOwn(dir, name)
		if err == nil && len(facts)+len(some) > ownFactsMax {
			return facts, append(refused, tooMany(path.Join(declare.OwnFactsDir, name), fmt.Sprintf("more than %d facts up to this file", ownFactsMax)))
		}
		if err != nil {
			refused = append(refused, err)
		}
		for key, value := range some {
			if _, twice := facts[key]; twice {
				err := fmt.Errorf("%s is in another file of this name too", key)
				refused = append(refused, &reason.Error{Code: reason.OwnFactsMalformed, Doing: "read own facts " + dir.Join(name), Cause: err, Hint: "keep one of the two"})
				continue
			}
			facts[key] = value
		}
	}
	return facts, refused
}

// open opens the directory, nil where there is none.
func (o *Own) open() (*disk.Dir, error) {
	for _, p := range []string{path.Dir(declare.OwnFactsDir), declare.OwnFactsDir} {
		st, err := o.root.Stat(p)
		if err != nil || !st.Exists() {
			return nil, err
		}
		dir, err := o.root.Dir(p)
		if err != nil {
			return nil, err
		}
		if st, err = dir.Stat(""); err == nil {
			err = trusted(p, st)
		}
		if err == nil && p == declare.OwnFactsDir {
			return dir, nil
		}
		_ = dir.Close() // nothing was written
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func readOwn(dir *disk.Dir, name string) (map[string]any, error) {
	content, st, err := dir.ReadFile(name, declare.OwnFactsBytesMax)
	if reason.Is(err, reason.TypeInTheWay) {
		return nil, &reason.Error{Code: reason.OwnFactsUnsafe, Doing: "read own facts " + disk.Shown(dir.Join(name)), Cause: err, Hint: "put the file itself there"}
	}
	if reason.Is(err, reason.BodyTooLarge) {
		return nil, tooMany(dir.Join(name), fmt.Sprintf("more than %d bytes", declare.OwnFactsBytesMax))
	}
	if err != nil {
		return nil, err
	}
	if err := trusted(dir.Join(name), st); err != nil {
		return nil, err
	}
	return declare.ReadOwnFacts(name, content)
}

// trusted refuses what somebody other than root, or who runs the agent in a sandbox, could change.
func trusted(p string, st disk.Stat) error {
	cause := ""
	switch {
	case st.UID != 0 && int(st.UID) != os.Geteuid():
		cause = fmt.Sprintf("it belongs to uid %d", st.UID)
	case st.Mode&writableByOthers != 0:
		cause = fmt.Sprintf("others may write to it, its mode is %04o", st.Perm())
	default:
		return nil
	}
	shown := disk.Shown(p)
	return &reason.Error{Code: reason.OwnFactsUnsafe, Doing: "read own facts " + shown, Cause: fmt.Errorf("%s", cause),
		Hint: "chown root:root " + shown + " && chmod go-w " + shown}
}

func tooMany(p, what string) error {
	return &reason.Error{Code: reason.OwnFactsTooMany, Doing: "read own facts " + disk.Shown(p), Cause: fmt.Errorf("%s", what)}
}

// await notes changes of the directory, from when somebody has asked until ctx ends. Where the kernel's limit on watches
// is reached it returns that; until it is called again the files are looked at with the next change of anything else, and by the audit.
func (o *Own) await(ctx context.Context, changed chan<- struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-o.asked:
	}
	w, err := watch.New(o.root)
	if err != nil {
		return err
	}
	defer w.Close() // nothing was written
	if err := w.WatchDir(declare.OwnFactsDir, 0); err != nil {
		return err
	}
	note(changed) // what came before the watch
	return w.Run(ctx, func([]watch.Event) { note(changed) })
}
