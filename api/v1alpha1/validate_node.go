package v1alpha1

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Limits of holds. Each hold is sent to its host and shown to whoever asks.
const (
	holdsMax         = 100
	holdTextBytesMax = 1024                 // of a reason, or an owner: some lines
	holdMax          = 366 * 24 * time.Hour // a hold that nobody has thought of for a year has been forgotten
)

// digestPrefix stands before the digits of a digest, where it is not said otherwise.
const digestPrefix = "sha256:"

// ValidateNode returns every mistake of a node's spec at a time, and whether it has too many labels; old is nil for a new node. Its
// name and each label are checked where those of all objects are.
func ValidateNode(n, old *Node, now time.Time) []declare.Fault {
	var v validator
	v.labelCount("metadata.labels", n.Labels)
	v.environment("spec.environment", n.Spec.Environment)
	v.taints("spec.taints", n.Spec.Taints)
	var before []NodeHold
	if old != nil {
		before = old.Spec.Holds
	}
	v.holds("spec.holds", n.Spec.Holds, before, now)
	v.key("spec.approvedKey", n.Spec.ApprovedKey, "approve")
	v.key("spec.rejectedKey", n.Spec.RejectedKey, "reject")
	if key := n.Spec.RejectedKey; key != "" && key == n.Spec.ApprovedKey {
		v.invalid("spec.rejectedKey", "that key is approved", "one of the two")
	}
	if root := n.Spec.AllowDeletions; root != "" && !isDigits(root, digestDigits) {
		v.invalid("spec.allowDeletions", fmt.Sprintf("%q is not the root of a state", clip(root)), "the 64 hexadecimal digits of status.verdict.root, without sha256:; or run tako resume")
	}
	return v.faults
}

// key is the digest of the key of a host that wants to join; empty is none.
func (v *validator) key(path, key, command string) {
	if digits, ok := strings.CutPrefix(key, digestPrefix); key != "" && (!ok || !isDigits(digits, digestDigits)) {
		v.invalid(path, fmt.Sprintf("%q is not the digest of a key", clip(key)), "the key of status.joinRequest, sha256: and 64 hexadecimal digits; or run tako node "+command)
	}
}

func (v *validator) taints(path string, taints []declare.Taint) {
	type identity struct {
		key    string
		effect declare.TaintEffect
	}
	first := map[identity]int{}
	for i, t := range taints {
		at := fmt.Sprintf("%s[%d]", path, i)
		v.taint(at, &t)
		id := identity{t.Key, t.Effect}
		if j, twice := first[id]; twice {
			v.fault(at, reason.DuplicateName, fmt.Sprintf("a taint with key %q and effect %s is there already", clip(t.Key), clip(string(t.Effect))), "remove one of them")
			v.faults[len(v.faults)-1].Related = []declare.Place{{Path: fmt.Sprintf("%s[%d]", path, j), Note: "first given here"}}
			continue
		}
		first[id] = i
	}
}

func (v *validator) taint(path string, t *declare.Taint) {
	v.labelKey(path+".key", t.Key)
	v.labelValue(path+".value", t.Value)
	switch t.Effect {
	case declare.TaintNoSchedule, declare.TaintPreferNoSchedule, declare.TaintNoExecute:
	case "":
		v.given(path, "effect", "")
	default:
		v.invalid(path+".effect", fmt.Sprintf("unknown effect %q", clip(string(t.Effect))), "one of: NoSchedule, PreferNoSchedule, NoExecute")
	}
}

// holds checks them. One that was there before may have ended since.
func (v *validator) holds(path string, holds, before []NodeHold, now time.Time) {
	if len(holds) > holdsMax {
		v.invalid(path, fmt.Sprintf("there are %d holds, at most %d are allowed", len(holds), holdsMax), "hold a whole config, or the whole node")
		return
	}
	for i := range holds {
		at, h := fmt.Sprintf("%s[%d]", path, i), &holds[i]
		v.hold(at, h)
		if h.Until.IsZero() || contains(before, h) {
			continue
		}
		switch left := h.Until.Sub(now); {
		case left <= 0:
			v.invalid(at+".until", fmt.Sprintf("the hold ends at %s, and it is %s", h.Until.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)), "give a time to come")
		case left > holdMax:
			v.invalid(at+".until", fmt.Sprintf("the hold ends at %s, more than a year from now", h.Until.UTC().Format(time.RFC3339)), "what is never to be enforced is not to be declared")
		}
	}
}

func contains(holds []NodeHold, h *NodeHold) bool {
	for i := range holds {
		if equality.Semantic.DeepEqual(&holds[i], h) {
			return true
		}
	}
	return false
}

// hold checks one by itself.
func (v *validator) hold(path string, h *NodeHold) {
	if h.Config != "" && !isConfigID(h.Config) {
		v.invalid(path+".config", fmt.Sprintf("%q is not a config", clip(h.Config)), "write NodeConfig/NAMESPACE/NAME or ClusterNodeConfig/NAME")
	}
	if h.Resource != "" {
		if _, ok := declare.ParseClaim(h.Resource); !ok || len(h.Resource) > declare.ClaimBytesMax {
			v.invalid(path+".resource", fmt.Sprintf("%q is not what a resource claims", clip(h.Resource)), "such as path:/etc/motd, package:nginx or unit:nginx.service")
		}
	}
	for _, text := range []struct{ field, value string }{{"reason", h.Reason}, {"owner", h.Owner}} {
		v.given(path, text.field, strings.TrimSpace(text.value))
		if len(text.value) > holdTextBytesMax {
			v.invalid(path+"."+text.field, fmt.Sprintf("it has %d bytes, at most %d are allowed", len(text.value), holdTextBytesMax), "")
		}
	}
	if h.Until.IsZero() {
		v.fault(path+".until", reason.MissingField, fmt.Sprintf("%s has no %q", path, "until"), "every hold ends by itself: write when")
	}
}

// isConfigID reports whether a text is KIND/NAME or KIND/NAMESPACE/NAME of a config that a server may have.
func isConfigID(id string) bool {
	parts := strings.Split(id, "/")
	for _, p := range parts {
		if p == "" {
			return false
		}
	}
	return len(id) <= declare.ClaimBytesMax && (len(parts) == 3 && parts[0] == KindNodeConfig || len(parts) == 2 && parts[0] == KindClusterNodeConfig)
}
