package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// full are messages with something in each field, and what may go over the wire of each.
func full() map[string]any {
	ms := uint32(3)
	report := Report{
		Session: Session{"a", 2}, Number: 3, Have: mark(4), Enforced: mark(3), Verdict: Verdict{Withheld, 1, 2, catalog.Digest{3}, reason.DiskFull, "words", 5},
		Counts: Counts{1, 2, 3, 4, 5, 6, 7, 8, 9}, Configs: []ConfigReport{{"default/web", true, true, reason.DiskFull, "words", 6}},
		Problems: []Resource{{"file /etc/motd", "path:/etc/motd", "default/web", "failed", reason.DiskFull, "words", 7, 8}},
		Host:     &Host{"v1", map[string]string{"os": "linux", "arch": "amd64"}, 2, 3, []Disk{{"sda", 4, "Fast", true}}, []Interface{{"eth0", "52:54:00:12:34:56", []string{"192.0.2.7"}}}, "192.0.2.7:6445", []string{"/srv/image"}}, Refused: Refused{1, 2, 3, 4}, Stale: true, At: 9, Trust: 10, Usage: &Usage{1, 2, 3, 4, 5, 6, 7}, Exchange: Exchange{"tako.test:6444", 19}, Delivered: 17, PeerNews: PeerNews{"web-2", 18},
		Statements: []Statement{{"NodeConfig/prod/web", 1, catalog.Digest{2}, 1022, "it deletes much"}},
		Instances:  []Instance{{"uid", 1, InstanceRunning, true, reason.DiskFull, "words", 2, true, 3, []InstancePort{{"http", 8080}}, 4, 5, "abcdefgh"}},
		Offers:     &Offers{1, 2, 3, "192.0.2.7", "amd64", []string{"Process"}, map[string][]string{"gpu": {"0"}}, []string{"/srv"}},
	}
	return map[string]any{
		"JoinRequest":  &JoinRequest{Protocol, "token", "web-1", []byte{1}, []byte{2}, true},
		"RenewRequest": &RenewRequest{Protocol, []byte{1}, []byte{2}},
		"Credentials":  &Credentials{Protocol, []byte{1}, "web-1", "uid", []byte{2}},
		"WatchRequest": &WatchRequest{Protocol, report},
		"Frame":        &Frame{[]byte{1}, &Question{1, AskLogs, "nginx.service", 2, 3, 4, 5, false}, &ms, 5, []string{"a:6444"}, []byte{6}, &Deposit{[]byte{1}, []byte{2}}, 8},
		"SyncRequest":  &SyncRequest{[]byte{1}, "default/web", catalog.Digest{1}, catalog.Digest{2}, catalog.Digest{3}, []byte{4}},
		"SyncPart":     &SyncPart{SyncDelta, []Change{{catalog.Digest{1}, true, nil}, {catalog.Digest{2}, false, []byte("body")}}, true},
		"NodesRequest": &NodesRequest{[]byte{1}, CatalogLayer, []catalog.Digest{{1}, {2}}, []byte{3}},
		"NodesReply":   &NodesReply{[][]byte{[]byte("node"), nil}},
		"NewsRequest":  &NewsRequest{Protocol, []byte{1}, []byte{2}, 3, []StatementMark{{"NodeConfig/prod/web", 1, 2}}},
		"NewsReply":    &NewsReply{[]byte{1}, []byte{2}, []byte{3}, [][]byte{{4}}},
		"Deposit":      &Deposit{[]byte{1}, []byte{2}},
		"NamesRequest": &NamesRequest{Protocol, NamesMark{1, 2, 3}},
		"Names":        &Names{NamesMark{1, 2, 3}, [][]byte{{1}, {2}}, []string{"i/prod/web-0"}, []byte{3}},
		"Report":       &report,
		"StatusReply":  &StatusReply{1, true, 2, 3},
		"Problem":      &Problem{"TK1041", "words", "more", 3},
		"RelayUp":      &RelayUp{Protocol, []RelayedAgent{{1, []byte{1}, &report, true, Lost, &Vouched{"web-1", "uid", "sha256:1", "edge"}}}},
		"RelayDown":    &RelayDown{1, &ms, 2, []RelayedNews{{3, true, []byte{4}, []Question{{1, AskLogs, "nginx.service", 2, 3, 4, 5, false}}, &StatusReply{1, true, 2, 3}, &Problem{"TK1041", "words", "more", 3}, []Deposit{{[]byte{6}, []byte{7}}}}}, []string{"a:1"}},
	}
}

func mark(version uint64) catalog.Mark {
	return catalog.Mark{Epoch: 1, Version: version, Root: catalog.Digest{9}, Issued: 10, Expires: 11}
}

// TestRoundTrip: each field of each message comes back, and what a later version adds is passed over.
func TestRoundTrip(t *testing.T) {
	for name, message := range full() {
		v := reflect.ValueOf(message).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s is not tried", name, v.Type().Field(i).Name)
			}
		}
		data, err := Encode(message)
		if err != nil {
			t.Fatal(err)
		}
		back := reflect.New(v.Type()).Interface()
		if err := Decode(data, back); err != nil || !reflect.DeepEqual(message, back) {
			t.Errorf("%s came back as %+v, %v", name, back, err)
		}
		var fields map[int]any
		if err := Decode(data, &fields); err != nil {
			t.Fatal(err)
		}
		fields[1000] = "from a later version"
		later, err := Encode(fields)
		if err != nil {
			t.Fatal(err)
		}
		again := reflect.New(v.Type()).Interface()
		if err := Decode(later, again); err != nil || !reflect.DeepEqual(message, again) {
			t.Errorf("%s of a later version came as %+v, %v", name, again, err)
		}
	}
}

// TestFrames: they follow one another, and one that is cut off or too long is told.
func TestFrames(t *testing.T) {
	var b bytes.Buffer
	for i := range 3 {
		if err := WriteFrame(&b, Frame{Trust: uint64(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	whole := bytes.Clone(b.Bytes())
	for i := range 3 {
		var f Frame
		if err := ReadFrame(&b, &f); err != nil || f.Trust != uint64(i+1) {
			t.Fatalf("frame %d: %+v, %v", i, f, err)
		}
	}
	if err := ReadFrame(&b, &Frame{}); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	one := len(whole) / 3
	for n := 1; n < one; n++ {
		if err := ReadFrame(bytes.NewReader(whole[:n]), &Frame{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut off after %d bytes: %v", n, err)
		}
	}
	long := binary.BigEndian.AppendUint32(nil, FrameMax+1)
	if err := ReadFrame(bytes.NewReader(long), &Frame{}); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("too long: %v", err)
	}
	if err := WriteFrame(io.Discard, Frame{Head: make([]byte, FrameMax)}); !reason.Is(err, reason.InternalFault) {
		t.Errorf("too long to write: %v", err)
	}
	if err := ReadAll(bytes.NewReader(make([]byte, 11)), 10, &Frame{}); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("a message that is too long: %v", err)
	}
}

// TestLargestPart: the largest body fits into one frame.
func TestLargestPart(t *testing.T) {
	p := SyncPart{Kind: SyncSnapshot, Changes: []Change{{Key: catalog.Digest{1}, Body: make([]byte, declare.BodyBytesMax)}}, Last: true}
	if err := WriteFrame(io.Discard, p); err != nil {
		t.Error(err)
	}
}

// TestRefusedForms: what has two readings has none.
func TestRefusedForms(t *testing.T) {
	for name, data := range map[string]string{
		"a field twice":          "\xa2\x01\x01\x01\x02",
		"without a length":       "\xbf\x01\x01\xff",
		"a tag":                  "\xc1\xa1\x01\x01",
		"something behind it":    "\xa1\x01\x01\x00",
		"too deep":               strings.Repeat("\x81", 20) + "\x00",
		"an array without bytes": "\x9b\x7f\xff\xff\xff\xff\xff\xff\xff",
	} {
		if err := Decode([]byte(data), &Problem{}); !reason.Is(err, reason.StateCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidate(t *testing.T) {
	good := full()["Report"].(*Report)
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	long := strings.Repeat("x", 8<<10)
	for name, change := range map[string]func(*Report){
		"session":            func(r *Report) { r.Session.ID = long },
		"verdict":            func(r *Report) { r.Verdict.Message = long },
		"configs":            func(r *Report) { r.Configs = make([]ConfigReport, catalog.LayersMax+2) },
		"id of a config":     func(r *Report) { r.Configs = []ConfigReport{{ID: long}} },
		"message":            func(r *Report) { r.Configs = []ConfigReport{{Message: long}} },
		"problems":           func(r *Report) { r.Problems = make([]Resource, ProblemsMax+1) },
		"title":              func(r *Report) { r.Problems = []Resource{{Title: long}} },
		"claim":              func(r *Report) { r.Problems = []Resource{{Claim: long}} },
		"config":             func(r *Report) { r.Problems = []Resource{{Config: long}} },
		"outcome":            func(r *Report) { r.Problems = []Resource{{Outcome: long}} },
		"message of one":     func(r *Report) { r.Problems = []Resource{{Message: long}} },
		"version":            func(r *Report) { r.Host = &Host{Version: long} },
		"name of a fact":     func(r *Report) { r.Host = &Host{Facts: map[string]string{long: ""}} },
		"fact":               func(r *Report) { r.Host = &Host{Facts: map[string]string{"a": long}} },
		"facts together":     func(r *Report) { r.Host = &Host{Facts: largeFacts()} },
		"more facts than is": func(r *Report) { r.Host = &Host{Facts: manyFacts()} },
		"disks":              func(r *Report) { r.Host = &Host{Disks: make([]Disk, DisksMax+1)} },
		"33 images":          func(r *Report) { r.Host = &Host{Images: make([]string, ImagesMax+1)} },
		"its image has":      func(r *Report) { r.Host = &Host{Images: []string{long}} },
		"name of a disk":     func(r *Report) { r.Host = &Host{Disks: []Disk{{Name: long}}} },
		"model":              func(r *Report) { r.Host = &Host{Disks: []Disk{{Model: long}}} },
		"interfaces":         func(r *Report) { r.Host = &Host{Interfaces: make([]Interface, InterfacesMax+1)} },
		"name of one":        func(r *Report) { r.Host = &Host{Interfaces: []Interface{{Name: long}}} },
		"hardware address":   func(r *Report) { r.Host = &Host{Interfaces: []Interface{{MAC: long}}} },
		"address":            func(r *Report) { r.Host = &Host{Interfaces: []Interface{{Addresses: []string{long}}}} },
		"addresses": func(r *Report) {
			r.Host = &Host{Interfaces: []Interface{{Addresses: make([]string, AddressesMax)}, {Addresses: make([]string, 1)}}}
		},
		"statements":             func(r *Report) { r.Statements = make([]Statement, StatementsMax+1) },
		"layer of a statement":   func(r *Report) { r.Statements = []Statement{{Layer: long}} },
		"message of a statement": func(r *Report) { r.Statements = []Statement{{Message: long}} },
		"all together":           func(r *Report) { r.Host = &Host{Facts: almostTooLarge(), Disks: []Disk{{Name: "sda"}}} },
	} {
		r := *good
		if change(&r); r.Validate() == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

func largeFacts() map[string]string {
	facts := map[string]string{}
	for i := range factsBytesMax/FactMax + 1 {
		facts[string(rune('a'+i))] = strings.Repeat("x", FactMax)
	}
	return facts
}

// almostTooLarge are as large as all of a host may be.
func almostTooLarge() map[string]string {
	facts := map[string]string{}
	for i := range factsBytesMax / FactMax {
		facts[string(rune('a'+i))] = strings.Repeat("x", FactMax-1)
	}
	return facts
}

func manyFacts() map[string]string {
	facts := map[string]string{}
	for i := range factsMax + 1 {
		facts[strings.Repeat("f", i%200)+string(rune('a'+i/200))] = ""
	}
	return facts
}

// TestHostOfAnotherVersion: a server passes over what a later agent tells more of its host, and one that is told less has less.
func TestHostOfAnotherVersion(t *testing.T) {
	type earlier struct { // Host without disks and interfaces
		Version string            `cbor:"1,keyasint,omitempty"`
		Facts   map[string]string `cbor:"2,keyasint,omitempty"`
		CPUs    uint32            `cbor:"3,keyasint,omitempty"`
		Memory  uint64            `cbor:"4,keyasint,omitempty"`
	}
	type earlierReport struct {
		Session Session  `cbor:"1,keyasint"`
		Host    *earlier `cbor:"9,keyasint,omitempty"`
	}
	told := full()["Report"].(*Report)
	data, err := Encode(told)
	if err != nil {
		t.Fatal(err)
	}
	var old earlierReport
	if err := Decode(data, &old); err != nil || old.Host.Facts["os"] != "linux" || old.Host.Memory != told.Host.Memory {
		t.Errorf("an earlier server reads %+v, %v", old.Host, err)
	}
	if data, err = Encode(old); err != nil {
		t.Fatal(err)
	}
	var now Report
	if err := Decode(data, &now); err != nil || now.Validate() != nil || now.Host.Facts["os"] != "linux" || now.Host.Disks != nil || now.Host.Interfaces != nil {
		t.Errorf("of an earlier agent it reads %+v, %v", now.Host, err)
	}
	type later struct {
		Host
		Moon string `cbor:"99,keyasint"`
	}
	type laterReport struct {
		Session Session `cbor:"1,keyasint"`
		Host    *later  `cbor:"9,keyasint,omitempty"`
	}
	if data, err = Encode(laterReport{Host: &later{*told.Host, "full"}}); err != nil {
		t.Fatal(err)
	}
	if err := Decode(data, &now); err != nil || len(now.Host.Disks) != 1 {
		t.Errorf("of a later agent it reads %+v, %v", now.Host, err)
	}
}

func TestVerdictNames(t *testing.T) {
	for v := Pending; v <= Quarantined; v++ {
		if v.String() == "Unknown" {
			t.Errorf("verdict %d has no name", v)
		}
	}
	if got := VerdictType(99).String(); got != "Unknown" {
		t.Errorf("a verdict of a later version is %s", got)
	}
}

// fuzz decodes anything as a message: what comes through is bounded by what came in, and encodes to the same bytes for ever.
func fuzz[M any](f *testing.F) { fuzzLists[M](f, 4) }

// fuzzLists is fuzz for messages with lists of messages: each byte may become so many, because of the fields that are missing in each.
func fuzzLists[M any](f *testing.F, each int) {
	var zero M
	for name, message := range full() {
		if reflect.TypeOf(message).Elem() == reflect.TypeOf(zero) {
			data, err := Encode(message)
			if err != nil {
				f.Fatal(name, err)
			}
			f.Add(data)
			f.Add(data[:len(data)/2])
		}
	}
	if _, is := any(zero).(SyncPart); is { // as a server sends it
		data, err := Encode(SyncPart{Kind: SyncSnapshot, Changes: dataChanges(f, 20), Last: true})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte{0xa0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var message M
		var err error
		most := uint64(64<<10 + 512*len(data))
		if _, is := any(message).(SyncPart); is {
			most += unpackingMax
		}
		if used := allocated(func() { err = Decode(data, &message) }); used > most {
			t.Errorf("%d bytes are allocated for %d", used, len(data))
		}
		if err != nil {
			if !reason.Is(err, reason.StateCorrupt) {
				t.Errorf("an error without its code: %v", err)
			}
			return
		}
		first, err := Encode(message)
		if err != nil {
			t.Fatal(err)
		}
		// Numbers have one form each, and the fields that are missing are at most a hundred bytes or so.
		if len(first) > each*len(data)+1<<10 {
			t.Errorf("%d bytes have become %d", len(data), len(first))
		}
		var again M
		if err := Decode(first, &again); err != nil {
			t.Fatalf("what was encoded is not read: %v", err)
		}
		second, err := Encode(again)
		if err != nil || !bytes.Equal(first, second) {
			t.Errorf("it has two forms: %x and %x, %v", first, second, err)
		}
	})
}

func FuzzJoinRequest(f *testing.F)  { fuzz[JoinRequest](f) }
func FuzzRenewRequest(f *testing.F) { fuzz[RenewRequest](f) }
func FuzzCredentials(f *testing.F)  { fuzz[Credentials](f) }
func FuzzWatchRequest(f *testing.F) { fuzz[WatchRequest](f) }
func FuzzFrame(f *testing.F)        { fuzz[Frame](f) }
func FuzzSyncRequest(f *testing.F)  { fuzz[SyncRequest](f) }
func FuzzSyncPart(f *testing.F)     { fuzzLists[SyncPart](f, 40) }
func FuzzNodesRequest(f *testing.F) { fuzz[NodesRequest](f) }
func FuzzNodesReply(f *testing.F)   { fuzz[NodesReply](f) }
func FuzzStatusReply(f *testing.F)  { fuzz[StatusReply](f) }
func FuzzProblem(f *testing.F)      { fuzz[Problem](f) }
func FuzzReport(f *testing.F)       { fuzz[Report](f) }
func FuzzNewsRequest(f *testing.F)  { fuzz[NewsRequest](f) }
func FuzzNewsReply(f *testing.F)    { fuzz[NewsReply](f) }
func FuzzDeposit(f *testing.F)      { fuzz[Deposit](f) }
func FuzzNamesRequest(f *testing.F) { fuzz[NamesRequest](f) }
func FuzzNames(f *testing.F)        { fuzz[Names](f) }
func FuzzRelayUp(f *testing.F)      { fuzzLists[RelayUp](f, 200) }
func FuzzRelayDown(f *testing.F)    { fuzzLists[RelayDown](f, 16) }

// FuzzReadFrame: a stream of anything ends, and is not read into more memory than a frame may have.
func FuzzReadFrame(f *testing.F) {
	var b bytes.Buffer
	if err := errors.Join(WriteFrame(&b, Frame{Trust: 1}), WriteFrame(&b, Frame{Head: []byte("head")})); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		for r := bytes.NewReader(data); ; {
			var frame Frame
			var err error
			if used := allocated(func() { err = ReadFrame(r, &frame) }); used > uint64(FrameMax+64<<10+512*len(data)) {
				t.Errorf("%d bytes are allocated for %d", used, len(data))
			}
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || reason.Is(err, reason.StateCorrupt) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
