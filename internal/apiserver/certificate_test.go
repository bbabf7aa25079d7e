package apiserver

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"tako.dev/tako/internal/trust"
)

// ends is when the certificate is over.
func (c *certificate) ends() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.Certificate().NotAfter
}

// told counts how often a listener was told.
type told struct{ times int }

func (t *told) Enqueue() { t.times++ }

// TestCertificateIsRenewed: a year of virtual time, in which the certificate is never past its end.
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
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Run(ctx)
		}()
		first, _ := c.CurrentCertKeyContent()
		for range 365 {
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			if left := time.Until(c.ends()); left < 24*time.Hour {
				t.Fatalf("the certificate ends in %v", left)
			}
		}
		cancel()
		<-done
		now, _ := c.CurrentCertKeyContent()
		if bytes.Equal(first, now) || l.times < 4 {
			t.Errorf("renewed %d times in a year", l.times)
		}
	})
}
