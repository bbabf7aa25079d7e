package agent

import (
	"bytes"
	"os"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// TestTransferCase17_MendedWhileWithheld: a bit that the disk changes in what is enforced is mended within the next audit, or by the next start,
// also while the newest state waits for consent; and that one waits on.
func TestTransferCase17_MendedWhileWithheld(t *testing.T) {
	k := casetest.Start(t)
	for _, restart := range []bool{false, true} {
		t.Run(map[bool]string{false: "audit", true: "restart"}[restart], func(t *testing.T) {
			k := k.Sub(t)
			s, c := joinedSite(t)
			if !restart {
				s.opts.Audit = 200 * time.Millisecond
			}
			stop := s.watch()
			var resources []declare.Resource
			for _, n := range namesOf("f", 12) {
				r := fileOf(n)
				r.OnRemove = declare.OnRemoveDelete
				resources = append(resources, r)
			}
			web := c.config("NodeConfig/web", 5, resources...)
			good := c.assign(nil, web)
			c.settles(good, wire.Applied)
			m := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("other")))
			c.settles(m, wire.Withheld)
			if restart {
				stop()
			}
			layer, body := s.path("state/layers/"+web.Root.String()), []byte("text of fab")
			b, err := os.ReadFile(layer)
			must(t, err)
			at := int64(bytes.Index(b, body))
			f, err := os.OpenFile(layer, os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt([]byte{b[at] ^ 1}, at)
			must(t, err)
			must(t, f.Close())
			if restart {
				s.watch()
			}
			s.until("it is mended", func(*Report) bool {
				b, err := os.ReadFile(layer)
				return err == nil && bytes.Contains(b, body)
			})
			r := c.until("it is told", func(r *wire.Report) bool { return !restart || r.Session.Start == 2 })
			k.Check(r.Verdict.Type == wire.Withheld && r.Verdict.Version == m.Version && r.Enforced == good, "it reports %+v, enforced %+v", r.Verdict, r.Enforced)
			local := s.until("it is told here", func(r *Report) bool { return len(r.Refused) == 1 })
			k.Equal(local.Refused[0].Code, reason.DeletionsWithheld, "what it says here")
			s.holds("fab", "text of fab")
		})
	}
}
