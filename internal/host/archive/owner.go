package archive

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	// tableBytesMax bounds what is read of a passwd or group file: a million users.
	tableBytesMax = 64 << 20
	// getentTime bounds one question to the name services, which may ask a directory server that does not answer.
	getentTime = 5 * time.Second
	// getentBytesMax bounds an answer: a group of thousands has 64 KiB.
	getentBytesMax = 64 << 10
	idField        = 2 // in passwd(5) and group(5) alike
)

// tables are the files that say which numbers names have: of users, and of groups.
var tables = [2]string{"passwd", "group"}

const tablesDir = "/etc"

// named reports whether a declared owner or group is a name, which may come to mean another number.
func named(owner string) bool {
	_, err := strconv.ParseUint(owner, 10, 32)
	return owner != "" && owner != rootName && err != nil
}

// rootName is 0 everywhere, also where there is no file that says so.
const rootName = "root"

// tableWatches are the files that the names of a resource are looked up in.
func (r *resource) tableWatches() []host.Watch {
	var watches []host.Watch
	for i, name := range [len(tables)]string{r.owner, r.group} {
		if named(name) {
			watches = append(watches, host.Watch{Kind: host.WatchPath, Name: tablesDir + "/" + tables[i]})
		}
	}
	return watches
}

// tablesNow are the signatures of the files that the names of a resource are looked up in.
func (t *Type) tablesNow(r *resource) (now [len(tables)]disk.Signature, err error) {
	for i, w := range r.tableWatches() {
		st, err := t.root.Stat(w.Name)
		if err != nil {
			return now, err
		}
		now[i] = st.Signature
	}
	return now, nil
}

// renumber finds out which numbers the names have now. A shallow check does so where what says it has changed.
func (t *Type) renumber(ctx context.Context, r *resource, depth host.Depth) error {
	now, err := t.tablesNow(r)
	if err != nil {
		return err
	}
	if depth == host.Shallow && r.resolved && now == r.tables {
		return nil
	}
	r.resolved = false
	uid, gid := r.uid, r.gid
	if err := t.own(ctx, r); err != nil {
		r.uid, r.gid = uid, gid
		return err
	}
	if r.uid != uid || r.gid != gid {
		r.seen = disk.Signature{}
	}
	r.resolved, r.tables = true, now
	return nil
}

// own fills in the numbers of owner and group: those declared, or root's, or without root rights the caller's.
func (t *Type) own(ctx context.Context, r *resource) error {
	for _, o := range []struct {
		noun, file, name string
		mine             uint32
		id               *uint32
	}{{"user", tables[0], r.owner, t.uid, &r.uid}, {"group", tables[1], r.group, t.gid, &r.gid}} {
		*o.id = 0
		if t.uid != 0 {
			*o.id = o.mine
		}
		if o.name == "" {
			continue
		}
		n, err := t.number(ctx, o.noun, o.file, o.name)
		switch {
		case t.uid != 0 && (reason.Is(err, reason.UnknownOwner) || err == nil && n != o.mine):
			return &reason.Error{Code: reason.OwnerNeedsRoot, Doing: "give " + disk.Shown(r.path) + " to " + o.noun + " " + disk.Shown(o.name), Cause: err,
				Hint: "run the agent as root, or leave owner and group out"}
		case err != nil:
			return err
		}
		*o.id = n
	}
	return nil
}

// number is that of a name, which may be a number itself.
func (t *Type) number(ctx context.Context, noun, file, name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	if name == rootName {
		return 0, nil
	}
	if d, err := t.root.Dir(tablesDir); err == nil {
		defer d.Close()
		if data, _, err := d.ReadFile(file, tableBytesMax); err == nil {
			if n, found := find(data, name); found {
				return n, nil
			}
		}
	}
	var cause error
	if !t.sandboxed() {
		out, err := command.Tool{Args: []string{"getent", file, name}, Limit: getentTime, Keep: getentBytesMax}.Run(ctx)
		if n, found := find(out, name); err == nil && found {
			return n, nil
		}
		cause = err
	}
	if ctx.Err() != nil {
		return 0, reason.Ended("find "+noun+" "+disk.Shown(name), ctx.Err())
	}
	return 0, &reason.Error{Code: reason.UnknownOwner, Doing: "find " + noun + " " + disk.Shown(name), Cause: errors.Join(errors.New("nobody knows that "+noun), cause),
		Hint: "declare the " + noun + ", or correct the name"}
}

// find looks up a name in passwd(5) or group(5).
func find(data []byte, name string) (uint32, bool) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, tableBytesMax)
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), ":", idField+2)
		if fields[0] != name || len(fields) <= idField {
			continue
		}
		n, err := strconv.ParseUint(fields[idField], 10, 32)
		return uint32(n), err == nil
	}
	return 0, false
}
