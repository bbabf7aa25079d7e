package audit

import (
	"io"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/plugin/pkg/audit/log"
)

// Backend writes one line for each request that ended.
func Backend(out io.Writer) audit.Backend {
	return log.NewBackend(out, log.FormatJson, auditv1.SchemeGroupVersion)
}

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
