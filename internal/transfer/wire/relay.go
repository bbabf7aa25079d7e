package wire

import "fmt"

// PathRelay is POST /v1/relay: one stream for all agents of a relay. The body of the request is frames of RelayUp, that of the answer
// frames of RelayDown. Both say states and no events: the newest is all that counts, and what is lost is said anew over the next stream.
const PathRelay = "/v1/relay"

// ParamNode is a parameter of answer: the UID of the node whose answer a relay brings.
const ParamNode = "node"

// RelayUp is one message of a relay to its server. One without agents says that the relay is there.
type RelayUp struct {
	Protocol uint           `cbor:"1,keyasint"`
	Agents   []RelayedAgent `cbor:"2,keyasint,omitempty"` // at most RelayedMax
}

// RelayedAgent is what has become of one agent since the relay has told of it last over this stream.
type RelayedAgent struct {
	// Number is that of the agent's watch at the relay. They ascend, and none is used twice in the life of a relay.
	Number uint64 `cbor:"1,keyasint"`
	// Certificate is what the agent has shown, DER. It is in the first word about the agent, together with Report, and in no other one. A
	// server that passes on what it hears has verified that itself, and says Who instead.
	Certificate []byte  `cbor:"2,keyasint,omitempty"`
	Report      *Report `cbor:"3,keyasint,omitempty"` // the newest, when it is another one
	// Asked says that a heartbeat has gone to the agent since its last report.
	Asked bool `cbor:"4,keyasint,omitempty"`
	// Left says that it is not here any more, and how it went: that is the last word about it.
	Left Leaving  `cbor:"5,keyasint,omitempty"`
	Who  *Vouched `cbor:"6,keyasint,omitempty"`
}

// Vouched is who an agent is, as a server says that has identified it. It is believed of servers alone.
type Vouched struct {
	Name    string `cbor:"1,keyasint"` // of the Node
	UID     string `cbor:"2,keyasint"`
	Key     string `cbor:"3,keyasint"`           // "sha256:" and hex of the SPKI of its certificate
	Through string `cbor:"4,keyasint,omitempty"` // name of the relay that it is connected through
}

// First says that it is the first word about an agent over this stream.
func (a *RelayedAgent) First() bool { return len(a.Certificate) > 0 || a.Who != nil }

// Leaving is how an agent has left its relay.
type Leaving uint8

// The ways.
const (
	Here  Leaving = iota
	Ended         // its connection was closed
	Lost          // TCP keepalive has found the host or the link lost
)

// RelayDown is one message of a server to a relay. One without anything in it says that the server is there.
type RelayDown struct {
	// Trust is the highest number of the trust documents, where it is higher than the last one that was told.
	Trust uint64 `cbor:"1,keyasint,omitempty"`
	// Again says that the stream ends now, and after how many milliseconds to open another one.
	Again *uint32 `cbor:"2,keyasint,omitempty"`
	// Pause is the shortest between two messages with reports, in milliseconds; 0 is what the relay thinks.
	Pause  uint32        `cbor:"3,keyasint,omitempty"`
	Agents []RelayedNews `cbor:"4,keyasint,omitempty"` // at most RelayedMax
	// Servers are the addresses of all servers, as a host is told them (Frame.Servers).
	Servers []string `cbor:"5,keyasint,omitempty"`
}

// RelayedNews is what there is for one agent of a relay.
type RelayedNews struct {
	Number uint64 `cbor:"1,keyasint"` // RelayedAgent.Number
	// Taken says that the server has taken the agent; it is in the first news of it, unless Problem is.
	Taken     bool         `cbor:"2,keyasint,omitempty"`
	Head      []byte       `cbor:"3,keyasint,omitempty"` // the newest, when it is another one
	Questions []Question   `cbor:"4,keyasint,omitempty"` // at most QuestionsMax
	Status    *StatusReply `cbor:"5,keyasint,omitempty"` // to its reports, when it is another one
	// Problem is why the server does not serve the agent, or not any more: the last news of it.
	Problem *Problem `cbor:"6,keyasint,omitempty"`
	// Deposits are to be kept for other hosts, which are away (Frame.Deposit): at most RelayedDepositsMax. A relay that does not know of them passes over them.
	Deposits []Deposit `cbor:"7,keyasint,omitempty"`
}

// Bounds of the messages of a relay.
const (
	// RelayedMax is how many agents one message is about.
	RelayedMax = 256
	// QuestionsMax is how many questions one message has for one agent: as many as a server has open to one.
	QuestionsMax = 4
	// RelayedDepositsMax is how many deposits one message has for one agent: about as many as a host keeps for others. Those that are left over come
	// with the next heartbeat.
	RelayedDepositsMax = 4
	// RelayedDepositsBytesMax is of the deposits of one message, of all agents together: what else it has for them is less than the rest of a frame.
	RelayedDepositsBytesMax = 2 * RelayedDepositsMax * DepositMax
	// CertificateMax is several times a certificate of a P-256 key.
	CertificateMax = 4 << 10
	// HeadMax is far above what a signed head has.
	HeadMax = 4 << 10
	// subjectMax is above the name of any resource or unit.
	subjectMax = 4 << 10
)

// Validate says what of a message is above its bounds, or says nothing that could be.
func (m *RelayUp) Validate() error {
	b := bounds{}
	b.count("agents", len(m.Agents), RelayedMax)
	for i := range m.Agents {
		a := &m.Agents[i]
		b.count("bytes of a certificate", len(a.Certificate), CertificateMax)
		if b.err == nil && a.Number == 0 {
			b.err = fmt.Errorf("agent %d has no number", i)
		}
		if b.err == nil && a.Left > Lost {
			b.err = fmt.Errorf("an agent has left in way %d, which is not known here", a.Left)
		}
		if b.err == nil && a.First() && a.Report == nil {
			b.err = fmt.Errorf("the first word about agent %d has no report", a.Number)
		}
		if w := a.Who; w != nil {
			b.text("name of a node", w.Name, nameMax)
			b.text("UID of a node", w.UID, nameMax)
			b.text("key of a node", w.Key, nameMax)
			b.text("name of a relay", w.Through, nameMax)
		}
		if b.err == nil && a.Report != nil {
			b.err = a.Report.Validate()
		}
	}
	return b.err
}

// Validate says what of a message is above its bounds.
func (m *RelayDown) Validate() error {
	b := bounds{}
	b.count("agents", len(m.Agents), RelayedMax)
	b.count("servers", len(m.Servers), ServersMax)
	for _, address := range m.Servers {
		b.text("address of a server", address, nameMax)
	}
	for i := range m.Agents {
		a := &m.Agents[i]
		b.count("bytes of a head", len(a.Head), HeadMax)
		b.count("questions", len(a.Questions), QuestionsMax)
		for j := range a.Questions {
			b.text("subject of a question", a.Questions[j].Subject, subjectMax)
			b.text("kind of a question", a.Questions[j].What, nameMax)
		}
		b.count("deposits", len(a.Deposits), RelayedDepositsMax)
		for j := range a.Deposits {
			b.count("bytes of a deposit", len(a.Deposits[j].Head)+len(a.Deposits[j].List), DepositMax)
		}
		if p := a.Problem; p != nil {
			b.text("code of a problem", p.Code, nameMax)
			b.text("message of a problem", p.Message, MessageMax)
			b.text("hint of a problem", p.Hint, MessageMax)
		}
	}
	return b.err
}
