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

// own fills in the numbers of owner and group: those declared, or root's, or without root rights the caller's.
func (t *Type) own(ctx context.Context, r *resource) error {
	for _, o := range []struct {
		noun, file, name string
		mine             uint32
		id               *uint32
	}{{"user", "passwd", r.owner, t.uid, &r.uid}, {"group", "group", r.group, t.gid, &r.gid}} {
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
	if d, err := t.root.Dir("/etc"); err == nil {
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
