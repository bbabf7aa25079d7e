package agent

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/process"
	"tako.dev/tako/internal/transfer/wire"
)

// shimArgument makes the test binary mind a task.
const shimArgument = "mind-a-task"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == shimArgument {
		syscall.Exit(process.Serve()) // not os.Exit, before which the race detector sleeps for a second
	}
	os.Exit(m.Run())
}

func processes() []run.Kind {
	return []run.Kind{{Name: workload.Process, Open: func(dir string) (run.Runtime, func() error, error) {
		rt, err := process.New(process.Options{Dir: dir, Shim: []string{"/proc/self/exe", shimArgument}})
		if err != nil {
			return nil, nil, err
		}
		return rt, rt.Close, nil
	}}}
}

// running is the layer of a revision with one task.
func (c *centre) running(revision string, command ...string) catalog.Layer {
	c.t.Helper()
	item, err := catalog.Template{Namespace: "shop", Revision: revision, Spec: workload.Template{Runtime: workload.Process, TerminationGrace: "1s",
		Tasks: []workload.Task{{Name: "main", Command: command, User: strconv.Itoa(os.Geteuid())}}}}.Item()
	must(c.t, err)
	return c.shelve(catalog.TemplateLayer("shop", revision), catalog.TemplatePriority, []catalog.Item{item})
}

// TestInstancesOfAJoinedHost: what the own layer names runs, is told of, goes on over a restart of the agent and without a server, is explained, and
// ends when it is not named any more.
func TestInstancesOfAJoinedHost(t *testing.T) {
	s, c := joinedSite(t)
	s.opts.Instances.Runtimes = processes()
	stop := s.watch()
	uid := "uid-" + strconv.Itoa(os.Getpid())
	in := catalog.Instance{UID: uid, Namespace: "shop", Name: "web-0", Workload: "web", Revision: "web-1"}
	own := func(list ...catalog.Instance) catalog.Layer { return c.own(catalog.Own{Instances: list}) }
	web, template := c.config("NodeConfig/web", 5, fileOf("a")), c.running("web-1", "/bin/sh", "-c", "echo hello; exec sleep 1000")
	c.settles(c.assign(nil, web, template, own(in)), wire.Applied)
	r := c.until("the instance runs", func(r *wire.Report) bool { return len(r.Instances) == 1 && r.Instances[0].Ready })
	if r.Instances[0].UID != uid || r.Instances[0].Phase != wire.InstanceRunning || r.Offers == nil || r.Offers.CPU == 0 || r.Offers.Disk == 0 || len(r.Offers.Runtimes) != 1 || len(r.Configs) != 1 {
		t.Errorf("the report is %+v, %+v, %+v", r.Instances, r.Offers, r.Configs)
	}
	s.until("status tells of it", func(r *Report) bool { return len(r.Instances) == 1 && r.Instances[0].Name == "shop/web-0" })
	s.until("it has said hello", func(*Report) bool {
		return strings.Contains(c.ask(wire.Question{What: wire.AskLogs, Subject: "instance/shop/web-0", Seconds: 10}), `"text":"hello"`)
	})
	var a Answer
	if text := c.ask(wire.Question{What: wire.AskEvidence, Subject: "instance/shop/web-0", Seconds: 10}); json.Unmarshal([]byte(text), &a) != nil || a.Instance == nil ||
		a.Instance.Phase != "Running" || len(a.Instance.Tasks) != 1 || len(a.History) == 0 {
		t.Errorf("the evidence is %s", text)
	}
	stop()
	c.gone(true)
	stop = s.watch()
	again := s.until("status tells of it, without a server", func(r *Report) bool { return len(r.Instances) == 1 })
	if n := again.Instances[0]; !n.Ready || n.Attempt != 1 || n.Restarts != 0 {
		t.Errorf("after a restart of the agent it is %+v", n)
	}
	c.gone(false)
	in.Stop = true
	c.assign(nil, web, template, own(in))
	r = c.until("it has ended", func(r *wire.Report) bool { return len(r.Instances) == 1 && r.Instances[0].Phase == wire.InstanceDone })
	large := catalog.Instance{UID: uid + "-x", Namespace: "shop", Name: "db-0", Workload: "db", Revision: "db-1"}
	item, err := catalog.Template{Namespace: "shop", Revision: "db-1", Spec: workload.Template{Tasks: []workload.Task{{Name: "main", Command: []string{"/bin/true"}}}}}.Item()
	must(t, err)
	c.assign(nil, web, c.shelve(catalog.TemplateLayer("shop", "db-1"), catalog.TemplatePriority, []catalog.Item{item}), own(large))
	r = c.until("the other one is refused", func(r *wire.Report) bool {
		return len(r.Instances) == 1 && r.Instances[0].UID == large.UID && r.Instances[0].Phase == wire.InstanceFailed
	})
	if n := r.Instances[0]; n.Code != reason.RuntimeUnfit || !n.OfNode || !strings.Contains(n.Message, "needs runtime Systemd, and this host has Process") {
		t.Errorf("a refusal is told as %+v", n)
	}
	stop()
	left, err := os.ReadDir(s.opts.StateDir + "/instances/" + uid)
	if !os.IsNotExist(err) {
		t.Errorf("of the first one %v is left, %v", left, err)
	}
}
