// Command shop is the middle tier of a web application: what asks it is answered with what the database has.
//
//	PORT_HTTP                            where it listens
//	DATABASE_HOST, DATABASE_PORT         where PostgreSQL is
//	DATABASE, DATABASE_USER, PASSWORD    what is there, who asks, and how that is shown
//	VERSION, INSTANCE                    what it says of itself
//
// GET / counts the orders, POST /?number=N notes one, GET /ready says whether the database answers. GET /?rounds=N counts them after so many rounds of a
// hash, which take a processor. By SIGTERM it closes at once, and answers what has been asked.
package main

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const (
	// askTime bounds what the database is asked: it takes milliseconds, and seconds while the disk is slow.
	askTime = 10 * time.Second
	// endTime bounds the requests that are left when it ends.
	endTime = 10 * time.Second
	// roundsMax take a tenth of a second or so.
	roundsMax = 200_000
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// shop answers requests.
type shop struct{ database database }

// ask asks the database for one value.
func (s *shop) ask(r *http.Request, sql string) (string, error) {
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	return s.database.ask(ctx, sql)
}

func (s *shop) ready(w http.ResponseWriter, r *http.Request) {
	if _, err := s.ask(r, "select 1"); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

func (s *shop) count(w http.ResponseWriter, r *http.Request) {
	if text := r.FormValue("rounds"); text != "" {
		rounds, err := strconv.Atoi(text)
		if err != nil || rounds < 1 || rounds > roundsMax {
			http.Error(w, fmt.Sprintf("rounds are %q, not 1 to %d", text, roundsMax), http.StatusBadRequest)
			return
		}
		if _, err := pbkdf2.Key(sha256.New, "", nil, rounds, sha256.Size); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	count, err := s.ask(r, "select count(*) from orders")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, os.Getenv("VERSION"), os.Getenv("INSTANCE"), os.Getpid(), count)
}

func (s *shop) note(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.ParseUint(r.FormValue("number"), 10, 32)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if _, err := s.ask(r, fmt.Sprintf("insert into orders values (%d) returning number", number)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, os.Getenv("VERSION"), os.Getenv("INSTANCE"), os.Getpid(), number)
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s := &shop{database: database{
		address: net.JoinHostPort(os.Getenv("DATABASE_HOST"), os.Getenv("DATABASE_PORT")),
		name:    os.Getenv("DATABASE"), user: os.Getenv("DATABASE_USER"), password: os.Getenv("PASSWORD"),
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", s.ready)
	mux.HandleFunc("GET /{$}", s.count)
	mux.HandleFunc("POST /{$}", s.note)
	server := http.Server{Addr: net.JoinHostPort("", os.Getenv("PORT_HTTP")), Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	fmt.Println("shop", os.Getenv("VERSION"), "listens on", server.Addr)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	fmt.Println("shop ends")
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
