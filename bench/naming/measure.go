package naming

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// lateMax is the bar: within it readiness is in an answer.
	lateMax = time.Second
	// answerMax is how long is waited for that, on a machine that is busy.
	answerMax = 3 * time.Minute
	// askPause is from one question to the next, as fine as what is measured needs; and latePause when it is late anyway, so that the questions are not what
	// it waits for.
	askPause, latePause = 2 * time.Millisecond, 50 * time.Millisecond
	// roundPause is between two changes, at least; spread is what is added, another part of it each time, so that changes come at all times between probes.
	roundPause, spread = 200 * time.Millisecond, 100 * time.Millisecond
	// roundStep is how much more is added each time: it has no factor in common with spread, in milliseconds.
	roundStep = 37 * time.Millisecond
)

// The name that is asked for.
const question = "web.default.tako.internal."

// Measure starts both programs below a directory, has readiness change so many times, and tells what was measured.
func Measure(ctx context.Context, tako, agent, dir string, rounds int, add func(what, measured, bar string, met bool)) (err error) {
	f, err := start(ctx, tako, agent, dir)
	defer func() { err = errors.Join(err, f.stop(ctx)) }()
	if err != nil {
		return err
	}
	all := f.answerers()
	for _, ready := range []bool{true, false} { // what comes first waits until the instance runs
		if _, err := f.change(ctx, all, ready); err != nil {
			return err
		}
	}
	took := make([][]time.Duration, len(all))
	for round := range 2 * rounds {
		late, err := f.change(ctx, all, round%2 == 0)
		if err != nil {
			return err
		}
		for i, d := range late {
			took[i] = append(took[i], d)
		}
		if err := wait(ctx, roundPause+time.Duration(round)*roundStep%spread); err != nil {
			return err
		}
	}
	for i, a := range all {
		slices.Sort(took[i])
		late := took[i][len(took[i])*99/100]
		add("names: a change of readiness, probes of 100 ms, until "+a.what+" answers so", fmt.Sprintf("median %s, p99 %s of %d", text(took[i][len(took[i])/2]), text(late), len(took[i])),
			"p99 <= 1 s", late <= lateMax)
	}
	return nil
}

func text(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1000) }

// answerer answers for names.
type answerer struct {
	what string
	at   netip.AddrPort
}

// change has the instance be ready or not, and tells after how long each answers so.
func (f *fleet) change(ctx context.Context, all []answerer, ready bool) ([]time.Duration, error) {
	began, late, errs := time.Now(), make([]time.Duration, len(all)), make([]error, len(all))
	var err error
	if ready {
		err = os.WriteFile(f.mark, nil, 0o600)
	} else {
		err = os.Remove(f.mark)
	}
	if err != nil {
		return nil, err
	}
	var asking sync.WaitGroup
	for i, a := range all {
		asking.Go(func() {
			errs[i] = a.until(ctx, ready)
			late[i] = time.Since(began)
		})
	}
	asking.Wait()
	return late, errors.Join(errs...)
}

// until asks until the answer has the instance, or has not.
func (a answerer) until(ctx context.Context, ready bool) error {
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	client, began := &dns.Client{Timeout: time.Second}, time.Now()
	for {
		q := new(dns.Msg)
		q.SetQuestion(question, dns.TypeA)
		reply, _, err := client.ExchangeContext(ctx, q, a.at.String())
		if err == nil && (len(reply.Answer) > 0) == ready && (reply.Rcode == dns.RcodeSuccess || !ready) {
			return nil
		}
		pause := askPause
		if time.Since(began) > lateMax {
			pause = latePause
		}
		if waitErr := wait(ctx, pause); waitErr != nil {
			return fmt.Errorf("%s at %s does not say that %s is ready: %t: %w, it says %v", a.what, a.at, question, ready, errors.Join(err, waitErr), reply)
		}
	}
}

// wait waits for a while, or until the context ends, which is its error.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
