package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/spectest"
)

// vector is one message as it goes over the wire.
type vector struct {
	Message    string `json:"message"`
	What       string `json:"what"`
	Diagnostic string `json:"diagnostic"`
	Encoded    string `json:"encoded"`
	Frame      string `json:"frame"` // the same as one message of a stream
}

type vectorFile struct {
	About    string   `json:"about"`
	Messages []vector `json:"messages"`
}

// example is a message that is sent.
type example struct {
	what    string
	message any
}

func examples() []example {
	digest := func(fill byte) (d catalog.Digest) {
		for i := range d {
			d[i] = fill
		}
		return d
	}
	at := func(version uint64, root byte) catalog.Mark {
		return catalog.Mark{Epoch: 1, Version: version, Root: digest(root), Issued: 1_800_000_000, Expires: 1_800_086_400}
	}
	again := uint32(1500)
	head, list := []byte("a signed head, as internal/catalog/testdata/vectors.json has some"), []byte("a list, as it has one")
	question := Question{ID: 9, What: AskLogs, Subject: "nginx.service", Lines: 100, Since: 1_800_000_000, Seconds: 30}
	report := Report{
		Session: Session{ID: "0123456789abcdef", Start: 3}, Number: 12, Have: at(4711, 1), Enforced: at(4710, 2),
		Verdict: Verdict{Type: Withheld, Epoch: 1, Version: 4711, Root: digest(1), Code: reason.DeletionsWithheld, Message: "it deletes 60 of 100 resources", Since: 1_800_000_123_456},
		Counts:  Counts{Kept: 98, Repaired: 1, Failed: 1},
		Configs: []ConfigReport{{ID: "NodeConfig/prod/web", Settled: true, Code: reason.DiskFull, Message: "no space left", Since: 1_800_000_100_000}},
		Problems: []Resource{{Title: "file/motd", Claim: "path:/etc/motd", Config: "NodeConfig/prod/web", Outcome: "failed", Code: reason.DiskFull, Message: "no space left",
			Since: 1_800_000_100_000, RetryAt: 1_800_000_130_000}},
		Host: &Host{Version: "v1.0.0", Facts: map[string]string{"os.name": "linux", "arch": "amd64"}, CPUs: 2, Memory: 4 << 30,
			Disks: []Disk{{Name: "sda", Bytes: 64 << 30, Model: "Fast", Rotational: true}}, Interfaces: []Interface{{Name: "eth0", MAC: "52:54:00:12:34:56", Addresses: []string{"192.0.2.7"}}}, Peer: "192.0.2.7:6445"},
		Refused: Refused{Old: 1}, At: 1_800_000_200_000, Trust: 2, Usage: &Usage{CPU: 1200, RSS: 7 << 20, Anonymous: 5 << 20, Sampled: 86_400_000, SampledAgo: 2500}, Exchange: Exchange{Server: "tako.test:6444", Echo: 81_985_529_216_486_895}, Delivered: 1_000_000,
		Statements: []Statement{{Layer: "NodeConfig/prod/web", Number: 3, Root: digest(3)}}, PeerNews: PeerNews{FromPeer: "web-2", FromPeerAt: 1_800_000_190},
	}
	small := Report{Session: report.Session, Number: 13, Have: at(4711, 1), Enforced: at(4711, 1), Verdict: Verdict{Type: Applied, Epoch: 1, Version: 4711, Root: digest(1), Since: 1_800_000_300_000},
		Counts: Counts{Kept: 100}, At: 1_800_000_300_000, Trust: 2, Exchange: Exchange{Server: "tako.test:6444"}}
	tasks := small
	tasks.Number = 14
	tasks.Instances = []Instance{
		{UID: "44444444-4444-4444-4444-444444444444", Attempt: 1, Phase: InstanceRunning, Ready: true, Since: 1_800_000_290_000, Ports: []InstancePort{{Name: "http", Number: 20001}}, CPU: 1500, Memory: 64 << 20, Revision: "k2f7qa5cxm"},
		{UID: "55555555-5555-5555-5555-555555555555", Attempt: 3, Phase: InstanceFailed, Code: reason.DiskFull, Message: "no space left", Since: 1_800_000_280_000, OfNode: true, Restarts: 2},
	}
	tasks.Host = &Host{Version: "v1.0.0", Images: []string{"/srv/image", "sha256:0a"}}
	tasks.Offers = &Offers{CPU: 1900, Memory: 3 << 30, Disk: 20 << 30, Address: "192.0.2.7", Arch: "amd64", Runtimes: []string{"Process", "Systemd"},
		Devices: map[string][]string{"nvidia.com/gpu": {"0", "1"}}, Directories: []string{"/srv"}}
	return []example{
		{"a host joins with a token", JoinRequest{Protocol: Protocol, Token: "a token", Name: "web-1", Request: []byte{0x30, 0}, SealingKey: bytes.Repeat([]byte{9}, 32)}},
		{"a relay joins", JoinRequest{Protocol: Protocol, Token: "a token", Request: []byte{0x30, 0}, Relay: true}},
		{"a host renews its certificate", RenewRequest{Protocol: Protocol, Request: []byte{0x30, 0}}},
		{"what a host gets", Credentials{Protocol: Protocol, Certificate: []byte{0x30, 0}, Name: "web-1", UID: "11111111-1111-1111-1111-111111111111", Trust: []byte(`{"documents":[]}`)}},
		{"a watch is opened by a host that has a state", WatchRequest{Protocol: Protocol, Report: small}},
		{"a watch brings a head", Frame{Head: head}},
		{"a watch brings a question", Frame{Question: &question}},
		{"a watch ends, another one is to be opened", Frame{Again: &again}},
		{"a watch tells of trust documents", Frame{Trust: 2}},
		{"a watch brings a head that is new to the host, with its list", Frame{Head: head, List: list}},
		{"a watch tells of all servers", Frame{Servers: []string{"a.tako.test:6444", "b.tako.test:6444"}}},
		{"a watch tells that the report was heard which has opened it", Frame{Echo: 81_985_529_216_486_895}},
		{"a watch brings what is to be kept for another host", Frame{Deposit: &Deposit{Head: head, List: list}}},
		{"a difference is asked for", SyncRequest{Head: head, Layer: "NodeConfig/prod/web", Base: digest(4), Target: digest(5)}},
		{"a snapshot is asked for, from a key on", SyncRequest{Head: head, Layer: "NodeConfig/prod/web", Target: digest(5), Cursor: digest(6)}},
		{"a difference is asked of a peer", SyncRequest{Head: head, Layer: "NodeConfig/prod/web", Base: digest(4), Target: digest(5), List: list}},
		{"a part of a difference", SyncPart{Kind: SyncDelta, Changes: []Change{{Key: digest(1), Deleted: true}, {Key: digest(2), Body: []byte("a body")}}}},
		{"the last part of one", SyncPart{Kind: SyncDelta, Last: true}},
		{"the base is not known", SyncPart{Kind: SyncUnknownBase, Last: true}},
		{"a snapshot in one part", SyncPart{Kind: SyncSnapshot, Changes: []Change{{Key: digest(2), Body: []byte("a body")}}, Last: true}},
		{"the list of a catalog is asked for", NodesRequest{Head: head, Layer: CatalogLayer, Hashes: []catalog.Digest{digest(7)}}},
		{"a node is asked of a peer", NodesRequest{Head: head, Layer: "NodeConfig/prod/web", Hashes: []catalog.Digest{digest(7)}, List: list}},
		{"two things, of which the second is not to be had", NodesReply{Items: [][]byte{[]byte("a node"), nil}}},
		{"a report with everything in it", report},
		{"a report of a host that is as it should be", small},
		{"a report of a host with instances of workloads", tasks},
		{"the answer to a report", StatusReply{RetryAfter: 30}},
		{"the answer to a report, with the number of one that was heard", StatusReply{Echo: 81_985_529_216_486_895}},
		{"the answer to a report of a copied machine", StatusReply{Cloned: true}},
		{"the answer to a report of a host whose instances are measured", StatusReply{UsageEvery: 15}},
		{"a refusal", Problem{Code: reason.TransferBusy.String(), Message: "too many transfers at once", Hint: "come again", RetryAfter: 2500}},
		{"the first word of a relay about an agent, and that another one has left", RelayUp{Protocol: Protocol, Agents: []RelayedAgent{
			{Number: 1, Certificate: []byte{0x30, 0}, Report: &small}, {Number: 2, Asked: true}, {Number: 3, Left: Lost}}}},
		{"what a server tells the one that leads, in the place of a certificate", RelayUp{Protocol: Protocol, Agents: []RelayedAgent{
			{Number: 1, Report: &small, Who: &Vouched{Name: "web-1", UID: "11111111-1111-1111-1111-111111111111", Key: "sha256:0a", Through: "edge-1"}}}}},
		{"a relay is there", RelayUp{Protocol: Protocol}},
		{"what there is for the agents of a relay", RelayDown{Trust: 2, Pause: 1000, Agents: []RelayedNews{
			{Number: 1, Taken: true, Head: head, Questions: []Question{question}, Status: &StatusReply{RetryAfter: 30}},
			{Number: 2, Problem: &Problem{Code: reason.CertificateRefused.String(), Message: "the node is gone"}}}}},
		{"what is to be kept by an agent of a relay for another host", RelayDown{Agents: []RelayedNews{{Number: 1, Deposits: []Deposit{{Head: head, List: list}}}}}},
		{"the stream of a relay ends", RelayDown{Again: &again}},
		{"a host asks a peer", NewsRequest{Protocol: Protocol, Head: head, List: list, Trust: 2, Statements: []StatementMark{{Layer: "NodeConfig/prod/web", Epoch: 1, Number: 3}}}},
		{"a host that has nothing yet asks a peer", NewsRequest{Protocol: Protocol, Trust: 1}},
		{"a peer has a head, documents and a statement", NewsReply{Head: head, List: list, Trust: []byte(`{"documents":[]}`), Statements: [][]byte{[]byte("a signed statement")}}},
		{"a peer has nothing new", NewsReply{}},
		{"what is kept for another host", Deposit{Head: head, List: list}},
		{"the names are asked for", NamesRequest{Protocol: Protocol, Have: NamesMark{Epoch: 1, Term: 4000, Number: 1_800_000_000_000}}},
		{"the names are asked for by who has none", NamesRequest{Protocol: Protocol}},
		{"rows of the names, and where they lead", Names{From: NamesMark{Epoch: 1, Term: 4000, Number: 1_800_000_000_000}, Rows: [][]byte{[]byte("a row")}, Gone: []string{"i/prod/web-0"}, Edition: []byte("a signed edition")}},
		{"a sign of life among names", Names{}},
		{"what a host is brought by hand", Export{Trust: []byte(`{"documents":[]}`), Head: head, List: []byte{0x80}}},
	}
}

// TestVectors: messages have the bytes that stand in testdata/vectors.json, and a second reader and writer of CBOR come to the same.
func TestVectors(t *testing.T) {
	made := vectorFile{About: "Made by the tests of internal/transfer/wire; what the fields mean is in docs/spec/transfer.md. Bytes are in hexadecimal digits."}
	named := map[string]bool{}
	for _, e := range examples() {
		data, err := Encode(e.message)
		if err != nil {
			t.Fatal(err)
		}
		item, err := spectest.Decode(data)
		if err != nil {
			t.Fatalf("%s: the second reader: %v", e.what, err)
		}
		if again := item.Encode(); !bytes.Equal(again, data) {
			t.Errorf("%s: the second writer makes %x of %x", e.what, again, data)
		}
		var frame bytes.Buffer
		if err := WriteFrame(&frame, e.message); err != nil {
			t.Fatal(err)
		}
		if second := append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...); !bytes.Equal(second, frame.Bytes()) {
			t.Errorf("%s: as a frame it is %x", e.what, frame.Bytes())
		}
		name := reflect.TypeOf(e.message).Name()
		named[name] = true
		made.Messages = append(made.Messages, vector{Message: name, What: e.what, Diagnostic: item.String(), Encoded: hex.EncodeToString(data), Frame: hex.EncodeToString(frame.Bytes())})
	}
	for name := range full() {
		if !named[name] {
			t.Errorf("there is no vector of %s", name)
		}
	}
	text, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	spectest.Golden(t, "testdata/vectors.json", append(text, '\n'))
}

// TestSecondWriter: who knows the tables of docs/spec/transfer.md alone writes the same bytes.
func TestSecondWriter(t *testing.T) {
	text, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var read vectorFile
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	u, b, s := spectest.Uint, spectest.Bytes, spectest.Text
	digest := func(fill byte) spectest.Value { return b(bytes.Repeat([]byte{fill}, 32)) }
	mark := func(version uint64, root byte) spectest.Value {
		return spectest.Map(u(1), u(1), u(2), u(version), u(3), digest(root), u(4), spectest.Int(1_800_000_000), u(5), spectest.Int(1_800_086_400))
	}
	head := b([]byte("a signed head, as internal/catalog/testdata/vectors.json has some"))
	report := spectest.Map(
		u(1), spectest.Map(u(1), s("0123456789abcdef"), u(2), u(3)), u(2), u(13), u(3), mark(4711, 1), u(4), mark(4711, 1),
		u(5), spectest.Map(u(1), u(1), u(2), u(1), u(3), u(4711), u(4), digest(1), u(7), u(1_800_000_300_000)),
		u(6), spectest.Map(u(1), u(100)), u(10), spectest.Map(), u(12), u(1_800_000_300_000), u(13), u(2), u(15), s("tako.test:6444"))
	web := spectest.Map(u(1), s("44444444-4444-4444-4444-444444444444"), u(2), u(1), u(3), u(2), u(4), spectest.Bool(true), u(7), u(1_800_000_290_000),
		u(10), spectest.Array(spectest.Map(u(1), s("http"), u(2), u(20001))), u(11), u(1500), u(12), u(64<<20), u(13), s("k2f7qa5cxm"))
	failed := spectest.Map(u(1), s("55555555-5555-5555-5555-555555555555"), u(2), u(3), u(3), u(4), u(5), u(uint64(reason.DiskFull)), u(6), s("no space left"), u(7), u(1_800_000_280_000),
		u(8), spectest.Bool(true), u(9), u(2))
	offers := spectest.Map(u(1), u(1900), u(2), u(3<<30), u(3), u(20<<30), u(4), s("192.0.2.7"), u(5), s("amd64"), u(6), spectest.Array(s("Process"), s("Systemd")),
		u(7), spectest.Map(s("nvidia.com/gpu"), spectest.Array(s("0"), s("1"))), u(8), spectest.Array(s("/srv")))
	tasks := spectest.Map(
		u(1), spectest.Map(u(1), s("0123456789abcdef"), u(2), u(3)), u(2), u(14), u(3), mark(4711, 1), u(4), mark(4711, 1),
		u(5), spectest.Map(u(1), u(1), u(2), u(1), u(3), u(4711), u(4), digest(1), u(7), u(1_800_000_300_000)),
		u(6), spectest.Map(u(1), u(100)), u(9), spectest.Map(u(1), s("v1.0.0"), u(8), spectest.Array(s("/srv/image"), s("sha256:0a"))),
		u(10), spectest.Map(), u(12), u(1_800_000_300_000), u(13), u(2), u(15), s("tako.test:6444"), u(20), spectest.Array(web, failed), u(21), offers)
	list := b([]byte("a list, as it has one"))
	rows := slices.Concat([]byte{0}, bytes.Repeat([]byte{1}, 32), []byte{2*6 + 1}, bytes.Repeat([]byte{2}, 32), []byte("a body"))
	for what, v := range map[string]spectest.Value{
		"a report of a host with instances of workloads":               tasks,
		"a watch brings a head":                                        spectest.Map(u(1), head),
		"a watch brings a question":                                    spectest.Map(u(2), spectest.Map(u(1), u(9), u(2), s("logs"), u(3), s("nginx.service"), u(4), u(100), u(5), u(1_800_000_000), u(6), u(30))),
		"a watch ends, another one is to be opened":                    spectest.Map(u(3), u(1500)),
		"a watch tells of trust documents":                             spectest.Map(u(4), u(2)),
		"a watch is opened by a host that has a state":                 spectest.Map(u(1), u(1), u(2), report),
		"a difference is asked for":                                    spectest.Map(u(1), head, u(2), s("NodeConfig/prod/web"), u(3), digest(4), u(4), digest(5), u(5), digest(0)),
		"a part of a difference":                                       spectest.Map(u(1), u(1), u(2), b(rows)),
		"a watch brings a head that is new to the host, with its list": spectest.Map(u(1), head, u(6), list),
		"a watch tells of all servers":                                 spectest.Map(u(5), spectest.Array(s("a.tako.test:6444"), s("b.tako.test:6444"))),
		"a watch brings what is to be kept for another host":           spectest.Map(u(7), spectest.Map(u(1), head, u(2), list)),
		"a difference is asked of a peer":                              spectest.Map(u(1), head, u(2), s("NodeConfig/prod/web"), u(3), digest(4), u(4), digest(5), u(5), digest(0), u(6), list),
		"a node is asked of a peer":                                    spectest.Map(u(1), head, u(2), s("NodeConfig/prod/web"), u(3), spectest.Array(digest(7)), u(4), list),
		"a host asks a peer": spectest.Map(u(1), u(1), u(2), head, u(3), list, u(4), u(2), u(5), spectest.Array(
			spectest.Map(u(1), s("NodeConfig/prod/web"), u(2), u(1), u(3), u(3)))),
		"a peer has a head, documents and a statement": spectest.Map(u(1), head, u(2), list, u(3), b([]byte(`{"documents":[]}`)), u(4), spectest.Array(b([]byte("a signed statement")))),
		"a peer has nothing new":                       spectest.Map(),
		"what is to be kept by an agent of a relay for another host": spectest.Map(u(4), spectest.Array(spectest.Map(u(1), u(1), u(7), spectest.Array(
			spectest.Map(u(1), head, u(2), list))))),
		"what is kept for another host": spectest.Map(u(1), head, u(2), list),
		"what a server tells the one that leads, in the place of a certificate": spectest.Map(u(1), u(1), u(2), spectest.Array(spectest.Map(u(1), u(1), u(3), report, u(6),
			spectest.Map(u(1), s("web-1"), u(2), s("11111111-1111-1111-1111-111111111111"), u(3), s("sha256:0a"), u(4), s("edge-1"))))),
		"the base is not known":                            spectest.Map(u(1), u(2), u(3), spectest.Bool(true)),
		"the list of a catalog is asked for":               spectest.Map(u(1), head, u(2), s("catalog"), u(3), spectest.Array(digest(7))),
		"two things, of which the second is not to be had": spectest.Map(u(1), spectest.Array(b([]byte("a node")), spectest.Null())),
		"a refusal":        spectest.Map(u(1), s("TK1043"), u(2), s("too many transfers at once"), u(3), s("come again"), u(4), u(2500)),
		"a relay is there": spectest.Map(u(1), u(1)),
		"the first word of a relay about an agent, and that another one has left": spectest.Map(u(1), u(1), u(2), spectest.Array(
			spectest.Map(u(1), u(1), u(2), b([]byte{0x30, 0}), u(3), report), spectest.Map(u(1), u(2), u(4), spectest.Bool(true)), spectest.Map(u(1), u(3), u(5), u(2)))),
	} {
		found := false
		for _, m := range read.Messages {
			if m.What == what {
				if found = true; hex.EncodeToString(v.Encode()) != m.Encoded {
					t.Errorf("%s: the second writer makes\n%s of it, and it is\n%s", what, v, m.Diagnostic)
				}
			}
		}
		if !found {
			t.Errorf("there is no vector %q", what)
		}
	}
}
