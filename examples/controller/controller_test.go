//go:build e2e

package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/server"
)

const (
	// settleTime bounds the wait for what the server or the controller does by itself, in milliseconds on an idle machine.
	settleTime = time.Minute
	// lookInterval is how often such a state is looked at.
	lookInterval = 50 * time.Millisecond
)

// site is a server whose kinds the controller's is one of, and the ways to use it.
type site struct {
	tako, kubeconfig string
	api              client.Client
}

// TestController does what the README says, and sees that the server keeps what the controller wants.
func TestController(t *testing.T) {
	s := newSite(t)
	s.mustTako(t, "apply", "-f", "crd.yaml")
	s.startController(t)
	s.eventually(t, "the new kind is served", func() bool { return s.runTako(t, "apply", "-f", "greeting.yaml") == nil })

	s.eventuallyGreets(t, "Good morning.\n")
	config := s.config(t)
	if owner := config.OwnerReferences; len(owner) != 1 || owner[0].Kind != "Greeting" || owner[0].Name != "morning" {
		t.Errorf("owned by %+v, want the greeting", owner)
	}

	greeting := newGreeting()
	greeting.SetNamespace("default")
	greeting.SetName("morning")
	change := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"text":"Good evening."}}`))
	if err := s.api.Patch(t.Context(), greeting, change); err != nil {
		t.Fatal(err)
	}
	s.eventuallyGreets(t, "Good evening.\n")

	// What somebody else makes of it does not stay.
	// The server writes the status of the config meanwhile, and an update of what was read before that is refused.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		config = s.config(t)
		config.Spec.Resources[0].File.Content = "Go away.\n"
		return s.api.Update(t.Context(), config)
	})
	if err != nil {
		t.Fatal(err)
	}
	s.eventuallyGreets(t, "Good evening.\n")
	if err := s.api.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	s.eventuallyGreets(t, "Good evening.\n")

	s.mustTako(t, "delete", "-f", "greeting.yaml")
	s.eventually(t, "the config is collected with its greeting", func() bool { return s.config(t) == nil })
}

func newSite(t *testing.T) *site {
	ctrl.SetLogger(logr.Discard())
	tako := host.TakoBinary(t)
	s := &site{tako: tako, kubeconfig: server.Start(t, tako)}
	rest, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if s.api, err = client.New(rest, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return s
}

// startController runs the controller as its own program, until the test ends.
func (s *site) startController(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, host.Program(t, "controller", "tako.dev/tako/examples/controller"))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = settleTime
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 0 || t.Failed() {
			t.Errorf("the controller ended: %v\n%s", err, log.String())
		}
	})
}

// config returns the config of the greeting, nil when there is none.
func (s *site) config(t *testing.T) *v1alpha1.NodeConfig {
	t.Helper()
	var c v1alpha1.NodeConfig
	err := s.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "greeting-morning"}, &c)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

func (s *site) eventuallyGreets(t *testing.T, content string) {
	t.Helper()
	s.eventually(t, "the config has a file with "+content, func() bool {
		c := s.config(t)
		return c != nil && c.DeletionTimestamp == nil && len(c.Spec.Resources) == 1 && c.Spec.Resources[0].File.Content == content
	})
}

func (s *site) runTako(t *testing.T, args ...string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.tako, append(args, "--kubeconfig", s.kubeconfig)...)
	out, err := cmd.CombinedOutput()
	t.Logf("tako %s: %s", strings.Join(args, " "), out)
	return err
}

func (s *site) mustTako(t *testing.T, args ...string) {
	t.Helper()
	if err := s.runTako(t, args...); err != nil {
		t.Fatalf("tako %s: %v", strings.Join(args, " "), err)
	}
}

func (s *site) eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(settleTime)
	defer deadline.Stop()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", settleTime, what)
		}
	}
}
