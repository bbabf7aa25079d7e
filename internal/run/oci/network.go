package oci

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/oci/cni"
)

const (
	// releasesMax is how many networks are taken away at once: plugins wait for one another at the lock of iptables.
	releasesMax = 4
	// releaseMax bounds taking one away, and releasePause is until what could not be is tried again.
	releaseMax, releasePause = time.Minute, 30 * time.Second
)

// idle are instances of which something has ended: perhaps nobody needs their networks any more.
type idle struct {
	mu    *sync.Mutex
	names map[string]bool
	bell  chan struct{} // has something while there are names; room for one
}

func newIdle() idle {
	return idle{mu: new(sync.Mutex), names: map[string]bool{}, bell: make(chan struct{}, 1)}
}

func (i *idle) add(names ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, name := range names {
		i.names[name] = true
	}
	select {
	case i.bell <- struct{}{}:
	default:
	}
}

func (i *idle) take() (names []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for name := range i.names {
		names = append(names, name)
	}
	clear(i.names)
	slices.Sort(names)
	return names
}

// NoNetworks is, in words, why instances on this host can have no networks of their own now; empty: they can.
func NoNetworks() string { return cni.Lacks(cni.Options{}) }

// hold is the file of the network of a task's instance, which stays at least until letGo was called.
func (r *Runtime) hold(ctx context.Context, t *run.Task) (path string, letGo func(), err error) {
	ports := make([]cni.Port, len(t.Ports))
	for i, p := range t.Ports {
		ports[i] = cni.Port{Host: p.Host, Own: p.Own, Proto: strings.ToLower(string(p.Protocol))}
	}
	path, letGo, err = r.networks.Hold(ctx, t.ID.Instance, ports)
	if err != nil {
		return "", func() {}, err
	}
	return path, letGo, nil
}

// Address is where an instance with a network of its own is reached from its host.
func (r *Runtime) Address(instance string) (a netip.Addr, known bool) {
	return r.networks.Address(instance)
}

// release takes the network of an instance away of which nothing runs.
func (r *Runtime) release(ctx context.Context, instance string) error {
	ctx, cancel := context.WithTimeout(ctx, releaseMax)
	defer cancel()
	return r.networks.Release(ctx, instance, func() bool { return r.Runs(instance) })
}

// Run tells of attempts as package run says, and takes away networks of instances of which nothing runs any more: first those that an agent
// before has left.
func (r *Runtime) Run(ctx context.Context, sink func(run.Status)) error {
	left, err := r.networks.All()
	if err != nil {
		return err
	}
	r.idle.add(left...)
	both, ctx := errgroup.WithContext(ctx)
	over := errors.New("over") // ends the other one, and is no error
	both.Go(func() error {
		err := r.Shims.Run(ctx, func(s run.Status) {
			if s.Phase == run.Ended {
				r.idle.add(s.ID.Instance)
			}
			sink(s)
		})
		if err == nil {
			err = over
		}
		return err
	})
	both.Go(func() error {
		r.tidy(ctx)
		return nil
	})
	if err := both.Wait(); !errors.Is(err, over) {
		return err
	}
	return nil
}

// tidy takes networks away until the context ends. That one could not be is told by Remove, which tries it too.
func (r *Runtime) tidy(ctx context.Context) {
	var later []string
	var retry <-chan time.Time // nil: nothing is to be tried again
	for {
		select {
		case <-ctx.Done():
			return
		case <-retry:
			r.idle.add(later...)
			later, retry = nil, nil
		case <-r.idle.bell:
			later = append(later, r.releaseAll(ctx, r.idle.take())...)
			if len(later) > 0 && retry == nil {
				retry = time.After(releasePause)
			}
		}
	}
}

// releaseAll takes networks away of which nothing runs, and returns the instances of those where that has failed.
func (r *Runtime) releaseAll(ctx context.Context, instances []string) (failed []string) {
	var some errgroup.Group
	some.SetLimit(releasesMax)
	var mu sync.Mutex
	for _, instance := range instances {
		some.Go(func() error {
			if r.release(ctx, instance) != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, instance)
			}
			return nil
		})
	}
	_ = some.Wait() // of no error
	return failed
}
