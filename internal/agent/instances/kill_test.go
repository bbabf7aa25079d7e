package instances

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/transfer/wire"
)

// TestWorkloadCase62_AgentKilledAgainAndAgain kills an agent with SIGKILL after a time that grows, from before it has read anything until everything
// runs. Whenever that is, the next one finds what there is: of each instance there is one process in the end, and of each attempt one.
func TestWorkloadCase62_AgentKilledAgainAndAgain(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t)
	var uids []string
	for range 3 {
		uids = append(uids, r.add(nil, task("wait")))
	}
	data, err := json.Marshal(r.wanted)
	c.NoError(err, "encode")
	c.NoError(os.WriteFile(filepath.Join(r.dir, "wanted.json"), data, 0o600), "write")
	for after := time.Millisecond; after < 400*time.Millisecond; after += after/6 + time.Millisecond {
		agent, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], agentArgument, r.dir}, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, nil, os.Stderr}})
		c.NoError(err, "start the agent")
		<-time.After(after)
		c.NoError(agent.Signal(syscall.SIGKILL), "kill the agent")
		_, err = agent.Wait()
		c.NoError(err, "wait")
	}
	r.start()
	r.until("all run", func(told []wire.Instance) bool {
		for _, n := range told {
			if n.Phase != wire.InstanceRunning || !n.Ready {
				return false
			}
		}
		return len(told) == len(uids)
	})
	for _, uid := range uids {
		r.until("of each instance there is one process", func([]wire.Instance) bool { return len(r.pids(uid)) == 1 })
		n := r.one(uid)
		c.Check(n.Attempt == 1 && n.Restarts == 0, "%s was begun %d times: %+v", uid, n.Attempt, r.account(uid).Tasks[0].Past)
	}
}
