package apiserver

import (
	"net/netip"
	"time"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"tako.dev/tako/internal/apiserver/enroll"
	"tako.dev/tako/internal/reason"
	transferserver "tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// hostPrefix begins the names that hosts have in the audit log, and relayPrefix those of relays: no person has such a one, and Kubernetes
// calls its nodes the same.
const hostPrefix, relayPrefix = "system:node:", "system:relay:"

// prefixOf is the one for a host, or for a relay.
func prefixOf(relay bool) string {
	if relay {
		return relayPrefix
	}
	return hostPrefix
}

// hostAudit writes what hosts were refused, and which hosts have joined, into the audit log, in the form of any other line there.
type hostAudit struct{ log audit.Backend }

// Refused writes a line.
func (a hostAudit) Refused(r transferserver.Refusal) {
	e := hostEvent(r.Call, r.From, prefixOf(r.Who.Relay), r.Who.Name, r.Who.UID)
	e.ResponseStatus = &metav1.Status{Status: metav1.StatusFailure, Code: int32(r.Status), Message: r.Reason}
	e.Annotations = map[string]string{codeAnnotation: r.Code.String()}
	if r.Who.Through != "" {
		e.Annotations["tako.dev/through"] = r.Who.Through
	}
	a.log.ProcessEvents(e)
}

// Joined writes a line. The name of a host that was refused is what anybody may have said, and stands in the message alone.
func (a hostAudit) Joined(j enroll.Attempt) {
	name := ""
	if j.Outcome != enroll.OutcomeRefused {
		name = j.Node
	}
	e := hostEvent(wire.PathJoin, j.From, prefixOf(j.Relay), name, j.UID)
	e.ResponseStatus = &metav1.Status{Status: metav1.StatusSuccess, Code: 200}
	e.Annotations = map[string]string{"tako.dev/outcome": string(j.Outcome), "tako.dev/wanted-name": j.Node, "tako.dev/key": j.Key, "tako.dev/token": j.Token}
	if row, known := reason.Lookup(j.Code); known {
		e.ResponseStatus = &metav1.Status{Status: metav1.StatusFailure, Code: int32(row.HTTP), Message: j.Reason}
		e.Annotations[codeAnnotation] = j.Code.String()
	}
	a.log.ProcessEvents(e)
}

// codeAnnotation says why something was refused, as TKnnnn.
const codeAnnotation = "tako.dev/code"

func hostEvent(call string, from netip.Addr, prefix, name, uid string) *auditinternal.Event {
	now := metav1.NewMicroTime(time.Now())
	e := &auditinternal.Event{
		Level: auditinternal.LevelMetadata, AuditID: uuid.NewUUID(), Stage: auditinternal.StageResponseComplete,
		RequestURI: call, Verb: "call", SourceIPs: []string{from.String()}, RequestReceivedTimestamp: now, StageTimestamp: now,
	}
	if name != "" {
		e.User = authentication.UserInfo{Username: prefix + name, UID: uid}
	}
	return e
}
