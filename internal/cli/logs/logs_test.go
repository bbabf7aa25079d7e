package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// host has what tasks have printed, by subject.
type host map[string][]Line

func (h host) ask(_ context.Context, s Source, a Asked, w io.Writer) error {
	lines, known := h[s.Subject()]
	if !known {
		return errors.New("the host is not connected")
	}
	var from time.Time
	if a.Since != "" {
		from, _ = time.Parse(time.RFC3339, a.Since)
	}
	for _, l := range lines {
		if l.At.Before(from) {
			continue
		}
		if err := json.NewEncoder(w).Encode(l); err != nil {
			return err
		}
	}
	return nil
}

func TestRound(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1_700_000_000, int64(ms)*1e6) }
	web0, web1 := Source{"node-1", "shop", "web-0", "main"}, Source{"node-2", "shop", "web-1", ""}
	lost := Source{"node-3", "shop", "web-2", ""}
	h := host{
		"instance/shop/web-0/main": {{At: at(0), Text: "a\r"}, {At: at(2000), Text: "c"}},
		"instance/shop/web-1":      {{At: at(1000), Text: "b\x1b[2J", Stream: "stderr", Instance: "another"}},
	}
	r := Reader{Ask: h.ask}
	round := func() (texts []string, failures []Failure) {
		lines, failures := r.Round(t.Context(), []Source{web0, web1, lost})
		for _, l := range lines {
			texts = append(texts, l.Instance+" "+l.Text)
		}
		return texts, failures
	}
	texts, failures := round()
	if want := []string{"web-0 a", "web-1 b\x1b[2J", "web-0 c"}; !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
	if len(failures) != 1 || failures[0].Source != lost {
		t.Errorf("failures are %v", failures)
	}
	// What comes in the same second counts, what was there does not; a failure is told once.
	h["instance/shop/web-0/main"] = append(h["instance/shop/web-0/main"], Line{At: at(2001), Text: "d"})
	if texts, failures = round(); !slices.Equal(texts, []string{"web-0 d"}) || len(failures) != 0 {
		t.Errorf("%q, %v", texts, failures)
	}
	h[lost.Subject()] = []Line{{At: at(500), Text: "back"}}
	if texts, failures = round(); !slices.Equal(texts, []string{"web-2 back"}) || len(failures) != 0 {
		t.Errorf("%q, %v", texts, failures)
	}
	delete(h, lost.Subject())
	if _, failures = round(); len(failures) != 1 {
		t.Errorf("a source that fails after all is not told of: %v", failures)
	}
	l := Line{Instance: "web-1", At: at(0), Text: "b\x1b[2J"}
	if shown := l.Shown(true); !strings.HasPrefix(shown, "web-1  ") || strings.Contains(shown, "\x1b") || strings.HasPrefix(l.Shown(false), "web-1") {
		t.Errorf("%q", shown)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"at":"2026-01-02T15:04:05.1Z","task":"main","stream":"stdout","text":"x\n"}` + "\n"))
	f.Add([]byte(`{"at":"0001-01-01T00:00:00Z"}{`))
	f.Add([]byte("no JSON"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		lines, err := decode(bytes.NewReader(answer))
		if err != nil {
			return
		}
		for _, l := range lines {
			if l.At.IsZero() || strings.HasSuffix(l.Text, "\n") {
				t.Fatalf("%+v", l)
			}
		}
	})
}
