package core

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// large is a layer of bodies of one MiB.
func large(id string, count int) layer {
	l := newLayer(id)
	for i := range count {
		l = l.with(fmt.Sprint("claim", i), string(bytes.Repeat([]byte{byte('a' + i)}, 1<<20)))
	}
	return l
}

// TestEndlessRows: a source that sends rows without end fills no disk, however often its answers break, and is told of as any other that
// sends what was not signed.
func TestEndlessRows(t *testing.T) {
	w := calm(t, 20)
	p := w.server.publish(w.layer().with("claim3", "changed"))
	w.server.floods, w.server.lying = true, true
	w.say(w.server.head(p, w.now))
	w.pass(2 * time.Minute)
	s := w.machine.Status()
	if s.Verdict.Type != wire.Rejected || s.Verdict.Code != reason.TransferWrong || s.Refused.Content < 3 {
		t.Errorf("the host says %+v", s)
	}
	if w.disk.most < bytesSlack/2 || w.disk.most > p.bytes+bytesSlack {
		t.Errorf("%d bytes were staged of a state of %d", w.disk.most, p.bytes)
	}
	if w.active.Version != 1 {
		t.Errorf("version %d is enforced", w.active.Version)
	}
	w.server.floods, w.server.lying = false, false
	w.pass(5 * time.Minute)
	if w.active.Version != 2 {
		t.Errorf("version %d is enforced after the source has come to its senses", w.active.Version)
	}
}

// TestEndlessRowsCountOverAllLayers: what has come of one layer is no room for another one.
func TestEndlessRowsCountOverAllLayers(t *testing.T) {
	w := calm(t, 20)
	first := large("NodeConfig/x/large", 6)
	p := w.server.publish(first, w.layer().with("claim3", "changed"))
	w.spoiled = func(parts []wire.SyncPart) []wire.SyncPart {
		if w.disk.layers[first.trie.Root()].bodies == nil {
			return parts
		}
		w.server.floods, w.server.lying, w.disk.most = true, true, 0
		return flood(wire.SyncRequest{Base: w.disk.fetch.Base, Cursor: w.cursors[len(w.cursors)-1]})
	}
	w.say(w.server.head(p, w.now))
	w.pass(2 * time.Minute)
	if s := w.machine.Status(); s.Verdict.Code != reason.TransferWrong || !strings.Contains(s.Verdict.Message, "came wrong three times") {
		t.Errorf("the host says %+v", s)
	}
	if w.disk.most == 0 || w.disk.most > bytesSlack+1<<20 {
		t.Errorf("%d bytes were staged of the second layer, which has some hundred", w.disk.most)
	}
}

// TestHeadSaysTooLittle: a state that is larger than its head says comes by hash, which costs one attempt.
func TestHeadSaysTooLittle(t *testing.T) {
	for _, says := range []uint64{0, 1 << 20} {
		w := calm(t, 20)
		p := w.server.publish(w.layer(), large("NodeConfig/x/large", 6))
		p.bytes = says
		w.tellNewest()
		w.pass(time.Minute)
		s := w.machine.Status()
		if w.active.Version != 2 || s.Open || s.Refused.Content != 1 {
			t.Errorf("a head that says %d: version %d is enforced: %+v", says, w.active.Version, s)
		}
	}
}

// TestHeadSaysTooMuch is nothing to the host but a matter of room.
func TestHeadSaysTooMuch(t *testing.T) {
	w := calm(t, 20)
	w.server.publish(w.layer(), large("NodeConfig/x/large", 6)).bytes = 1<<64 - 1
	w.tellNewest()
	if s := w.machine.Status(); w.active.Version != 2 || s.Refused.Content > 0 {
		t.Errorf("version %d is enforced: %+v", w.active.Version, s)
	}
}

// TestNoRoom: a host without room asks for nothing, says so, keeps what it has, and goes on when there is some.
func TestNoRoom(t *testing.T) {
	w := calm(t, 20)
	w.disk.cramped = 1 << 30
	p := w.server.publish(w.layer().with("claim3", "changed"))
	p.bytes = 2 << 30
	before := w.requests
	w.tellNewest()
	w.pass(5 * time.Minute)
	s := w.machine.Status()
	if !s.Open || s.Verdict.Type != wire.Rejected || s.Verdict.Code != reason.DiskFull || s.Verdict.Version != 2 || s.Verdict.Since > w.now.Add(-4*time.Minute).UnixMilli() {
		t.Errorf("the host says %+v", s.Verdict)
	}
	if w.active.Version != 1 || w.requests > before+1 { // the list
		t.Errorf("version %d is enforced, after %d requests", w.active.Version, w.requests-before)
	}
	w.disk.cramped = 0
	w.pass(2 * time.Minute)
	if s := w.machine.Status(); w.active.Version != 2 || s.Open {
		t.Errorf("with room again version %d is enforced: %+v", w.active.Version, s)
	}
}

// TestResumedStageIsCounted: what was staged by an earlier run is a part of what there may be.
func TestResumedStageIsCounted(t *testing.T) {
	w := calm(t, 20)
	p := w.server.publish(w.layer().with("claim3", "changed"))
	w.server.floods = true
	w.say(w.server.head(p, w.now))
	for range 12 {
		w.pass(400 * time.Millisecond)
		w.machine, w.open = nil, 0
		w.boot()
	}
	if w.disk.most < bytesSlack/2 || w.disk.most > p.bytes+bytesSlack {
		t.Errorf("%d bytes were staged of a state of %d", w.disk.most, p.bytes)
	}
}
