package naming

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"tako.dev/tako/bench/load"
	"tako.dev/tako/internal/names/server"
)

const (
	// placedMax is how long the instance may take until it is placed, from the start of the agents.
	placedMax = 2 * time.Minute
	// stopMax is how long an agent may take to end, and the instance.
	stopMax = 30 * time.Second
	// lifetime is that of the task, in seconds: longer than it is measured.
	lifetime = "900"
)

// Where the objects are.
const workloadsPath, instancesPath = "/apis/tako.dev/v1alpha1/namespaces/default/workloads", "/apis/tako.dev/v1alpha1/namespaces/default/instances"

// nodes are the hosts.
var nodes = [...]string{"a", "b"}

// fleet is a server and two hosts with agents.
type fleet struct {
	server *load.Server
	agents []*exec.Cmd
	cancel context.CancelFunc        // ends them
	at     map[string]netip.AddrPort // where names are answered, by node; of the server by no name
	on     string                    // the node of the instance
	marks  string                    // directory
	mark   string                    // file in it, whose presence is the readiness
}

// workload has one instance, whose readiness is a file.
func workload(mark string) ([]byte, error) {
	task := map[string]any{
		"name": "web", "command": []string{"/bin/sleep", lifetime},
		"readiness": map[string]any{"exec": map[string]any{"command": []string{"/usr/bin/test", "-e", mark}}, "period": "100ms", "failureThreshold": 1},
	}
	return json.Marshal(map[string]any{
		"apiVersion": "tako.dev/v1alpha1", "kind": "Workload", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"replicas": 1, "template": map[string]any{"runtime": "Process", "tasks": []any{task}}},
	})
}

// start starts all of them. What it returns is to be stopped, with an error too.
func start(ctx context.Context, tako, agent, dir string) (f *fleet, err error) {
	f = &fleet{at: map[string]netip.AddrPort{}}
	if f.marks, err = os.MkdirTemp("", "tako-bench-names-"); err == nil {
		err = os.Chmod(f.marks, 0o755) // probes are not root, and scratch files are
	}
	if err != nil {
		return f, err
	}
	f.mark = filepath.Join(f.marks, "ready")
	for _, who := range append(nodes[:], "") {
		if f.at[who], err = free(ctx); err != nil {
			return f, err
		}
	}
	data := filepath.Join(dir, "server")
	if f.server, err = load.Start(ctx, tako, data, "--names", f.at[""].String()); err != nil {
		return f, err
	}
	running, cancel := context.WithCancel(ctx)
	f.cancel = cancel
	for _, node := range nodes {
		if err := f.join(running, tako, agent, dir, node); err != nil {
			return f, err
		}
	}
	c := f.server.Client()
	defer c.Leave()
	body, err := workload(f.mark)
	if err == nil {
		err = c.Post(ctx, workloadsPath, body)
	}
	if err != nil {
		return f, err
	}
	return f, f.placed(ctx, c)
}

// free is an address that nobody listens at, by UDP or by TCP.
func free(ctx context.Context) (netip.AddrPort, error) {
	sockets, err := server.Listen(ctx, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		return netip.AddrPort{}, err
	}
	return sockets.Addresses()[0], sockets.Close()
}

// join has a host join, and starts its agent.
func (f *fleet) join(ctx context.Context, tako, agent, dir, node string) error {
	root := filepath.Join(dir, node)
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		return err
	}
	token := exec.CommandContext(ctx, tako, "token", "create", "join", "--name", node, "--environment", "default")
	token.Env = append(os.Environ(), "KUBECONFIG="+f.server.Kubeconfig(), "HOME="+dir)
	line, err := token.Output()
	if err != nil {
		return fmt.Errorf("make a token: %w", err)
	}
	joins := exec.CommandContext(ctx, agent, "join", "-", "--root", root, "--name", node)
	joins.Stdin = bytes.NewReader(line)
	if out, err := joins.CombinedOutput(); err != nil {
		return fmt.Errorf("join: %w: %s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, node+".log"))
	if err != nil {
		return err
	}
	defer log.Close() // the agent has it, too
	runs := exec.CommandContext(ctx, agent, "run", "--root", root, "--names", f.at[node].String())
	runs.Stdout, runs.Stderr = log, log
	runs.Cancel = func() error { return runs.Process.Signal(syscall.SIGTERM) }
	runs.WaitDelay = stopMax
	if err := runs.Start(); err != nil {
		return err
	}
	f.agents = append(f.agents, runs)
	return nil
}

// instance is what is read of one.
type instance struct {
	Spec struct {
		Node string `json:"node"`
	} `json:"spec"`
}

// placed waits until the instance has a node.
func (f *fleet) placed(ctx context.Context, c *load.Client) error {
	return await(ctx, c, placedMax, "placed", func(all []instance) bool {
		if len(all) != 1 || all[0].Spec.Node == "" {
			return false
		}
		f.on = all[0].Spec.Node
		return true
	})
}

// await waits until the instances are as they should be.
func await(ctx context.Context, c *load.Client, limit time.Duration, what string, are func([]instance) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		var list struct {
			Items []instance `json:"items"`
		}
		text, err := c.Get(ctx, instancesPath)
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
		if err == nil && are(list.Items) {
			return nil
		}
		if waitErr := wait(ctx, 100*time.Millisecond); waitErr != nil {
			return fmt.Errorf("the instance is not %s: %w: %.1000s", what, errors.Join(err, waitErr), text)
		}
	}
}

// answerers are those who are asked.
func (f *fleet) answerers() []answerer {
	other := slices.IndexFunc(nodes[:], func(node string) bool { return node != f.on })
	return []answerer{{"its own host", f.at[f.on]}, {"another host", f.at[nodes[other]]}, {"the server", f.at[""]}}
}

// stop ends the instance, the agents and the server.
func (f *fleet) stop(ctx context.Context) error {
	errs := []error{os.RemoveAll(f.marks)}
	if f.server == nil {
		return errors.Join(errs...)
	}
	if f.on != "" {
		c := f.server.Client()
		err := c.Delete(ctx, workloadsPath+"/web")
		if err == nil {
			err = await(ctx, c, stopMax, "gone", func(all []instance) bool { return len(all) == 0 })
		}
		c.Leave()
		errs = append(errs, err)
	}
	if f.cancel != nil {
		f.cancel()
	}
	for _, a := range f.agents {
		if err := a.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, fmt.Errorf("an agent ended with %w", err))
		}
	}
	return errors.Join(append(errs, f.server.Stop())...)
}
