package declare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

const (
	// A line, a key or a value of a configuration has tens of bytes, long lists some thousand.
	editLineBytesMax = 16 << 10
	// editPatternBytesMax bounds a regular expression, whose machine has some hundred bytes for each of its own.
	editPatternBytesMax = 1000
	// editJSONBytesMax bounds a value in a document: what is larger is a file of its own.
	editJSONBytesMax = 64 << 10
	// editStepsMax bounds a pointer: documents nest to some twenty levels.
	editStepsMax = 100
	editedFile   = "file of an edit"
)

// Edit keeps a part of a text file as declared, and leaves the rest to others. Exactly one of line, block, ini, json and yaml is set.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Edit struct {
	// Path is the file: absolute, clean, and not /.
	Path string `json:"path"`
	// Line is one line of the file.
	Line *LineEdit `json:"line,omitempty"`
	// Block is some lines between two marks.
	Block *BlockEdit `json:"block,omitempty"`
	// Ini is the value of a key, in a file of sections and KEY=VALUE lines, or of such lines alone.
	Ini *IniEdit `json:"ini,omitempty"`
	// JSON is a value in a JSON document.
	JSON *PointerEdit `json:"json,omitempty"`
	// YAML is a value in a YAML document. Comments and the order of keys stay.
	YAML *PointerEdit `json:"yaml,omitempty"`
	// State is present (the default) or absent: whether that part is wanted.
	State EditState `json:"state,omitempty"`
	// Create makes the file where it is missing, as root's with the mode 0644. Otherwise a missing file is a failure.
	Create bool `json:"create,omitempty"`
	// Check is a command, without a shell, that must accept the new content before it replaces the old. {} in its arguments is the
	// path of the new content; one argument must hold it.
	// +listType=atomic
	Check []string `json:"check,omitempty"`
}

// EditState is whether a part of a file is wanted.
//
// +enum
type EditState string

// The states of a part of a file.
const (
	EditPresent EditState = "present"
	EditAbsent  EditState = "absent"
)

// LineEdit is one line of a file.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type LineEdit struct {
	// Text is the line, without its end. With state absent it may be left out where match is given; all lines that are text go then.
	Text string `json:"text,omitempty"`
	// Match is a regular expression (RE2) for the line that text takes the place of: the last one that it matches. Left out, text itself
	// is looked for, and so first of all where match does not match text. With state absent, all lines that it matches go.
	Match string `json:"match,omitempty"`
	// After is a regular expression for the line that a new line is put after, the last one. Left out, or where it matches nothing, a new
	// line goes to the end.
	After string `json:"after,omitempty"`
	// Before is a regular expression for the line that a new line is put before, the first one. At most one of after and before is given.
	Before string `json:"before,omitempty"`
}

// BlockEdit is some lines of a file between two marks, which are comments.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type BlockEdit struct {
	// Content are the lines.
	Content string `json:"content,omitempty"`
	// Mark names the block in its marks. Default the resource's name.
	Mark string `json:"mark,omitempty"`
	// Comment begins a comment in this kind of file. Default "#".
	Comment string `json:"comment,omitempty"`
	// After is a regular expression for the line that a new block is put after, the last one. Default the end of the file.
	After string `json:"after,omitempty"`
}

// IniEdit is the value of a key.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type IniEdit struct {
	// Section is the name in brackets. Left out, the key stands before the first section.
	Section string `json:"section,omitempty"`
	// Key is the key.
	Key string `json:"key"`
	// Value is its value, all that stands behind the separator: with the quotes, where there are any. Left out, the key stands alone.
	Value *string `json:"value,omitempty"`
	// Separator stands between a new key and its value, with the blanks around it. Default what the file's other keys have, else "=".
	Separator string `json:"separator,omitempty"`
}

// PointerEdit is a value in a document of values. Exactly one of value and json is set. With state absent none is, except where the
// pointer ends with "-": then it says which items of the list go.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type PointerEdit struct {
	// Pointer says where, RFC 6901: "/log/level"; "-" as its last part adds to a list what is not in it.
	Pointer string `json:"pointer"`
	// Value is the value as a text.
	Value *string `json:"value,omitempty"`
	// JSON is the value in JSON, whatever it is: "8080", "true", "[1, 2]".
	JSON string `json:"json,omitempty"`
}

func (e *Edit) claim(name string) Claim { return Claim{ClaimEdit, e.Path + "#" + e.part(name)} }

func (e *Edit) claimField() string { return "edit.path" }

// texts leaves out what names the part: a line's text, where that is looked for itself.
func (e *Edit) texts() []expandableText {
	var texts []expandableText
	switch {
	case e.Line != nil && e.Line.Match != "":
		texts = append(texts, expandableText{"edit.line.text", &e.Line.Text})
	case e.Block != nil:
		texts = append(texts, expandableText{"edit.block.content", &e.Block.Content})
	case e.Ini != nil && e.Ini.Value != nil:
		texts = append(texts, expandableText{"edit.ini.value", e.Ini.Value})
	}
	for _, p := range e.pointers() {
		if p.edit.Value != nil && !p.edit.item() {
			texts = append(texts, expandableText{p.field + ".value", p.edit.Value})
		}
	}
	for i := range e.Check {
		texts = append(texts, expandableText{indexPath("edit.check", i), &e.Check[i]})
	}
	return texts
}

// autoEdges puts an edit after whatever makes its file, and what a file there would come after.
func (e *Edit) autoEdges(Claim) []AutoEdge {
	return append([]AutoEdge{{Other: Claim{ClaimPath, e.Path}, Why: editedFile}}, pathAutoEdges(e.Path)...)
}

// part names the part of the file that it is about, so that nobody else can be.
func (e *Edit) part(name string) string {
	switch {
	case e.Line != nil:
		return "line " + cmp.Or(e.Line.Match, e.Line.Text)
	case e.Block != nil:
		return "block " + cmp.Or(e.Block.Mark, name)
	case e.Ini != nil:
		return "[" + e.Ini.Section + "]" + e.Ini.Key
	}
	switch list := e.pointers(); {
	case len(list) == 0:
		return name
	case list[0].edit.item():
		return list[0].edit.Pointer + " " + list[0].edit.text()
	default:
		return list[0].edit.Pointer
	}
}

// pointerField is a pointer of an edit and where it is declared.
type pointerField struct {
	field string
	edit  *PointerEdit
}

func (e *Edit) pointers() []pointerField {
	var list []pointerField
	if e.JSON != nil {
		list = append(list, pointerField{"edit.json", e.JSON})
	}
	if e.YAML != nil {
		list = append(list, pointerField{"edit.yaml", e.YAML})
	}
	return list
}

// item reports whether the pointer leads to an item of a list that has no place of its own.
func (p *PointerEdit) item() bool { return strings.HasSuffix(p.Pointer, "/-") }

// text is the value in JSON.
func (p *PointerEdit) text() string {
	if p.Value == nil {
		return p.JSON
	}
	b, err := json.Marshal(*p.Value)
	if err != nil {
		return ""
	}
	return string(b)
}

// Marks returns the lines before and behind the block, in a resource of that name.
func (b *BlockEdit) Marks(name string) (begin, end string) {
	comment, closing := cmp.Or(b.Comment, "#"), ""
	switch comment {
	case "<!--":
		closing = " -->"
	case "/*":
		closing = " */"
	}
	mark := cmp.Or(b.Mark, name)
	return comment + " BEGIN " + mark + " (tako)" + closing, comment + " END " + mark + " (tako)" + closing
}

// Mistake returns what is wrong with section, key, value or separator, or "". It is for a value that has been filled in, too.
func (i *IniEdit) Mistake() string {
	const lineBreaks = "\n\r\x00"
	value := ""
	if i.Value != nil {
		value = *i.Value
	}
	switch {
	case i.Key == "":
		return "there is no key"
	case i.Key != strings.TrimSpace(i.Key), strings.ContainsAny(i.Key, lineBreaks+"="), strings.ContainsAny(i.Key[:1], "#;["), len(i.Key) > editLineBytesMax:
		return fmt.Sprintf("%q is no key: it begins with # ; or [, holds = or an end of line, or has blanks around it", clipText(i.Key))
	case strings.ContainsAny(i.Section, lineBreaks), i.Section != strings.TrimSpace(i.Section), strings.Contains(i.Section, "]"), len(i.Section) > editLineBytesMax:
		return fmt.Sprintf("%q is no section: it holds ] or an end of line, or has blanks around it", clipText(i.Section))
	case strings.ContainsAny(value, lineBreaks):
		return "the value holds an end of line or a NUL byte"
	case value != strings.Trim(value, " \t"), strings.HasSuffix(value, `\`):
		return "the value has blanks around it or ends with a backslash, which would not be read as part of it"
	case len(value) > editLineBytesMax:
		return fmt.Sprintf("the value has %d bytes, at most %d are allowed", len(value), editLineBytesMax)
	}
	switch strings.Trim(i.Separator, " \t") {
	case "", "=", ":":
		return ""
	}
	return fmt.Sprintf("%q is no separator: =, : or blanks, with blanks around it as wanted", clipText(i.Separator))
}

// ParsePointer cuts a pointer, RFC 6901, into its steps. mistake says what is wrong with it, or is empty.
func ParsePointer(pointer string) (steps []string, mistake string) {
	switch {
	case pointer == "":
		return nil, "the pointer is empty, which is the whole document"
	case pointer[0] != '/':
		return nil, fmt.Sprintf("pointer %q does not begin with /", clipText(pointer))
	case len(pointer) > editLineBytesMax || strings.Contains(pointer, "\x00"):
		return nil, "the pointer is too long, or holds a NUL byte"
	}
	steps = strings.Split(pointer[1:], "/")
	for i, s := range steps {
		for at := strings.IndexByte(s, '~'); at >= 0; at = strings.IndexByte(s, '~') {
			if at++; at == len(s) || s[at] != '0' && s[at] != '1' {
				return nil, fmt.Sprintf("in pointer %q a ~ is neither ~0 (~) nor ~1 (/)", clipText(pointer))
			}
			s = s[at+1:]
		}
		steps[i] = strings.ReplaceAll(strings.ReplaceAll(steps[i], "~1", "/"), "~0", "~")
		if steps[i] == "-" && i < len(steps)-1 {
			return nil, `"-" stands before the end of the pointer`
		}
	}
	if len(steps) > editStepsMax {
		return nil, fmt.Sprintf("the pointer has %d parts, at most %d are allowed", len(steps), editStepsMax)
	}
	return steps, ""
}
