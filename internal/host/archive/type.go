package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// Options are what New needs.
type Options struct {
	Root *disk.Root
	// Objects has what declarations name by digest. Nil, for dry runs, means that nothing can be made of it.
	Objects *content.Objects
	// StateDir is a directory of the host, where the records are kept.
	StateDir string
}

// Type is the resource type archive.
type Type struct {
	root     *disk.Root
	objects  *content.Objects // may be nil
	records  string           // directory
	uid, gid uint32           // the agent's own; uid 0 may give things to anybody

	// working is held while something is changed: Forget removes what earlier runs have left, and must not take that for one.
	working sync.Mutex
}

var (
	_ host.Type    = (*Type)(nil)
	_ host.Sweeper = (*Type)(nil)
	_ host.Keeper  = (*Type)(nil)
)

// New makes the Type, for an agent that runs as this process does.
func New(o Options) *Type {
	return &Type{root: o.Root, objects: o.Objects, records: filepath.Join(o.StateDir, "archives"), uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
}

// Lane returns the lane of archives: one at a time, because each may keep the disk busy for long.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypeArchive), Parallel: 1, Batch: 1}
}

// resource is one bound archive.
type resource struct {
	path     string
	owner    string
	group    string
	uid, gid uint32
	strip    int
	umask    uint32
	bytesMax int64
	force    bool

	source string // path of the archive; empty for an object
	key    string // of the resource, for who gives the object out
	digest content.Digest
	size   int64

	tables   [len(tables)]disk.Signature // what says which numbers owner and group have, as it was when they were looked up
	resolved bool                        // they were

	sourceSeen disk.Signature // the source as it was hashed last
	seen       disk.Signature // the directory, when it was last known to be as declared; zero when it is not
	settled    bool           // no later change can leave the signature seen
	quick      imprint        // the imprint by stat, where that differs from the record's although the contents do not
}

// Watches names the directory, the archive where that is a file, and what says which numbers the names of owner and group have. Of what is
// deeper in the directory nothing tells.
func (r *resource) Watches() []host.Watch {
	watches := append([]host.Watch{{Kind: host.WatchPath, Name: r.path}}, r.tableWatches()...)
	if r.source != "" {
		watches = append(watches, host.Watch{Kind: host.WatchPath, Name: r.source})
	}
	return watches
}

func (r *resource) doing() string { return "unpack an archive to " + disk.Shown(r.path) }

// mode is the directory's own.
func (r *resource) mode() uint32 { return 0o777&^r.umask | ownerMode }

// recipe is a hash of all that decides what is in the directory, in hexadecimal digits.
func (r *resource) recipe() string {
	b, err := json.Marshal([]any{r.digest, r.strip, r.uid, r.gid, r.umask})
	if err != nil {
		return "" // there is nothing in it that could not be written
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Bind makes an archive ready.
func (t *Type) Bind(ctx context.Context, d host.Declared) (host.Resource, error) {
	a := d.Resource.Archive
	if a == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not an archive")}
	}
	r := &resource{path: a.Path, owner: a.Owner, group: a.Group, strip: a.Strip, umask: a.UmaskOrDefault(), bytesMax: a.SizeBytesMaxOrDefault(), force: a.Force,
		source: a.From.Path, key: d.Key}
	if !d.Leaving { // whose it was to be does not matter then
		if err := t.own(ctx, r); err != nil {
			return nil, err
		}
	}
	if o := a.From.Object; o != nil {
		var err error
		if r.digest, err = content.ParseDigest(o.Digest); err != nil {
			return nil, err
		}
		r.size = o.SizeBytes
		if t.objects != nil {
			t.objects.Use(r.digest)
			runtime.AddCleanup(r, t.objects.Release, r.digest)
		}
	}
	return r, nil
}

// sandboxed reports whether paths begin elsewhere than at the host's own root.
func (t *Type) sandboxed() bool { return t.root.Path() != "/" }
