package instances

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/transfer/wire"
)

func asked(t *testing.T, f func(ctx context.Context) (string, error)) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return f(ctx)
}

func TestHTTPProbe(t *testing.T) {
	followed := false
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host, r.URL.RawQuery) })
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/followed", http.StatusFound) })
	mux.HandleFunc("/followed", func(http.ResponseWriter, *http.Request) { followed = true })
	mux.HandleFunc("/bad", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "no\n\x1b[31mroom ", strings.Repeat("x", 1<<20))
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := fmt.Fprintln(w, strings.Repeat("y", 1000)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	defer plain.Close()
	defer secure.Close()
	for name, c := range map[string]struct {
		server *httptest.Server
		probe  workload.HTTPProbe
		yes    bool
		words  string
	}{
		"yes":       {plain, workload.HTTPProbe{Path: "/ok?a=b"}, true, "200 OK"},
		"tls":       {secure, workload.HTTPProbe{Path: "/ok", Scheme: "https"}, true, "200 OK"},
		"redirect":  {plain, workload.HTTPProbe{Path: "/redirect"}, true, "302"},
		"no":        {plain, workload.HTTPProbe{Path: "/bad"}, false, "500 Internal Server Error: no [31mroom xxx"},
		"endless":   {plain, workload.HTTPProbe{Path: "/endless"}, true, "200"},
		"hangs":     {plain, workload.HTTPProbe{Path: "/hangs"}, false, "deadline"},
		"not there": {plain, workload.HTTPProbe{}, false, "404"},
	} {
		words, err := asked(t, func(ctx context.Context) (string, error) {
			if name == "hangs" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
			}
			return askHTTP(ctx, &c.probe, c.server.Listener.Addr().String())
		})
		if err != nil {
			words = err.Error()
		}
		if (err == nil) != c.yes || !strings.Contains(words, c.words) || len(words) > bodyBytes+200 {
			t.Errorf("%s: %v, %.200q", name, err == nil, words)
		}
	}
	if followed {
		t.Error("a redirect was followed")
	}
}

func TestTCPProbe(t *testing.T) {
	l, err := net.Listen("tcp", boots.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	if words, err := asked(t, func(ctx context.Context) (string, error) { return askTCP(ctx, l.Addr().String()) }); err != nil {
		t.Errorf("%q, %v", words, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := asked(t, func(ctx context.Context) (string, error) { return askTCP(ctx, l.Addr().String()) }); err == nil {
		t.Error("nobody listens, and the answer is yes")
	}
}

// health is a server of grpc.health.v1 in HTTP/2 without TLS, as gRPC speaks it.
func health(t *testing.T, answer func(service string, w http.ResponseWriter)) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ProtoMajor != 2 || r.URL.Path != grpcCheck || r.Header.Get("Content-Type") != "application/grpc" || r.Header.Get("Te") != "trailers" ||
			len(body) < grpcHead || int(binary.BigEndian.Uint32(body[1:])) != len(body)-grpcHead {
			http.Error(w, "no gRPC", http.StatusTeapot)
			return
		}
		service := ""
		if fields := body[grpcHead:]; len(fields) > 2 && fields[0] == 1<<3|2 {
			service = string(fields[2:])
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		answer(service, w)
	}))
	s.Config.Protocols = &http.Protocols{}
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestGRPCProbe(t *testing.T) {
	address := health(t, func(service string, w http.ResponseWriter) {
		statuses := map[string]byte{"": 1, "orders": 1, "down": 2}
		status, known := statuses[service]
		switch {
		case service == "long":
			_, _ = w.Write(append([]byte{0, 0, 1, 0, 0}, make([]byte, 1<<16)...))
		case !known:
			w.Header().Set("Grpc-Status", "5")
			w.Header().Set("Grpc-Message", "unknown service")
			return
		default:
			_, _ = w.Write([]byte{0, 0, 0, 0, 2, 1 << 3, status})
		}
		w.Header().Set("Grpc-Status", "0")
	})
	for service, want := range map[string]string{"": "SERVING", "orders": "SERVING", "down": "the health service says NOT_SERVING", "other": "unknown service", "long": "is no grpc.health.v1.Health"} {
		words, err := asked(t, func(ctx context.Context) (string, error) { return askGRPC(ctx, service, address) })
		if err != nil {
			words = err.Error()
		}
		if (err == nil) != (want == "SERVING") || !strings.Contains(words, want) {
			t.Errorf("service %q: %q", service, words)
		}
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	if words, err := asked(t, func(ctx context.Context) (string, error) {
		return askGRPC(ctx, "", other.Listener.Addr().String())
	}); err == nil {
		t.Errorf("a server of HTTP/1 says %q", words)
	}
}

func FuzzGRPCStatus(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 2, 8, 1})
	f.Add([]byte{0, 0, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 2, 8, 1})
	f.Add([]byte{0, 0, 0, 0, 4, 0x12, 1, 'x', 8})
	f.Add([]byte{0, 255, 255, 255, 255, 8, 1})
	f.Fuzz(func(t *testing.T, answer []byte) {
		if status, err := grpcStatus(answer); err != nil && (status != 0 || !errors.Is(err, errNoHealth)) {
			t.Errorf("%d, %v", status, err)
		}
	})
}

func TestExecProbe(t *testing.T) {
	r := newRig(t)
	flag := filepath.Join(r.dir, "ready")
	one := task("wait")
	one.Env = []workload.EnvVar{{Name: "FLAG", Value: flag}}
	one.Readiness = &workload.Probe{Exec: &workload.ExecProbe{Command: []string{"/bin/sh", "-c", `echo looking for it; test -e "$FLAG"`}}, Period: "100ms", Timeout: "10s"}
	r.start()
	uid := r.add(nil, one)
	r.until("the probe has said no", func([]wire.Instance) bool { return strings.Contains(r.one(uid).Message, "exit code 1: looking for it") })
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.is(uid, wire.InstanceRunning, true)
	r.until("what was run for probes is gone", func([]wire.Instance) bool {
		left, err := os.ReadDir(filepath.Join(r.dir, "runtimes/process/attempts"))
		return err == nil && len(left) <= 2 // the task, and perhaps a probe that is asked just now
	})
}

func TestProgramOfAProbeThatHangsIsEnded(t *testing.T) {
	r := newRig(t)
	one := task("wait")
	one.Readiness = &workload.Probe{Exec: &workload.ExecProbe{Command: []string{"/bin/sleep", "1000"}}, Period: "200ms", Timeout: "300ms"}
	r.start()
	uid := r.add(nil, one)
	r.until("it is told", func([]wire.Instance) bool { return strings.Contains(r.one(uid).Message, "no answer within") })
	if r.one(uid).Ready {
		t.Error("it is ready")
	}
}

func TestLivenessRestarts(t *testing.T) {
	r := newRig(t)
	flag := filepath.Join(r.dir, "ready")
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	web := task("serve", flag)
	web.Ports = []workload.Port{{Name: "http"}}
	failures := int32(2)
	web.Startup = &workload.Probe{TCP: &workload.TCPProbe{Port: "http"}, Period: "100ms"}
	web.Liveness = &workload.Probe{HTTP: &workload.HTTPProbe{Port: "http", Path: "/ready"}, Period: "100ms", FailureThreshold: &failures}
	r.start()
	uid := r.add(nil, web)
	before := r.is(uid, wire.InstanceRunning, true)
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	r.until("it is started again", func([]wire.Instance) bool { return r.one(uid).Restarts > before.Restarts })
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	after := r.is(uid, wire.InstanceRunning, true)
	if after.Attempt <= before.Attempt || after.Ports[0] != before.Ports[0] {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if past := r.account(uid).Tasks[0].Past; len(past) == 0 || !strings.Contains(past[len(past)-1].Ended, "not alive") {
		t.Errorf("its attempts are %+v", past)
	}
}
