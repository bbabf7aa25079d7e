package present

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

func TestError(t *testing.T) {
	for _, c := range []struct {
		text, hint string
		style      Style
		want       string
	}{
		{"get a: gone", "", Style{}, "error[TK0806]: get a: gone\n"},
		{"get \x1b[2J", "look\nagain", Style{}, "error[TK0806]: get \\x1b[2J\nhelp: look\\nagain\n"},
		{"x", "y", Style{Color: true}, "\x1b[31merror[TK0806]\x1b[0m: x\n\x1b[32mhelp\x1b[0m: y\n"},
	} {
		var b bytes.Buffer
		if err := Error(&b, reason.ResourceUnknown, c.text, c.hint, c.style); err != nil || b.String() != c.want {
			t.Errorf("%q (%v), want %q", b.String(), err, c.want)
		}
	}
}

func TestExitOf(t *testing.T) {
	fault := func(code reason.Code) declare.Fault { return declare.Fault{Code: code} }
	for _, c := range []struct {
		faults []declare.Fault
		want   reason.Exit
	}{
		{nil, reason.ExitUsage},
		{[]declare.Fault{fault(reason.UnknownField)}, reason.ExitUsage},
		{[]declare.Fault{fault(reason.PriorityConflict), fault(reason.PriorityConflict)}, reason.ExitConflict},
		{[]declare.Fault{fault(reason.PriorityConflict), fault(reason.PermissionDenied)}, reason.ExitUsage},
	} {
		if got := ExitOf(c.faults); got != c.want {
			t.Errorf("%v: exit %d, want %d", c.faults, got, c.want)
		}
	}
}

func TestHelpTopic(t *testing.T) {
	for topic, want := range map[string]string{"TK0412": "# TK0412: unknown field\n", "tk0412": "# TK0412: unknown field\n", "codes": "TK0401  malformed YAML\n"} {
		text, ok, err := HelpTopic(topic, "tako")
		if !ok || err != nil || !strings.HasPrefix(text, want) || !strings.HasSuffix(text, "\n") || strings.HasSuffix(text, "\n\n") {
			t.Errorf("%s: %v, %v, %.60q", topic, ok, err, text)
		}
	}
	if _, ok, err := HelpTopic("apply", "tako"); ok || err != nil {
		t.Errorf("a command is a topic: %v, %v", ok, err)
	}
	_, ok, err := HelpTopic("TK9999", "tako-agent")
	if !ok || !reason.Is(err, reason.UnknownCode) || !strings.Contains(reason.Of(err).Hint, "`tako-agent help codes`") {
		t.Errorf("a code that does not exist: %v, %v", ok, err)
	}
}

// TestExitCodes: every exit code is explained, and each code of the set ends with one that is.
func TestExitCodes(t *testing.T) {
	text, ok, err := HelpTopic("exit-codes", "tako")
	if !ok || err != nil || text != ExitCodes() {
		t.Fatalf("%v, %v: %s", ok, err, text)
	}
	for _, e := range reason.All() {
		if line := fmt.Sprintf("%d  ", e.Exit); !strings.HasPrefix(text, line) && !strings.Contains(text, "\n"+line) {
			t.Errorf("%s ends with %d, which is not explained", e.Code, e.Exit)
		}
	}
}

// TestManyFaults: a file with very many mistakes does not fill a screen for ever.
func TestManyFaults(t *testing.T) {
	var out strings.Builder
	if err := Faults(&out, make([]declare.Fault, 3*faultsListedMax), nil, Style{}); err != nil || strings.Count(out.String(), "\n") > 2*faultsListedMax ||
		!strings.HasSuffix(out.String(), fmt.Sprintf("  and %d more, which are not listed\n", 2*faultsListedMax)) {
		t.Errorf("%d lines (%v)", strings.Count(out.String(), "\n"), err)
	}
}
