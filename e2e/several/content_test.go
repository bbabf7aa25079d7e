//go:build e2e

package several

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// put puts a file on a server, and returns its digest.
func (c *control) put(data []byte) string {
	c.Helper()
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	file := filepath.Join(c.TempDir(), "file")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		c.Fatal(err)
	}
	if out := c.Tako("content", "put", file); !strings.Contains(out, digest) {
		c.Fatalf("put: %s", out)
	}
	return digest
}

// push pushes a bundle to a server, and returns its digest.
func (c *control) push(entries int) string {
	c.Helper()
	var list strings.Builder
	for i := range entries {
		fmt.Fprintf(&list, "{\"key\": \"quota/%d\", \"value\": \"%0100d\"}\n", i, i)
	}
	file := filepath.Join(c.TempDir(), "quotas.jsonl")
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		c.Fatal(err)
	}
	var pushed struct {
		Digest string `json:"digest"`
	}
	if err := json.Unmarshal([]byte(c.Tako("bundle", "push", "--cluster", "-o", "json", file)), &pushed); err != nil {
		c.Fatal(err)
	}
	return pushed.Digest
}

// keeps says whether an object or a bundle is in the data directory of a server.
func (c *control) keeps(kind, digest string) bool {
	digits := strings.TrimPrefix(digest, "sha256:")
	name := filepath.Join(c.Server.Dir, kind, digits)
	if kind == "objects" {
		name = filepath.Join(c.Server.Dir, kind, digits[:1], digits[1:])
	}
	_, err := os.Stat(name)
	return err == nil
}

// untilKept waits until a server has something.
func (f *fleet) untilKept(c *control, kind, digest string) {
	f.Helper()
	host.Eventually(f.T, rig.InTime, "a server has taken what it lacks", func() (string, bool) {
		return kind + " " + digest, c.keeps(kind, digest)
	})
}

// brought is a config with a file that is made of an object.
func brought(name, digest string, size int) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: ClusterNodeConfig
metadata: {name: %s}
spec:
  rollout: {maxUnavailable: "100%%"}
  resources:
    - name: %s
      file: {path: /srv/%s, contentFrom: {object: {digest: %q, sizeBytes: %d}}}
`, name, name, name, digest, size)
}

// servers asks a server how all servers stand, and returns that by address.
func (c *control) servers() map[string]v1alpha1.ServerStatus {
	c.Helper()
	var list v1alpha1.ServerList
	c.Get(&list, "servers")
	all := map[string]v1alpha1.ServerStatus{}
	for i := range list.Items {
		all[list.Items[i].Status.Address] = list.Items[i].Status
	}
	return all
}

// TestGetServers: each server tells the same of all: one leads, the others follow, all know its term, and each host is with one of them. One that stands
// still is listed with the reason, and one that has died is not listed any more.
func TestGetServers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.join(3)
	leader := f.leader()
	for _, asked := range f.servers {
		host.Eventually(t, rig.InTime, "a server says how all stand", func() (string, bool) {
			all, hosts := asked.servers(), int32(0)
			for _, c := range f.servers {
				s := all[c.Server.Listen]
				role := v1alpha1.ServerFollower
				if c == leader {
					role = v1alpha1.ServerLeader
				}
				hosts += s.Hosts
				if s.Role != role || s.Term == 0 || s.Term != all[leader.Server.Listen].Term || !s.Fresh || s.Revision == 0 || s.Version == "" || s.Since == nil || time.Since(s.Since.Time) > time.Hour {
					return fmt.Sprintf("%+v", all), false
				}
			}
			return fmt.Sprintf("%+v", all), len(all) == 3 && hosts == 3
		})
	}
	if out := leader.Tako("get", "servers"); strings.Count(out, "Follower") != 2 || strings.Count(out, "Leader") != 1 || !strings.Contains(out, "fresh") {
		t.Errorf("the table:\n%s", out)
	}
	others := f.others(leader)
	still, asked := others[0], others[1]
	if err := still.Server.Run.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	host.Eventually(t, rig.InTime, "one that stands still is listed with the reason", func() (string, bool) {
		s, listed := asked.servers()[still.Server.Listen]
		return fmt.Sprintf("%+v", s), listed && s.Role == v1alpha1.ServerUnknown && s.Message != "" && s.Hosts == 0
	})
	still.Server.Kill()
	host.Eventually(t, rig.InTime, "one that has died is not listed", func() (string, bool) {
		all := asked.servers()
		return fmt.Sprintf("%+v", all), len(all) == 2
	})
}

// TestContentOfAnotherServer: what is put on one server of three, hosts get from the server that they talk to, which has taken it from there; so the first
// one may die. What nobody has taken before is missing then, and that is said with its digest.
func TestContentOfAnotherServer(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.join(3) // each asks the server first that it has joined with
	if f.leader() != f.servers[0] {
		t.Fatal("another server leads than the one that was alone")
	}
	first, second, third := f.servers[1], f.servers[2], f.servers[0]

	large := bytes.Repeat([]byte("0123456789abcde\n"), 300_000) // more than two pieces
	object := first.put(large)
	second.Apply(brought("large", object, len(large)))
	for _, h := range f.hosts {
		h.Has("/srv/large", string(large))
	}
	f.untilKept(second, "objects", object)
	f.untilKept(third, "objects", object)

	// The leader lacks what a config names, and makes the layer of it all the same.
	const entries = 20_000
	bundle := first.push(entries)
	second.Apply(fmt.Sprintf("apiVersion: tako.dev/v1alpha1\nkind: ClusterNodeConfig\nmetadata: {name: quotas}\nspec:\n  bundle: {digest: %q}\n  rollout: {maxUnavailable: \"100%%\"}\n  resources: []\n", bundle))
	for _, c := range []*control{second, third} {
		f.untilKept(c, "bundles", bundle)
	}
	delivered := func(h *rig.Host) {
		t.Helper()
		h.Until("it has the bundle", func() (string, bool) {
			out, err := exec.CommandContext(t.Context(), filepath.Join(h.Rig.Bin, "tako-agent"), "--root", h.Root, "data", "get", "quota/7").CombinedOutput()
			return fmt.Sprint(err, string(out)), err == nil && string(out) == fmt.Sprintf("%0100d", 7)
		})
	}
	for _, h := range f.hosts {
		delivered(h)
	}

	// One more is put there, of which nobody has heard when the server dies.
	lost := []byte("nobody has taken this\n")
	untaken := first.put(lost)
	first.Server.Kill()
	late := second.Join("late")
	late.Start()
	late.Has("/srv/large", string(large))
	delivered(late)
	second.Apply(brought("lost", untaken, len(lost)))
	late.Until("it says what is missing, and who was asked", func() (string, bool) {
		var all v1alpha1.NodeList
		second.Get(&all, "nodes")
		text := ""
		for i := range all.Items {
			if all.Items[i].Name == "late" {
				text = fmt.Sprintf("%+v", all.Items[i].Status.Problems)
			}
		}
		return text, strings.Contains(text, "TK0661") && strings.Contains(text, untaken) && strings.Contains(text, "does not have it")
	})

	// It comes back, and all goes on by itself.
	first.Server.Start(t)
	late.Has("/srv/lost", string(lost))
}
