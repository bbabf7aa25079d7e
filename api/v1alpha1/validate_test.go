package v1alpha1

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// summary is codes and paths, in order.
func summary(faults []declare.Fault) string {
	var out []string
	for _, f := range faults {
		if f.Message == "" {
			f.Path += " without words"
		}
		out = append(out, fmt.Sprintf("%s %s", f.Code, f.Path))
	}
	return strings.Join(out, ", ")
}

// TestValidateConfigSaysWhatFilesSay compares what is said of a mistake in a file with what is said of it in the API: code, path,
// words and hint.
func TestValidateConfigSaysWhatFilesSay(t *testing.T) {
	for _, spec := range []string{
		`priority: 1000, resources: []`,
		`resources: [{name: a}]`,
		`resources: [{name: a, file: {path: a, mode: "999"}}]`,
		`resources: [{name: a, file: {path: /a}, require: [b]}, {name: a, file: {path: /a}}]`,
		`resources: [{name: a, file: {path: /a}, when: "facts.os.nme == 'x'", onRemove: destroy}]`,
		`rollout: {maxUnavailable: "0%", haltOnFailed: 0}, resources: []`,
		`selector: {matchLabels: {"a b": "-"}, matchExpressions: [{key: a, operator: On}]}, resources: []`,
		`priority: 5`,
		`resources: []`,
	} {
		for _, kind := range []string{KindNodeConfig, KindClusterNodeConfig} {
			text := fmt.Sprintf("apiVersion: tako.dev/v1alpha1\nkind: %s\nmetadata: {name: Web, labels: {a: b c}}\nspec: {%s}\n", kind, spec)
			documents, said := declare.Read("f", []byte(text))
			said = append(said, documents[0].Validate()...)
			b, err := json.Marshal(documents[0].Config)
			if err != nil {
				t.Fatal(err)
			}
			var got []declare.Fault
			switch obj, _, err := strictDecoder(t).Decode(b, nil, nil); c := obj.(type) {
			case *NodeConfig:
				got = ValidateNodeConfig(c)
			case *ClusterNodeConfig:
				got = ValidateClusterNodeConfig(c)
			default:
				t.Fatalf("%s: %v", text, err)
			}
			if g, w := words(got), words(said); !slices.Equal(g, w) {
				t.Errorf("%s:\nthe API says %s\na file      %s", spec, g, w)
			}
		}
	}
}

// words is what a person reads of faults, without the place.
func words(faults []declare.Fault) []string {
	var out []string
	for _, f := range faults {
		f.File, f.Line, f.Column = "", 0, 0
		out = append(out, f.String()+" | "+f.Hint)
	}
	slices.Sort(out)
	return out
}

func TestValidateConfigTakesKindFromType(t *testing.T) {
	high := 1500
	spec := declare.NodeConfigSpec{Priority: &high, Resources: []declare.Resource{}}
	meta := metav1.ObjectMeta{Name: "web"}
	if got := summary(ValidateClusterNodeConfig(&ClusterNodeConfig{ObjectMeta: meta, Spec: spec})); got != "" {
		t.Error(got)
	}
	if got := summary(ValidateNodeConfig(&NodeConfig{ObjectMeta: meta, Spec: spec})); got != "TK0414 spec.priority" {
		t.Error(got)
	}
}

func TestValidateRevision(t *testing.T) {
	resources := []declare.Resource{{Name: "a", File: &declare.File{Path: "/a"}}}
	source := func(kind string) *RevisionSource { return &RevisionSource{Kind: kind, Name: "web", UID: "1"} }
	meta := metav1.ObjectMeta{Name: "web-0123456789", Namespace: "qa"}
	for _, c := range []struct {
		name          string
		spec          RevisionSpec
		want, cluster string
	}{
		{"good", RevisionSpec{Resources: resources, Source: source(KindNodeConfig)}, "", "TK0414 spec.source.kind"},
		{"of a cluster", RevisionSpec{Resources: resources, Source: source(KindClusterNodeConfig)}, "TK0414 spec.source.kind", ""},
		{"without a source", RevisionSpec{Resources: resources}, "", ""},
		{"nothing declared", RevisionSpec{Resources: []declare.Resource{}}, "", ""},
		{"resources forgotten", RevisionSpec{}, "TK0413 spec.resources", "TK0413 spec.resources"},
		{"stored without resources", RevisionSpec{Source: source(KindNodeConfig)}, "", "TK0414 spec.source.kind"},
		{"a mistake", RevisionSpec{Resources: []declare.Resource{{Name: "a"}}}, "TK0416 spec.resources[0]", "TK0416 spec.resources[0]"},
		{"source of nobody", RevisionSpec{Resources: resources, Source: &RevisionSource{Kind: KindNodeConfig}}, "TK0413 spec.source.name, TK0413 spec.source.uid", "TK0414 spec.source.kind, TK0413 spec.source.name, TK0413 spec.source.uid"},
	} {
		if got := summary(ValidateRevision(&Revision{ObjectMeta: meta, Spec: c.spec})); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		if got := summary(ValidateClusterRevision(&ClusterRevision{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, Spec: c.spec})); got != c.cluster {
			t.Errorf("%s, of a cluster: got %s, want %s", c.name, got, c.cluster)
		}
	}
}

func TestRevisionsAndTokensNeverChange(t *testing.T) {
	old := &Revision{Spec: RevisionSpec{Resources: []declare.Resource{{Name: "a", File: &declare.File{Path: "/a"}}}}}
	changed := old.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	changed.Spec.Resources[0].Require = []string{} // says the same as none
	if got := summary(ValidateRevisionUpdate(changed, old)); got != "" {
		t.Error(got)
	}
	changed.Spec.Resources[0].File.Content = "x"
	if got := summary(ValidateRevisionUpdate(changed, old)); got != "TK0415 spec" {
		t.Errorf("a changed file: %s", got)
	}
	if got := summary(ValidateClusterRevisionUpdate(&ClusterRevision{Spec: changed.Spec}, &ClusterRevision{Spec: old.Spec})); got != "TK0415 spec" {
		t.Errorf("a changed file of a cluster: %s", got)
	}

	ends := metav1.NewTime(time.Unix(1e9, 0))
	token := &Token{Spec: TokenSpec{Type: TokenUser, User: &UserToken{Name: "ann"}, Expires: &ends}}
	used := token.DeepCopy()
	used.Status.Uses = 1
	if got := summary(ValidateTokenUpdate(used, token)); got != "" {
		t.Error(got)
	}
	longer := metav1.NewTime(ends.Add(time.Hour))
	for name, change := range map[string]func(*TokenSpec){
		"groups":  func(s *TokenSpec) { s.User.Groups = []string{"system:masters"} },
		"expires": func(s *TokenSpec) { s.Expires = &longer },
	} {
		widened := token.DeepCopy()
		change(&widened.Spec)
		if got := summary(ValidateTokenUpdate(widened, token)); got != "TK0415 spec" {
			t.Errorf("changed %s: %s", name, got)
		}
	}
}

func TestValidateToken(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) *metav1.Time { v := metav1.NewTime(now.Add(d)); return &v }
	join := func(j JoinToken) TokenSpec { return TokenSpec{Type: TokenJoin, Join: &j} }
	user := func(u UserToken) TokenSpec { return TokenSpec{Type: TokenUser, User: &u} }
	count := func(n int32) *int32 { return &n }
	for _, c := range []struct {
		name string
		spec TokenSpec
		want string
	}{
		{"any host", join(JoinToken{}), ""},
		{"hosts", join(JoinToken{Environment: "qa", Labels: map[string]string{"role": "web"}, Count: count(3), Pattern: "web-*.example.com"}), ""},
		{"one host", join(JoinToken{Name: "web-1", Count: count(1)}), ""},
		{"person", user(UserToken{Name: "ann@example.com", Groups: []string{"ops", "system:masters"}}), ""},
		{"not yet ended", TokenSpec{Type: TokenUser, User: &UserToken{Name: "ann"}, Expires: at(time.Second)}, ""},
		{"ended", TokenSpec{Type: TokenUser, User: &UserToken{Name: "ann"}, Expires: at(0)}, "TK0414 spec.expires"},
		{"nothing", TokenSpec{}, "TK0413 spec.type"},
		{"unknown type", TokenSpec{Type: "node"}, "TK0414 spec.type"},
		{"join without join", TokenSpec{Type: TokenJoin}, "TK0413 spec.join"},
		{"user without user", TokenSpec{Type: TokenUser, Join: &JoinToken{}}, "TK0413 spec.user, TK0415 spec.join"},
		{"both", TokenSpec{Type: TokenJoin, Join: &JoinToken{}, User: &UserToken{Name: "ann"}}, "TK0415 spec.user"},
		{"nobody", user(UserToken{}), "TK0413 spec.user.name"},
		{"long name", user(UserToken{Name: strings.Repeat("a", 254)}), "TK0414 spec.user.name"},
		{"name of two lines", user(UserToken{Name: "ann\nbob"}), "TK0414 spec.user.name"},
		{"empty group", user(UserToken{Name: "ann", Groups: []string{"ops", ""}}), "TK0414 spec.user.groups[1]"},
		{"too many groups", user(UserToken{Name: "ann", Groups: make([]string, 65)}), "TK0414 spec.user.groups"},
		{"no host", join(JoinToken{Count: count(0)}), "TK0414 spec.join.count"},
		{"two of one name", join(JoinToken{Name: "web", Count: count(2)}), "TK0415 spec.join.count"},
		{"name and pattern", join(JoinToken{Name: "web", Pattern: "web*"}), "TK0415 spec.join.pattern"},
		{"bad names", join(JoinToken{Environment: "a.b", Name: "Web", Labels: map[string]string{"b c": "-"}}), "TK0414 spec.join.environment, TK0414 spec.join.labels['b c'], TK0414 spec.join.labels['b c'], TK0414 spec.join.name"},
		{"pattern of no name", join(JoinToken{Pattern: "*_?"}), "TK0414 spec.join.pattern"},
	} {
		if got := summary(ValidateToken(&Token{Spec: c.spec}, now)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestFaultsStayReadable gives values of a mebibyte that are no UTF-8: what is said of them is short, and has a known code.
func TestFaultsStayReadable(t *testing.T) {
	long := strings.Repeat("\xff ", 1<<19)
	var faults []declare.Fault
	faults = append(faults, ValidateNode(&Node{Spec: NodeSpec{Environment: long, Taints: []declare.Taint{{Key: long, Value: long, Effect: declare.TaintEffect(long)}, {Key: long, Effect: declare.TaintEffect(long)}},
		Holds: []NodeHold{{Config: long, Resource: long, Reason: long, Owner: long}}, ApprovedKey: long, RejectedKey: long, AllowDeletions: long}}, nil, time.Unix(0, 0))...)
	faults = append(faults, ValidateAssignment(&Assignment{Spec: AssignmentSpec{Environment: long, Layers: []AssignedLayer{{Config: long, Root: long}, {Config: long, Root: long}},
		Own: &OwnLayer{Root: long, Keys: []WrappedKey{{ID: long}}}, Try: &AssignedTry{Fallback: long, OwnRoot: long}}})...)
	faults = append(faults, ValidateToken(&Token{Spec: TokenSpec{Type: TokenType(long), User: &UserToken{Name: long, Groups: []string{long}},
		Join: &JoinToken{Environment: long, Labels: map[string]string{"a": long}, Name: long, Pattern: long}}}, time.Unix(0, 0))...)
	faults = append(faults, ValidateRevision(&Revision{Spec: RevisionSpec{Source: &RevisionSource{Kind: long}}})...)
	if len(faults) < 12 {
		t.Errorf("%d faults only: %s", len(faults), summary(faults))
	}
	for _, f := range faults {
		if _, known := reason.Lookup(f.Code); !known || len(f.Message) > 500 {
			t.Errorf("%s %.80s has %d bytes", f.Code, f.Message, len(f.Message))
		}
	}
}
