package setting

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
)

const (
	hostsFile  = "/etc/hosts"
	fieldNames = "names"
	fieldPlace = "place"
	wordAbsent = "absent"
	// elsewhereMax bounds what a note lists.
	elsewhereMax = 5
)

// hostEntry is what /etc/hosts says of an address.
type hostEntry struct {
	hosts
	gone bool // it must be absent
}

func bindHostEntry(_ *Type, r *declare.Resource) (thing, error) {
	e := &hostEntry{hosts: hosts{text: r.HostEntry.Address, names: slices.Clone(r.HostEntry.NamesOr(r.Name))}, gone: r.HostEntry.State == declare.EditAbsent}
	if err := expanded(e.doing(), declare.HostAddressMistake, e.text); err != nil {
		return nil, err
	}
	e.address = netip.MustParseAddr(e.text)
	return e, nil
}

func (e *hostEntry) doing() string {
	if e.gone {
		return "take " + e.names[0] + " from " + e.text + " in " + hostsFile
	}
	return "give " + e.names[0] + " the address " + e.text + " in " + hostsFile
}

func (e *hostEntry) watches() []host.Watch {
	return []host.Watch{{Kind: host.WatchPath, Name: hostsFile}}
}

func (e *hostEntry) sign(s *signs) { s.file(hostsFile) }

// entrySight is what the file says of the names and the address: other lines come and go.
type entrySight struct {
	names  string // of the line that is the entry, or of all lines of the address that have one of the names
	behind string // the line before it that leads a name elsewhere
	whole  bool   // it is as declared
	lines  string // all of the address that have one of the names
}

func (e *hostEntry) look(c *call) (any, error) {
	if !c.parsed {
		f, err := c.read(hostsFile)
		if err != nil {
			return nil, err
		}
		c.lines, c.parsed = parseHosts(f.body), true
	}
	return e.see(c.lines), nil
}

// see is pure.
func (e *hostEntry) see(lines []hostsLine) entrySight {
	var s entrySight
	at, rival := slices.IndexFunc(lines, e.complete), slices.IndexFunc(lines, e.rivals)
	s.whole = at >= 0
	if at < 0 {
		at = slices.IndexFunc(lines, e.ours)
	}
	for _, o := range e.old(lines) {
		s.lines += o.Raw
	}
	switch {
	case e.gone:
		var all []string
		for _, l := range lines {
			if e.same(l) {
				all = append(all, slices.DeleteFunc(slices.Clone(l.names), func(n string) bool { return !e.declares(n) })...)
			}
		}
		s.names = strings.Join(all, " ")
	case at >= 0:
		s.names = strings.Join(lines[at].names, " ")
		if rival >= 0 && rival < at {
			s.behind = strings.TrimSpace(lines[rival].raw)
		}
	}
	return s
}

func (e *hostEntry) compare(sight any) ([]host.Change, error) {
	now := sight.(entrySight)
	var changes []host.Change
	switch {
	case e.gone && now.names != "":
		changes = append(changes, host.Change{Field: fieldNames, From: now.names, To: wordAbsent})
	case e.gone:
	case !now.whole:
		from, to := wordAbsent, e.names
		if now.names != "" {
			from, to = now.names, e.wanted(hostsLine{names: strings.Fields(now.names)})
		}
		changes = append(changes, host.Change{Field: fieldNames, From: from, To: strings.Join(to, " ")})
	}
	if now.behind != "" {
		changes = append(changes, host.Change{Field: fieldPlace, From: "after " + now.behind, To: "before it"})
	}
	return changes, nil
}

func (e *hostEntry) apply(ctx context.Context, t *Type, _ any) (work, error) {
	f, err := t.read(hostsFile)
	if err != nil {
		return work{}, err
	}
	lines := parseHosts(f.body)
	if e.gone {
		lines = e.absent(lines)
	} else {
		lines = e.present(lines)
	}
	done := work{}
	done.changed, err = t.write(ctx, f, joinHosts(lines))
	if found := e.elsewhere(lines); len(found) > 0 {
		done.note = strings.Join(found[:min(len(found), elsewhereMax)], "; ")
	}
	return done, err
}

type entryOriginal struct {
	There bool      `json:"there"` // the file was
	Lines []oldLine `json:"lines"`
}

func (e *hostEntry) original(t *Type, _ any) ([]byte, error) {
	f, err := t.read(hostsFile)
	if err != nil {
		return nil, err
	}
	return json.Marshal(entryOriginal{There: f.there(), Lines: e.old(parseHosts(f.body))})
}

func (e *hostEntry) undo(ctx context.Context, t *Type, original []byte) error {
	f, err := t.read(hostsFile)
	if err != nil {
		return err
	}
	lines := parseHosts(f.body)
	if original == nil {
		lines = e.absent(lines)
	} else {
		var o entryOriginal
		if err := unmarshal(e.doing(), original, &o); err != nil {
			return err
		}
		lines = e.restore(lines, o.Lines, e.gone)
		if !o.There && len(lines) == 0 {
			_, err = t.remove(ctx, f)
			return err
		}
	}
	if body := joinHosts(lines); f.there() || body != "" {
		_, err = t.write(ctx, f, body)
	}
	return err
}
