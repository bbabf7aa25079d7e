package path

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/rig"
	"tako.dev/tako/internal/casetest"
)

// many is a config of so many files, and the one that tells the versions apart.
func many(count int, text string) string {
	var b strings.Builder
	b.WriteString(site(text))
	b.WriteString("    - name: many\n      directory: {path: /srv/many}\n")
	for i := range count {
		fmt.Fprintf(&b, "    - name: f%d\n      file: {path: /srv/many/%d, content: \"%d of %s\"}\n", i, i, i, strings.TrimSpace(text))
	}
	return b.String()
}

// manyFiles takes an agent a second or so: long enough to be killed on the way, over and over.
const manyFiles = 3_000

// beyond waits until there are more files than before.
func (s *sandbox) beyond(before int) {
	s.ground.Helper()
	s.Until(fmt.Sprintf("more than %d files are there", before), func() (string, bool) {
		n := s.Count("srv/many")
		return fmt.Sprint(n), n > before
	})
}

// TestTransferCase14_KilledOnTheWay: who was killed after the swap goes on by itself, also when there is no server, and fetches nothing again.
func TestTransferCase14_KilledOnTheWay(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	s := g.join("web-1")
	g.Apply(site("one\n"))
	s.Start()
	s.converges()
	g.Apply(many(manyFiles, "two\n"))
	s.beyond(0)
	s.Kill()
	there := s.Count("srv/many")
	c.Check(there > 0 && there < manyFiles, "it was killed with %d of %d files", there, manyFiles)
	g.Server.Stop(t)
	s.Start()
	s.Until("all files are there", func() (string, bool) {
		n := s.Count("srv/many")
		return fmt.Sprint(n), n == manyFiles
	})
	s.Has("etc/motd", "two\n")
	g.Server.Start(t)
	s.Stop()
	s.Start()
	s.converges()
	c.Equal(g.Metric("tako_transfer_syncs_total"), 0.0, "ways that the server has sent since it is there again")
	c.Equal(g.Metric(`tako_transfer_calls_total{call="/v1/nodes"}`), 0.0, "calls for nodes")
}

// TestTransferCase34_KilledOverAndOver: a state that the agent has died of three times is left for the one before, and people are told.
func TestTransferCase34_KilledOverAndOver(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	s := g.join("web-1")
	g.Apply(site("one\n"))
	s.Start()
	one := s.converges()
	g.Apply(many(manyFiles, "two\n"))
	for i := range 3 {
		if i > 0 {
			s.Start()
		}
		s.beyond(s.Count("srv/many"))
		s.Kill()
	}
	left := s.Count("srv/many")
	c.Check(left < manyFiles, "it was done before it was killed for the third time")
	s.Start()
	n := s.reports("it has quarantined the state", func(n *v1alpha1.Node) bool {
		return n.Status.Verdict != nil && n.Status.Verdict.Type == v1alpha1.VerdictQuarantined
	})
	c.Check(applied(&one) <= applied(&n) && applied(&n) < n.Status.Verdict.Version, "version %d is enforced, and %d is quarantined", applied(&n), n.Status.Verdict.Version)
	s.Keeps("etc/motd", "one\n")
	why, _ := g.Try("why", "node/web-1") // its exit code says that something is wrong
	c.Check(strings.Contains(why, "Quarantined"), "why says nothing of it:\n%s", why)
	g.Apply(site("three\n"))
	s.Has("etc/motd", "three\n")
	s.converges()
}

// TestTransferCase19_ServerRestarted: whoever has the newest state fetches nothing from a server that has begun anew, and who has an older
// one little more than what has changed.
func TestTransferCase19_ServerRestarted(t *testing.T) {
	c := casetest.Start(t)
	const files = 500
	g := newGround(t)
	s := g.join("web-1")
	g.Apply(many(files, "one\n"))
	s.Start()
	s.converges()
	g.Server.Kill()
	g.Server.Start(t)
	s.Stop()
	s.Start()
	s.reports("it was heard again", func(n *v1alpha1.Node) bool {
		return n.Status.Agent != nil && n.Status.Agent.Starts == 2 && meta.IsStatusConditionTrue(n.Status.Conditions, "Ready")
	})
	s.converges()
	content := func() float64 {
		return g.Metric(`tako_transfer_sent_bytes_total{call="/v1/sync"}`) + g.Metric(`tako_transfer_sent_bytes_total{call="/v1/nodes"}`)
	}
	c.Equal(content(), 0.0, "bytes of content for who has it")
	s.Stop()
	changed := strings.Replace(many(files, "one\n"), "7 of one", "7 of two", 1)
	g.Apply(changed)
	s.Start()
	s.Has("srv/many/7", "7 of two")
	c.Check(content() > 0 && content() < 30_000, "%.0f bytes for one of %d files", content(), files)
	t.Logf("%.0f bytes for one of %d files", content(), files)
}

// TestTransferCase24_StoreReplacedByACopy: hosts do not follow a store that was put back, people are told, and a new epoch heals it.
func TestTransferCase24_StoreReplacedByACopy(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	s := g.join("web-1")
	g.Apply(site("one\n"))
	s.Start()
	s.converges()
	g.Server.Stop(t)
	copied := filepath.Join(g.Dir, "etcd.old")
	copyTree(t, g.etcdDir(), copied)
	g.Server.Start(t)
	for i := range 20 {
		g.Apply(site(fmt.Sprintf("version %d\n", i)))
	}
	s.Has("etc/motd", "version 19\n")
	s.converges()
	mark := s.kept().Mark
	g.Server.Stop(t)
	if err := os.RemoveAll(g.etcdDir()); err != nil {
		t.Fatal(err)
	}
	copyTree(t, copied, g.etcdDir())
	g.Server.Start(t)
	s.Stop()
	s.Start()
	s.Until("people are told", func() (string, bool) {
		out, err := g.Try("get", "events", "-A")
		return fmt.Sprintf("%s%v", out, err), strings.Contains(out, "RollbackSuspected")
	})
	s.Until("status says it", func() (string, bool) {
		page, err := g.Try("status")
		return page, err != nil && strings.HasPrefix(page, "✗ The store of the server is older than what 1 nodes have: web-1.")
	})
	s.Until("why says it", func() (string, bool) {
		why, _ := g.Try("why", "node/web-1") // its exit code is that of the answer
		return why, strings.Contains(why, "tako trust bump-epoch")
	})
	s.unmoved(c, mark, "version 19\n")
	out, err := g.Try("trust", "bump-epoch", "--data-dir", g.Server.Dir)
	c.NoError(err, "bump the epoch: "+out)
	s.Stop()
	s.Start()
	s.Has("etc/motd", "one\n") // that is what the store declares
	n := s.converges()
	c.Equal(n.Status.AppliedHead.Epoch, int64(2), "the epoch")
	s.Until("status has nothing to say", func() (string, bool) {
		page, err := g.Try("status")
		return fmt.Sprintf("%s%v", page, err), err == nil
	})
	g.Apply(site("onwards\n"))
	s.Has("etc/motd", "onwards\n")
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", from, err, out)
	}
}

// TestTransferCase50_Cloned: two machines with one identity are told, and neither of them fights the other.
func TestTransferCase50_Cloned(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	s := g.join("web-1")
	g.Apply(site("one\n"))
	s.Start()
	s.converges()
	s.Stop()
	twin := &sandbox{&rig.Host{Rig: g.Rig, Name: s.Name, Root: filepath.Join(g.Dir, "twin"), Log: filepath.Join(g.Dir, "twin.log")}, g}
	copyTree(t, s.Root, twin.Root)
	s.Start()
	twin.Start()
	s.reports("the copy is noticed", func(n *v1alpha1.Node) bool {
		return meta.IsStatusConditionPresentAndEqual(n.Status.Conditions, "Cloned", metav1.ConditionTrue)
	})
	before := s.Assignment()
	for _, host := range []*sandbox{s, twin} {
		host.Keeps("etc/motd", "one\n")
		host.Until("it is told", func() (string, bool) {
			text, err := os.ReadFile(host.Log)
			return fmt.Sprintf("%s %v", text, err), strings.Contains(string(text), "somebody else has the identity of this host")
		})
	}
	after := s.Assignment()
	c.Equal(after.ResourceVersion, before.ResourceVersion, "the assignment, after both were there for a while")
	why, _ := g.Try("why", "node/web-1") // its exit code says that something is wrong
	c.Check(strings.Contains(why, "Cloned"), "why says nothing of it:\n%s", why)
}
