package load

import (
	"testing"

	"tako.dev/tako/declare"
)

// TestSameFactsSeesWhatHasNoName: disks, interfaces and own facts are told by the text of all facts.
func TestSameFactsSeesWhatHasNoName(t *testing.T) {
	with := func(sum string) declare.Lookup {
		return declare.Scope{NodeName: "web-1", Fact: func(name string) (any, bool) { return sum, name == declare.AllFacts }}.Lookup
	}
	if !SameFacts(with("a"), with("a")) || SameFacts(with("a"), with("b")) || SameFacts(with("a"), declare.Scope{NodeName: "web-1"}.Lookup) {
		t.Error("the text of all facts does not decide")
	}
}
