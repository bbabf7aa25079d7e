package audit

import (
	"testing"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestPolicy: everything is written down but health checks, when it has ended, and never a body.
func TestPolicy(t *testing.T) {
	ann := &user.DefaultInfo{Name: "ann"}
	of := func(verb, resource string) authorizer.Attributes {
		return authorizer.AttributesRecord{User: ann, Verb: verb, Resource: resource, Namespace: "qa", ResourceRequest: true}
	}
	path := func(p string) authorizer.Attributes {
		return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: user.Anonymous}, Verb: "get", Path: p}
	}
	for what, c := range map[string]struct {
		of   authorizer.Attributes
		want auditinternal.Level
	}{
		"a secret":    {of("create", "secrets"), auditinternal.LevelMetadata},
		"a token":     {of("create", "tokens"), auditinternal.LevelMetadata},
		"a read":      {of("list", "nodeconfigs"), auditinternal.LevelMetadata},
		"a path":      {path("/metrics"), auditinternal.LevelMetadata},
		"a check":     {path("/readyz"), auditinternal.LevelNone},
		"one of them": {path("/livez/ping"), auditinternal.LevelNone},
	} {
		got := Policy().EvaluatePolicyRule(c.of)
		if got.Level != c.want {
			t.Errorf("%s: %s, want %s", what, got.Level, c.want)
		}
		if c.want != auditinternal.LevelNone && (len(got.OmitStages) != 1 || got.OmitStages[0] != auditinternal.StageRequestReceived) {
			t.Errorf("%s: leaves out %v", what, got.OmitStages)
		}
	}
}
