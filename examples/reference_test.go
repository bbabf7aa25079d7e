package examples

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

const reference = "../docs/spec/nodeconfig.md"

var (
	headings   = regexp.MustCompile(`(?m)^(##+) (.*)\n`)
	pageLinks  = regexp.MustCompile(`\]\(#([a-z-]+)\)`)
	outcomeRow = regexp.MustCompile(`(?m)^\| (failed|deferred|contended|blocked|not applicable)(\([a-z]+\))? \| (.*?) \| (.+) \|$`)
	codeLink   = regexp.MustCompile(`\[TK([0-9]{4})\]\(../../internal/reason/pages/TK([0-9]{4})\.md\)`)
)

// readReference is the page of declarations.
func readReference(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// sectionOf is what stands below a heading, with the sections within it. An anchor of a link names a heading too.
func sectionOf(text []byte, name string) []byte {
	all := headings.FindAllSubmatchIndex(text, -1)
	for i, at := range all {
		heading := string(text[at[4]:at[5]])
		if heading != name && strings.ReplaceAll(strings.ToLower(heading), " ", "-") != name {
			continue
		}
		for _, next := range all[i+1:] {
			if next[3]-next[2] <= at[3]-at[2] {
				return text[at[1]:next[0]]
			}
		}
		return text[at[1]:]
	}
	return nil
}

// withLinked is a section with those that it links to, for what is said once of several types.
func withLinked(text []byte, name string) []byte {
	section := slices.Clone(sectionOf(text, name))
	for _, link := range pageLinks.FindAllSubmatch(section, -1) {
		section = append(section, sectionOf(text, string(link[1]))...)
	}
	return section
}

// TestReferenceShowsEachType wants a declaration of each type in the section of the reference that is about it, in a block, which
// TestDocuments reads. Indented text would be read by nobody.
func TestReferenceShowsEachType(t *testing.T) {
	text := readReference(t)
	for _, typ := range declare.ResourceTypes() {
		shown := false
		for _, b := range yamlBlock.FindAllSubmatch(sectionOf(text, string(typ)), -1) {
			read, _ := declare.Read(string(typ), declaration(b[1]))
			for i := range read {
				shown = shown || slices.ContainsFunc(read[i].Config.Spec.Resources, func(r declare.Resource) bool { return r.Type() == typ })
			}
		}
		if !shown {
			t.Errorf("the section of %s shows no declaration of one", typ)
		}
	}
}

// TestReferenceOfEachType wants each field of a type in the section of that type, or in one that it links to: a name that stands
// somewhere on the page says nothing of the type.
func TestReferenceOfEachType(t *testing.T) {
	text := readReference(t)
	listed := regexp.MustCompile("(?m)^\\| `file`, `directory`.*$").Find(text)
	resource := reflect.TypeFor[declare.Resource]()
	for _, typ := range declare.ResourceTypes() {
		field, ok := resource.FieldByNameFunc(func(name string) bool {
			f, _ := resource.FieldByName(name)
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return tag == string(typ)
		})
		section := withLinked(text, string(typ))
		if !ok || len(section) == 0 {
			t.Errorf("there is no section of %s", typ)
			continue
		}
		if !strings.Contains(string(listed), "`"+string(typ)+"`") {
			t.Errorf("%s is not in the list of types", typ)
		}
		for _, w := range fieldNames(field.Type, map[reflect.Type]bool{}) {
			if !regexp.MustCompile("`(?:[a-z\\[\\]]+\\.)?" + regexp.QuoteMeta(w) + "`").Match(section) {
				t.Errorf("the section of %s says nothing of `%s`", typ, w)
			}
		}
	}
}

// TestReferenceOfOutcomes wants outcomes in the section of each type, or the word that they are those of others, and compares what the
// page says of a code with what a resource with that code is.
func TestReferenceOfOutcomes(t *testing.T) {
	text := readReference(t)
	for _, typ := range declare.ResourceTypes() {
		section := sectionOf(text, string(typ))
		as := regexp.MustCompile(`Outcomes\s+are\s+those\s+of\s+an?\s+\[[a-z]+\]\(#([a-z]+)\)`).FindSubmatch(section)
		if as != nil {
			section = sectionOf(text, string(as[1]))
		}
		if !outcomeRow.Match(section) && typ != "data" { // nothing is done about it
			t.Errorf("the section of %s says nothing of its outcomes", typ)
		}
	}
	for _, row := range outcomeRow.FindAllStringSubmatch(string(text), -1) {
		codes := codeLink.FindAllStringSubmatch(row[3], -1)
		if len(codes) == 0 {
			t.Errorf("%q names no code", row[0])
		}
		for _, code := range codes {
			number, err := strconv.Atoi(code[1])
			if err != nil || code[1] != code[2] {
				t.Errorf("%q: %s leads to %s", row[0], code[1], code[2])
			}
			entry, ok := reason.Lookup(reason.Code(number))
			is := strings.ReplaceAll(entry.Outcome.String(), "notApplicable", "not applicable")
			if entry.Detail != "" {
				is += "(" + string(entry.Detail) + ")"
			}
			if said := row[1] + row[2]; !ok || entry.Outcome != reason.Unknown && said != is {
				t.Errorf("TK%s is %s, and the page says %s", code[1], is, said)
			}
		}
	}
}

// ofPackages are the packages that see to the types, by their folders, and the types of each.
var ofPackages = map[string][]string{
	"account": {"user", "group", "authorizedKeys"}, "archive": {"archive"}, "edit": {"edit"}, "endpoint": {"endpoint"}, "exec": {"exec"},
	"file": {"file", "directory", "symlink"}, "mount": {"mount", "swap"}, "packages": {"package"}, "repository": {"repository"},
	"service": {"service"}, "setting": {"sysctl", "kernelModule", "hostname", "hostEntry", "timezone", "locale"}, "unit": {"unit", "timer"},
	"upgrade": {"agent"},
}

// TestReferenceHasEachCode looks for the codes in the packages of the types: each stands in the section of one of them, or among those of all.
func TestReferenceHasEachCode(t *testing.T) {
	text := readReference(t)
	numbers := map[string]string{}
	source, err := os.ReadFile("../internal/reason/code.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t([A-Z]\w+) +Code = ([0-9]+)$`).FindAllStringSubmatch(string(source), -1) {
		numbers[m[1]] = fmt.Sprintf("TK%04s", m[2])
	}
	for folder, types := range ofPackages {
		var sections []byte
		for _, typ := range append([]string{"Outcomes"}, types...) {
			sections = append(sections, withLinked(text, typ)...)
		}
		files, err := filepath.Glob("../internal/host/" + folder + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("there is no source of %s: %v", folder, err)
		}
		missing := map[string]bool{}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`Code: +reason\.([A-Z]\w+)`).FindAllStringSubmatch(string(content), -1) {
				if code := numbers[m[1]]; !aboutNoResource(code) && !missing[code] && !strings.Contains(string(sections), code) {
					missing[code] = true
					t.Errorf("%v: nothing is said of %s, %s", types, code, m[1])
				}
			}
		}
	}
}

// aboutNoResource says of a code that no outcome of a resource has it, such as that of a look that was given up.
func aboutNoResource(code string) bool {
	number, err := strconv.Atoi(strings.TrimPrefix(code, "TK"))
	entry, ok := reason.Lookup(reason.Code(number))
	return err == nil && ok && entry.Outcome == reason.Unknown
}
