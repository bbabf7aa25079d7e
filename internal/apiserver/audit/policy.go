package audit

import (
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
)

// Policy logs everything but health checks, at the level that names the objects and never their content.
func Policy() audit.PolicyRuleEvaluator {
	return policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
		Rules: []auditinternal.PolicyRule{
			{Level: auditinternal.LevelNone, NonResourceURLs: []string{"/healthz*", "/livez*", "/readyz*"}},
			{Level: auditinternal.LevelMetadata},
		},
	})
}
