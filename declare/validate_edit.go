package declare

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"tako.dev/tako/internal/reason"
)

func (e *Edit) validate(v *validator) {
	v.fsPath("edit.path", e.Path)
	switch e.State {
	case "", EditPresent, EditAbsent:
	default:
		v.unknownWord(v.path("edit.state"), "state", string(e.State), []string{string(EditPresent), string(EditAbsent)})
	}
	e.validateKind(v)
	if n := len(e.claim(v.resource.Name).String()); n > ClaimBytesMax && len(e.Path) < PathBytesMax {
		v.invalid(v.path("edit"), fmt.Sprintf("the path and what names the part have %d bytes together, at most %d are allowed", n, ClaimBytesMax), "of a long line, name it by a `match`")
	}
	v.checkCommand("edit.check", e.Check)
	if absent := e.State == EditAbsent; absent && e.Create {
		v.fault(v.path("edit.create"), reason.FieldNotAllowed, "create: true with state: absent", "leave create out: where there is no file, nothing is in it")
	}
	if v.firstEdit() {
		v.edits()
	}
}

// validateKind checks that there is exactly one kind of part, and that one.
func (e *Edit) validateKind(v *validator) {
	absent := e.State == EditAbsent
	var kinds []string
	if e.Line != nil {
		kinds = append(kinds, "line")
		e.Line.validate(v, absent)
	}
	if e.Block != nil {
		kinds = append(kinds, "block")
		e.Block.validate(v, absent)
	}
	if e.Ini != nil {
		kinds = append(kinds, "ini")
		e.Ini.validate(v, absent)
	}
	for _, p := range e.pointers() {
		kinds = append(kinds, strings.TrimPrefix(p.field, "edit."))
		p.edit.validate(v, p.field, absent)
	}
	switch {
	case len(kinds) == 0:
		v.fault(v.path("edit"), reason.MissingField, v.path("edit")+" says no part of the file", "add one of line, block, ini, json, yaml")
	case len(kinds) > 1:
		v.fault(v.path("edit."+kinds[1]), reason.FieldNotAllowed, "the edit has several parts: "+joinWords(kinds), "make one resource of each")
	}
}

func (l *LineEdit) validate(v *validator, absent bool) {
	at := v.path("edit.line.text")
	switch {
	case l.Text == "" && (!absent || l.Match == ""):
		v.fault(at, reason.MissingField, v.path("edit.line")+` has no "text"`, "")
	case strings.ContainsAny(l.Text, "\n\r\x00"):
		v.invalid(at, "the line holds an end of line or a NUL byte", "make one resource of each line, or a block of them")
	case len(l.Text) > editLineBytesMax:
		v.invalid(at, fmt.Sprintf("the line has %d bytes, at most %d are allowed", len(l.Text), editLineBytesMax), "")
	}
	v.pattern("edit.line.match", l.Match)
	v.pattern("edit.line.after", l.After)
	v.pattern("edit.line.before", l.Before)
	if l.After != "" && l.Before != "" {
		v.fault(v.path("edit.line.before"), reason.FieldNotAllowed, "after and before are both given", "a new line has one place: leave one of them out")
	}
	if absent && (l.After != "" || l.Before != "") {
		v.fault(v.path("edit.line"), reason.FieldNotAllowed, "after or before with state: absent", "leave them out: no line is put anywhere")
	}
}

// pattern checks a regular expression.
func (v *validator) pattern(field, source string) {
	if len(source) > editPatternBytesMax {
		v.invalid(v.path(field), fmt.Sprintf("the regular expression has %d bytes, at most %d are allowed", len(source), editPatternBytesMax), "")
		return
	}
	if _, err := regexp.Compile(source); err != nil {
		v.invalid(v.path(field), err.Error(), "the syntax is RE2's: no references back, and nothing that looks around")
	}
}

func (b *BlockEdit) validate(v *validator, absent bool) {
	begin, end := b.Marks(v.resource.Name)
	for l := range strings.Lines(b.Content) {
		if l = strings.TrimRight(l, " \t\r\n"); l == begin || l == end {
			v.invalid(v.path("edit.block.content"), "the content holds one of the marks of the block", "choose another mark")
		}
	}
	if strings.Contains(b.Content, "\x00") {
		v.invalid(v.path("edit.block.content"), "the content holds a NUL byte", "")
	}
	for _, f := range []struct{ field, text string }{{"edit.block.mark", b.Mark}, {"edit.block.comment", b.Comment}} {
		if strings.ContainsAny(f.text, "\n\r\x00") || f.text != strings.TrimSpace(f.text) || len(f.text) > editLineBytesMax {
			v.invalid(v.path(f.field), fmt.Sprintf("%q has blanks around it, an end of line or a NUL byte, or is too long", clipText(f.text)), "")
		}
	}
	v.pattern("edit.block.after", b.After)
	if absent && (b.Content != "" || b.After != "") {
		v.fault(v.path("edit.block"), reason.FieldNotAllowed, "content or after with state: absent", "leave them out: the block is found by its marks")
	}
}

func (i *IniEdit) validate(v *validator, absent bool) {
	if i.Key == "" {
		v.fault(v.path("edit.ini.key"), reason.MissingField, v.path("edit.ini")+` has no "key"`, "")
		return
	}
	if mistake := i.Mistake(); mistake != "" {
		v.invalid(v.path("edit.ini"), mistake, "")
	}
	if absent && i.Value != nil {
		v.fault(v.path("edit.ini.value"), reason.FieldNotAllowed, "a value with state: absent", "leave it out: the key goes, whatever its value is")
	}
}

func (p *PointerEdit) validate(v *validator, field string, absent bool) {
	_, mistake := ParsePointer(p.Pointer)
	switch {
	case p.Pointer == "":
		v.fault(v.path(field+".pointer"), reason.MissingField, v.path(field)+` has no "pointer"`, "")
	case mistake != "":
		v.invalid(v.path(field+".pointer"), mistake, `write for example "/log/level"`)
	}
	given := p.Value != nil || p.JSON != ""
	switch {
	case p.Value != nil && p.JSON != "":
		v.fault(v.path(field+".json"), reason.FieldNotAllowed, "value and json are both given", "leave one of them out: value is a text, json is anything")
	case absent && given && !p.item():
		v.fault(v.path(field), reason.FieldNotAllowed, "a value with state: absent", "leave it out: what the pointer leads to goes, whatever it is")
	case !given && (!absent || p.item()):
		v.fault(v.path(field), reason.MissingField, v.path(field)+` has neither "value" nor "json"`, "")
	}
	switch {
	case p.JSON != "" && !json.Valid([]byte(p.JSON)):
		v.invalid(v.path(field+".json"), fmt.Sprintf("%q is not JSON", clipText(p.JSON)), `a text goes into value; json is for 8080, true, null, [1, 2], {"a": 1}`)
	case len(p.JSON) > editJSONBytesMax, p.Value != nil && len(*p.Value) > editJSONBytesMax:
		v.invalid(v.path(field), fmt.Sprintf("the value has more than %d bytes", editJSONBytesMax), "declare the whole file")
	}
}

// checkCommand checks a command that looks at the new content of a file.
func (v *validator) checkCommand(field string, args []string) {
	if len(args) == 0 || !v.atMost(v.path(field), len(args), ArgumentsMax, "arguments", "") {
		return
	}
	const rule = `{} stands for the path of the new content, for example [/usr/sbin/sshd, -t, -f, "{}"]`
	if args[0] == "" || strings.Contains(args[0], checkPlaceholder) {
		v.invalid(v.path(indexPath(field, 0)), "the check command begins with no program", rule)
	}
	if !slices.ContainsFunc(args[1:], func(s string) bool { return strings.Contains(s, checkPlaceholder) }) {
		v.invalid(v.path(field), "no argument of the check command holds {}", rule)
	}
	for i, argument := range args {
		if strings.Contains(argument, "\x00") {
			v.invalid(v.path(indexPath(field, i)), "an argument holds a NUL byte, which no program can be given", "")
		}
	}
}

// firstEdit reports whether no resource before this one is an edit.
func (v *validator) firstEdit() bool {
	for i := v.index - 1; i >= 0; i-- {
		if v.config.Spec.Resources[i].Edit != nil {
			return false
		}
	}
	return true
}

// edits checks what edits say about one another and about files that are declared whole. Edits of the very same part have the same claim.
func (v *validator) edits() {
	all := v.config.Spec.Resources
	index, resource := v.index, v.resource
	paths := map[string]int{}
	parts := map[Claim]int{}
	for i := range all {
		switch claim := all[i].Claim(); claim.Kind {
		case ClaimPath:
			paths[claim.ID] = i
		case ClaimEdit:
			parts[claim] = i
		}
	}
	for i := range all {
		e := all[i].Edit
		if e == nil {
			continue
		}
		v.index, v.resource = i, &all[i]
		if other, ok := paths[e.Path]; ok && !all[other].sharedContent() {
			f := v.fault(v.path("edit.path"), reason.DuplicateClaim, fmt.Sprintf("%s is declared as a whole by %s", clipText(e.Path), all[other].Title()),
				"put the part into that, or remove one of them, or say of that file `replace: false`")
			f.Related = []Place{{Path: ResourcePath(other) + "." + all[other].claimField(), Note: "declared here"}}
		}
		for _, p := range e.pointers() {
			v.within(p, e.Path, parts)
		}
	}
	v.index, v.resource = index, resource
}

// within refuses a pointer into a value that is declared whole.
func (v *validator) within(p pointerField, path string, parts map[Claim]int) {
	for outer := p.edit.Pointer; ; {
		cut := strings.LastIndexByte(outer, '/')
		if cut <= 0 {
			return
		}
		outer = outer[:cut]
		if other, ok := parts[Claim{ClaimEdit, path + "#" + outer}]; ok {
			f := v.fault(v.path(p.field+".pointer"), reason.DuplicateClaim, fmt.Sprintf("%s is part of %s, which is declared by %s", clipText(p.edit.Pointer), clipText(outer), v.config.Spec.Resources[other].Title()),
				"put it into that, or remove one of them")
			f.Related = []Place{{Path: ResourcePath(other) + ".edit", Note: "declared here"}}
			return
		}
	}
}
