package setting

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
)

const (
	hostnameFile = "/etc/hostname"
	hostnameLive = "/proc/sys/kernel/hostname"
	fieldName    = "name"
)

// hostname is the host's name.
type hostname struct{ name string }

func bindHostname(t *Type, r *declare.Resource) (thing, error) {
	h := &hostname{name: r.Hostname.Name}
	if err := expanded(h.doing(), declare.HostnameMistake, h.name); err != nil {
		return nil, err
	}
	return t.kernelOnly(h)
}

func (h *hostname) doing() string { return "name the host " + h.name }

// watches names the file, and where the kernel shows the name: that is told when somebody writes it there, and not of sethostname(2).
func (h *hostname) watches() []host.Watch {
	return []host.Watch{{Kind: host.WatchPath, Name: hostnameFile}, {Kind: host.WatchPath, Name: hostnameLive}}
}

func (h *hostname) sign(s *signs) {
	live, err := os.Hostname()
	s.failed = s.failed || err != nil
	s.text(live)
	s.file(hostnameFile)
}

// hostnameSight is how the host is named.
type hostnameSight struct {
	live string
	file string
	has  bool // the file is there
}

func (h *hostname) look(c *call) (any, error) {
	live, err := os.Hostname()
	if err != nil {
		return nil, refused("read the host's name", err)
	}
	f, err := c.read(hostnameFile)
	if err != nil {
		return nil, err
	}
	return hostnameSight{live: live, file: f.body, has: f.there()}, nil
}

// staticName is the name in a file of hostname(5): its first line that is no comment.
func staticName(body string) string {
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return line
		}
	}
	return ""
}

func (h *hostname) compare(sight any) ([]host.Change, error) {
	now := sight.(hostnameSight)
	var changes []host.Change
	if now.live != h.name {
		changes = append(changes, host.Change{Field: fieldName, From: now.live, To: h.name})
	}
	if static := staticName(now.file); static != h.name {
		changes = append(changes, host.Change{Field: fieldBoot, From: static, To: h.name})
	}
	return changes, nil
}

func (h *hostname) apply(ctx context.Context, t *Type, sight any) (work, error) {
	now := sight.(hostnameSight)
	var done work
	if now.live != h.name {
		if err := unix.Sethostname([]byte(h.name)); err != nil {
			return done, refused(h.doing(), err)
		}
		done.changed = true
	}
	if staticName(now.file) == h.name {
		return done, nil
	}
	f, err := t.read(hostnameFile)
	if err != nil {
		return done, err
	}
	changed, err := t.write(ctx, f, h.name+"\n")
	done.changed = done.changed || changed
	return done, err
}

type hostnameOriginal struct {
	Live string  `json:"live"`
	File *string `json:"file,omitempty"`
}

func (h *hostname) original(_ *Type, sight any) ([]byte, error) {
	now := sight.(hostnameSight)
	o := hostnameOriginal{Live: now.live}
	if now.has {
		o.File = &now.file
	}
	return json.Marshal(o)
}

// undo with delete takes the file away: the host has its name until the next boot.
func (h *hostname) undo(ctx context.Context, t *Type, original []byte) error {
	var o hostnameOriginal
	if original != nil {
		if err := unmarshal(h.doing(), original, &o); err != nil {
			return err
		}
		if live, err := os.Hostname(); err != nil || live != o.Live {
			if err := unix.Sethostname([]byte(o.Live)); err != nil {
				return refused(h.doing(), err)
			}
		}
	}
	return t.put(ctx, hostnameFile, o.File)
}
