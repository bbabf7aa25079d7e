package apt

import (
	"bufio"
	"bytes"
	"strings"

	"tako.dev/tako/internal/host/packages"
)

// options are for everything that apt-get is asked to do or to simulate: no question; give up at once where somebody else is at work;
// no terminal of its own, so that dpkg's words are in the output and a signal reaches it.
var options = []string{"-y", "-q", "-o", "DPkg::Lock::Timeout=0", "-o", "Dpkg::Use-Pty=0"}

var (
	// keepConffiles leaves configuration files that somebody changed; replaceConffiles takes the package's, and brings back missing ones,
	// also where the host's own configuration says that those which are there count: with confdef or confold they would, dpkg(1).
	keepConffiles    = []string{"-o", "Dpkg::Options::=--force-confold", "-o", "Dpkg::Options::=--force-confdef"}
	replaceConffiles = []string{"-o", "Dpkg::Options::=--refuse-confdef", "-o", "Dpkg::Options::=--refuse-confold",
		"-o", "Dpkg::Options::=--force-confnew", "-o", "Dpkg::Options::=--force-confmiss"}
)

// arguments are apt-get's for a transaction.
func arguments(x packages.Transaction) []string {
	args := append([]string{getPath}, options...)
	if x.Ways.Replace {
		args = append(args, replaceConffiles...)
	} else {
		args = append(args, keepConffiles...)
	}
	removes := false
	for _, s := range x.Steps {
		removes = removes || s.Remove
	}
	if !removes {
		args = append(args, "--no-remove")
	}
	if x.Downgrade {
		args = append(args, "--allow-downgrades")
	}
	if x.Held {
		args = append(args, "--allow-change-held-packages")
	}
	switch x.Ways.Recommends {
	case packages.RecommendsAsConfigured:
	case packages.RecommendsWanted:
		args = append(args, "--install-recommends")
	case packages.RecommendsLeft:
		args = append(args, "--no-install-recommends")
	}
	args = append(args, "install")
	for _, s := range x.Steps {
		args = append(args, argument(s))
	}
	return args
}

// argument is a package for apt-get install.
func argument(s packages.Step) string {
	switch {
	case s.Remove:
		return s.Name + "-"
	case s.Version != "":
		return s.Name + "=" + s.Version
	}
	return s.Name
}

// parseSimulation reads from a simulation what it would do: "Remv NAME ...", "Purg NAME ...", "Inst NAME [OLD] (NEW ...".
func parseSimulation(simulation []byte) packages.Outlook {
	var o packages.Outlook
	lines := bufio.NewScanner(bytes.NewReader(simulation))
	lines.Buffer(nil, outputMax)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "Remv", "Purg":
			o.Removes = append(o.Removes, words[1])
		case "Inst":
			m := packages.Move{Name: words[1]}
			rest := words[2:]
			if len(rest) > 0 && strings.HasPrefix(rest[0], "[") {
				m.From, rest = strings.Trim(rest[0], "[]"), rest[1:]
			}
			if len(rest) > 0 && strings.HasPrefix(rest[0], "(") {
				m.To = strings.Trim(rest[0], "()")
			}
			o.Changes = append(o.Changes, m)
		}
	}
	return o
}

// installedSource is where apt has the versions from that are installed.
const installedSource = "/var/lib/dpkg/status"

// parsePolicy reads the output of apt-cache policy: for each package a line with its name, and indented below it the candidate and a
// table of versions, whose lines begin at the sixth column; further right stand their sources, each after its priority.
func parsePolicy(output []byte) map[string]packages.Offer {
	offers := map[string]packages.Offer{}
	name, version := "", ""
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, outputMax)
	for lines.Scan() {
		line := lines.Text()
		if line != "" && line[0] != ' ' {
			name, version = "", ""
			if head, ok := strings.CutSuffix(line, ":"); ok && !strings.Contains(head, " ") {
				name = head
				offers[name] = packages.Offer{}
			}
			continue
		}
		if name == "" {
			continue
		}
		o := offers[name]
		const versionColumn = 5
		if candidate, ok := strings.CutPrefix(line, "  Candidate: "); ok && candidate != "(none)" {
			o.Candidate = strings.TrimSpace(candidate)
		} else if len(line) > versionColumn && (line[:versionColumn] == "     " || line[:versionColumn] == " *** ") && line[versionColumn] != ' ' {
			version, _, _ = strings.Cut(line[versionColumn:], " ")
		} else if source := strings.Fields(line); version != "" && len(source) > 1 && source[1] != installedSource {
			o.Versions = append(o.Versions, version)
			version = "" // its other sources say no more
		}
		offers[name] = o
	}
	return offers
}
