//go:build e2e

package path

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// thief is somebody who has taken over a host, and asks for what is another one's.
type thief struct {
	t      *testing.T
	client http.Client
	url    string
	head   []byte // of the host
}

// newThief takes a host's credentials, as whoever is root there can.
func (f *fleet) newThief(t *testing.T, h *host.Host) *thief {
	t.Helper()
	state := filepath.Join(h.Disk(), "var/lib/tako")
	identity, err := held.LoadIdentity(state, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := identity.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	// Whom it speaks to is nothing that a thief cares about.
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}}
	return &thief{t: t, url: "https://" + f.ctl.Address() + ":6444", head: headOf(t, h),
		client: http.Client{Timeout: soon, Transport: &http.Transport{DialContext: f.lab.Dial, TLSClientConfig: config, ForceAttemptHTTP2: true}}}
}

// headOf is the newest signed head that a host keeps: read from a copy, because the agent has the original.
func headOf(t *testing.T, h *host.Host) []byte {
	t.Helper()
	copied := t.TempDir()
	heads, err := os.ReadFile(filepath.Join(h.Disk(), "var/lib/tako/heads"))
	if err == nil {
		err = os.WriteFile(filepath.Join(copied, "heads"), heads, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	store, err := held.Open(copied, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	kept, err := store.Kept()
	if err != nil || len(kept.Head) == 0 {
		t.Fatalf("%s keeps no head: %v", h.Name(), err)
	}
	return kept.Head
}

// call sends a request and returns the problem that is answered with, nil where it was served.
func (x *thief) call(path string, request, reply any) *wire.Problem {
	x.t.Helper()
	body, err := wire.Encode(request)
	if err != nil {
		x.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url+path, bytes.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	answer, err := x.client.Do(r)
	if err != nil {
		x.t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		var p wire.Problem
		if err := wire.ReadAll(answer.Body, wire.RequestMax, &p); err != nil {
			x.t.Fatalf("%s: %s: %v", path, answer.Status, err)
		}
		return &p
	}
	if err := wire.ReadAll(answer.Body, wire.ReplyMax, reply); err != nil {
		x.t.Fatal(err)
	}
	return nil
}

func digest(t *testing.T, text string) (d catalog.Digest) {
	t.Helper()
	b, err := hex.DecodeString(strings.TrimPrefix(text, "sha256:"))
	if err != nil || len(b) != len(d) {
		t.Fatalf("root %q: %v", text, err)
	}
	copy(d[:], b)
	return d
}

// stolen tries all that the host qa-1 could ask for of what is for web-1: layers, bodies, keys, with its own head and with that of web-1.
func stolen(t *testing.T, f *fleet) {
	victim := object[v1alpha1.Assignment](t, f, "assignment/web-1")
	if victim.Spec.Own == nil || len(victim.Spec.Own.Keys) == 0 {
		t.Fatalf("web-1 has no key to a secret: %s", shown(victim.Spec))
	}
	x := f.newThief(t, f.hosts["qa-1"])
	foreign := headOf(t, f.hosts["web-1"])
	var token v1alpha1.AssignedLayer
	for _, layer := range victim.Spec.Layers {
		if layer.Config == "NodeConfig/prod/token" {
			token = layer
		}
	}
	own := digest(t, victim.Spec.Own.Root)
	layer := digest(t, token.Root)
	var nodes wire.NodesReply
	// The way itself works: its own list is served.
	_, mine, err := catalog.DecodeHead(x.head)
	if err != nil {
		t.Fatal(err)
	}
	root, _ := mine.Root()
	if p := x.call(wire.PathNodes, wire.NodesRequest{Head: x.head, Layer: wire.CatalogLayer, Hashes: []catalog.Digest{root}}, &nodes); p != nil || len(nodes.Items) != 1 || len(nodes.Items[0]) == 0 {
		t.Fatalf("its own list: %+v %+v", p, nodes)
	}
	for name, try := range map[string]func() *wire.Problem{
		"a layer, with its own head": func() *wire.Problem {
			return x.call(wire.PathSync, wire.SyncRequest{Head: x.head, Layer: token.Config, Target: layer}, &nodes)
		},
		"the own layer, with its own head": func() *wire.Problem {
			return x.call(wire.PathSync, wire.SyncRequest{Head: x.head, Layer: wire.OwnLayer, Target: own}, &nodes)
		},
		"a layer, with the other's head": func() *wire.Problem {
			return x.call(wire.PathSync, wire.SyncRequest{Head: foreign, Layer: token.Config, Target: layer}, &nodes)
		},
		"keys, with the other's head": func() *wire.Problem {
			return x.call(wire.PathSync, wire.SyncRequest{Head: foreign, Layer: wire.OwnLayer, Target: own}, &nodes)
		},
		"nodes of a layer by their hash": func() *wire.Problem {
			return x.call(wire.PathNodes, wire.NodesRequest{Head: x.head, Layer: token.Config, Hashes: []catalog.Digest{layer}}, &nodes)
		},
	} {
		if p := try(); p == nil || p.Code == reason.InternalFault.String() {
			t.Errorf("%s: %+v, want a refusal", name, p)
		}
	}
	// Under a layer of its own, what belongs to another one is not to be had.
	motd := "ClusterNodeConfig/motd"
	if p := x.call(wire.PathNodes, wire.NodesRequest{Head: x.head, Layer: motd, Hashes: []catalog.Digest{layer, own}}, &nodes); p == nil {
		for _, item := range nodes.Items {
			if len(item) > 0 {
				t.Error("a body of another layer was served")
			}
		}
	}
	f.wantAudited(t, "qa-1", "TK1041")
}

// wantAudited waits until the audit log says that a host was refused something.
func (f *fleet) wantAudited(t *testing.T, node, code string) {
	t.Helper()
	host.Eventually(t, soon, "the audit log tells of "+node, func() (string, bool) {
		count := 0
		last := ""
		for line := range strings.Lines(f.ctl.Get(t, "/var/lib/tako/server/audit.log")) {
			var e struct {
				User        struct{ Username string }
				Annotations map[string]string
			}
			if json.Unmarshal([]byte(line), &e) == nil && strings.HasSuffix(e.User.Username, node) && e.Annotations["tako.dev/code"] != "" {
				last = line
				if e.Annotations["tako.dev/code"] == code {
					count++
				}
			}
		}
		return last, count > 0
	})
}
