// Command greeter is a web server that tells who it is: what tests of workloads run.
//
//	PORT_HTTP   where it listens
//	VERSION     what it answers, with the name of its instance (INSTANCE)
//	READY       never: /ready is 503 always
//	/lose       it is not ready from then on, and is again after /gain; /env is its environment
//	DRAIN       how long it goes on serving after SIGTERM, when /ready is 503
//
// GET /work takes 5 ms of a processor. /queue?length=N is how long its queue is, which /metrics tells a Prometheus.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "greeter:", err)
		os.Exit(1)
	}
}

// work takes so much of a processor, however long that takes.
func work(d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for begun := used(); used()-begun < d; {
	}
}

// used is what this thread has taken of processors.
func used() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &r); err != nil {
		panic("getrusage(RUSAGE_THREAD): " + err.Error()) // cannot fail with a valid argument
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	drain := time.Duration(0)
	if text := os.Getenv("DRAIN"); text != "" {
		var err error
		if drain, err = time.ParseDuration(text); err != nil {
			return err
		}
	}
	var ready atomic.Bool
	ready.Store(os.Getenv("READY") != "never")
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "the database has not answered", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/work", func(http.ResponseWriter, *http.Request) { work(5 * time.Millisecond) })
	var queue atomic.Int64
	mux.HandleFunc("/queue", func(w http.ResponseWriter, r *http.Request) {
		length, err := strconv.ParseInt(r.FormValue("length"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		queue.Store(length)
	})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# TYPE greeter_queue_length gauge\ngreeter_queue_length %d\n", queue.Load())
	})
	mux.HandleFunc("/lose", func(http.ResponseWriter, *http.Request) { ready.Store(false) })
	mux.HandleFunc("/gain", func(http.ResponseWriter, *http.Request) { ready.Store(true) })
	mux.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, strings.Join(os.Environ(), "\n")) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s %s %d\n", os.Getenv("VERSION"), os.Getenv("INSTANCE"), os.Getpid())
	})
	server := http.Server{Addr: net.JoinHostPort("", os.Getenv("PORT_HTTP")), Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	fmt.Println("greeter", os.Getenv("VERSION"), "listens on", server.Addr)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ready.Store(false)
	fmt.Println("greeter ends in", drain)
	select { // who balances by readiness still sends some
	case err := <-ended:
		return err
	case <-time.After(drain):
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
