package apt

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"tako.dev/tako/internal/host/packages"
)

// state is how far a package is installed: the third word of dpkg's Status, dpkg(1), "Package states".
type state uint8

const (
	notInstalled state = iota
	configFiles
	halfInstalled
	unpacked
	halfConfigured
	triggersAwaited
	triggersPending
	installed
)

// stateNames are dpkg's words.
var stateNames = [...]string{"not-installed", "config-files", "half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending", "installed"}

func (s state) String() string { return stateNames[s] }

// absent reports whether nothing of the package but configuration is there.
func (s state) absent() bool { return s == notInstalled || s == configFiles }

// entry is what the database says of one package. The zero entry is of one that it does not know.
type entry struct {
	state   state
	held    bool // somebody marked it to stay as it is
	broken  bool // dpkg wants it installed again
	version string
}

// finished reports whether dpkg has nothing left to do with the package.
func (e entry) finished() bool { return !e.broken && (e.state == installed || e.state.absent()) }

// plain is the entry as the type of packages knows it.
func (e entry) plain() packages.Entry {
	p := packages.Entry{Version: e.version, Held: e.held}
	switch {
	case e.broken:
		p.State, p.Word = packages.Unfinished, e.state.String()+" and broken"
	case e.state == notInstalled:
		p.State = packages.Absent
	case e.state == configFiles:
		p.State = packages.Leftover
	case e.state == installed:
		p.State = packages.Present
	default:
		p.State, p.Word = packages.Unfinished, e.state.String()
	}
	return p
}

// lineMax bounds a line of the database that is looked at; the few fields that matter are short. What is longer is passed
// over.
const lineMax = 4 << 10

// stanza is one package of the database.
type stanza struct {
	name, architecture string
	entry
}

// parseStatus reads a file in the form of dpkg's status: stanzas of fields, with blank lines in between. It yields those
// that interest wants, those that are not finished, and those that are held. What it yields holds no part of a larger text.
func parseStatus(r io.Reader, interest func(name []byte) bool, yield func(stanza)) error {
	lines := bufio.NewReaderSize(r, lineMax)
	p := stanzaParser{interest: interest, yield: yield}
	for {
		line, err := lines.ReadSlice('\n')
		whole := err == nil || errors.Is(err, io.EOF)
		if whole && !p.skip {
			if fault := p.line(bytes.TrimRight(line, "\n")); fault != nil {
				return fault
			}
		}
		p.skip = errors.Is(err, bufio.ErrBufferFull) // the rest of a long line is no line of its own
		switch {
		case errors.Is(err, io.EOF):
			return p.end()
		case err != nil && !p.skip:
			return err
		}
	}
}

type stanzaParser struct {
	interest func(name []byte) bool
	yield    func(stanza)
	skip     bool // in the middle of a long line

	name, architecture, version []byte // reused from stanza to stanza
	status                      entry
	any                         bool // a field was seen
	wanted                      bool
}

func (p *stanzaParser) line(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return p.end()
	}
	if line[0] == ' ' || line[0] == '\t' {
		return nil // goes on with the field before
	}
	p.any = true
	field, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return errors.New("a line is neither a field nor the continuation of one")
	}
	value = bytes.TrimSpace(value)
	switch string(field) {
	case "Package":
		p.name = append(p.name[:0], value...)
		p.wanted = p.interest(p.name)
	case "Architecture":
		p.architecture = append(p.architecture[:0], value...)
	case "Version":
		p.version = append(p.version[:0], value...)
	case "Status":
		var err error
		p.status, err = parseState(value)
		return err
	}
	return nil
}

// end finishes a stanza.
func (p *stanzaParser) end() error {
	if !p.any {
		return nil
	}
	if len(p.name) == 0 {
		return errors.New("a package has no name")
	}
	if p.wanted || !p.status.finished() || p.status.held {
		s := stanza{name: string(p.name), architecture: string(p.architecture), entry: p.status}
		if !s.state.absent() {
			s.version = string(p.version)
		}
		p.yield(s)
	}
	p.name, p.architecture, p.version = p.name[:0], p.architecture[:0], p.version[:0]
	p.status, p.any, p.wanted = entry{}, false, false
	return nil
}

// parseState reads the words of a Status field: what is wanted, whether it is in order, how far it got.
func parseState(b []byte) (entry, error) {
	if string(b) == "install ok installed" {
		return entry{state: installed}, nil // nearly all, without allocating
	}
	words := strings.Fields(string(b))
	if len(words) != 3 {
		return entry{}, fmt.Errorf("status %q is not of three words", clip(b))
	}
	e := entry{held: words[0] == "hold", broken: words[1] != "ok"}
	for i, name := range stateNames {
		if words[2] == name {
			e.state = state(i)
			return e, nil
		}
	}
	return entry{}, fmt.Errorf("status %q is unknown", clip(b))
}

// clip bounds what is shown of a malformed line.
func clip(b []byte) []byte { return b[:min(len(b), 80)] }
