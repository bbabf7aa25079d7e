package gitea

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "record what Gitea does anew; with TAKO_SOAK")

// message is a request or an answer of HTTP. In a recording, what differs from run to run is a name in braces.
type message struct {
	start  string // METHOD PATH, or the status
	header map[string]string
	body   string
}

// carried are headers of the connection, which say nothing of a forge.
var carried = []string{"Accept-Encoding", "Connection", "Content-Length", "Date", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

func newMessage(start string, header http.Header, body []byte) message {
	m := message{start: start, header: map[string]string{}, body: string(body)}
	for name, values := range header {
		if !slices.Contains(carried, http.CanonicalHeaderKey(name)) {
			m.header[http.CanonicalHeaderKey(name)] = strings.Join(values, ", ")
		}
	}
	return m
}

func (m message) String() string {
	var b strings.Builder
	b.WriteString(m.start + "\n")
	for _, name := range slices.Sorted(maps.Keys(m.header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, m.header[name])
	}
	return b.String() + "\n" + strings.TrimRight(m.body, "\n") + "\n"
}

// recorded reads a message of the recording.
func recorded(t *testing.T, name string) message {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".http"))
	if err != nil {
		t.Fatal(err)
	}
	head, body, ok := strings.Cut(string(text), "\n\n")
	lines := strings.Split(head, "\n")
	m := message{start: lines[0], header: map[string]string{}, body: body}
	for _, line := range lines[1:] {
		name, value, found := strings.Cut(line, ": ")
		ok = ok && found
		m.header[name] = value
	}
	if !ok {
		t.Fatalf("testdata/%s.http is no message", name)
	}
	return m
}

// values are what stands for the names in braces.
type values map[string]string

// What no test knows beforehand, and nothing depends upon.
var unknown = []struct {
	form *regexp.Regexp
	name string
	any  string // what may stand for it
}{
	{regexp.MustCompile(`\b[0-9a-f]{40}\b`), "{hash}", strings.Repeat("a", 40)},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)`), "{time}", "2026-01-02T03:04:05Z"},
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "{uuid}", "01234567-89ab-4def-8123-456789abcdef"},
	{regexp.MustCompile(`"(id|size)":\s*\d+`), `"$1": 1`, ""},
}

// abstract puts names in place of what differs from run to run.
func (v values) abstract(m message) message {
	of := func(text string) string {
		// The longest first: one may be part of another.
		for _, name := range slices.SortedFunc(maps.Keys(v), func(a, b string) int { return len(v[b]) - len(v[a]) }) {
			if v[name] != "" {
				text = strings.ReplaceAll(text, v[name], "{"+name+"}")
			}
		}
		for _, u := range unknown {
			text = u.form.ReplaceAllString(text, u.name)
		}
		return text
	}
	return m.each(of)
}

// concrete is the reverse.
func (v values) concrete(m message) message {
	of := func(text string) string {
		for name, value := range v {
			text = strings.ReplaceAll(text, "{"+name+"}", value)
		}
		for _, u := range unknown {
			if u.any != "" {
				text = strings.ReplaceAll(text, u.name, u.any)
			}
		}
		return text
	}
	return m.each(of)
}

func (m message) each(of func(string) string) message {
	changed := message{start: of(m.start), header: map[string]string{}, body: of(m.body)}
	for name, value := range m.header {
		changed.header[name] = of(value)
	}
	return changed
}

// matches compares a message with the recording of it, or records it.
func (f *front) matches(t *testing.T, name string, m message) {
	t.Helper()
	if *update && f.real {
		if err := os.WriteFile(filepath.Join("testdata", name+".http"), []byte(m.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := recorded(t, name); m.String() != want.String() {
		t.Errorf("this is not as testdata/%s.http has it:\n%s\nbut:\n%s", name, m, want)
	}
}
