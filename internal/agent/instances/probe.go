package instances

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	life "tako.dev/tako/internal/run/core"
)

const (
	// probeSuffix ends the name of what a runtime runs for a probe. The name of a task ends with a letter or a digit.
	probeSuffix = "-"
	// headerBytes and bodyBytes bound what is read of an answer: people see the first lines of it.
	headerBytes = 16 << 10
	bodyBytes   = core.AnswerMax
	// cleanTime bounds forgetting what was run for a probe.
	cleanTime = 15 * time.Second
)

func isProbe(id run.ID) bool { return strings.HasSuffix(id.Task, probeSuffix) }

// ask puts a question, and comes back with the answer. r runs what it is put to, where that is open.
func (k *Keeper) ask(ctx context.Context, f core.Ask, r *runtime) {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	began := time.Now()
	words, err := k.question(ctx, &f, r)
	a := core.Answered{ID: f.ID, Probe: f.Probe, Number: f.Number, Yes: err == nil, Words: words}
	if err != nil {
		if a.Words = err.Error(); ctx.Err() != nil {
			a.Words = fmt.Sprintf("no answer within %v", time.Since(began).Round(time.Millisecond))
		}
	}
	a.Words = k.opts.Clean(a.Words)
	k.post(func() { k.step(a) })
}

// question puts a question; the error is a no, in words.
func (k *Keeper) question(ctx context.Context, f *core.Ask, r *runtime) (string, error) {
	at := slices.IndexFunc(f.Template.Tasks, func(t workload.Task) bool { return t.Name == f.ID.Task })
	if at < 0 {
		return "", errors.New("its template has no such task")
	}
	t := &f.Template.Tasks[at]
	p := map[life.ProbeKind]*workload.Probe{life.Startup: t.Startup, life.Readiness: t.Readiness, life.Liveness: t.Liveness}[f.Probe]
	if p == nil {
		return "", errors.New("its template has no such probe any more")
	}
	if p.Exec != nil {
		return k.askProgram(ctx, f, p.Exec.Command, at)
	}
	host, err := k.address(f, r)
	if err != nil {
		return "", err
	}
	address := func(port string) string {
		number := f.Record.Ports[port]
		if at := slices.IndexFunc(t.Ports, func(has workload.Port) bool { return has.Name == port }); at >= 0 {
			number = listened(&t.Ports[at], f.Record.Ports)
		}
		return net.JoinHostPort(host, strconv.Itoa(int(number)))
	}
	switch {
	case p.HTTP != nil:
		return askHTTP(ctx, p.HTTP, address(p.HTTP.Port))
	case p.TCP != nil:
		return askTCP(ctx, address(p.TCP.Port))
	case p.GRPC != nil:
		return askGRPC(ctx, p.GRPC.Service, address(p.GRPC.Port))
	}
	return "", errors.New("it asks nothing")
}

// address is where an instance of this host is asked: at the host's address, or at its own.
func (k *Keeper) address(f *core.Ask, r *runtime) (string, error) {
	if f.Template.NetworkOrDefault() == workload.OwnNetwork {
		if r != nil {
			if networked, ok := r.Runtime.(run.Networked); ok {
				if a, known := networked.Address(f.ID.Instance); known {
					return a.String(), nil
				}
			}
		}
		return "", errors.New("its network is not there")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reach == "" {
		return "127.0.0.1", nil
	}
	return k.reach, nil
}

func askTCP(ctx context.Context, address string) (string, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	return "connected to " + address, c.Close()
}

// asking makes a client for one question: no redirect is followed, no proxy asked, nothing kept open, no certificate looked at.
func asking(protocols *http.Protocols) (*http.Client, func()) {
	t := &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: headerBytes, Protocols: protocols,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // it is asked whether it answers, not who it is
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, t.CloseIdleConnections
}

func askHTTP(ctx context.Context, p *workload.HTTPProbe, address string) (string, error) {
	path, query, _ := strings.Cut(p.PathOrDefault(), "?")
	u := url.URL{Scheme: p.SchemeOrDefault(), Host: address, Path: path, RawQuery: query}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", err
	}
	req.Host = p.Host
	req.Header.Set("User-Agent", "tako-agent")
	client, closed := asking(nil)
	defer closed()
	reply, err := client.Do(req)
	if err != nil {
		return "", trimURL(err)
	}
	defer reply.Body.Close() // what is left of it is nobody's
	words := fmt.Sprintf("GET %s: %s", p.PathOrDefault(), reply.Status)
	if reply.StatusCode >= 200 && reply.StatusCode < 400 {
		return words, nil
	}
	if body, _ := io.ReadAll(io.LimitReader(reply.Body, bodyBytes)); len(body) > 0 {
		words += ": " + line(string(body))
	}
	return "", errors.New(words)
}

// trimURL is an error without the method and the address of the request, which stand before it anyhow.
func trimURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// line is a text on one line, of what can be printed.
func line(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
}

// askProgram runs a program for a probe, as the task is run: by the same runtime, with its user, its environment and its files. It is an attempt
// of its own, which is forgotten when it has ended.
func (k *Keeper) askProgram(ctx context.Context, f *core.Ask, command []string, at int) (string, error) {
	ended := make(chan run.Status, 1)
	type prepared struct {
		builder *builder
		runtime *runtime
		id      run.ID
	}
	ready := make(chan prepared, 1)
	k.post(func() {
		k.probes++
		p := prepared{k.builder(f.Start), k.runtimes[f.Runtime], run.ID{Instance: f.ID.Instance, Task: fmt.Sprintf("probe-%d-%s%s", at, f.Probe, probeSuffix), Attempt: k.probes}}
		k.asked[p.id] = ended
		ready <- p
	})
	var p prepared
	select {
	case p = <-ready:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer k.post(func() { delete(k.asked, p.id) })
	if p.runtime == nil {
		return "", errors.New("its runtime is not open")
	}
	task, err := p.builder.build(p.runtime.Capabilities())
	if err != nil {
		return "", err
	}
	task.ID, task.Command, task.Args, task.Log = p.id, command, nil, run.Log{Bytes: 64 << 10, Files: 1}
	// Whatever becomes of the question, what was run for it is ended and forgotten.
	defer k.clear(context.WithoutCancel(ctx), p.runtime, p.id)
	s, err := p.runtime.Start(ctx, task)
	if err != nil {
		return "", err
	}
	if s.Phase != run.Ended {
		select {
		case s = <-ended:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	words := ending(&s.Ending)
	if lines, err := p.runtime.Tail(ctx, p.id, bodyBytes); err == nil && len(lines) > 0 {
		words += ": " + line(string(run.Text(lines, false))+string(run.Text(lines, true)))
	}
	if !s.Ending.Well() {
		return "", errors.New(words)
	}
	return words, nil
}

// ending is how a program has ended, for people.
func ending(e *run.Ending) string {
	past := life.Past{Cause: e.Cause, Code: e.Code, Signal: int(e.Signal), Words: e.Words}
	return past.Text()
}

// clear ends and forgets what was run for a probe.
func (k *Keeper) clear(ctx context.Context, r *runtime, id run.ID) {
	ctx, cancel := context.WithTimeout(ctx, cleanTime)
	defer cancel()
	err := r.Remove(ctx, id)
	if reason.Is(err, reason.TaskBusy) {
		if err = r.Kill(ctx, id); err == nil {
			err = removed(ctx, r, id)
		}
	}
	if err != nil && ctx.Err() == nil && !reason.Is(err, reason.TaskUnknown) {
		k.opts.Trouble("remove "+id.String(), err)
	}
}
