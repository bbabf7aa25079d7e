package edit

import (
	"fmt"
	"os"
	"testing"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/host/hosttest/kill"
)

// TestAgentCase10_OthersWorkIsNotOurs: whatever somebody else makes of the file while it is edited, the look that his event brings sees it.
func TestAgentCase10_OthersWorkIsNotOurs(t *testing.T) {
	c := casetest.Start(t)
	for what, meddle := range map[string]func(p string) error{
		"write": func(p string) error { return os.WriteFile(p, []byte("a=9\n"), 0o640) },
		"rename": func(p string) error {
			if err := os.WriteFile(p+".of-others", []byte("a=9\n"), 0o640); err != nil {
				return err
			}
			return os.Rename(p+".of-others", p)
		},
		"remove": os.Remove,
	} {
		t.Run(what, func(t *testing.T) {
			c := c.Sub(t)
			g := newGround(t)
			p := g.path("file")
			times := kill.Meddled(t, kill.Row{
				Open: openType, Resources: threeEdits(p), State: t.TempDir(), Arrange: func(testing.TB) { g.write("file", "a=0\n", 0o640) },
				See: func(t testing.TB) []string {
					if _, err := os.Stat(p); err != nil {
						return []string{err.Error()}
					}
					return []string{fmt.Sprintf("%+v", look(t, p))}
				},
			}, func(testing.TB) { c.NoError(meddle(p), "meddle") })
			c.Check(times > 3, "stopped at %d places only", times)
		})
	}
}
