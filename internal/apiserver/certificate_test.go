package apiserver

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"tako.dev/tako/internal/trust"
)

// ends is when the certificate is over.
func (c *certificate) ends() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.Certificate().NotAfter
}

// valid checks that the client's certificate in a kubeconfig, and the way to the server, are good for another day.
func valid(t *testing.T, path string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	admin := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	block, _ := pem.Decode(admin.ClientCertificateData)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(cert.NotAfter); left < 24*time.Hour {
		t.Fatalf("the administrator's certificate ends in %v", left)
	}
}

// told counts how often a listener was told.
type told struct{ times int }

func (t *told) Enqueue() { t.times++ }

// TestCertificateIsRenewed: a year of virtual time, in which neither the server's nor the administrator's certificate is ever past
// its end.
func TestCertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := trust.NewCA(trust.NewClusterID(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		c, err := newCertificate(ca, []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var l told
		c.AddListener(&l)
		admin := newKubeconfig(filepath.Join(t.TempDir(), kubeconfigName), "https://localhost", ca, slog.New(slog.DiscardHandler))
		if err := admin.write(time.Now()); err != nil {
			t.Fatal(err)
		}
		c.AddListener(admin)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Run(ctx)
		}()
		written := make(chan struct{})
		go func() {
			defer close(written)
			admin.Run(ctx)
		}()
		first, _ := c.CurrentCertKeyContent()
		for range 365 {
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			if left := time.Until(c.ends()); left < 24*time.Hour {
				t.Fatalf("the certificate ends in %v", left)
			}
			valid(t, admin.path)
		}
		cancel()
		<-done
		<-written
		now, _ := c.CurrentCertKeyContent()
		if bytes.Equal(first, now) || l.times < 4 {
			t.Errorf("renewed %d times in a year", l.times)
		}
	})
}
