package apiserver

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"tako.dev/tako/internal/trust"
)

// TestKubeconfigIsTriedAgain: where it could not be written it is written later, not when the next certificate is due.
func TestKubeconfigIsTriedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	synctest.Test(t, func(t *testing.T) {
		ca, err := trust.NewCA(trust.NewClusterID(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		k := newKubeconfig(filepath.Join(dir, kubeconfigName), "https://localhost:6443", ca, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); k.Run(ctx) }()
		k.Enqueue()
		synctest.Wait()
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * renewPause)
		if st, err := os.Stat(k.path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", st, err)
		}
		cancel()
		<-ended
	})
}
