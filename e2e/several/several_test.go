//go:build e2e

package several

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
	"tako.dev/tako/internal/casetest"
)

// TestLeaderKilled: with three servers, of which the leader is killed while changes are made, another one leads within 15 s, every host comes to the
// newest, and each server that is left says how all of them stand. The one that was killed comes back as a follower, and a leader that is stopped
// hands over at once.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.join(4)
	leader := f.leader()
	if leader != f.servers[0] {
		t.Error("the server that was alone does not lead any more")
	}
	f.have(f.change(f.servers[1]), f.hosts...)
	f.agree()
	for _, c := range f.servers { // a question goes to the host wherever that is connected
		for _, h := range f.hosts {
			if out := c.Tako("history", "node/"+h.Name); !strings.Contains(out, "motd") {
				t.Errorf("the history of %s is told as\n%s", h.Name, out)
			}
		}
	}

	left := f.others(leader)
	f.change(left[0])
	leader.Server.Kill()
	killed := time.Now()
	f.change(left[0])
	next := f.leader()
	if took := next.led().Sub(killed); took > takeoverMax {
		t.Errorf("another one leads after %s", took)
	} else {
		t.Logf("another one leads after %s", took)
	}
	f.have(f.change(left[1]), f.hosts...)
	f.agree()

	leader.Server.Start(t)
	f.agree()
	if leader.leads() {
		t.Error("the one that was killed has taken the lead back")
	}
	next.Server.Stop(t)
	stopped := time.Now()
	third := f.leader()
	if took := third.led().Sub(stopped); took > takeoverMax/3 { // who stops gives the lead away, and no lease has to end, which takes half of that at least
		t.Errorf("after a stop another one leads after %s", took)
	}
	f.have(f.change(third), f.hosts...)
	f.agree()
	f.oneLeads(3)
	f.watch.end()
	if f.watch.looks.Load() == 0 {
		t.Error("nobody has looked at the hosts")
	}
}

// TestTransferCase23_LeaderCutOff: the leader is cut off from etcd, and its hosts are not cut off from it. Another server leads, hosts of that one go on at
// once, the others go there within the time after which their server knows, and nobody goes back when the cut has healed. The first one can lead again.
func TestTransferCase23_LeaderCutOff(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel()
	f := newFleet(t, 2)
	f.join(4)
	f.have(f.change(f.servers[1]), f.hosts...)
	f.agree()
	cut := f.leader()
	with := f.at(cut)
	c.Check(len(with) > 0 && len(with) < len(f.hosts), "%d of %d hosts are connected to the leader", len(with), len(f.hosts))

	cut.way.Cut()
	began := time.Now()
	other := f.leader(cut)
	took := other.led().Sub(began)
	c.Check(took <= takeoverMax, "another server leads after %s", took)
	f.oneLeads(3)
	content := f.change(other)
	for _, h := range f.hosts {
		if !slices.Contains(with, h) {
			f.have(content, h)
		}
	}
	f.have(content, with...)
	t.Logf("takeover after %s, all hosts have the newest after %s", took, time.Since(began))
	host.Eventually(t, rig.InTime, "all hosts have gone to the server that can serve them", func() (string, bool) {
		at := len(f.at(other))
		return strconv.Itoa(at), at == len(f.hosts)
	})

	cut.way.Heal()
	content = f.change(other)
	f.have(content, f.hosts...)
	f.agree() // at the one that was cut off, too
	f.leadsAlone(other, cut)
	f.have(f.change(cut), f.hosts...)

	other.Server.Stop(t)
	c.Check(f.leader() == cut, "the one that has led before does not lead again")
	f.have(f.change(cut), f.hosts...)
	f.agree()
	for _, bad := range []string{"sources are not applied", "controllers have stopped", "a part of the server has stopped", "panic"} {
		c.Check(!strings.Contains(cut.Server.Run.Log.Tail(), bad), "leading once more, it says %q:\n%s", bad, cut.Server.Run.Log.Tail())
	}
	f.watch.end()
	c.Check(f.watch.looks.Load() > 0, "nobody has looked at the hosts")
}

// TestTransferCase22_LeaderStopped: the leader stands still for 20 s, as a machine does that is moved, with hosts connected to it. Another server leads
// meanwhile; when the first one goes on it is behind, writes nothing as a leader, and brings no host back.
func TestTransferCase22_LeaderStopped(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel()
	f := newFleet(t, 2)
	f.join(4)
	f.have(f.change(f.servers[1]), f.hosts...)
	f.agree()
	slow := f.leader()
	with := f.at(slow)
	c.Check(len(with) > 0 && len(with) < len(f.hosts), "%d of %d hosts are connected to the leader", len(with), len(f.hosts))
	f.change(f.others(slow)[0]) // it has this on its way
	c.NoError(slow.Server.Run.Cmd.Process.Signal(syscall.SIGSTOP), "stop the leader")
	began := time.Now()
	other := f.leader(slow)
	took := other.led().Sub(began)
	c.Check(took <= takeoverMax, "another server leads after %s", took)
	content := f.change(other)
	for _, h := range f.hosts {
		if !slices.Contains(with, h) {
			f.have(content, h)
		}
	}
	<-time.After(time.Until(began.Add(20 * time.Second)))
	c.NoError(slow.Server.Run.Cmd.Process.Signal(syscall.SIGCONT), "let it go on")
	f.have(content, f.hosts...)
	f.agree()
	f.leadsAlone(other, slow)
	f.oneLeads(3)
	f.watch.end()
	c.Check(f.watch.looks.Load() > 0, "nobody has looked at the hosts")
}
