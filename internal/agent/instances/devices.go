package instances

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/cdi"
)

// devices are the pieces of hardware that the host has now. What cannot be read is noted for Trouble.
func (k *Keeper) devices() cdi.Pieces {
	pieces, err := cdi.Read(k.opts.Devices)
	words := ""
	if err != nil {
		words = err.Error()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broken != words {
		k.broken, k.untold = words, err
	}
	return pieces
}

// Trouble is why devices of the host cannot be read, once for each reason; nil: nothing new. It is asked for after Offers, by whom may not be made to wait.
func (k *Keeper) Trouble() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.untold
	k.untold = nil
	return err
}

// hardware is what the task is given for the pieces that it has of those of its instance.
func (b *builder) hardware() (devices []string, mounts []run.Mount, env []string, err error) {
	if len(b.task.Resources.Devices) == 0 {
		return nil, nil, nil, nil
	}
	there := b.devices()
	for _, d := range b.task.Resources.Devices {
		for _, name := range b.pieces(&d) {
			at := slices.IndexFunc(there[d.Name], func(p cdi.Piece) bool { return p.Name == name })
			if at < 0 {
				return nil, nil, nil, &reason.Error{Code: reason.RuntimeUnfit, Doing: fmt.Sprintf("give task %s device %s of %s", b.task.Name, name, d.Name), Cause: errors.New("the host has it no more")}
			}
			p := &there[d.Name][at]
			devices, mounts, env = union(devices, p.Devices), union(mounts, p.Mounts), union(env, p.Env)
		}
		if len(b.pieces(&d)) < d.CountOrDefault() {
			return nil, nil, nil, b.refused(fmt.Sprintf("it needs %d %s, and its instance has %d left for it", d.CountOrDefault(), d.Name, len(b.pieces(&d))))
		}
	}
	return devices, mounts, env, nil
}

// pieces are those of a kind that the task has: tasks take from what their instance holds, in order.
func (b *builder) pieces(d *workload.Device) []string {
	if b.start.Record.Held == nil {
		return nil
	}
	held, before := b.start.Record.Held.Devices[d.Name], 0
	for i := range b.template.Tasks {
		t := &b.template.Tasks[i]
		if t.Name == b.task.Name {
			break
		}
		for k := range t.Resources.Devices {
			if other := &t.Resources.Devices[k]; other.Name == d.Name {
				before += other.CountOrDefault()
			}
		}
	}
	return held[min(before, len(held)):min(before+d.CountOrDefault(), len(held))]
}

// union is a list with what it does not have of another one.
func union[T comparable](list, more []T) []T {
	for _, one := range more {
		if !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

// besides are the variables of hardware that the task does not declare itself.
func besides(hardware, declared []string) (list []string) {
	for _, v := range hardware {
		name, _, _ := strings.Cut(v, "=")
		if !slices.ContainsFunc(declared, func(d string) bool { return strings.HasPrefix(d, name+"=") }) {
			list = append(list, v)
		}
	}
	return list
}
