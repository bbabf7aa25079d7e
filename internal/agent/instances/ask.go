package instances

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// sampleEvery is how old what instances take may be in a report: looking at a thousand of them costs a tenth of a second. It is less than the
	// 15 s after which a server that waits for it has a host report again.
	sampleEvery = 10 * time.Second
	// askTime bounds how long a question waits for the loop.
	askTime = 10 * time.Second
	// tailBytes is how much of what a task has printed is shown: above it an answer would be too long for the way to a person.
	tailBytes = 256 << 10
	// wordsBytes bounds the words of all instances in a report together: a thousand that do not work must not cost the report.
	wordsBytes = 128 << 10
	// Subject begins what names an instance in a question: instance/NAMESPACE/NAME.
	Subject = "instance/"
)

// Claim is what the history knows an instance by, of its NAMESPACE/NAME.
func Claim(name string) string { return "instance:" + name }

// usage is what instances take, as it was looked at last.
type usage struct {
	takes map[string]taken // by UID
	since time.Time        // when somebody has begun to look
	at    run.Moment       // when what is in takes was looked at; zero: never
}

type taken struct{ cpu, memory uint64 }

// ask runs a question in Run's goroutine.
func ask[T any](ctx context.Context, k *Keeper, question func() T) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answer := make(chan T, 1)
	k.post(func() { answer <- question() })
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		var none T
		return none, &reason.Error{Code: reason.AgentNotRunning, Doing: "ask the agent for its instances", Cause: ctx.Err()}
	}
}

// Report is what is told of the instances with what they take, by UID; when that was looked at, and how long ago that is: zero where nothing
// was.
func (k *Keeper) Report(ctx context.Context) (told []wire.Instance, sampled run.Moment, ago time.Duration) {
	told = k.Told()
	if len(told) == 0 {
		return nil, 0, 0
	}
	takes, sampled := k.sample(ctx)
	for i := range told {
		n := &told[i]
		n.CPU, n.Memory = takes[n.UID].cpu, takes[n.UID].memory
		n.Message = strings.ToValidUTF8(n.Message[:min(len(n.Message), wordsBytes/len(told))], "")
	}
	if sampled == 0 {
		return told, 0, 0
	}
	return told, sampled, max(now().Sub(sampled), 0)
}

// sample looks at what instances take, unless that was done a moment ago.
func (k *Keeper) sample(ctx context.Context) (map[string]taken, run.Moment) {
	k.mu.Lock()
	takes, at, fresh := k.takes, k.at, time.Since(k.since) < sampleEvery
	if !fresh {
		k.since = time.Now() // whoever comes meanwhile has the one before
	}
	k.mu.Unlock()
	if fresh {
		return takes, at
	}
	type running struct {
		runtime *runtime
		id      run.ID
	}
	list, err := ask(ctx, k, func() (list []running) {
		for _, a := range k.machine.Running() {
			if r := k.runtimes[a.Runtime]; r != nil {
				list = append(list, running{r, a.ID})
			}
		}
		return list
	})
	if err != nil {
		return takes, at
	}
	takes, at = map[string]taken{}, now()
	for _, one := range list {
		u, err := one.runtime.Usage(ctx, one.id)
		if err != nil {
			continue // it has ended just now
		}
		sum := takes[one.id.Instance]
		takes[one.id.Instance] = taken{sum.cpu + uint64(max(u.CPU.Milliseconds(), 0)), sum.memory + uint64(max(u.Memory, 0))}
	}
	k.mu.Lock()
	k.takes, k.at = takes, at
	k.mu.Unlock()
	return takes, at
}

// Accounts are all instances with all that is known of them.
func (k *Keeper) Accounts(ctx context.Context) ([]core.Account, error) {
	list, err := ask(ctx, k, func() []core.Account {
		return k.machine.Accounts(core.Now{Boot: k.opts.Boot, At: now(), Wall: time.Now()})
	})
	for i := range list {
		list[i].Message = k.opts.Clean(list[i].Message)
		for _, t := range list[i].Tasks {
			for p := range t.Past {
				t.Past[p].Ended = k.opts.Clean(t.Past[p].Ended)
			}
		}
	}
	return list, err
}

// Account is all that is known of one instance, by its NAMESPACE/NAME: of several of that name the one that lives.
func (k *Keeper) Account(ctx context.Context, name string) (core.Account, error) {
	list, err := k.Accounts(ctx)
	if err != nil {
		return core.Account{}, err
	}
	list = slices.DeleteFunc(list, func(a core.Account) bool { return a.Name != name })
	if len(list) == 0 {
		return core.Account{}, &reason.Error{Code: reason.ResourceUnknown, Doing: "explain " + Subject + name, Hint: "tako-agent status lists the instances that are here"}
	}
	for _, a := range list {
		if a.Phase != "Failed" && a.Phase != "Done" {
			return a, nil
		}
	}
	return list[len(list)-1], nil
}

// Printed is a line that a task has printed, in the words of an answer to a question about logs.
type Printed struct {
	At     time.Time `json:"at"`
	Task   string    `json:"task"`
	Stream string    `json:"stream"`
	Text   string    `json:"text"`
}

// Logs writes what a task has printed last, one JSON object a line, oldest first. The subject is NAMESPACE/NAME, or NAMESPACE/NAME/TASK.
func (k *Keeper) Logs(ctx context.Context, w io.Writer, subject string, previous bool, lines int, since time.Time) error {
	parts := strings.SplitN(subject, "/", 3)
	if len(parts) < 2 {
		return &reason.Error{Code: reason.AnswerRefused, Doing: "read the log of " + Subject + subject, Hint: "write instance/NAMESPACE/NAME or instance/NAMESPACE/NAME/TASK"}
	}
	task := ""
	if len(parts) == 3 {
		task = parts[2]
	}
	type found struct {
		attempt core.Attempt
		runtime *runtime
		err     error
	}
	f, err := ask(ctx, k, func() (f found) {
		f.attempt, f.err = k.machine.Printed(parts[0]+"/"+parts[1], task, previous)
		f.runtime = k.runtimes[f.attempt.Runtime]
		return f
	})
	if err != nil || f.err != nil {
		return cmp.Or(err, f.err)
	}
	if f.runtime == nil {
		return &reason.Error{Code: reason.TaskUnknown, Doing: "read the log of " + Subject + subject, Hint: "its runtime is not open"}
	}
	list, err := f.runtime.Tail(ctx, f.attempt.ID, tailBytes)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(l run.Line) bool { return l.At.Before(since) })
	out := json.NewEncoder(w)
	for _, l := range list[max(len(list)-lines, 0):] {
		p := Printed{At: l.At, Task: f.attempt.ID.Task, Stream: "stdout", Text: k.opts.Clean(strings.ToValidUTF8(string(l.Text), "\uFFFD"))}
		if l.Stderr {
			p.Stream = "stderr"
		}
		if err := out.Encode(p); err != nil {
			return err
		}
	}
	return nil
}
