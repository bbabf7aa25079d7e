//go:build e2e

package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"tako.dev/tako/e2e/host"
)

// TestQuietStop stops a server while clients watch and write and controllers work, and again as soon as it is ready: nothing about
// that is worth a warning.
func TestQuietStop(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for life := range 4 {
		if life > 0 {
			s.start(t)
		}
		run := s.run
		if life%2 == 0 {
			stopUnderLoad(t, s)
		} else {
			s.stop(t)
		}
		if said := complaints.FindAllString(run.log.tail(), -1); len(said) > 0 {
			t.Errorf("in its life %d a server that stops complains:\n%s", life, strings.Join(said, "\n"))
		}
	}
}

// stopUnderLoad stops a server that is watched and written to.
func stopUnderLoad(t *testing.T, s *server) {
	t.Helper()
	c := s.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range 20 {
		for _, path := range []string{configMapsPath, nodeConfigsPath} {
			w, err := c.CoreV1().RESTClient().Get().AbsPath(path).Param("watch", "1").Stream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				defer w.Close()
				_, _ = io.Copy(io.Discard, w) // until the server ends it
			})
		}
	}
	enough, ended := make(chan struct{}), make(chan error, 1)
	all.Go(func() {
		for n := 0; ; n++ {
			if err := errors.Join(visit(ctx, c, n), declareFile(ctx, c, n)); err != nil {
				ended <- err
				return
			}
			if n == 50 {
				close(enough)
			}
		}
	})
	select {
	case <-enough:
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(settleTime):
		t.Fatal("too little is written")
	}
	s.stop(t)
	cancel()
	all.Wait()
}

// TestReadyWithoutRoom fills the database: the server lives, is not ready, and says by which check, to anybody. It also starts like
// that, so that room can be made, and then it is ready again.
func TestReadyWithoutRoom(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--quota-bytes", itoa(quotaBytes))
	f := newFiller(t, s)
	f.text = f.text[:64<<10] // small, so that little room is left
	probe := func(path string) (int, string) {
		t.Helper()
		config := rest.AnonymousClientConfig(s.config(t))
		config.APIPath = path
		status, answer, err := get(t, config)
		if err != nil {
			t.Fatal(err)
		}
		return status, answer
	}
	more := 0
	for _, when := range []string{"before a restart", "after it"} {
		host.Eventually(t, settleTime, "/readyz names the check, "+when, func() (string, bool) {
			// What the server has tidied up meanwhile is filled again, each time under a new name: etcd may say of what it stores that
			// there was no room, when somebody else has taken that in the same moment.
			for more++; f.create(t.Context(), "more-"+itoa(more)) == nil; {
				more++
			}
			status, answer := probe("/readyz")
			return answer, status == http.StatusInternalServerError && strings.Contains(answer, "[-]room failed: reason withheld") && strings.Count(answer, "[-]") == 1
		})
		if status, answer := probe("/livez"); status != http.StatusOK {
			t.Errorf("%s /livez says %d: %s", when, status, answer)
		}
		s.stop(t)
		s.start(t)
	}
	for _, name := range f.written {
		if err := f.objects.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	host.Eventually(t, settleTime, "the server is ready again", func() (string, bool) {
		status, answer := probe("/readyz")
		return answer, status == http.StatusOK
	})
}

// declareFile gives the controllers work: each version of a config has a revision of its own.
func declareFile(ctx context.Context, c kubernetes.Interface, n int) error {
	body := fmt.Sprintf(`{"apiVersion":"tako.dev/v1alpha1","kind":"NodeConfig","metadata":{"name":"busy-%d"},"spec":{"resources":[{"name":"a","file":{"path":"/a","content":"%d"}}]}}`, n%5, n)
	return c.CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath(nodeConfigsPath, "busy-"+itoa(n%5)).
		Param("fieldManager", "me").Param("force", "true").Body([]byte(body)).Do(ctx).Error()
}
