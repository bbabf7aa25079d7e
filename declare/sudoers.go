package declare

import (
	"cmp"
	"fmt"
	"strings"

	"tako.dev/tako/internal/reason"
)

// sudoersDir is what sudo reads beside /etc/sudoers, on every distribution that has its @includedir line.
const sudoersDir = "/etc/sudoers.d"

const (
	sudoersMode = "0440" // sudo refuses one that others may write
	// ruleBytesMax: a rule with a list of commands has some hundred bytes.
	ruleBytesMax = 16 << 10
	rulesMax     = 1000
)

// Sudoers is a file of rules of sudo, /etc/sudoers.d/NAME, which visudo has to accept before it counts. Exactly one of content and rules
// is set.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Sudoers struct {
	// File is the file's name below /etc/sudoers.d: letters, digits, _ and -, because sudo ignores names with a dot. Default the resource's name.
	File string `json:"file,omitempty"`
	// Rules are lines of sudoers(5).
	// +listType=atomic
	Rules []string `json:"rules,omitempty"`
	// Content is the whole content of the file instead.
	Content string `json:"content,omitempty"`
}

func (s *Sudoers) claim(name string) Claim {
	return Claim{ClaimPath, sudoersDir + "/" + cmp.Or(s.File, name)}
}

func (s *Sudoers) claimField() string { return "sudoers.file" }

func (s *Sudoers) texts() []expandableText {
	texts := []expandableText{{"sudoers.content", &s.Content}}
	for i := range s.Rules {
		texts = append(texts, expandableText{indexPath("sudoers.rules", i), &s.Rules[i]})
	}
	return texts
}

func (s *Sudoers) autoEdges(claim Claim) []AutoEdge {
	return append(pathAutoEdges(claim.ID), AutoEdge{Other: Claim{ClaimPackage, "sudo"}, Why: "visudo checks the rules"})
}

// AsFile returns the file that the rules are, where the resource claims path.
func (s *Sudoers) AsFile(path string) *File {
	content := s.Content
	if len(s.Rules) > 0 {
		content = strings.Join(s.Rules, "\n") + "\n"
	}
	return &File{Path: path, Content: content, Mode: sudoersMode, Check: []string{"visudo", "-c", "-f", checkPlaceholder}}
}

// Mistake returns what is wrong with the rules, which may have been filled in, or "".
func (s *Sudoers) Mistake() string {
	for _, rule := range s.Rules {
		if message := ruleMistake(rule); message != "" {
			return message
		}
	}
	return ""
}

func ruleMistake(rule string) string {
	switch {
	case strings.TrimSpace(rule) == "":
		return "a rule is empty"
	case strings.ContainsAny(rule, "\n\r\x00"), strings.HasSuffix(rule, `\`):
		return "a rule holds an end of line or a NUL byte, or ends with a backslash, which would join it with the next"
	case len(rule) > ruleBytesMax:
		return fmt.Sprintf("a rule has %d bytes, at most %d are allowed", len(rule), ruleBytesMax)
	}
	return ""
}

func (s *Sudoers) validate(v *validator) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	name, field := s.File, "sudoers.file"
	if name == "" {
		name, field = v.resource.Name, "name"
	}
	if name != "" && (len(name) > 255 || strings.Trim(name, letters) != "") {
		v.invalid(v.path(field), fmt.Sprintf("%q is not a name of a file of rules", clipText(name)),
			"give one in sudoers.file, of letters, digits, _ and -: sudo passes over names with a dot or a ~, without a word")
	}
	switch {
	case s.Content == "" && len(s.Rules) == 0:
		v.fault(v.path("sudoers"), reason.MissingField, v.path("sudoers")+` has neither "rules" nor "content"`, "")
	case s.Content != "" && len(s.Rules) > 0:
		v.fault(v.path("sudoers.content"), reason.FieldNotAllowed, "rules and content are both given", "leave one of them out")
	case strings.Contains(s.Content, "\x00"):
		v.invalid(v.path("sudoers.content"), "the content holds a NUL byte", "")
	}
	if !v.atMost(v.path("sudoers.rules"), len(s.Rules), rulesMax, "rules", "make several files of them") {
		return
	}
	for i, rule := range s.Rules {
		if message := ruleMistake(rule); message != "" {
			v.invalid(v.path(indexPath("sudoers.rules", i)), message, "")
		}
	}
}
