package wire

import (
	"io"
	"strings"
	"testing"
)

// TestRelayUpBounds: what a relay must not say is refused before anything is made of it.
func TestRelayUpBounds(t *testing.T) {
	good := func() *RelayUp {
		report := *full()["Report"].(*Report)
		return &RelayUp{Protocol: Protocol, Agents: []RelayedAgent{{Number: 1, Certificate: []byte{1}, Report: &report}, {Number: 2, Asked: true}, {Number: 3, Left: Lost}}}
	}
	if err := good().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*RelayUp){
		"agents":               func(m *RelayUp) { m.Agents = make([]RelayedAgent, RelayedMax+1) },
		"no number":            func(m *RelayUp) { m.Agents[1].Number = 0 },
		"certificate":          func(m *RelayUp) { m.Agents[0].Certificate = make([]byte, CertificateMax+1) },
		"a first word alone":   func(m *RelayUp) { m.Agents[0].Report = nil },
		"an unknown way to go": func(m *RelayUp) { m.Agents[2].Left = Lost + 1 },
		"report":               func(m *RelayUp) { m.Agents[0].Report.Session.ID = strings.Repeat("x", sessionMax+1) },
	} {
		m := good()
		if change(m); m.Validate() == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

// TestRelayDownBounds: the same of a server.
func TestRelayDownBounds(t *testing.T) {
	good := func() *RelayDown { return full()["RelayDown"].(*RelayDown) }
	if err := good().Validate(); err != nil {
		t.Error(err)
	}
	long := strings.Repeat("x", 8<<10)
	for name, change := range map[string]func(*RelayDown){
		"agents":    func(m *RelayDown) { m.Agents = make([]RelayedNews, RelayedMax+1) },
		"head":      func(m *RelayDown) { m.Agents[0].Head = make([]byte, HeadMax+1) },
		"questions": func(m *RelayDown) { m.Agents[0].Questions = make([]Question, QuestionsMax+1) },
		"subject":   func(m *RelayDown) { m.Agents[0].Questions[0].Subject = long },
		"kind":      func(m *RelayDown) { m.Agents[0].Questions[0].What = long },
		"deposits":  func(m *RelayDown) { m.Agents[0].Deposits = make([]Deposit, RelayedDepositsMax+1) },
		"deposit": func(m *RelayDown) {
			m.Agents[0].Deposits = []Deposit{{Head: make([]byte, HeadMax), List: make([]byte, DepositMax-HeadMax+1)}}
		},
		"code":    func(m *RelayDown) { m.Agents[0].Problem.Code = long },
		"message": func(m *RelayDown) { m.Agents[0].Problem.Message = long },
		"hint":    func(m *RelayDown) { m.Agents[0].Problem.Hint = long },
	} {
		m := good()
		if change(m); m.Validate() == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

// TestLargestRelayedAgent: an agent whose report is at its bounds fits into one message, with its certificate.
func TestLargestRelayedAgent(t *testing.T) {
	up := RelayUp{Protocol: Protocol, Agents: []RelayedAgent{{Number: 1, Certificate: make([]byte, CertificateMax), Report: &Report{Verdict: Verdict{Message: strings.Repeat("x", RequestMax)}}}}}
	if err := WriteFrame(io.Discard, up); err != nil {
		t.Error(err)
	}
}
