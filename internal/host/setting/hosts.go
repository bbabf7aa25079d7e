package setting

import (
	"net/netip"
	"slices"
	"strings"
)

// hostsLine is a line of a hosts(5) file. What is not an entry has no address.
type hostsLine struct {
	raw     string // with its end
	address netip.Addr
	names   []string
	before  string // all in front of the names
	after   string // all behind them: blanks, a comment, the end
}

// parseHosts reads the lines of a hosts file. Joined, their raw texts are the file.
func parseHosts(body string) []hostsLine {
	var lines []hostsLine
	for raw := range strings.Lines(body) {
		lines = append(lines, parseHostsLine(raw))
	}
	return lines
}

func parseHostsLine(raw string) hostsLine {
	l := hostsLine{raw: raw}
	entry := raw
	if comment := strings.IndexByte(raw, '#'); comment >= 0 {
		entry = raw[:comment]
	}
	entry = strings.TrimRight(entry, " \t\r\n")
	start := strings.TrimLeft(entry, " \t")
	text, rest, _ := strings.Cut(strings.ReplaceAll(start, "\t", " "), " ")
	address, err := netip.ParseAddr(text)
	l.names = strings.Fields(rest)
	if err != nil || len(l.names) == 0 {
		l.names = nil
		return l
	}
	l.address = address
	names := len(entry) - len(strings.TrimLeft(rest, " "))
	l.before, l.after = raw[:names], raw[len(entry):]
	return l
}

// renamed is the line with other names.
func (l hostsLine) renamed(names []string) hostsLine {
	return parseHostsLine(l.before + strings.Join(names, " ") + l.after)
}

func (l hostsLine) has(name string) bool {
	return slices.ContainsFunc(l.names, func(n string) bool { return strings.EqualFold(n, name) })
}

func (l hostsLine) hasAny(names []string) bool { return slices.ContainsFunc(names, l.has) }

// hosts is a declared entry.
type hosts struct {
	address netip.Addr
	text    string // the address as it was declared
	names   []string
}

// same reports whether a line is of the address.
func (h *hosts) same(l hostsLine) bool { return l.address == h.address }

// ours reports whether a line is the entry: of the address, and either with its canonical name first or with nothing but its names.
func (h *hosts) ours(l hostsLine) bool {
	return h.same(l) && (strings.EqualFold(l.names[0], h.names[0]) || !slices.ContainsFunc(l.names, func(n string) bool { return !h.declares(n) }))
}

func (h *hosts) declares(name string) bool {
	return slices.ContainsFunc(h.names, func(n string) bool { return strings.EqualFold(n, name) })
}

// rivals reports whether a line leads one of the names to another address of the same kind.
func (h *hosts) rivals(l hostsLine) bool {
	return l.address.IsValid() && !h.same(l) && l.address.Is4() == h.address.Is4() && l.hasAny(h.names)
}

// wanted is the names that the entry's line has in the end: those that are declared, and what else stands there.
func (h *hosts) wanted(l hostsLine) []string {
	names := slices.Clone(h.names)
	for _, n := range l.names {
		if !h.declares(n) {
			names = append(names, n)
		}
	}
	return names
}

// complete reports whether a line says all that is declared.
func (h *hosts) complete(l hostsLine) bool {
	return h.ours(l) && strings.EqualFold(l.names[0], h.names[0]) && !slices.ContainsFunc(h.names, func(n string) bool { return !l.has(n) })
}

// present puts the entry into the lines: the first line that is the entry gets the names that it lacks, otherwise there is a new line. It
// stands before every line that leads one of the names elsewhere, because the first one counts. No other line changes.
func (h *hosts) present(lines []hostsLine) []hostsLine {
	at := slices.IndexFunc(lines, h.ours)
	if whole := slices.IndexFunc(lines, h.complete); whole >= 0 {
		at = whole
	}
	rival := slices.IndexFunc(lines, h.rivals)
	if at >= 0 {
		l := lines[at]
		if !h.complete(l) {
			l = l.renamed(h.wanted(l))
		}
		if rival < 0 || at < rival {
			out := slices.Clone(lines)
			out[at] = l
			return out
		}
		if !strings.HasSuffix(l.raw, "\n") {
			l = parseHostsLine(l.raw + "\n")
		}
		return slices.Insert(slices.Delete(slices.Clone(lines), at, at+1), rival, l)
	}
	l := parseHostsLine(h.text + "\t" + strings.Join(h.names, " ") + "\n")
	if rival >= 0 {
		return slices.Insert(slices.Clone(lines), rival, l)
	}
	out := slices.Clone(lines)
	if n := len(out); n > 0 && !strings.HasSuffix(out[n-1].raw, "\n") {
		out[n-1] = parseHostsLine(out[n-1].raw + "\n")
	}
	return append(out, l)
}

// absent takes the names from all lines of the address. A line without any name left goes.
func (h *hosts) absent(lines []hostsLine) []hostsLine {
	var out []hostsLine
	for _, l := range lines {
		if !h.same(l) || !l.hasAny(h.names) {
			out = append(out, l)
			continue
		}
		if left := h.without(l); len(left) > 0 {
			out = append(out, l.renamed(left))
		}
	}
	return out
}

func (h *hosts) without(l hostsLine) []string {
	return slices.DeleteFunc(slices.Clone(l.names), h.declares)
}

// oldLine is a line of the address that had one of the names, as an original keeps it.
type oldLine struct {
	At  int    `json:"at"`
	Raw string `json:"raw"`
}

// old are the lines that present and absent may change.
func (h *hosts) old(lines []hostsLine) []oldLine {
	kept := []oldLine{}
	for i, l := range lines {
		if h.same(l) && l.hasAny(h.names) {
			kept = append(kept, oldLine{i, l.raw})
		}
	}
	return kept
}

// restore puts old lines back where they were, as far as there are as many lines, and takes away what has come in their place; with gone,
// what absent has left of them.
func (h *hosts) restore(lines []hostsLine, old []oldLine, gone bool) []hostsLine {
	goes := make([]bool, len(lines))
	for i, l := range lines {
		goes[i] = h.same(l) && l.hasAny(h.names)
	}
	lost := 0 // lines that absent has taken away whole
	for _, o := range old {
		l := parseHostsLine(o.Raw)
		left := h.without(l)
		if gone && len(left) > 0 {
			if i := nearestLine(lines, goes, l.renamed(left).raw, o.At-lost); i >= 0 {
				goes[i] = true
			}
			continue
		}
		lost++
	}
	var out []hostsLine
	for i, l := range lines {
		if !goes[i] {
			out = append(out, l)
		}
	}
	for _, o := range old {
		out = slices.Insert(out, min(o.At, len(out)), parseHostsLine(o.Raw))
	}
	return out
}

// nearestLine finds a text among the lines that stay, the nearest one to where it was; -1 where it is not.
func nearestLine(lines []hostsLine, goes []bool, raw string, at int) int {
	best, distance := -1, 0
	for i, l := range lines {
		if d := max(i-at, at-i); l.raw == raw && !goes[i] && (best < 0 || d < distance) {
			best, distance = i, d
		}
	}
	return best
}

// elsewhere lists where else the names lead.
func (h *hosts) elsewhere(lines []hostsLine) []string {
	var found []string
	for _, l := range lines {
		for _, n := range l.names {
			if h.rivals(l) && h.declares(n) {
				found = append(found, n+" also leads to "+l.address.String())
			}
		}
	}
	return found
}

func joinHosts(lines []hostsLine) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.raw)
	}
	return b.String()
}
