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
	s.until(fmt.Sprintf("more than %d files are there", before), func() (string, bool) {
		n := s.count("srv/many")
		return fmt.Sprint(n), n > before
	})
}

// TestTransferCase14_KilledOnTheWay: who was killed after the swap goes on by itself, also when there is no server, and fetches nothing again.
func TestTransferCase14_KilledOnTheWay(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	s := g.join("web-1")
	g.apply(site("one\n"))
	s.start()
	s.converges()
	g.apply(many(manyFiles, "two\n"))
	s.beyond(0)
	s.kill()
	there := s.count("srv/many")
	c.Check(there > 0 && there < manyFiles, "it was killed with %d of %d files", there, manyFiles)
	g.server.Stop(t)
	s.start()
	s.until("all files are there", func() (string, bool) {
		n := s.count("srv/many")
		return fmt.Sprint(n), n == manyFiles
	})
	s.has("etc/motd", "two\n")
	g.server.Start(t)
	s.stop()
	s.start()
	s.converges()
	c.Equal(g.metric("tako_transfer_syncs_total"), 0.0, "ways that the server has sent since it is there again")
	c.Equal(g.metric(`tako_transfer_calls_total{call="/v1/nodes"}`), 0.0, "calls for nodes")
}

// TestTransferCase34_KilledOverAndOver: a state that the agent has died of three times is left for the one before, and people are told.
func TestTransferCase34_KilledOverAndOver(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	s := g.join("web-1")
	g.apply(site("one\n"))
	s.start()
	one := s.converges()
	g.apply(many(manyFiles, "two\n"))
	for i := range 3 {
		if i > 0 {
			s.start()
		}
		s.beyond(s.count("srv/many"))
		s.kill()
	}
	left := s.count("srv/many")
	c.Check(left < manyFiles, "it was done before it was killed for the third time")
	s.start()
	n := s.reports("it has quarantined the state", func(n *v1alpha1.Node) bool {
		return n.Status.Verdict != nil && n.Status.Verdict.Type == v1alpha1.VerdictQuarantined
	})
	c.Check(applied(&one) <= applied(&n) && applied(&n) < n.Status.Verdict.Version, "version %d is enforced, and %d is quarantined", applied(&n), n.Status.Verdict.Version)
	s.keeps("etc/motd", "one\n")
	why, _ := g.try("why", "node/web-1") // its exit code says that something is wrong
	c.Check(strings.Contains(why, "Quarantined"), "why says nothing of it:\n%s", why)
	g.apply(site("three\n"))
	s.has("etc/motd", "three\n")
	s.converges()
}

// TestTransferCase19_ServerRestarted: whoever has the newest state fetches nothing from a server that has begun anew, and who has an older
// one little more than what has changed.
func TestTransferCase19_ServerRestarted(t *testing.T) {
	c := casetest.Start(t)
	const files = 500
	g := newGround(t)
	s := g.join("web-1")
	g.apply(many(files, "one\n"))
	s.start()
	s.converges()
	g.server.Kill()
	g.server.Start(t)
	s.stop()
	s.start()
	s.reports("it was heard again", func(n *v1alpha1.Node) bool {
		return n.Status.Agent != nil && n.Status.Agent.Starts == 2 && meta.IsStatusConditionTrue(n.Status.Conditions, "Ready")
	})
	s.converges()
	content := func() float64 {
		return g.metric(`tako_transfer_sent_bytes_total{call="/v1/sync"}`) + g.metric(`tako_transfer_sent_bytes_total{call="/v1/nodes"}`)
	}
	c.Equal(content(), 0.0, "bytes of content for who has it")
	s.stop()
	changed := strings.Replace(many(files, "one\n"), "7 of one", "7 of two", 1)
	g.apply(changed)
	s.start()
	s.has("srv/many/7", "7 of two")
	c.Check(content() > 0 && content() < 30_000, "%.0f bytes for one of %d files", content(), files)
	t.Logf("%.0f bytes for one of %d files", content(), files)
}

// TestTransferCase24_StoreReplacedByACopy: hosts do not follow a store that was put back, people are told, and a new epoch heals it.
func TestTransferCase24_StoreReplacedByACopy(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	s := g.join("web-1")
	g.apply(site("one\n"))
	s.start()
	s.converges()
	g.server.Stop(t)
	copied := filepath.Join(g.dir, "etcd.old")
	copyTree(t, g.etcdDir(), copied)
	g.server.Start(t)
	for i := range 20 {
		g.apply(site(fmt.Sprintf("version %d\n", i)))
	}
	s.has("etc/motd", "version 19\n")
	s.converges()
	mark := s.kept().Mark
	g.server.Stop(t)
	if err := os.RemoveAll(g.etcdDir()); err != nil {
		t.Fatal(err)
	}
	copyTree(t, copied, g.etcdDir())
	g.server.Start(t)
	s.stop()
	s.start()
	s.until("people are told", func() (string, bool) {
		out, err := g.try("get", "events", "-A")
		return fmt.Sprintf("%s%v", out, err), strings.Contains(out, "RollbackSuspected")
	})
	s.until("status says it", func() (string, bool) {
		page, err := g.try("status")
		return page, err != nil && strings.HasPrefix(page, "✗ The store of the server is older than what 1 nodes have: web-1.")
	})
	s.until("why says it", func() (string, bool) {
		why, _ := g.try("why", "node/web-1") // its exit code is that of the answer
		return why, strings.Contains(why, "tako trust bump-epoch")
	})
	s.unmoved(c, mark, "version 19\n")
	out, err := g.try("trust", "bump-epoch", "--data-dir", g.server.Dir)
	c.NoError(err, "bump the epoch: "+out)
	s.stop()
	s.start()
	s.has("etc/motd", "one\n") // that is what the store declares
	n := s.converges()
	c.Equal(n.Status.AppliedHead.Epoch, int64(2), "the epoch")
	s.until("status has nothing to say", func() (string, bool) {
		page, err := g.try("status")
		return fmt.Sprintf("%s%v", page, err), err == nil
	})
	g.apply(site("onwards\n"))
	s.has("etc/motd", "onwards\n")
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
	g.apply(site("one\n"))
	s.start()
	s.converges()
	s.stop()
	twin := &sandbox{ground: g, name: s.name, root: filepath.Join(g.dir, "twin"), log: filepath.Join(g.dir, "twin.log")}
	copyTree(t, s.root, twin.root)
	s.start()
	twin.start()
	s.reports("the copy is noticed", func(n *v1alpha1.Node) bool {
		return meta.IsStatusConditionPresentAndEqual(n.Status.Conditions, "Cloned", metav1.ConditionTrue)
	})
	before := s.assignment()
	for _, host := range []*sandbox{s, twin} {
		host.keeps("etc/motd", "one\n")
		host.until("it is told", func() (string, bool) {
			text, err := os.ReadFile(host.log)
			return fmt.Sprintf("%s %v", text, err), strings.Contains(string(text), "somebody else has the identity of this host")
		})
	}
	after := s.assignment()
	c.Equal(after.ResourceVersion, before.ResourceVersion, "the assignment, after both were there for a while")
	why, _ := g.try("why", "node/web-1") // its exit code says that something is wrong
	c.Check(strings.Contains(why, "Cloned"), "why says nothing of it:\n%s", why)
}
