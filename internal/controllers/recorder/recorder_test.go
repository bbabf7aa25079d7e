package recorder

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
)

// api takes Events, and refuses the first.
type api struct {
	typedcore.EventInterface
	namespaces []string
	made       chan *core.Event
	refused    bool
}

func (a *api) Events(namespace string) typedcore.EventInterface {
	a.namespaces = append(a.namespaces, namespace)
	return a
}

func (a *api) Create(_ context.Context, e *core.Event, _ metav1.CreateOptions) (*core.Event, error) {
	if !a.refused {
		a.refused = true
		return nil, errors.New("no room")
	}
	a.made <- e
	return e, nil
}

func TestRecorder(t *testing.T) {
	var log strings.Builder
	to := &api{made: make(chan *core.Event, 2*queueMax)}
	r := New(to, slog.New(slog.NewTextHandler(&log, nil)))
	long := strings.Repeat("ä", messageMax)
	for range queueMax + 5 { // nobody writes yet: who tells does not wait
		r.Tell(core.ObjectReference{Kind: "Node", Name: "a"}, core.EventTypeWarning, "HostGone", long)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for range queueMax - 1 {
		select {
		case e := <-to.made:
			if len(e.Message) > messageMax || !utf8.ValidString(e.Message) || e.InvolvedObject.Name != "a" || e.Count != 1 || e.Namespace != metav1.NamespaceDefault {
				t.Fatalf("made %+v", e)
			}
		case <-time.After(time.Minute):
			t.Fatal("not all are made")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "count=5") || !strings.Contains(text, "no room") {
		t.Errorf("logged %s", text)
	}
}
