package file_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/host/hosttest/kill"
)

// TestAgentCase10_OthersWorkIsNotOurs: whatever somebody else changes while something is applied, the look that his event brings sees it. What an apply leaves is
// remembered as it is found afterwards, and that may be another one's.
func TestAgentCase10_OthersWorkIsNotOurs(t *testing.T) {
	c := casetest.Start(t)
	needsRoot(t)
	ones := append(killedOnes(), killed{"change directory", func(p string) declare.Resource {
		return declare.Resource{Directory: &declare.Directory{Path: p, Mode: "0750"}}
	}, func(g *ground) {
		g.clear("thing")
		g.must(os.Mkdir(g.path("thing"), 0o777))
		g.must(os.Chmod(g.path("thing"), 0o777))
	}})
	for _, one := range ones {
		for what, meddle := range map[string]func(p string) error{
			"chown": func(p string) error { return os.Lchown(p, 65534, 65534) },
			"chmod": func(p string) error { return unix.Chmod(p, 0o707) },
			"write": func(p string) error {
				f, err := os.OpenFile(p, os.O_WRONLY|unix.O_NOFOLLOW, 0)
				if err != nil {
					return err
				}
				_, err = f.WriteAt([]byte("x"), 0)
				return errors.Join(err, f.Close())
			},
			"rename": func(p string) error {
				if err := os.WriteFile(p+".of-others", []byte("other\n"), 0o644); err != nil {
					return err
				}
				return os.Rename(p+".of-others", p)
			},
		} {
			t.Run(one.name+" "+what, func(t *testing.T) {
				t.Parallel()
				c := c.Sub(t)
				g := newGround(t)
				row := g.row(one.resource(g.path("thing")), "thing", func() { one.arrange(g) })
				done := 0
				times := kill.Meddled(t, row, func(testing.TB) {
					if meddle(g.path("thing")) == nil {
						done++
					}
				})
				c.Check(times > 3, "stopped at %d places only", times)
				t.Logf("%d places, something changed at %d", times, done)
			})
		}
	}
}
