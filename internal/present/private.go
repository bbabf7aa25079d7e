package present

import (
	"regexp"
	"slices"
	"strings"

	"tako.dev/tako/declare"
)

// secretWords stand in an excerpt for what is shown to nobody.
const secretWords = "(secret)"

// hideSecrets returns the lines of a file as an excerpt may show them: the data of Secrets and the content of private files are
// replaced, everything else stays, on the same line and in the same column. It reads lines and no YAML, because it is needed most
// where a file is no YAML, or where the key before a secret is misspelt. So it goes by what may be shown, not by what may not:
// in a Secret and in a resource with a private mode, a value stands under a key that is known to be harmless, or is hidden.
func hideSecrets(lines []string) []string {
	out := slices.Clone(lines)
	for begin := 0; begin < len(out); {
		end := begin + 1
		for end < len(out) && !strings.HasPrefix(out[end], "---") {
			end++
		}
		hideInDocument(out[begin:end])
		begin = end
	}
	return out
}

// secretKind is the kind of a Secret, also of a misspelt one, or the field that nothing else has.
var secretKind = regexp.MustCompile(`(?i)kind["']?\s*:\s*["']?secre|stringData`)

func hideInDocument(lines []string) {
	text := strings.Join(lines, "\n")
	if secretKind.MatchString(text) {
		hide(lines, shownOfSecret, nil)
		return
	}
	if !strings.Contains(text, "resources") {
		return
	}
	for _, resource := range resourcesOf(lines) {
		if isPrivate(strings.Join(resource, "\n")) {
			hide(resource, shownOfResource, hideFlow)
		}
	}
}

// resourcesOf cuts a document into the items of its resources and what stands between them. Where no items are seen, as in JSON,
// the document is one piece.
func resourcesOf(lines []string) [][]string {
	var parts [][]string
	begin, item := 0, -1 // item is the indentation of items; -1 before the first
	awaited := false
	for i, line := range lines {
		l := readLine(line)
		if l.key == "resources" {
			awaited = true
		}
		if l.dash && (awaited || item >= 0 && l.indent <= item) {
			parts, begin = append(parts, lines[begin:i]), i
			item, awaited = l.indent, false
		}
	}
	return append(parts, lines[begin:])
}

var (
	// modeValue is what stands behind the key mode; privateValue is a value that looks like a mode for the owner alone.
	modeValue    = regexp.MustCompile(`(?m)\bmode["']?[ \t]*:[ \t]*["']?([^\s"',}#]*)`)
	privateValue = regexp.MustCompile(`(?m):[ \t]*["']?0?o?[0-7]{1,2}00["']?[ \t]*(?:[,}#]|$)`)
	octal        = regexp.MustCompile(`^0?o?[0-7]{3,4}$`)
	// modeText is no secret under any key: it is what made the resource one.
	modeText = regexp.MustCompile(`^["']?0o?[0-7]{2,3}["']?$`)
)

// privateText is what begins a secret: the key of a password's hash, and what is in every private key, as PEM and as ssh has it.
var privateText = regexp.MustCompile(`(?i)password|PRIVATE KEY|b3BlbnNzaC1rZXktdjE`)

// isPrivate tells whether a resource may be a file that only its owner may use, or has a secret in it. A mode that cannot be read may have been meant so.
func isPrivate(text string) bool {
	if privateValue.MatchString(text) || privateText.MatchString(text) {
		return true
	}
	for _, m := range modeValue.FindAllStringSubmatch(text, -1) {
		if !octal.MatchString(m[1]) || (&declare.File{Mode: declare.Mode(m[1])}).Private() {
			return true
		}
	}
	return false
}

// shownOfSecret tells whether the value at a path of a Secret, or of an item of a List, may be shown.
func shownOfSecret(path []string) bool {
	if path[0] == "items" {
		path = path[1:]
	}
	switch {
	case len(path) == 0:
		return true
	case len(path) == 1:
		return slices.Contains([]string{"apiVersion", "kind", "type", "immutable", "metadata"}, path[0])
	case path[0] != "metadata":
		return false
	case len(path) == 2:
		return slices.Contains([]string{"name", "namespace", "generateName", "labels"}, path[1])
	}
	return len(path) == 3 && path[1] == "labels"
}

// shownOfResource tells the same of a resource of a config: only the key counts.
func shownOfResource(path []string) bool {
	return slices.Contains([]string{"name", "path", "owner", "group", "mode", "force", "inPlace", "check", "require", "notify", "when", "expand",
		"onRemove", "file", "resources", "spec", "metadata", "namespace", "apiVersion", "kind", "priority"}, path[len(path)-1])
}

// line is a line of YAML as far as it can be seen without reading the file.
type line struct {
	indent int    // columns before the first character
	column int    // of the key, behind the dashes of list items
	dash   bool   // whether it begins a list item
	key    string // empty if it has none
	value  string // behind the key, or behind the dashes
	at     int    // where the value begins
}

// keyed is a key with its colon.
var keyed = regexp.MustCompile(`^(?:"([^"]*)"|'([^']*)'|([^\s"'#{}\[\],&*!|>%@-][^\s:{}\[\],]*))[ \t]*:(?:[ \t]+|$)`)

func readLine(text string) line {
	rest := strings.TrimLeft(text, " \t")
	l := line{indent: len(text) - len(rest)}
	for rest == "-" || strings.HasPrefix(rest, "- ") {
		l.dash = true
		rest = strings.TrimLeft(rest[1:], " ")
	}
	l.column = len(text) - len(rest)
	if m := keyed.FindStringSubmatch(rest); m != nil {
		l.key = m[1] + m[2] + m[3]
		rest = rest[len(m[0]):]
	}
	l.at, l.value = len(text)-len(rest), strings.TrimRight(rest, " \t\r")
	return l
}

// hide replaces in place what is not shown. Shown is asked about the path of each key, from the outermost. Flow hides in a value
// in flow style, and tells whether it ends within something hidden; nil hides all of the value.
func hide(lines []string, shown func(path []string) bool, flow func(value string) (string, bool)) {
	h := hiding{shown: shown, flow: flow, secret: -1}
	for i, text := range lines {
		if trimmed := strings.TrimSpace(text); trimmed != "" && trimmed != "---" {
			lines[i] = h.next(text)
		}
	}
}

// hiding is where hide is in a file.
type hiding struct {
	shown   func(path []string) bool
	flow    func(value string) (string, bool)
	columns []int    // of the keys above this line
	path    []string // these keys
	secret  int      // column of the key whose value is hidden, -1 outside of one
	keys    int      // column of the keys below it, whose names may be shown; -1 for none
}

func (h *hiding) next(text string) string {
	l := readLine(text)
	if h.secret >= 0 {
		if l.column > h.secret || l.key == "" && !l.dash {
			return h.hidden(text, l)
		}
		h.secret = -1
	}
	for len(h.columns) > 0 && h.columns[len(h.columns)-1] >= l.column {
		h.columns, h.path = h.columns[:len(h.columns)-1], h.path[:len(h.path)-1]
	}
	if l.key == "" {
		if isBracket(l.value) || len(h.path) > 0 && l.dash && h.shown(h.path) && isSimple(l.value) {
			return text
		}
		return h.value(text, l)
	}
	h.columns, h.path = append(h.columns, l.column), append(h.path, l.key)
	if h.shown(h.path) && (isBracket(l.value) || isSimple(l.value)) || h.isShownFlow(l.value) || modeText.MatchString(l.value) {
		return text
	}
	if isBracket(l.value) {
		h.secret, h.keys = l.column, 0 // the first line below says where
		return text
	}
	return h.value(text, l)
}

// value is a line with its value hidden, and where that goes on below it, those lines too.
func (h *hiding) value(text string, l line) string {
	if h.flow != nil && strings.ContainsAny(l.value[:1], "{[") {
		value, open := h.flow(l.value)
		if open {
			h.secret, h.keys = l.column, -1
		}
		return text[:l.at] + value
	}
	if l.key != "" {
		h.secret, h.keys = l.column, -1
	}
	return text[:l.at] + secretWords
}

// hidden is a line below a key whose value is hidden. The names of the keys right below it may be shown.
func (h *hiding) hidden(text string, l line) string {
	if h.keys == 0 {
		h.keys = l.column
	}
	if l.key != "" && h.keys == l.column {
		return text[:l.at] + secretWords
	}
	if isBracket(l.value) {
		return text
	}
	return text[:l.indent] + secretWords
}

// isBracket tells whether a value is nothing but what opens or closes one, or begins on the next line.
func isBracket(value string) bool {
	return strings.Trim(value, "{}[], ") == ""
}

// simple is a text on one line, or a list of such.
var simple = regexp.MustCompile(`^(?:"[^"\\]*"|'[^']*'|[^\s"'{}\[\],#&*!|>%][^"'{}\[\],#]*|\[[^{}\[\]#]*\]),?$`)

func isSimple(value string) bool { return simple.MatchString(value) }

// flowKey is a key within a value in flow style, after what comes before it.
var flowKey = regexp.MustCompile(`^["']?([\w.-]+)["']?[ \t]*:(?:[ \t]+|$)`)

// hideFlow hides in a value in flow style all but the marks and what stands under keys that a resource may show.
func hideFlow(value string) (hidden string, open bool) {
	var b strings.Builder
	for rest := value; rest != ""; {
		if strings.IndexByte("{}[], \t", rest[0]) >= 0 {
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		shown := false
		if m := flowKey.FindStringSubmatch(rest); m != nil {
			b.WriteString(m[0])
			rest = rest[len(m[0]):]
			shown = shownOfResource(m[1:])
		}
		if rest == "" || rest[0] == '{' {
			continue // what is in it is looked at by itself
		}
		end, whole := flowValue(rest)
		switch {
		case shown && whole && !strings.Contains(rest[:end], "{"), modeText.MatchString(rest[:end]):
			b.WriteString(rest[:end])
		case shown && rest[0] == '[':
			end, whole = 1, true
			b.WriteByte('[')
		default:
			b.WriteString(secretWords)
		}
		if !whole {
			return b.String(), true
		}
		rest = rest[end:]
	}
	return b.String(), false
}

// flowValue is how long the value is with which a text begins: up to the comma or bracket that ends it. It is not whole where a
// quote in it has no end.
func flowValue(text string) (end int, whole bool) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"', '\'':
			length := quoted(text[i:])
			if length == 0 {
				return len(text), false
			}
			i += length - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i, true
			}
		case ',':
			if depth == 0 {
				return i, true
			}
		}
	}
	return len(text), depth <= 0
}

// quoted is how long the quoted text is with which a text begins, 0 where it has no end.
func quoted(text string) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && text[0] == '"':
			i++
		case text[i] == text[0]:
			return i + 1
		}
	}
	return 0
}

// isShownFlow tells whether a value is a flow mapping, {name: a, namespace: b}, all of which may be shown.
func (h *hiding) isShownFlow(value string) bool {
	inside, opens := strings.CutPrefix(strings.TrimSuffix(value, ","), "{")
	inside, closes := strings.CutSuffix(inside, "}")
	if !opens || !closes || strings.ContainsAny(inside, "{}[]#|>") {
		return false
	}
	for pair := range strings.SplitSeq(inside, ",") {
		key, text, _ := strings.Cut(pair, ":")
		path := append(h.path[:len(h.path):len(h.path)], strings.Trim(key, ` "'`))
		if text = strings.TrimSpace(text); text != "" && (!h.shown(path) || !isSimple(text)) {
			return false
		}
	}
	return true
}
