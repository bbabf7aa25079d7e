package fleet

import (
	"fmt"
	"strings"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// Changes says what is different from an earlier page, in lines that each begin with the time: the counts where one has changed, what
// needs attention now and did not, and what does no more. It is empty where nothing is different.
func (s *Status) Changes(before *Status, now time.Time, style present.Style) string {
	var b strings.Builder
	at := now.UTC().Format(time.RFC3339)
	was, is := before.counts(style), s.counts(style)
	for i := range is {
		if is[i] != was[i] && is[i] != "" {
			fmt.Fprintf(&b, "%s %s\n", at, is[i])
		}
	}
	for i := range s.Attention {
		if x := &s.Attention[i]; !x.isIn(before.Attention) {
			fmt.Fprintf(&b, "%s %s", at, x.line(now, style))
		}
	}
	for i := range before.Attention {
		if x := &before.Attention[i]; !x.isIn(s.Attention) {
			fmt.Fprintf(&b, "%s %-14s %s: %s no more\n", at, reason.Kept.Glyph()+" Over", present.Escape(x.Subject), present.Escape(x.What))
		}
	}
	return b.String()
}

// isIn reports whether a list has a finding about the same. Its words may differ: a rollout that goes on is no news with each node.
func (x *Finding) isIn(list []Finding) bool {
	for i := range list {
		if list[i].Subject == x.Subject && list[i].What == x.What && list[i].Claim == x.Claim {
			return true
		}
	}
	return false
}

// Watched are the kinds of which a change may be one of the page, with their group.
func Watched() []string {
	var all []string
	for _, resource := range []string{v1alpha1.ResourceNodes, v1alpha1.ResourceNodeConfigs, v1alpha1.ResourceClusterNodeConfigs, v1alpha1.ResourceAssignments, v1alpha1.ResourceWorkloads} {
		all = append(all, resource+"."+v1alpha1.GroupName)
	}
	return all
}
