//go:build e2e

package examples

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
)

var (
	fenced   = regexp.MustCompile("(?s)```.*?```")
	longFlag = regexp.MustCompile(`(?:^| )(--[a-z-]+)`)
	oneWord  = regexp.MustCompile(`^[a-z]+$`)
)

// TestComingFromCommands asks the programs whether they have the commands and flags that the page names.
func TestComingFromCommands(t *testing.T) {
	text, err := os.ReadFile(comingFrom)
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{"tako": host.TakoBinary(t), "tako-agent": host.AgentBinary(t)}
	seen := 0
	for _, span := range codeSpan.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
		words := strings.Fields(span[1])
		program := programs[words[0]]
		if program == "" || len(words) == 1 || !oneWord.MatchString(words[1]) {
			continue
		}
		seen++
		var command []string
		for _, w := range words[1:] {
			if !oneWord.MatchString(w) || len(command) == 2 {
				break
			}
			command = append(command, w)
		}
		help := run(t, program, append(slices.Clone(command), "--help")...)
		if usage := words[0] + " " + command[0]; !strings.Contains(help, usage) {
			t.Errorf("%s: there is no %s:\n%s", span[1], usage, help)
		}
		for _, flag := range longFlag.FindAllStringSubmatch(span[1], -1) {
			if !regexp.MustCompile(regexp.QuoteMeta(flag[1]) + `\b`).MatchString(help) {
				t.Errorf("%s: there is no flag %s:\n%s", span[1], flag[1], help)
			}
		}
	}
	if seen < 4 {
		t.Errorf("the page has %d commands: this test no longer sees them", seen)
	}
}
