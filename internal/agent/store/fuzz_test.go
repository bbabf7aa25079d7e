package store

import (
	"bytes"
	"iter"
	"os"
	"path/filepath"
	"reflect"
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
			if cut, _, ok := cutFrame(data[at:]); !ok || !bytes.Equal(cut, payload) {
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
		payload, _, _ := cutFrame(appendFrame(nil, e))
		f.Add(payload)
	}
	for _, e := range []event{{Kind: notificationCleared, Key: nginx, Seq: 1}, {Kind: budgetCleared, Key: motd}, {Kind: removalOver, Key: "path:/x"}, {Kind: originalDropped, Key: motd}, {Kind: holdEnded, Hold: &Hold{Claim: "path:/etc/motd"}}} {
		payload, _, _ := cutFrame(appendFrame(nil, &e))
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
		file := fileOf(activeChunks(&layout{at: make([]int64, n+1)}, list[:n]))
		f.Add(file)
		f.Add(file[:len(file)-5])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if file, l := readActive(t, data); l != nil {
			checkReadable(t, file, l)
		}
	})
}

// readActive reads a file of an active state; nil where it is none.
func readActive(t *testing.T, data []byte) (*os.File, *layout) {
	t.Helper()
	a := activeReader{places: newPlaces()}
	l, err := a.read(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, nil
	}
	name := filepath.Join(t.TempDir(), activeName)
	must(t, os.WriteFile(name, data, 0o600))
	file, err := os.Open(name)
	must(t, err)
	t.Cleanup(func() { file.Close() })
	return file, l
}

// checkReadable reads every entry of a state that was accepted.
func checkReadable(t *testing.T, file *os.File, l *layout) []Entry {
	t.Helper()
	var state activeState
	state.swap(l, file, nil)
	active := state.now()
	entries := make([]Entry, active.Len())
	for i := range entries {
		var err error
		entries[i], err = active.Entry(i)
		must(t, err)
		if r, err := active.Ref(i); err != nil || !reflect.DeepEqual(r, entries[i].ref()) {
			t.Fatalf("entry %d without its body is %+v, %v", i, r, err)
		}
	}
	if !active.Is(l.root, active.Without(), placesOf(entries)) {
		t.Fatal("the state is not the one that its entries make")
	}
	return entries
}

func placesOf(entries []Entry) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range entries {
			if !yield(entries[i].Place) {
				return
			}
		}
	}
}

// FuzzActiveFrames gives payloads that a checksum vouches for.
func FuzzActiveFrames(f *testing.F) {
	head, _, _ := cutFrame(appendFrame(nil, activeHead{Count: 1}))
	ref, _, _ := cutFrame(appendFrame(nil, entries(1, "one")[0].ref()))
	f.Add(head, ref, []byte("body"))
	f.Fuzz(func(t *testing.T, head, ref, body []byte) {
		data := appendRaw(appendRaw(appendRaw(header(activeName), head), ref), body)
		file, l := readActive(t, data)
		if l == nil {
			return
		}
		if got := checkReadable(t, file, l); len(got) != 1 || !bytes.Equal(got[0].Body, body) {
			t.Fatalf("the body is not where it says: %q", got)
		}
	})
}

// FuzzHappening checks that what is accepted can be written again.
func FuzzHappening(f *testing.F) {
	payload, _, _ := cutFrame(appendFrame(nil, Happening{At: noon, Title: "file/x", Changes: []string{"a"}}))
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
	payload, _, _ := cutFrame(appendFrame(nil, convergedRow{motd, converge.Digest{1}}))
	f.Add(payload)
	f.Fuzz(func(t *testing.T, payload []byte) {
		var row convergedRow
		if decoding.Unmarshal(payload, &row) == nil {
			appendFrame(nil, row)
		}
	})
}
