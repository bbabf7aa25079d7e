//go:build e2e

package several

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// sameNames waits until all servers that run keep the same edition of the names, in which these hosts are, and returns it.
func (f *fleet) sameNames(hosts ...*rig.Host) (edition []byte) {
	f.Helper()
	host.Eventually(f.T, rig.InTime, "all servers keep the same edition of the names", func() (string, bool) {
		edition = nil
		for i, c := range f.servers {
			if c.Server.Run == nil {
				continue
			}
			kept, err := os.ReadFile(filepath.Join(c.Server.Dir, "names"))
			if err != nil || edition != nil && !bytes.Equal(kept, edition) {
				return fmt.Sprintf("server %d has another one of %d bytes: %v", i, len(kept), err), false
			}
			edition = kept
		}
		for _, h := range hosts {
			if !bytes.Contains(edition, []byte("n/"+h.Name)) {
				return h.Name + " is in none", false
			}
		}
		return strconv.Itoa(len(edition)), true
	})
	return edition
}

// TestNames: what the leader says of names, its followers have too; after its end another one goes on from that, and the first follows.
func TestNames(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.join(2)
	leader := f.leader()
	first := f.sameNames(f.hosts...)
	leader.Server.Kill()
	f.hosts = append(f.hosts, f.leader().Join("host-2"))
	if second := f.sameNames(f.hosts...); bytes.Equal(first, second) {
		t.Error("the next leader has said nothing")
	}
	leader.Server.Start(t)
	f.sameNames(f.hosts...)
}
