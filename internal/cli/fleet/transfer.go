package fleet

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
)

// transferred is how a host stands to what is signed for it.
const transferred = "State"

// rootDigits is how much of a root a person compares.
const rootDigits = 12

// transferOf says how a host stands to what is signed for it: which state it enforces, which there is, what it has made of that, when and
// through whom it was heard, and what people keep there as it is. It is said of each host that has joined, whether something is wrong or not.
func transferOf(n *v1alpha1.Node) []Finding {
	s := &n.Status
	if s.Identity == nil {
		return nil
	}
	var lines []string
	line := func(name, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("%-9s", name)+fmt.Sprintf(format, args...))
	}
	text := "it enforces none yet"
	if s.AppliedHead != nil {
		text = fmt.Sprintf("it enforces version %d", s.AppliedHead.Version)
		line("enforced", "%s", headWords(s.AppliedHead))
	}
	switch a, b := s.AppliedHead, s.AssignedHead; {
	case b == nil:
		text += "; nothing is assigned to it"
	case a != nil && a.Epoch == b.Epoch && a.Version == b.Version:
		text += ", the newest that there is for it"
	default:
		text += fmt.Sprintf("; the newest that there is for it is version %d", b.Version)
		line("newest", "%s", headWords(b))
	}
	if v := s.Verdict; v != nil {
		line("verdict", "%s", strings.TrimSpace(fmt.Sprintf("%s, of version %d%s  %s", v.Type, v.Version, sinceWords(v.Since), v.Code)))
	}
	if s.LastHeard != nil {
		line("heard", "last at %s", s.LastHeard.UTC().Format(time.RFC3339))
		lines[len(lines)-1] += way(s)
	}
	if p := s.FromPeer; p != nil {
		line("peer", "node %s had something new for it at %s, while it reached no server", p.Node, p.At.UTC().Format(time.RFC3339))
	}
	if s.Held > 0 {
		line("held", "%d of its resources", s.Held)
	}
	return []Finding{{Weight: Note, Subject: "node/" + n.Name, What: transferred, Text: text, Evidence: strings.Join(lines, "\n")}}
}

// way is which way a host was heard last, in words; empty where that is not known.
func way(s *v1alpha1.NodeStatus) string {
	switch {
	case s.Through != "" && s.Server != "":
		return ", through relay " + s.Through + " at " + s.Server
	case s.Through != "":
		return ", through relay " + s.Through
	case s.Server != "":
		return ", through server " + s.Server
	}
	return ""
}

// headWords is a signed state in words.
func headWords(h *v1alpha1.AppliedHead) string {
	text := fmt.Sprintf("version %d of epoch %d", h.Version, h.Epoch)
	if _, digits, found := strings.Cut(h.Root, ":"); found && len(digits) > rootDigits {
		text += ", root " + digits[:rootDigits]
	}
	if h.Since != nil {
		text += sinceWords(*h.Since)
	}
	return text
}

func sinceWords(t metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", since " + t.UTC().Format(time.RFC3339)
}
