package packages

import (
	"bufio"
	"bytes"
	"strings"
)

// aptOptions are for everything that apt-get is asked to do or to simulate: no question; configuration files that somebody
// changed stay; give up at once where somebody else is at work; no terminal of its own, so that dpkg's words are in the
// output and a signal reaches it.
var aptOptions = []string{
	"-y", "-q",
	"-o", "Dpkg::Options::=--force-confold", "-o", "Dpkg::Options::=--force-confdef",
	"-o", "DPkg::Lock::Timeout=0", "-o", "Dpkg::Use-Pty=0",
}

// installArguments are apt-get's for one transaction over resources.
func installArguments(rs []*resource) []string {
	args := append([]string{aptPath}, aptOptions...)
	removes, pins := false, false
	for _, r := range rs {
		removes = removes || !r.present
		pins = pins || r.version != ""
	}
	if !removes {
		args = append(args, "--no-remove")
	}
	if pins {
		args = append(args, "--allow-downgrades") // the version is declared, whatever is there
	}
	args = append(args, "install")
	for _, r := range rs {
		args = append(args, r.argument())
	}
	return args
}

// parseRemovals reads from a simulation what it would remove.
func parseRemovals(simulation []byte) []string {
	var names []string
	lines := bufio.NewScanner(bytes.NewReader(simulation))
	lines.Buffer(nil, outputMax)
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		if verb != "Remv" && verb != "Purg" {
			continue
		}
		if name, _, _ := strings.Cut(rest, " "); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// offer is what the package lists have of one package.
type offer struct {
	candidate string   // what an installation without a version would take; empty for nothing
	versions  []string // newest first
}

// has reports whether a package can be installed as declared.
func (o offer) has(r *resource) bool {
	if r.version == "" {
		return o.candidate != ""
	}
	for _, v := range o.versions {
		if v == r.version {
			return true
		}
	}
	return false
}

// parsePolicy reads the output of apt-cache policy: for each package a line with its name, and indented below it the
// candidate and a table of versions, whose lines begin at the sixth column; further right stand their sources.
func parsePolicy(output []byte) map[string]offer {
	offers := map[string]offer{}
	name := ""
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, outputMax)
	for lines.Scan() {
		line := lines.Text()
		if line != "" && line[0] != ' ' {
			name = ""
			if head, ok := strings.CutSuffix(line, ":"); ok && !strings.Contains(head, " ") {
				name = head
				offers[name] = offer{}
			}
			continue
		}
		if name == "" {
			continue
		}
		o := offers[name]
		const versionColumn = 5
		if candidate, ok := strings.CutPrefix(line, "  Candidate: "); ok && candidate != "(none)" {
			o.candidate = candidate
		} else if len(line) > versionColumn && (line[:versionColumn] == "     " || line[:versionColumn] == " *** ") && line[versionColumn] != ' ' {
			version, _, _ := strings.Cut(line[versionColumn:], " ")
			o.versions = append(o.versions, version)
		}
		offers[name] = o
	}
	return offers
}
