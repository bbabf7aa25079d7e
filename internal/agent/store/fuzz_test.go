package store

import (
	"bytes"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
)

// someLedger has something of everything.
func someLedger() ledger {
	l := newLedger()
	at := moment(5)
	for _, e := range []event{
		{Kind: notificationAdded, Notification: &notification{Target: nginx, Source: nginxCfg, Seq: 1, At: moment(1)}},
		{Kind: changeVisible, Key: nginxCfg, At: &at},
		{Kind: notificationAdded, Notification: &notification{Target: nginx, Source: motd, Seq: 2, At: moment(2)}},
		{Kind: budgetSpent, Key: motd, Budget: &budget{Attempts: 2, Wait: time.Minute, At: noon.UnixNano()}},
		{Kind: originalKept, Key: motd, Original: []byte("was")},
		{Kind: removalAdded, Removal: &Removal{Claim: path("/x"), OnRemove: declare.OnRemoveRestore, Body: []byte("b"), After: []declare.Claim{path("/")}, Since: noon}},
	} {
		l.apply(&e)
	}
	return l
}

func fileOf(chunks func(yield func([]byte) bool)) []byte {
	var b []byte
	for c := range chunks {
		b = append(b, c...)
	}
	return b
}

// FuzzFrames checks that a scan of anything ends, that what it finds was there, and that it says so when there was more.
func FuzzFrames(f *testing.F) {
	l := someLedger()
	file := fileOf(l.chunks())
	f.Add(file)
	f.Add(file[:len(file)-3])
	f.Add([]byte("tako journal 1\n\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("tako journal 1\n\xff\xff\xff\xff1234"))
	f.Add([]byte("tako journal 99\n"))
	f.Add([]byte("tako journal 01\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := newScan(bytes.NewReader(data), int64(len(data)), journalName)
		if err != nil {
			return
		}
		good := int64(len(header(journalName)))
		again := data[:good:good]
		for {
			payload, at, ok := s.next()
			if !ok {
				break
			}
			if !bytes.Equal(payload, data[at+frameHead:at+frameHead+int64(len(payload))]) {
				t.Fatalf("the payload at %d is not in the file", at)
			}
			if cut, ok := cutFrame(data[at : at+frameHead+int64(len(payload))]); !ok || !bytes.Equal(cut, payload) {
				t.Fatalf("the frame at %d is none", at)
			}
			again = appendRaw(again, payload)
		}
		if cap(s.buf) > len(data) {
			t.Fatalf("%d bytes for a file of %d", cap(s.buf), len(data))
		}
		if whole := s.verdict() == nil; whole != bytes.Equal(again, data) {
			t.Fatalf("verdict %v of %d bytes, %d of them in good frames", s.verdict(), len(data), len(again))
		}
	})
}

// FuzzEvent checks that an event that is accepted can be applied, settled and written again, to the same end.
func FuzzEvent(f *testing.F) {
	l := someLedger()
	for e := range l.events() {
		payload, _ := cutFrame(appendFrame(nil, e))
		f.Add(payload)
	}
	for _, e := range []event{{Kind: notificationCleared, Key: nginx, Seq: 1}, {Kind: budgetCleared, Key: motd}, {Kind: removalOver, Key: "path:/x"}, {Kind: originalDropped, Key: motd}, {Kind: holdEnded, Hold: &Hold{Claim: "path:/etc/motd"}}} {
		payload, _ := cutFrame(appendFrame(nil, &e))
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, err := decodeEvent(payload)
		if err != nil {
			return
		}
		l := someLedger()
		l.apply(e)
		for _, e := range l.reckon(moment(99)) {
			l.apply(&e)
		}
		if len(l.reckon(moment(100))) > 0 {
			t.Fatal("something is still open after it was settled")
		}
		l.since(nginx, 9, "first")
		for _, b := range l.budgets {
			b.left(noon)
		}
		file := fileOf(l.chunks())
		again := newLedger()
		err = scanFile(bytes.NewReader(file), int64(len(file)), journalName, func(payload []byte, _ int64) error {
			e, err := decodeEvent(payload)
			if err == nil {
				again.apply(e)
			}
			return err
		})
		if err != nil || !bytes.Equal(fileOf(again.chunks()), file) {
			t.Fatalf("what was written reads differently: %v", err)
		}
		for _, e := range l.forget(l.owners()) {
			l.apply(&e)
		}
		if len(l.owners()) > 0 {
			t.Fatalf("not all was forgotten: %v", l.owners())
		}
	})
}

// FuzzActive checks that an active state is taken whole or not at all, and that its bodies are where it says.
func FuzzActive(f *testing.F) {
	list := entries(3, "one")
	for n := range len(list) + 1 {
		file := fileOf(activeChunks(converge.Digest{1}, list[:n], make([]Ref, n)))
		f.Add(file)
		f.Add(file[:len(file)-5])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := activeReader{generation: 1, names: map[string]string{}}
		if a.read(bytes.NewReader(data), int64(len(data))) != nil {
			return
		}
		for _, r := range a.refs {
			if r.offset+int64(r.length) > int64(len(data)) {
				t.Fatalf("the body of %s is behind the end", r.Title)
			}
			if _, ok := cutFrame(data[r.offset : r.offset+int64(r.length)]); !ok {
				t.Fatalf("the body of %s is none", r.Title)
			}
		}
	})
}

// FuzzActiveFrames gives payloads that a checksum vouches for.
func FuzzActiveFrames(f *testing.F) {
	refs := make([]Ref, 1)
	list := entries(1, "one")
	refs[0] = Ref{Claim: list[0].Claim, Title: list[0].Title, After: list[0].After}
	head, _ := cutFrame(appendFrame(nil, activeHead{Count: 1}))
	ref, _ := cutFrame(appendFrame(nil, &refs[0]))
	f.Add(head, ref, []byte("body"))
	f.Fuzz(func(t *testing.T, head, ref, body []byte) {
		file := appendRaw(appendRaw(appendRaw(header(activeName), head), ref), body)
		a := activeReader{generation: 1, names: map[string]string{}}
		if a.read(bytes.NewReader(file), int64(len(file))) != nil {
			return
		}
		r := a.refs[0]
		if got, ok := cutFrame(file[r.offset : r.offset+int64(r.length)]); !ok || !bytes.Equal(got, body) {
			t.Fatalf("the body is not where it says: %q", got)
		}
	})
}

// FuzzHappening checks that what is accepted can be written again.
func FuzzHappening(f *testing.F) {
	payload, _ := cutFrame(appendFrame(nil, Happening{At: noon, Title: "file/x", Changes: []string{"a"}}))
	f.Add(payload)
	f.Fuzz(func(t *testing.T, payload []byte) {
		var h Happening
		if decoding.Unmarshal(payload, &h) != nil {
			return
		}
		h.about("x")
		h.At = h.At.UTC()
		appendFrame(nil, h)
	})
}

// FuzzConverged checks the decoder of rows.
func FuzzConverged(f *testing.F) {
	payload, _ := cutFrame(appendFrame(nil, convergedRow{motd, converge.Digest{1}}))
	f.Add(payload)
	f.Fuzz(func(t *testing.T, payload []byte) {
		var row convergedRow
		if decoding.Unmarshal(payload, &row) == nil {
			appendFrame(nil, row)
		}
	})
}
