package tidy

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// eachLine calls fn for every line of a file, numbered from 1.
func (f file) eachLine(fn func(number int, line string)) {
	number := 0
	for line := range strings.Lines(f.text) {
		number++
		fn(number, strings.TrimRight(line, "\r\n"))
	}
}

var (
	fixme    = regexp.MustCompile(`\bFIXME\b`)
	todo     = regexp.MustCompile(`\bTODO\b`)
	todoGood = regexp.MustCompile(`\bTODO\(#[0-9]+\):`)
)

// leftovers finds notes of things that were put off, in comments of Go files and in scripts and documents, where a word in
// backquotes is spoken of and not meant.
func leftovers(t *tree) []finding {
	var found []finding
	judge := func(where finding, words string) {
		switch {
		case fixme.MatchString(words):
			where.message = "put right what is to be fixed, or open an issue and write TODO(#123): …"
		case todo.MatchString(words) && !todoGood.MatchString(words):
			where.message = "name the issue: TODO(#123): …"
		default:
			return
		}
		found = append(found, where)
	}
	for _, f := range t.goFiles() {
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				judge(f.at(c, ""), inlineCode.ReplaceAllString(c.Text, ""))
			}
		}
	}
	for _, f := range t.files {
		base := path.Base(f.path)
		if slices.Contains([]string{".md", ".sh", ".yaml", ".yml"}, path.Ext(base)) || base == "Makefile" {
			f.eachLine(func(n int, line string) {
				judge(finding{path: f.path, line: n}, inlineCode.ReplaceAllString(line, ""))
			})
		}
	}
	return found
}

// place is text that belongs to one machine or network and to nobody else's, and where it may stand all the same.
type place struct {
	text    string
	allowed []string // folders
}

// notPlaces lists them. They are in two parts so that this file does not hold them.
func notPlaces() []place {
	return []place{
		{text: "/wo" + "rk/"},
		{text: "/tmp/" + "brief"},
		{text: "/tmp/" + "bash_jobs"},
		{text: "../sha" + "red", allowed: []string{"bench"}}, // peers of the benchmark
		{text: "proxy.golang" + ".org"},
		{text: "sum.golang" + ".org"},
		{text: "deb.debian" + ".org"},
		{text: "registry.npmjs" + ".org"},
		{text: "pypi" + ".org"},
	}
}

// places finds paths of somebody's machine and hosts of package registries: the project works on any machine, with its configuration.
func places(t *tree) []finding {
	var found []finding
	for _, f := range t.files {
		f.eachLine(func(n int, line string) {
			for _, p := range notPlaces() {
				if strings.Contains(line, p.text) && !underAny(f.path, p.allowed) {
					found = append(found, finding{path: f.path, line: n, message: fmt.Sprintf("%q is of one machine or network: use what the machine is configured with", p.text)})
				}
			}
		})
	}
	return found
}

// largeMax is what one file may have: whoever clones pays for it for ever.
const largeMax = 1 << 20

func largeFiles(t *tree) []finding {
	var found []finding
	for _, f := range t.files {
		if f.size > largeMax {
			found = append(found, finding{path: f.path, message: fmt.Sprintf("%d bytes, at most %d: make it when it is needed, or fetch it", f.size, largeMax)})
		}
	}
	return found
}

var (
	inlineCode  = regexp.MustCompile("`[^`]*`")
	inlineLink  = regexp.MustCompile(`\]\(<?([^)<>\s]+)>?(?:\s+"[^"]*")?\)`)
	linkMeaning = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s*<?([^\s<>]+)>?`)
	external    = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
	heading     = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	anchorTag   = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}\p{M} _-]`)
	codeFence   = regexp.MustCompile("^\\s*(```|~~~)")
)

// prose calls fn for the lines of a Markdown file that are no code block.
func (f file) prose(fn func(number int, line string)) {
	fence := ""
	f.eachLine(func(n int, line string) {
		if m := codeFence.FindStringSubmatch(line); m != nil {
			switch fence {
			case "":
				fence = m[1]
			case m[1]:
				fence = ""
			}
			return
		}
		if fence == "" {
			fn(n, line)
		}
	})
}

// links finds links of Markdown files to files, folders and headings that are not there.
func links(t *tree) []finding {
	var found []finding
	for _, f := range t.files {
		if path.Ext(f.path) != ".md" {
			continue
		}
		f.prose(func(n int, line string) {
			line = inlineCode.ReplaceAllString(line, "")
			for _, m := range append(inlineLink.FindAllStringSubmatch(line, -1), linkMeaning.FindAllStringSubmatch(line, -1)...) {
				if message := t.deadLink(f, m[1]); message != "" {
					found = append(found, finding{path: f.path, line: n, message: message})
				}
			}
		})
	}
	return found
}

func (t *tree) deadLink(from file, target string) string {
	if external.MatchString(target) {
		return ""
	}
	name, anchor, _ := strings.Cut(target, "#")
	to := path.Join(path.Dir(from.path), name)
	if strings.HasPrefix(name, "/") {
		to = path.Clean(name[1:])
	}
	if name == "" {
		to = from.path
	}
	if !t.exists(to) {
		return fmt.Sprintf("dead link: there is no %s", to)
	}
	if f, isFile := t.file(to); anchor != "" && isFile && path.Ext(to) == ".md" && !slices.Contains(f.anchors(), anchor) {
		return fmt.Sprintf("dead link: %s has no heading #%s", to, anchor)
	}
	return ""
}

// anchors lists what a link may name in a Markdown file, as code hosts make it of headings: lower case, blanks to hyphens, no
// punctuation, repetitions numbered.
func (f file) anchors() []string {
	var list []string
	seen := map[string]int{}
	f.prose(func(_ int, line string) {
		for _, m := range anchorTag.FindAllStringSubmatch(line, -1) {
			list = append(list, m[1])
		}
		m := heading.FindStringSubmatch(line)
		if m == nil {
			return
		}
		a := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if n := seen[a]; n > 0 {
			list = append(list, fmt.Sprintf("%s-%d", a, n))
		} else {
			list = append(list, a)
		}
		seen[a]++
	})
	return list
}

// topFolders are what a path of the repository begins with, those to come included.
var topFolders = []string{"declare", "api", "cmd", "internal", "packaging", "web", "e2e", "bench", "examples", "docs", "tools", "hooks"}

var repoPath = regexp.MustCompile("`([a-z0-9_.-]+/[A-Za-z0-9_./-]*)`")

// architecturePaths finds paths in ARCHITECTURE.md, in backquotes, that are not there.
func architecturePaths(t *tree) []finding {
	f, ok := t.file("ARCHITECTURE.md")
	if !ok {
		return []finding{{path: "ARCHITECTURE.md", message: "missing: one page with the life of one change, the folder map, invariants, non-goals"}}
	}
	var found []finding
	f.eachLine(func(n int, line string) {
		for _, m := range repoPath.FindAllStringSubmatch(line, -1) {
			first, _, _ := strings.Cut(m[1], "/")
			if name := path.Clean(m[1]); slices.Contains(topFolders, first) && !t.exists(name) {
				found = append(found, finding{path: f.path, line: n, message: "there is no " + name + ": say what is, or mark what is to come without backquotes"})
			}
		}
	})
	return found
}

// reasonPages wants a page for every code of internal/reason, with the code in its title, and no page without code.
func reasonPages(t *tree) []finding {
	const folder = "internal/reason/pages"
	codes := reasonCodes(t)
	if len(codes) == 0 {
		return []finding{{path: "internal/reason", message: "no constants of type Code found: this check no longer sees them"}}
	}
	var found []finding
	for _, code := range codes {
		name := path.Join(folder, code+".md")
		f, ok := t.file(name)
		if !ok {
			found = append(found, finding{path: name, message: "missing: every code has a page that says what happened, why, and what to do"})
			continue
		}
		if title, _, _ := strings.Cut(f.text, "\n"); !strings.HasPrefix(title, "# "+code+": ") {
			found = append(found, finding{path: name, line: 1, message: fmt.Sprintf("the title begins with %q", "# "+code+": ")})
		}
	}
	for _, f := range t.files {
		if code := strings.TrimSuffix(path.Base(f.path), ".md"); path.Dir(f.path) == folder && !slices.Contains(codes, code) {
			found = append(found, finding{path: f.path, message: "page of no code: remove it, or declare the code"})
		}
	}
	return found
}

// reasonCodes lists the codes declared in internal/reason, in their text form.
func reasonCodes(t *tree) []string {
	var codes []string
	for _, f := range t.code() {
		if f.pkg.path != "internal/reason" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Values) != 1 {
				return true
			}
			typ, isIdent := v.Type.(*ast.Ident)
			value, isNumber := v.Values[0].(*ast.BasicLit)
			if isIdent && isNumber && typ.Name == "Code" {
				codes = append(codes, fmt.Sprintf("TK%04s", value.Value))
			}
			return true
		})
	}
	return codes
}

const glossaryFile = "docs/glossary.md"

// The forms of an entry: a row of a table, or a line that begins with the term in bold, with or without a bullet. A heading is none.
var (
	termRow  = regexp.MustCompile(`^\|\s*\**([^|*]+?)\**\s*\|`)
	termBold = regexp.MustCompile(`^\s*(?:[-*]\s+)?\*\*([^*]+?)[:.]?\*\*`)
	rowRule  = regexp.MustCompile(`^[:\s-]+$`)
)

type term struct {
	line int
	text string // lower case
}

func glossaryTerms(f file) []term {
	var list []term
	previous := ""
	f.prose(func(n int, line string) {
		for _, form := range []*regexp.Regexp{termRow, termBold} {
			m := form.FindStringSubmatch(line)
			isTitle := form == termRow && !strings.HasPrefix(previous, "|") // the first row names the columns
			if m != nil && !isTitle && !rowRule.MatchString(m[1]) {
				list = append(list, term{n, strings.ToLower(strings.Trim(m[1], "` "))})
				break
			}
		}
		previous = line
	})
	return list
}

// terms lists what the glossary defines, in lower case.
func terms(t *tree) []string {
	f, _ := t.file(glossaryFile)
	var list []string
	for _, e := range glossaryTerms(f) {
		list = append(list, e.text)
	}
	return list
}

// glossary wants one meaning per word.
func glossary(t *tree) []finding {
	f, ok := t.file(glossaryFile)
	if !ok {
		return []finding{{path: glossaryFile, message: "missing: it gives each word of the project its one meaning"}}
	}
	var found []finding
	first := map[string]int{}
	for _, e := range glossaryTerms(f) {
		if at, seen := first[e.text]; seen {
			found = append(found, finding{path: f.path, line: e.line, message: fmt.Sprintf("%q is defined in line %d: one meaning per word", e.text, at)})
			continue
		}
		first[e.text] = e.line
	}
	if len(first) == 0 {
		found = append(found, finding{path: f.path, message: "no terms found: write each as a row of a table, or as a line that begins with **term**"})
	}
	return found
}

const dependenciesFile = "docs/dependencies.md"

var requirement = regexp.MustCompile(`^\s*(?:require\s+)?([a-z0-9.-]+\.[a-z]+/\S+)\s+v\S+(\s*// indirect)?`)

// dependencies wants a line for everything that go.mod requires directly.
func dependencies(t *tree) []finding {
	mod, ok := t.file("go.mod")
	if !ok {
		return []finding{{path: "go.mod", message: "missing"}}
	}
	doc, _ := t.file(dependenciesFile)
	var found []finding
	mod.eachLine(func(n int, line string) {
		if m := requirement.FindStringSubmatch(line); m != nil && m[2] == "" && !namesModule(doc.text, m[1]) {
			found = append(found, finding{path: mod.path, line: n, message: m[1] + " has no line in " + dependenciesFile + ": say what it replaces, who keeps it, what it costs"})
		}
	})
	return found
}

// namesModule tells whether a text names a module, and not only a longer one that begins with it.
func namesModule(text, name string) bool {
	return regexp.MustCompile(regexp.QuoteMeta(name) + `(?:[^/\w-]|$)`).MatchString(text)
}
