package wire

import (
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// Protocol is the version of the calls.
const Protocol = 1

// The paths of the calls.
const (
	PathJoin   = "/v1/join"
	PathRenew  = "/v1/renew"
	PathTrust  = "/v1/trust"
	PathWatch  = "/v1/watch"
	PathSync   = "/v1/sync"
	PathNodes  = "/v1/nodes"
	PathStatus = "/v1/status"
	PathAnswer = "/v1/answer"
)

// The parameters of calls.
const (
	ParamAfter   = "after"   // of trust: a number
	ParamID      = "id"      // of answer: Question.ID
	ParamRefused = "refused" // of answer: the body is a Problem
)

// CatalogLayer is the layer by whose name the list of a catalog is asked for: the only one that is in no list.
const CatalogLayer = "catalog"

// OwnLayer is the ID of a node's own layer in its catalog.
const OwnLayer = "own"

// JoinRequest is what a host shows that wants to join.
type JoinRequest struct {
	Protocol   uint   `cbor:"1,keyasint"`
	Token      string `cbor:"2,keyasint"` // text form: a secret. Empty where a person has approved the key
	Name       string `cbor:"3,keyasint"` // that the node is to have
	Request    []byte `cbor:"4,keyasint"` // certificate request, DER, that binds SealingKey
	SealingKey []byte `cbor:"5,keyasint"` // empty of a relay, which gets no secrets
	// Relay says that it wants to be a relay and no node. Its name is that of the token; Name is empty.
	Relay bool `cbor:"6,keyasint,omitempty"`
}

// RenewRequest asks for a new certificate of the same key.
type RenewRequest struct {
	Protocol uint   `cbor:"1,keyasint"`
	Request  []byte `cbor:"2,keyasint"`
	// Certificate is what the host has shown to the relay that passes the request on, DER; empty of a request for the caller itself.
	Certificate []byte `cbor:"3,keyasint,omitempty"`
}

// Credentials are what a host gets.
type Credentials struct {
	Protocol    uint   `cbor:"1,keyasint"`
	Certificate []byte `cbor:"2,keyasint"` // DER
	Name        string `cbor:"3,keyasint"` // of the node
	UID         string `cbor:"4,keyasint"`
	Trust       []byte `cbor:"5,keyasint"` // documents from number 1, as trust.EncodeDocuments writes them
}

// WatchRequest opens a watch.
type WatchRequest struct {
	Protocol uint   `cbor:"1,keyasint"`
	Report   Report `cbor:"2,keyasint"`
}

// Frame is one message of a watch. One of the fields is set, and List only with Head.
type Frame struct {
	Head     []byte    `cbor:"1,keyasint,omitempty"` // signed, as catalog.SignedHead encodes it
	Question *Question `cbor:"2,keyasint,omitempty"`
	// Again says that the watch ends now, and after how many milliseconds to open another one.
	Again *uint32 `cbor:"3,keyasint,omitempty"`
	// Trust is the highest number of the trust documents, where it is higher than the last one that was told.
	Trust uint64 `cbor:"4,keyasint,omitempty"`
	// Servers are the addresses of all servers, HOST:PORT, where there are others than the one that tells; at most ServersMax.
	Servers []string `cbor:"5,keyasint,omitempty"`
	// List is the encoded list that Head names, where it is short and the host may not have it: one call less for each host of a change.
	List []byte `cbor:"6,keyasint,omitempty"`
	// Deposit is to be kept for another host, which is away.
	Deposit *Deposit `cbor:"7,keyasint,omitempty"`
	// Echo is as that of a StatusReply: the answer to the report that has opened the watch.
	Echo uint64 `cbor:"8,keyasint,omitempty"`
}

// What a question may be about.
const (
	AskHistory  = "history"
	AskLogs     = "logs"
	AskEvidence = "evidence"
	AskUsage    = "usage"
	AskGraph    = "graph"
)

// Question is something that a person wants to know from a host. It changes nothing there.
type Question struct {
	ID      uint64 `cbor:"1,keyasint"`
	What    string `cbor:"2,keyasint"`           // one of the constants
	Subject string `cbor:"3,keyasint,omitempty"` // a resource, or instance/NAMESPACE/NAME; of logs a unit, an instance with /TASK or without, or empty for the agent
	Lines   uint32 `cbor:"4,keyasint,omitempty"` // at most; 0 is what the host thinks is enough
	Since   int64  `cbor:"5,keyasint,omitempty"` // seconds since 1970; 0 is from the beginning
	Seconds uint32 `cbor:"6,keyasint"`           // until nobody waits for the answer any more
	Until   int64  `cbor:"7,keyasint,omitempty"` // of history, seconds since 1970: nothing newer; 0 is to the end
	// Previous asks for the logs of the attempt before the newest one, of an instance.
	Previous bool `cbor:"8,keyasint,omitempty"`
}

// SyncRequest asks for what turns one root of a layer into another.
type SyncRequest struct {
	Head   []byte         `cbor:"1,keyasint"` // the signed head whose catalog lists the layer
	Layer  string         `cbor:"2,keyasint"`
	Base   catalog.Digest `cbor:"3,keyasint"` // root that is there; zero: none
	Target catalog.Digest `cbor:"4,keyasint"`
	Cursor catalog.Digest `cbor:"5,keyasint"` // first key to send
	// List is that of Head, encoded: for a host that is asked as a peer, which has the lists of others as little as their heads.
	List []byte `cbor:"6,keyasint,omitempty"`
}

// SyncKind says what a SyncPart belongs to.
type SyncKind uint8

// The kinds.
const (
	SyncDelta       SyncKind = iota + 1 // changes to the base
	SyncUnknownBase                     // there is no way from the base: descend
	SyncSnapshot                        // all rows, as if the base were empty
)

// SyncPart is one frame of the answer. It goes over the wire packed, as packedPart says.
type SyncPart struct {
	Kind    SyncKind
	Changes []Change // by key, at most ChangesMax
	Last    bool
}

// Change is what becomes of one row.
type Change struct {
	Key     catalog.Digest
	Deleted bool
	Body    []byte // its digest is what the row holds; none of what is deleted
}

// NodesRequest asks for things by their hash.
type NodesRequest struct {
	Head   []byte           `cbor:"1,keyasint"`
	Layer  string           `cbor:"2,keyasint"` // CatalogLayer, or one that the catalog lists
	Hashes []catalog.Digest `cbor:"3,keyasint"`
	List   []byte           `cbor:"4,keyasint,omitempty"` // as that of SyncRequest
}

// NodesReply is the answer, in the order of the hashes. What is not to be had is empty.
type NodesReply struct {
	Items [][]byte `cbor:"1,keyasint"`
}

// StatusReply is the answer to a Report.
type StatusReply struct {
	// RetryAfter is for how many seconds not to report again, unless something changes. 0 is as always.
	RetryAfter uint32 `cbor:"1,keyasint,omitempty"`
	// Cloned says that somebody else has this identity too.
	Cloned bool `cbor:"2,keyasint,omitempty"`
	// UsageEvery is after how many seconds to report again though nothing changes, because what the instances take is waited for, or because a copy with a
	// lease may come; 0: neither is so.
	UsageEvery uint32 `cbor:"3,keyasint,omitempty"`
	// Echo is that of a report which the server that leads has heard, while the node was not lost to it; 0: it says of none.
	Echo uint64 `cbor:"4,keyasint,omitempty"`
}

// Problem is why a call was refused.
type Problem struct {
	Code    string `cbor:"1,keyasint"` // TKnnnn
	Message string `cbor:"2,keyasint"`
	Hint    string `cbor:"3,keyasint,omitempty"`
	// RetryAfter is after how many milliseconds to try again; 0: as the code says.
	RetryAfter uint32 `cbor:"4,keyasint,omitempty"`
}

// Session is one run of an agent.
type Session struct {
	ID    string `cbor:"1,keyasint"` // random
	Start uint64 `cbor:"2,keyasint"` // how often this agent has started
}

// Report is what a host says of itself. It is a state and no event: each one says all of it.
type Report struct {
	Session  Session        `cbor:"1,keyasint"`
	Number   uint64         `cbor:"2,keyasint"` // in the session
	Have     catalog.Mark   `cbor:"3,keyasint"` // the highest head that was accepted
	Enforced catalog.Mark   `cbor:"4,keyasint"` // the state that is enforced
	Verdict  Verdict        `cbor:"5,keyasint"` // on the newest state
	Counts   Counts         `cbor:"6,keyasint"`
	Configs  []ConfigReport `cbor:"7,keyasint,omitempty"` // one for each layer of the enforced state: at most catalog.LayersMax
	Problems []Resource     `cbor:"8,keyasint,omitempty"` // the worst first, at most ProblemsMax
	Host     *Host          `cbor:"9,keyasint,omitempty"` // with the first report of a session, and when it has changed
	Refused  Refused        `cbor:"10,keyasint"`
	Stale    bool           `cbor:"11,keyasint,omitempty"` // the head has expired
	At       int64          `cbor:"12,keyasint"`           // the host's clock, milliseconds since 1970
	// Trust is the highest number of the trust documents that the host has.
	Trust uint64 `cbor:"13,keyasint"`
	Usage *Usage `cbor:"14,keyasint,omitempty"` // nil from agents that do not tell
	// Statements are those of operators that are applied to Enforced, and those that the host has refused: at most StatementsMax.
	Statements []Statement `cbor:"16,keyasint,omitempty"`
	// Delivered is how many values of data the host has, which are in no count.
	Delivered uint64 `cbor:"17,keyasint,omitempty"`
	Exchange
	PeerNews
	// Instances are those of workloads that the host has, also those that have ended until the host is told to forget them: by UID, as FitInstances
	// leaves them.
	Instances []Instance `cbor:"20,keyasint,omitempty"`
	// Offers is what the host has for instances, in all; nil from agents that run none.
	Offers *Offers `cbor:"21,keyasint,omitempty"`
}

// Exchange is a part of a report: where it goes, and how the host knows what answers it.
type Exchange struct {
	// Server is the address that this report goes to, a server's or a relay's, as the host calls it; empty from agents that do not tell.
	Server string `cbor:"15,keyasint,omitempty"`
	// Echo is a random number by which the host knows this report again in an answer, which may come late and by way of others; 0: none.
	Echo uint64 `cbor:"22,keyasint,omitempty"`
}

// PeerNews is a part of a report: what other hosts had for this one.
type PeerNews struct {
	// FromPeer is the name of the node whose host had something new last while no server was reached, and FromPeerAt when that was, seconds since
	// 1970; empty where there was nothing since the agent started.
	FromPeer   string `cbor:"18,keyasint,omitempty"`
	FromPeerAt int64  `cbor:"19,keyasint,omitempty"`
}

// InstancePhase is how far an instance has come on its host.
type InstancePhase uint8

// The phases, in the order in which an instance goes through them.
const (
	InstancePlaced      InstancePhase = iota // not begun
	InstanceStarting                         // begun, and not started yet
	InstanceRunning                          // all tasks have started
	InstanceTerminating                      // asked to end
	InstanceFailed                           // over for good, badly; nothing runs
	InstanceDone                             // over for good, well; nothing runs
)

var instancePhaseNames = [...]string{"Placed", "Starting", "Running", "Terminating", "Failed", "Done"}

// String is the phase's name, as the API has it.
func (p InstancePhase) String() string {
	if int(p) < len(instancePhaseNames) {
		return instancePhaseNames[p]
	}
	return "Unknown"
}

// Instance is how one instance stands on its host.
type Instance struct {
	UID     string        `cbor:"1,keyasint"`
	Attempt uint32        `cbor:"2,keyasint,omitempty"` // how often the host has started it; it never goes back
	Phase   InstancePhase `cbor:"3,keyasint,omitempty"`
	Ready   bool          `cbor:"4,keyasint,omitempty"`
	// Code is why it does not work, 0 where nothing speaks against it; Message says more for people, and holds no secret; Since is milliseconds
	// since 1970.
	Code    reason.Code `cbor:"5,keyasint,omitzero"`
	Message string      `cbor:"6,keyasint,omitempty"`
	Since   int64       `cbor:"7,keyasint,omitempty"`
	// OfNode says that the failure is the node's: no other revision would do better there.
	OfNode   bool           `cbor:"8,keyasint,omitempty"`
	Restarts uint32         `cbor:"9,keyasint,omitempty"`
	Ports    []InstancePort `cbor:"10,keyasint,omitempty"` // those of all tasks, by name
	// CPU is what it has used since it was started last, in milliseconds, and Memory what it holds, in bytes; 0 where that is not known.
	CPU    uint64 `cbor:"11,keyasint,omitempty"`
	Memory uint64 `cbor:"12,keyasint,omitempty"`
	// Revision is the hash of the revision that the host has taken in and goes by, as its name ends with; empty from agents that do not tell.
	Revision string `cbor:"13,keyasint,omitempty"`
}

// InstancePort is the number of a port of an instance.
type InstancePort struct {
	Name   string `cbor:"1,keyasint"`
	Number uint16 `cbor:"2,keyasint"`
}

// Offers is what a host has for instances.
type Offers struct {
	CPU      int64    `cbor:"1,keyasint"`           // thousandths of processors
	Memory   int64    `cbor:"2,keyasint"`           // bytes
	Disk     int64    `cbor:"3,keyasint"`           // bytes, where instances write; none of the three is below 0
	Address  string   `cbor:"4,keyasint,omitempty"` // at which instances are reached
	Arch     string   `cbor:"5,keyasint,omitempty"` // as GOARCH names it
	Runtimes []string `cbor:"6,keyasint,omitempty"` // that it has, by the names of workload.Runtime, at most OffersMax
	// Devices are the names of the pieces by kind, and Directories those that instances may mount.
	Devices     map[string][]string `cbor:"7,keyasint,omitempty"` // at most OffersMax of each
	Directories []string            `cbor:"8,keyasint,omitempty"` // at most DirectoriesMax
}

// Statement is an operator's statement about a layer, as a host has it.
type Statement struct {
	Layer   string         `cbor:"1,keyasint"`
	Number  uint64         `cbor:"2,keyasint"`
	Root    catalog.Digest `cbor:"3,keyasint"`
	Code    reason.Code    `cbor:"4,keyasint,omitzero"` // why it is not in force; 0: it is
	Message string         `cbor:"5,keyasint,omitempty"`
}

// Usage is what an agent takes of its host, what the commands have taken that have ended since it started, and when the instances were looked at.
type Usage struct {
	CPU         uint64 `cbor:"1,keyasint,omitempty"` // milliseconds since the agent started
	RSS         uint64 `cbor:"2,keyasint,omitempty"` // bytes
	Anonymous   uint64 `cbor:"3,keyasint,omitempty"` // bytes of RSS that are not a file's
	CommandsCPU uint64 `cbor:"4,keyasint,omitempty"` // milliseconds
	CommandsRSS uint64 `cbor:"5,keyasint,omitempty"` // bytes, of the largest process
	// Sampled is when what instances take was looked at, in milliseconds of the host's boot clock, which no correction moves, and SampledAgo how long
	// before the report that was, in milliseconds; 0 where nothing runs, and from agents that do not tell.
	Sampled    uint64 `cbor:"6,keyasint,omitempty"`
	SampledAgo uint64 `cbor:"7,keyasint,omitempty"`
}

// VerdictType is what a host makes of a signed state.
type VerdictType uint8

// The verdicts.
const (
	Pending     VerdictType = iota
	Applied                 // all of it is as declared
	Partial                 // it is enforced, and some of it is not as declared
	Rejected                // it cannot be enforced, and is not fetched again
	Withheld                // it deletes much and waits for consent
	Quarantined             // it has crashed the agent
)

var verdictNames = [...]string{"Pending", "Applied", "Partial", "Rejected", "Withheld", "Quarantined"}

// String is the verdict's name, as the API has it.
func (v VerdictType) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return "Unknown"
}

// Verdict is what a host makes of one signed state.
type Verdict struct {
	Type    VerdictType    `cbor:"1,keyasint"`
	Epoch   uint64         `cbor:"2,keyasint"`
	Version uint64         `cbor:"3,keyasint"`
	Root    catalog.Digest `cbor:"4,keyasint"`
	Code    reason.Code    `cbor:"5,keyasint,omitzero"`
	Message string         `cbor:"6,keyasint,omitempty"`
	Since   int64          `cbor:"7,keyasint"` // milliseconds since 1970
}

// Counts counts resources, each once.
type Counts struct {
	Kept          uint32 `cbor:"1,keyasint,omitempty"`
	Repaired      uint32 `cbor:"2,keyasint,omitempty"`
	Failed        uint32 `cbor:"3,keyasint,omitempty"`
	Blocked       uint32 `cbor:"4,keyasint,omitempty"`
	Deferred      uint32 `cbor:"5,keyasint,omitempty"`
	Contended     uint32 `cbor:"6,keyasint,omitempty"`
	NotApplicable uint32 `cbor:"7,keyasint,omitempty"`
	Unknown       uint32 `cbor:"8,keyasint,omitempty"`
	Held          uint32 `cbor:"9,keyasint,omitempty"`
}

// ConfigReport is how one config stands on a host.
type ConfigReport struct {
	ID string `cbor:"1,keyasint"`
	// Converged says that all that it has here is as declared; Settled that nothing is on the way. Neither is "pending", settled and
	// not converged is failed.
	Converged bool        `cbor:"2,keyasint,omitempty"`
	Settled   bool        `cbor:"3,keyasint,omitempty"`
	Code      reason.Code `cbor:"4,keyasint,omitzero"` // of the worst that is wrong
	Message   string      `cbor:"5,keyasint,omitempty"`
	Since     int64       `cbor:"6,keyasint,omitempty"` // milliseconds since 1970
}

// Resource is a resource that is not as declared.
type Resource struct {
	Title   string      `cbor:"1,keyasint"`
	Claim   string      `cbor:"2,keyasint"`
	Config  string      `cbor:"3,keyasint"`
	Outcome string      `cbor:"4,keyasint"`
	Code    reason.Code `cbor:"5,keyasint,omitzero"`
	Message string      `cbor:"6,keyasint,omitempty"`
	Since   int64       `cbor:"7,keyasint,omitempty"` // milliseconds since 1970
	RetryAt int64       `cbor:"8,keyasint,omitempty"` // the same
}

// Host is what changes seldom.
type Host struct {
	Version string            `cbor:"1,keyasint,omitempty"` // of tako-agent
	Facts   map[string]string `cbor:"2,keyasint,omitempty"`
	CPUs    uint32            `cbor:"3,keyasint,omitempty"`
	Memory  uint64            `cbor:"4,keyasint,omitempty"` // bytes
	// Disks and Interfaces are what is known of each; empty from agents that do not tell.
	Disks      []Disk      `cbor:"5,keyasint,omitempty"` // at most DisksMax, by name
	Interfaces []Interface `cbor:"6,keyasint,omitempty"` // at most InterfacesMax with AddressesMax in all, by name
	// Peer is where other hosts of the cluster ask this one, HOST:PORT; empty where they cannot.
	Peer string `cbor:"7,keyasint,omitempty"`
	// Images are those that instances can be started from without fetching one: digests of archives, and paths; the ones that were used last, at most
	// ImagesMax, in order of their text.
	Images []string `cbor:"8,keyasint,omitempty"`
}

// Disk is a disk of a host.
type Disk struct {
	Name       string `cbor:"1,keyasint"`
	Bytes      uint64 `cbor:"2,keyasint,omitempty"`
	Model      string `cbor:"3,keyasint,omitempty"`
	Rotational bool   `cbor:"4,keyasint,omitempty"`
}

// Interface is a network interface of a host.
type Interface struct {
	Name      string   `cbor:"1,keyasint"`
	MAC       string   `cbor:"2,keyasint,omitempty"`
	Addresses []string `cbor:"3,keyasint,omitempty"` // without the length of their prefix
}

// Refused counts, since the agent was installed, what it did not believe.
type Refused struct {
	Forged       uint64 `cbor:"1,keyasint,omitempty" json:"forged,omitempty"`       // heads and statements with a wrong signature, or for somebody else
	Old          uint64 `cbor:"2,keyasint,omitempty" json:"old,omitempty"`          // heads and statements below the mark
	Equivocation uint64 `cbor:"3,keyasint,omitempty" json:"equivocation,omitempty"` // two roots under one version
	Content      uint64 `cbor:"4,keyasint,omitempty" json:"content,omitempty"`      // differences, nodes and bodies that are not what was asked for
}

// Bounds of messages.
const (
	// ServersMax is how many addresses of servers a host is told, and keeps beside those that it has joined with.
	ServersMax  = 8
	ProblemsMax = 10
	// InstanceMessageMax is of one text about an instance: a report may have a thousand of them.
	InstanceMessageMax = 256
	// RevisionHashMax is of the hash of a revision, in bytes.
	RevisionHashMax = 16
	// InstancesBytesMax is of all that a report says of instances, counted as FitInstances does: of as many as a host may have, each with a text at its
	// bound and two ports.
	InstancesBytesMax = 448 << 10
	// OffersMax is how many runtimes, kinds of devices, and pieces of one of them, a host has; and DirectoriesMax how many directories.
	OffersMax      = 64
	DirectoriesMax = 256
	// ImagesMax is how many images a host tells of, each with at most ImageNameMax bytes.
	ImagesMax    = 32
	ImageNameMax = 256
	// StatementsMax is how many statements of operators one host tells of, and keeps.
	StatementsMax = 64
	// DisksMax, InterfacesMax and AddressesMax are of one host, the last of all its interfaces together: as many as facts have.
	DisksMax      = 64
	InterfacesMax = 64
	AddressesMax  = 64
	FactMax       = 4 << 10   // bytes of a fact
	MessageMax    = 1 << 10   // bytes of one text for people
	HashesMax     = 256       // of one NodesRequest
	ListMax       = 4 << 10   // bytes of a list that goes along with its head: some forty layers
	PartBytesMax  = 256 << 10 // of the bodies of one part, unless one alone is larger
	ChangesMax    = 8192      // of one part; whoever writes one stays far below it
	// FrameMax is above the largest body, and what stands around it.
	FrameMax = 1<<20 + 16<<10
	// JoinMax is above a request to join: a certificate request and a name.
	JoinMax = 32 << 10
	// RequestMax is above the largest request: a Report with 256 configs and texts at their bounds, and as many instances as a host may have.
	RequestMax = 512<<10 + InstancesBytesMax
	// ReplyMax is above 256 nodes or as many bodies as fit: whoever answers leaves out what does not.
	ReplyMax = 4 << 20
	// AnswerMax is of one answer to a question.
	AnswerMax = 4 << 20
	// HistoryMax is of the happenings in one, as they are on the disk: as JSON they are larger, and twice that fits.
	HistoryMax = 1 << 20
)

// Export is what a host is sent, but for its layers, for whoever brings it there by hand.
type Export struct {
	Trust []byte `cbor:"1,keyasint"` // documents from number 1, as trust.EncodeDocuments writes them
	Head  []byte `cbor:"2,keyasint"`
	List  []byte `cbor:"3,keyasint"` // of the head, encoded
}

// ExportMax is above an Export: the documents, a head and a list at its bounds.
const ExportMax = 12 << 20
