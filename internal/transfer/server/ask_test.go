package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// asked is what came of Ask.
type asked struct {
	text string
	err  error
}

// ask asks in the background.
func (r *rig) ask(ctx context.Context, node string, q wire.Question) <-chan asked {
	done := make(chan asked, 1)
	go func() {
		body, err := r.server.Ask(ctx, node, "uid-of-"+node, q)
		if err != nil {
			done <- asked{err: err}
			return
		}
		defer body.Close()
		text, err := io.ReadAll(body)
		done <- asked{string(text), err}
	}()
	return done
}

func answerPath(id uint64, more string) string {
	return fmt.Sprintf("%s?%s=%d%s", wire.PathAnswer, wire.ParamID, id, more)
}

// TestAsk: a question goes to the watch of its node, and the answer to who has asked.
func TestAsk(t *testing.T) {
	noLeak(t)
	r := newRig(t, nil)
	r.add("web-1")
	r.add("db-1")
	h, other := r.as("web-1"), r.as("db-1")
	if _, err := r.server.Ask(t.Context(), "web-1", "uid-of-web-1", wire.Question{What: wire.AskLogs}); !reason.Is(err, reason.HostNotConnected) || reason.Of(err).Hint == "" {
		t.Errorf("a node that is not connected: %v", err)
	}
	w := h.watch(t.Context(), wire.Report{})
	if _, err := r.server.Ask(t.Context(), "web-1", "uid-of-another", wire.Question{What: wire.AskLogs}); !reason.Is(err, reason.HostNotConnected) {
		t.Errorf("a node that was made again, while the host of the earlier one is still connected: %v", err)
	}
	done := r.ask(t.Context(), "web-1", wire.Question{What: wire.AskLogs, Subject: "nginx.service", Lines: 5})
	q := w.next().Question
	if q == nil || q.Subject != "nginx.service" || q.Lines != 5 || q.Seconds != 30 {
		t.Fatalf("%+v", q)
	}
	if status, p := other.send(answerPath(q.ID, ""), []byte("a lie"), nil); status != http.StatusNotFound || p.Code != "TK1108" {
		t.Errorf("the answer of another node: %d %+v", status, p)
	}
	text := strings.Repeat("a line\n", 10_000)
	if status, p := h.send(answerPath(q.ID, ""), []byte(text), &map[int]any{}); p != nil {
		t.Errorf("%d %+v", status, p)
	}
	if a := <-done; a.err != nil || a.text != text {
		t.Errorf("%d bytes, %v", len(a.text), a.err)
	}
	if status, p := h.send(answerPath(q.ID, ""), []byte("again"), nil); status != http.StatusNotFound || p.Code != "TK1108" {
		t.Errorf("an answer given twice: %d %+v", status, p)
	}
	r.stop()
}

// TestAskRefused: what the host says is what the asker gets.
func TestAskRefused(t *testing.T) {
	r := newRig(t, nil)
	r.add("web-1")
	h := r.as("web-1")
	w := h.watch(t.Context(), wire.Report{})
	for _, c := range []struct {
		body []byte
		want string
	}{
		{encode(t, wire.Problem{Code: "TK0806", Message: "there is no unit ssh.service in any config", Hint: "try nginx.service"}), "there is no unit ssh.service"},
		{[]byte("no CBOR"), "does not answer"},
	} {
		done := r.ask(t.Context(), "web-1", wire.Question{What: wire.AskLogs})
		h.send(answerPath(w.next().Question.ID, "&"+wire.ParamRefused+"=1"), c.body, &map[int]any{})
		if a := <-done; !reason.Is(a.err, reason.AnswerRefused) || !strings.Contains(a.err.Error(), c.want) {
			t.Errorf("%v", a.err)
		}
	}
}

// TestAskBounds: questions that are open, the time for an answer, its length.
func TestAskBounds(t *testing.T) {
	noLeak(t)
	r := newRig(t, nil)
	r.add("web-1")
	h := r.as("web-1")
	w := h.watch(t.Context(), wire.Report{})
	ctx, cancel := context.WithCancel(t.Context())
	var open []<-chan asked
	for range openMax {
		open = append(open, r.ask(ctx, "web-1", wire.Question{What: wire.AskLogs}))
		w.next()
	}
	if _, err := r.server.Ask(t.Context(), "web-1", "uid-of-web-1", wire.Question{}); !reason.Is(err, reason.TransferBusy) {
		t.Errorf("one more: %v", err)
	}
	cancel()
	for _, done := range open {
		if a := <-done; !reason.Is(a.err, reason.DeadlineOver) {
			t.Errorf("an asker that has gone got %v", a.err)
		}
	}
	done := r.ask(t.Context(), "web-1", wire.Question{Seconds: 3}) // enough for it to be sent by a machine that is busy
	late := w.next().Question
	if a := <-done; !reason.Is(a.err, reason.DeadlineOver) {
		t.Errorf("no answer: %v", a.err)
	}
	if status, _ := h.send(answerPath(late.ID, ""), []byte("late"), nil); status != http.StatusNotFound {
		t.Errorf("a late answer is answered with %d", status)
	}
	r.server.desk.mu.Lock()
	if n := len(r.server.desk.questions); n > 0 || r.server.desk.watches["uid-of-web-1"].open != 0 {
		t.Errorf("%d questions are kept", n)
	}
	r.server.desk.mu.Unlock()
	// The pace is one MiB a second, after the first.
	done = r.ask(t.Context(), "web-1", wire.Question{})
	resp, err := h.post(t.Context(), answerPath(w.next().Question.ID, ""), make([]byte, wire.AnswerMax+1))
	if err == nil {
		_ = resp.Body.Close()
	}
	if a := <-done; !reason.Is(a.err, reason.ServerUnreachable) || len(a.text) > wire.AnswerMax {
		t.Errorf("too long an answer: %d bytes, %v", len(a.text), a.err)
	}
	r.stop()
}

// TestAnswerBreaks: a connection that ends in the middle of an answer, and a reader that does not want the rest.
func TestAnswerBreaks(t *testing.T) {
	noLeak(t)
	r := newRig(t, nil)
	r.add("web-1")
	h := r.as("web-1")
	w := h.watch(t.Context(), wire.Report{})
	answers := make(chan io.ReadCloser, 1)
	ask := func() {
		body, err := r.server.Ask(t.Context(), "web-1", "uid-of-web-1", wire.Question{})
		if err != nil {
			t.Error(err)
		}
		answers <- body
	}
	go ask()
	q := w.next().Question
	ctx, cancel := context.WithCancel(t.Context())
	body, to := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.addr+answerPath(q.ID, ""), body)
	if err != nil {
		t.Fatal(err)
	}
	posted := make(chan error, 1)
	go func() {
		resp, err := h.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		posted <- err
	}()
	if _, err := to.Write([]byte("half of it")); err != nil {
		t.Fatal(err)
	}
	reader := <-answers
	half := make([]byte, len("half of it"))
	if _, err := io.ReadFull(reader, half); err != nil || string(half) != "half of it" {
		t.Errorf("%q, %v", half, err)
	}
	cancel()
	if _, err := reader.Read(make([]byte, 1)); !reason.Is(err, reason.ServerUnreachable) {
		t.Errorf("an answer that breaks off ends with %v", err)
	}
	_ = reader.Close()
	<-posted

	go ask()
	q = w.next().Question
	go func() {
		resp, err := h.post(t.Context(), answerPath(q.ID, ""), bytes.Repeat([]byte("x"), 2<<20))
		if err == nil {
			_ = resp.Body.Close()
		}
		posted <- err
	}()
	reader = <-answers
	if _, err := reader.Read(make([]byte, 10)); err != nil {
		t.Error(err)
	}
	_ = reader.Close()
	<-posted // long before the 30 s that an answer may take
	r.stop() // every call has ended
	if n := len(r.server.desk.questions); n > 0 {
		t.Errorf("%d questions are open", n)
	}
}

// TestAskWatchEnds: who waits is told at once when the host goes away.
func TestAskWatchEnds(t *testing.T) {
	r := newRig(t, nil)
	r.add("web-1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	w := r.as("web-1").watch(ctx, wire.Report{})
	done := r.ask(t.Context(), "web-1", wire.Question{})
	w.next()
	cancel()
	if a := <-done; !reason.Is(a.err, reason.HostNotConnected) {
		t.Errorf("%v", a.err)
	}
}

// TestAskOlderWatch: where the newest watch of a node ends first, as one does of which its relay has told late, the older one is asked.
func TestAskOlderWatch(t *testing.T) {
	d := newDesk(newMetrics())
	who := Identity{Name: "web-1", UID: "uid-of-web-1"}
	asks := func(want *watch) {
		t.Helper()
		var number uint64
		if want != nil {
			number = want.number
		}
		if got := d.newest(who); got != number {
			t.Errorf("watch %d is asked, want %d", got, number)
		}
	}
	first, third, second := d.open(who, 1), d.open(who, 3), d.open(who, 2)
	asks(third)
	d.close(second)
	asks(third)
	d.close(third)
	asks(first)
	fourth := d.open(who, 4)
	d.close(first)
	asks(fourth)
	d.close(fourth)
	asks(nil)
	if len(d.watches) > 0 {
		t.Errorf("%d nodes are watched that have ended", len(d.watches))
	}
}
