package cli

import (
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

// TestWrongUsage: what is mistyped is answered with what was meant.
func TestWrongUsage(t *testing.T) {
	c := newConsole(t)
	for _, x := range []struct {
		args, words string
		exit        reason.Exit
	}{
		{"aply -f x", "did you mean apply?", reason.ExitUsage},
		{"token creat user x --expires 1h", "did you mean create?", reason.ExitUsage},
		{"apply site.yaml", "did you mean -f site.yaml?", reason.ExitUsage},
		{"diff site.yaml", "did you mean -f site.yaml?", reason.ExitUsage},
		{"get nodes --context nope", "there are: tako", reason.ExitNotFound},
		{"wait node/x --timeout 10", "a number with its unit", reason.ExitUsage},
		{"events --types=Foo", "write Normal or Warning", reason.ExitUsage},
		{"get nodes --nope", "unknown flag: --nope", reason.ExitUsage},
	} {
		_, errs, exit := c.run(t.Context(), strings.NewReader(""), strings.Fields(x.args)...)
		if exit != x.exit || !strings.Contains(errs, x.words) {
			t.Errorf("%s: exit %d, want %d and %q: %s", x.args, exit, x.exit, x.words, errs)
		}
	}
	if out, errs, exit := c.run(t.Context(), strings.NewReader(""), "--version"); exit != reason.ExitOK || !strings.HasPrefix(out, "client ") {
		t.Errorf("exit %d: %s%s", exit, out, errs)
	}
}
