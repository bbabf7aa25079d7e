//go:build e2e

package several

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
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

// answersAre waits until every server that runs answers by the DNS where these hosts are, and that there is no other one.
func (f *fleet) answersAre(hosts ...*rig.Host) {
	f.Helper()
	if _, err := exec.LookPath("dig"); err != nil {
		f.Skip("needs dig (bind9-dnsutils): whether servers answer for names is not known without it")
	}
	for i, c := range f.servers {
		if c.Server.Run == nil {
			continue
		}
		at, port, err := net.SplitHostPort(c.dns)
		if err != nil {
			f.Fatal(err)
		}
		asks := func(name, word string) {
			host.Eventually(f.T, rig.InTime, fmt.Sprintf("server %d answers %s for %s", i, word, name), func() (string, bool) {
				ctx, cancel := context.WithTimeout(f.Context(), rig.InTime)
				defer cancel()
				out, err := exec.CommandContext(ctx, "dig", "@"+at, "-p", port, "+tries=1", "+time=2", name+".node.tako.internal", "A").CombinedOutput()
				return fmt.Sprint(string(out), err), bytes.Contains(out, []byte("status: "+word))
			})
		}
		for _, h := range hosts {
			asks(h.Name, "NOERROR")
		}
		asks("host-9", "NXDOMAIN")
	}
}

// TestNames: what the leader says of names, its followers have too, and answer; after its end another one goes on from that, and the first follows.
func TestNames(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.join(2)
	leader := f.leader()
	first := f.sameNames(f.hosts...)
	f.answersAre(f.hosts...)
	leader.Server.Kill()
	f.answersAre(f.hosts...)
	f.hosts = append(f.hosts, f.leader().Join("host-2"))
	if second := f.sameNames(f.hosts...); bytes.Equal(first, second) {
		t.Error("the next leader has said nothing")
	}
	leader.Server.Start(t)
	f.sameNames(f.hosts...)
	f.answersAre(f.hosts...)
}
