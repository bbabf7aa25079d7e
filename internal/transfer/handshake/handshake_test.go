package handshake

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"
)

// certificate is one that nobody has to believe.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestListener: a connection comes when it has shaken hands, whoever else is silent; one that does not in its time is closed; and when the
// listener is closed, Run ends with all that it has begun.
func TestListener(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := New(raw, &tls.Config{Certificates: []tls.Certificate{certificate(t)}}, 2*time.Second, slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	all.Go(l.Run)
	silent, err := net.Dial("tcp", raw.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	all.Go(func() {
		c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(context.Background(), "tcp", raw.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		_ = c.Close()
	})
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if secure, is := c.(*tls.Conn); !is || !secure.ConnectionState().HandshakeComplete {
		t.Errorf("%T comes, which has not shaken hands", c)
	}
	if err := silent.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var slow net.Error
	if _, err := silent.Read(make([]byte, 1)); err == nil || errors.As(err, &slow) && slow.Timeout() {
		t.Errorf("a silent connection stays open: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a listener that is closed accepts: %v", err)
	}
	all.Wait()
}
