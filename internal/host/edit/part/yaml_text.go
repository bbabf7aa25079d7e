package part

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// plainSafe is a text that needs no quotes in any version of YAML; words that mean something else are listed beside it.
var plainSafe = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./@%+-]*( [A-Za-z0-9_/][A-Za-z0-9_./@%+-]*)*$`)

// textYAML writes a text so that every reader takes it for one.
func textYAML(s string) string {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return quotedYAML(s)
	}
	if plainSafe.MatchString(s) {
		return s
	}
	return quotedYAML(s)
}

// quotedYAML writes a text between quotes. What JSON may have as it is, and YAML not, is escaped: yaml.org/spec/1.2.2, c-printable; also
// what older versions take for an end of line.
func quotedYAML(s string) string {
	var b strings.Builder
	for _, r := range textJSON(s) {
		if r >= 0x7f && r <= 0x9f || r == 0xfeff || r == 0xfffe || r == 0xffff {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// flowYAML writes compact JSON as YAML: its texts have escapes that YAML does not know.
func flowYAML(compact string) string {
	var b strings.Builder
	for {
		from := strings.IndexByte(compact, '"')
		if from < 0 {
			b.WriteString(compact)
			return b.String()
		}
		b.WriteString(compact[:from])
		to := (&document{text: compact}).skipQuoted(from)
		var s string
		if json.Unmarshal([]byte(compact[from:to]), &s) == nil { // it has been read before
			b.WriteString(quotedYAML(s))
		}
		compact = compact[to:]
	}
}

// quoted writes a text between quotes as the document's language has it.
func (d *document) quoted(s string) string {
	if d.yaml {
		return quotedYAML(s)
	}
	return textJSON(s)
}

// anchors are what may be anchors and aliases of a document, also in texts.
var anchors = regexp.MustCompile(`(?:^|[\s\[{,:])([&*])([^\s,\[\]{}]+)`)

// keepsAnchors refuses a change that takes away an anchor for which an alias stands further on: the document could not be read any more.
func (yamlText) keepsAnchors(before, after string) error {
	if strings.IndexByte(before, '&') < 0 || strings.IndexByte(after, '*') < 0 {
		return nil
	}
	had, has, wanted := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, m := range anchors.FindAllStringSubmatch(before, -1) {
		if m[1] == "&" {
			had[m[2]]++
		}
	}
	for _, m := range anchors.FindAllStringSubmatch(after, -1) {
		if m[1] == "&" {
			has[m[2]]++
		} else {
			wanted[m[2]] = true
		}
	}
	for name, n := range had {
		if wanted[name] && has[name] < n {
			return refuse("put the value in the place of the alias by hand, or move the anchor there", "the anchor &%s would go, and *%s stands for it elsewhere", name, name)
		}
	}
	return nil
}
