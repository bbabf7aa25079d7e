package cli

import (
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

// TestTokenThatHasEnded: a token that ends before it is made is refused, and not made for ever.
func TestTokenThatHasEnded(t *testing.T) {
	c := newConsole(t)
	for _, expires := range []string{"-1h", "0", "30days"} {
		out, errs, exit := c.run(t.Context(), strings.NewReader(""), "token", "create", "user", "x", "--expires", expires)
		if exit != reason.ExitUsage || out != "" || !strings.Contains(errs, "30d, or never") {
			t.Errorf("%s: exit %d: %s%s", expires, exit, out, errs)
		}
	}
}
