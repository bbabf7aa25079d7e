package gitea

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
	"tako.dev/tako/internal/reason"
	client "tako.dev/tako/internal/source/forge"
)

// text is a config map with one text.
func text(value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: text, namespace: ops}\ndata: {text: %q}\n", value)
}

// declare declares a Source that follows the repository, as the reference says that it is done.
func (s *scene) declare() {
	s.Helper()
	ca, err := json.Marshal(authority(s.front.server))
	if err != nil {
		s.Fatal(err)
	}
	s.Apply(fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: ops}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: fleet, namespace: ops}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:source:ops:fleet"}]
---
apiVersion: v1
kind: Secret
metadata: {name: fleet-git, namespace: ops}
stringData: {username: ops, password: %s, ca.crt: %s}
---
apiVersion: v1
kind: Secret
metadata: {name: fleet-hook, namespace: ops}
stringData: {token: %s}
---
apiVersion: v1
kind: Secret
metadata: {name: fleet-report, namespace: ops}
stringData: {token: %s}
---
apiVersion: tako.dev/v1alpha1
kind: Source
metadata: {name: fleet, namespace: ops}
spec:
  url: %s
  ref: {branch: main}
  interval: 24h
  credentials: fleet-git
  webhook: {type: Gitea, secret: fleet-hook}
  report: {type: Gitea, secret: fleet-report}
`, s.forge.token("read"), ca, secret, s.forge.token("write"), s.front.url()))
}

func (s *scene) source() v1alpha1.Source {
	s.Helper()
	var src v1alpha1.Source
	s.Get(&src, "source/fleet", "-n", "ops")
	return src
}

// applied waits until a commit is, and the Source says that all is well.
func (s *scene) applied(commit string) {
	s.Helper()
	host.Eventually(s.T, rig.InTime, "commit "+commit+" is applied", func() (string, bool) {
		src := s.source()
		state, err := json.Marshal(src.Status)
		return fmt.Sprintf("%s %v", state, err), src.Status.Applied != nil && src.Status.Applied.ID == commit && meta.IsStatusConditionTrue(src.Status.Conditions, v1alpha1.ConditionReady)
	})
}

// has checks what is applied.
func (s *scene) has(want string) {
	s.Helper()
	var m struct{ Data map[string]string }
	s.Get(&m, "configmap/text", "-n", "ops")
	if m.Data["text"] != want {
		s.Errorf("the text is %q, and not %q", m.Data["text"], want)
	}
}

// told waits until the forge shows a state beside a commit, in words that begin so.
func (s *scene) told(commit, state, words string) {
	s.Helper()
	host.Eventually(s.T, rig.InTime, "the forge shows "+state+" beside commit "+commit, func() (string, bool) {
		all := s.forge.statuses(commit)
		for _, one := range all {
			if one.Context == "tako/ops/fleet" && one.State == state && strings.HasPrefix(one.Description, words) {
				return "", true
			}
		}
		return fmt.Sprintf("%+v", all), false
	})
}

// called checks that the forge has called for a commit as in the recording.
func (s *scene) called(name, before, after string) {
	s.Helper()
	c := s.listener.called(s.T, after)
	mac := hmac.New(sha1.New, []byte(secret))
	mac.Write(c.body)
	names := values{"forge": s.front.host, "ref": "refs/heads/main", "before": before, "after": after, "sha1": hex.EncodeToString(mac.Sum(nil)), "sha256": signature(secret, c.body)}
	s.front.matches(s.T, name, names.abstract(c.message))
}

// asRecorded checks that a status was posted, and answered, as in the recording.
func (f *front) asRecorded(t *testing.T, request, answer string, e exchange) {
	t.Helper()
	names, err := f.names(e.request)
	if err != nil {
		t.Fatal(err)
	}
	f.matches(t, request, names.abstract(e.request))
	f.matches(t, answer, names.abstract(e.answer))
}

// post checks what the client of the API makes of a forge's answers: it takes each state of a commit that is there, and says what is wrong
// otherwise.
func (s *scene) post(commit string) {
	s.Helper()
	good := client.Target{Kind: client.Gitea, API: s.front.api(), Owner: owner, Name: repository, Commit: commit, Token: client.Token(s.forge.token("write")), Authorities: []byte(authority(s.front.server))}
	poster := client.New(client.Options{Timeout: gitTime})
	for _, state := range []client.State{client.Pending, client.Success, client.Failure, client.Error} {
		said := client.Status{State: state, Description: "what became of it", Context: "tako/ops/other"}
		if err := poster.Post(s.Context(), good, said); err != nil {
			s.Fatalf("%s: %v", state, err)
		}
		if got := s.forge.statuses(commit); len(got) != 1 || got[0] != (status{string(state), said.Description, said.Context}) {
			s.Errorf("after %s the forge shows %+v", state, got)
		}
	}
	for _, e := range s.front.heard() {
		s.front.asRecorded(s.T, "status", "created", e)
	}
	for name, c := range map[string]struct {
		change func(*client.Target)
		code   reason.Code
		words  string
	}{
		"token":      {func(t *client.Target) { t.Token = client.Token(strings.Repeat("0b", 20)) }, reason.ForgeRefused, ""},
		"scope":      {func(t *client.Target) { t.Token = client.Token(s.forge.token("read")) }, reason.ForgeRefused, "write:repository"},
		"repository": {func(t *client.Target) { t.Name = "other" }, reason.ForgeRefused, ""},
		"commit":     {func(t *client.Target) { t.Commit = strings.Repeat("0c", 20) }, reason.ForgeUnreachable, ""},
	} {
		target := good
		c.change(&target)
		err := poster.Post(s.Context(), target, client.Status{State: client.Success, Description: "it is applied", Context: "tako/ops/other"})
		var coded *reason.Error
		if !errors.As(err, &coded) || coded.Code != c.code || !strings.Contains(coded.Evidence, c.words) || strings.Contains(fmt.Sprintf("%+v", coded), string(target.Token)) {
			s.Errorf("what is wrong is the %s: %+v", name, err)
		}
		for _, e := range s.front.heard() {
			names, err := s.front.names(e.request)
			if err != nil {
				s.Fatal(err)
			}
			s.front.matches(s.T, "refused-"+name, names.abstract(e.answer))
		}
	}
}
