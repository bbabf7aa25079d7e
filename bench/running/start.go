package running

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"tako.dev/tako/bench/load"
	"tako.dev/tako/declare/workload"
)

const (
	startMax = 100 * time.Millisecond // p99, above the process's own start
	// starts are how many replicas are started one after the other, and startRest is what an idle cluster is given between two.
	starts      = 200
	startsQuick = 30
	startRest   = 300 * time.Millisecond
	// markMax is how long a process may take to run, far above the bar.
	markMax = 30 * time.Second
	// markPoll is as fine as what is measured needs, and far from keeping a core busy.
	markPoll = 200 * time.Microsecond
)

// marking has a shell say that it runs, by a file of the name of its instance.
const marking = `: > "$DIR/$NAME" && exec sleep infinity`

// Start measures how long it takes from the declaration of one more replica until its process runs.
func (b *Bench) Start(ctx context.Context) (err error) {
	f, dir, err := b.Fleet(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	c := f.Client()
	defer c.Leave()
	rounds := starts
	if b.Quick {
		rounds = startsQuick
	}
	declared := false
	defer func() {
		if declared { // what an agent has started goes on without it
			_, left := drop(context.WithoutCancel(ctx), &f.Server, placedMax, "start")
			err = errors.Join(err, left)
		}
	}()
	task := workload.Task{
		Name: "task", Command: []string{"/bin/sh", "-c", marking}, User: "root",
		Env: []workload.EnvVar{{Name: "DIR", Value: dir}, {Name: "NAME", ValueFrom: &workload.EnvSource{Field: "instance.name"}}},
	}
	var took, answered, own load.Sample
	for replicas := 1; replicas <= rounds+1; replicas++ {
		body, err := declaration("start", replicas, task)
		if err != nil {
			return err
		}
		alone, err := startAlone(ctx, dir)
		if err != nil {
			return err
		}
		if err := load.Pause(ctx, startRest); err != nil {
			return err
		}
		start := time.Now()
		if replicas == 1 {
			err = c.Declare(ctx, body)
		} else {
			err = c.Redeclare(ctx, "start", body)
		}
		if err != nil {
			return err
		}
		declared = true
		known := time.Since(start)
		if err := marked(ctx, filepath.Join(dir, fmt.Sprintf("start-%d", replicas-1))); err != nil {
			return err
		}
		if replicas > 1 { // the first one makes a revision and a template too
			took, answered, own = append(took, time.Since(start)), append(answered, known), append(own, alone)
		}
	}
	const what = "workloads: one more replica on an idle cluster with one agent, "
	limit := startMax + own.Median()
	b.Judge(what+"from its declaration until its process runs", took.String(), "p99 <= "+load.Milliseconds(limit), took.At(0.99) <= limit)
	b.State(what+"of that, until the API has answered", answered.String())
	b.State(what+"the same process, started by the bench itself", own.String())
	return nil
}

// startAlone is how long the process takes to say that it runs, when nobody else is in between.
func startAlone(ctx context.Context, dir string) (time.Duration, error) {
	const name = "alone"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", marking)
	cmd.Env = append(os.Environ(), "DIR="+dir, "NAME="+name)
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	err := marked(ctx, filepath.Join(dir, name))
	took := time.Since(start)
	cancel()
	_ = cmd.Wait() // it was killed
	return took, errors.Join(err, os.Remove(filepath.Join(dir, name)))
}

// marked waits until a process has said that it runs.
func marked(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, markMax)
	defer cancel()
	for {
		_, err := os.Stat(path)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := load.Pause(ctx, markPoll); err != nil {
			return fmt.Errorf("%s is not there: %w", path, err)
		}
	}
}
