package repository

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/openpgp"
	"tako.dev/tako/internal/command"
)

const (
	aptPath    = "/usr/bin/apt-get"
	aptSources = "/etc/apt/sources.list"
	aptDir     = "/etc/apt/sources.list.d"
	aptLists   = "/var/lib/apt/lists"
	// fetchMax bounds one fetch; apt gives up on a silent server after two minutes of its own.
	fetchMax = 10 * time.Minute
	// outputMax bounds what is read of a command's output, its end.
	outputMax = 1 << 20
	// madeBy begins a file that has nothing else in it.
	madeBy = "# Kept by tako: what is changed here is undone.\n"
)

// apt is the package manager of Debian and its like: sources.list(5), apt-secure(8).
type apt struct{}

func (apt) here() error {
	_, err := os.Stat(aptPath)
	return err
}

func (apt) text(r *declare.Repository, _, keyPath string) string {
	a := r.Apt
	types := "deb"
	if a.Source {
		types = "deb deb-src"
	}
	var b strings.Builder
	b.WriteString(madeBy)
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	field("Types", types)
	field("URIs", strings.Join(a.Uris, " "))
	field("Suites", strings.Join(a.Suites, " "))
	field("Components", strings.Join(a.Components, " "))
	field("Architectures", strings.Join(a.Architectures, " "))
	field("Signed-By", keyPath)
	for _, name := range declare.OptionNames(a.Options) {
		field(name, a.Options[name])
	}
	return b.String()
}

func (apt) keyring(_ string, keys openpgp.Keys) []byte { return keys.Binary }

func (apt) others() (file, dir string, suffixes []string) {
	return aptSources, aptDir, []string{".list", ".sources"}
}

func (apt) parse(file, text string) []mention {
	if strings.HasSuffix(file, ".list") {
		return parseLines(file, text)
	}
	return parseStanzas(file, text)
}

// parseLines reads the one-line form: TYPE [OPTION=VALUE ...] URI SUITE COMPONENT ...
func parseLines(file, text string) []mention {
	var all []mention
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		kind, rest, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")), " ")
		if kind != "deb" && kind != "deb-src" {
			continue
		}
		options := map[string]string{}
		if inside, ok := strings.CutPrefix(strings.TrimSpace(rest), "["); ok {
			inside, rest, _ = strings.Cut(inside, "]")
			for _, word := range strings.Fields(inside) {
				name, value, _ := strings.Cut(word, "=")
				options[strings.ToLower(strings.TrimRight(name, "+-"))] = value
			}
		}
		if words := strings.Fields(rest); len(words) > 1 {
			all = append(all, aptMention(file, n, words[0], words[1], options))
		}
	}
	return all
}

// parseStanzas reads the form of deb822(5).
func parseStanzas(file, text string) []mention {
	var all []mention
	fields, begin, last, n := map[string]string{}, 0, "", 0
	end := func() {
		if !slices.Contains([]string{"no", "false", "0", "off"}, strings.ToLower(fields["enabled"])) {
			for _, uri := range strings.Fields(fields["uris"]) {
				for _, suite := range strings.Fields(fields["suites"]) {
					all = append(all, aptMention(file, begin, uri, suite, fields))
				}
			}
		}
		fields, begin, last = map[string]string{}, 0, ""
	}
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			end()
		case line[0] == ' ' || line[0] == '\t':
			fields[last] += "\n" + line
		default:
			name, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(strings.TrimSpace(name))
			fields[last] = strings.TrimSpace(value)
			if begin == 0 {
				begin = n
			}
		}
	}
	end()
	return all
}

func aptMention(file string, line int, uri, suite string, options map[string]string) mention {
	if !strings.HasSuffix(uri, "/") {
		uri += "/"
	}
	keys := options["signed-by"]
	return mention{file: file, line: line, place: uri, suite: suite, keys: keys, trust: strings.Join(strings.Fields(keys), " ") + " " + agreed(options)}
}

// aptSwitches and aptValues are the options that all entries with one index must agree on, besides the keys: where they do not, apt reads
// no list at all ("Conflicting values set for option"). That it is just these is tried with apt itself, which cannot be asked for them.
var (
	aptSwitches = []string{"trusted", "check-valid-until", "check-date", "allow-insecure", "allow-weak", "allow-downgrade-to-insecure"}
	aptValues   = []string{"valid-until-min", "valid-until-max", "date-max-future", "inrelease-path"}
)

// agreed writes those options, each value in one way.
func agreed(options map[string]string) string {
	var said []string
	for _, name := range aptSwitches {
		if value, given := options[name]; given {
			said = append(said, name+"="+aptSwitch(value))
		}
	}
	for _, name := range aptValues {
		if value, given := options[name]; given {
			said = append(said, name+"="+value)
		}
	}
	return strings.Join(said, " ")
}

// aptSwitch writes yes or no as apt understands them (its StringToBool).
func aptSwitch(value string) string {
	switch value = strings.ToLower(value); value {
	case "yes", "true", "with", "on", "enable", "1":
		return "yes"
	case "no", "false", "without", "off", "disable", "0":
		return "no"
	}
	return value
}

// rival: apt wants of two entries with one index that they agree on how it is checked.
func (apt) rival(own, other mention) (rival, double bool) {
	if own.place != other.place || own.suite != other.suite {
		return false, false
	}
	return own.trust != other.trust, own.trust == other.trust
}

func (apt) lists() string { return aptLists }

// prefix is how the names of what was fetched of a mention begin (apt's URItoFileName).
func (m mention) prefix() string {
	_, rest, _ := strings.Cut(m.place, ":")
	rest = strings.TrimPrefix(rest, "//")
	if u, err := url.Parse(m.place); err == nil && u.User != nil {
		_, rest, _ = strings.Cut(rest, "@")
	}
	dir := "dists/" + m.suite + "/"
	if strings.HasSuffix(m.suite, "/") {
		dir = strings.TrimPrefix(m.suite, "/")
	}
	var b strings.Builder
	for _, c := range []byte(rest + dir) {
		switch {
		case c == '/':
			b.WriteByte('_')
		case c <= ' ' || c >= 0x7f || strings.IndexByte(`%\|{}[]<>"^~_=!@#$&*`, c) >= 0:
			fmt.Fprintf(&b, "%%%02x", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// has reports whether the index of a mention is there. Only where its name can be told, it is looked for: mirrors have others, and apt writes
// odd suites in a way of its own.
func (apt) has(m mention, names []string) bool {
	scheme, _, _ := strings.Cut(m.place, ":")
	if scheme != "http" && scheme != "https" || strings.Contains(m.place, "$(") || strings.ContainsAny(m.suite, "~+:_") {
		return true
	}
	for _, name := range []string{"InRelease", "Release"} {
		if _, found := slices.BinarySearch(names, m.prefix()+name); found {
			return true
		}
	}
	return false
}

// fetch refreshes the lists of one file; those of others stay.
func (apt) fetch(ctx context.Context, file, _ string) ([]byte, error) {
	return command.Tool{
		Args: []string{aptPath, "-q", "-o", "Dir::Etc::sourcelist=" + file, "-o", "Dir::Etc::sourceparts=/dev/null", "-o", "APT::Get::List-Cleanup=0",
			"-o", "APT::Update::Error-Mode=any", "update"},
		Env: []string{"HOME=/root", "DEBIAN_FRONTEND=noninteractive"}, Limit: fetchMax, Keep: outputMax,
	}.Run(ctx)
}

func (apt) trusted(*Type, string) ([]string, error) { return nil, nil }

// leftovers are the lists of gone. Of a name that could be of several mentions, the one with the longest beginning counts.
func (apt) leftovers(t *Type, _ string, gone, others []mention) ([]string, error) {
	names, err := t.list(aptLists)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range names {
		if mine := longest(gone, name); mine > 0 && mine > longest(others, name) {
			paths = append(paths, aptLists+"/"+name)
		}
	}
	return paths, nil
}

// longest is the length of the longest prefix of mentions that a name begins with.
func longest(mentions []mention, name string) int {
	most := 0
	for _, m := range mentions {
		if p := m.prefix(); len(p) > most && strings.HasPrefix(name, p) {
			most = len(p)
		}
	}
	return most
}
