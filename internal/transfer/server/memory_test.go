package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"tako.dev/tako/internal/transfer/wire"
)

// watchers is the environment variable that makes this program, as a process of its own, a thousand hosts: it says of which server.
const watchers = "TAKO_TEST_WATCHERS"

const manyHosts = 1_000

func TestMain(m *testing.M) {
	if addr := os.Getenv(watchers); addr != "" {
		beHosts(addr)
		return
	}
	os.Exit(m.Run())
}

// beHosts opens watches with the certificate that comes on standard input, says so, and holds them until that is closed.
func beHosts(addr string) {
	in := bufio.NewReader(os.Stdin)
	var text []byte
	for bytes.Count(text, []byte("-----END")) < 2 {
		line, err := in.ReadBytes('\n')
		if err != nil {
			panic(err)
		}
		text = append(text, line...)
	}
	cert, err := tls.X509KeyPair(text, text)
	if err != nil {
		panic(err)
	}
	body, err := wire.Encode(wire.WatchRequest{Protocol: wire.Protocol})
	if err != nil {
		panic(err)
	}
	inParallel(manyHosts, func(int) {
		var protocols http.Protocols
		protocols.SetHTTP2(true)
		one := &http.Transport{Protocols: &protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}}}
		resp, err := (&http.Client{Transport: one}).Post("https://"+addr+wire.PathWatch, "", bytes.NewReader(body))
		if err != nil || resp.StatusCode != http.StatusOK {
			panic(fmt.Sprint(resp, err))
		}
	})
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, in)
}

// BenchmarkIdleWatch measures what a host costs the server that is connected and to which nothing happens.
func BenchmarkIdleWatch(b *testing.B) {
	for b.Loop() {
		r := newRig(b, func(o *Options) {
			o.Limits.Accepts, o.Limits.NodeConnections, o.Limits.NodeCalls = 100_000, manyHosts, manyHosts
		})
		r.add("web-1")
		r.give("web-1", make([]byte, 300))
		before := inUse()
		stop := hostsElsewhere(b, r)
		b.ReportMetric(float64(inUse()-before)/manyHosts/1024, "KiB/watch")
		b.ReportMetric(float64(runtime.NumGoroutine())/manyHosts, "goroutines/watch")
		stop()
		r.stop()
	}
}

// hostsElsewhere starts a process of hosts, and returns when all of them watch.
func hostsElsewhere(b *testing.B, r *rig) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), watchers+"="+r.addr)
	c.Stderr = os.Stderr
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	if err1 != nil || err2 != nil || c.Start() != nil {
		b.Fatal(err1, err2)
	}
	cert := r.ca.client(b, "web-1", 0, x509.ExtKeyUsageClientAuth)
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		b.Fatal(err)
	}
	for kind, der := range map[string][]byte{"CERTIFICATE": cert.Certificate[0], "PRIVATE KEY": key} {
		if err := pem.Encode(in, &pem.Block{Type: kind, Bytes: der}); err != nil {
			b.Fatal(err)
		}
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		b.Fatalf("the hosts say %q, %v", line, err)
	}
	return func() {
		_ = in.Close()
		_ = c.Wait() // it is of no interest how hosts end
		cancel()
	}
}

// inUse is what is in use of heap and stacks, after collections: of finalizers, pools and stacks too.
func inUse() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
