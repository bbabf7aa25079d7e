package process

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/run/shim"
)

// Serve is the shim's side; see shim.Serve.
func Serve() int { return shim.Serve(launch) }

// launch starts the program in a session of its own, and in its cgroup from its first moment.
func launch(o *shim.Order, stdio [3]uintptr) (int, error) {
	if st, err := os.Stat(o.WorkDir); err != nil {
		return 0, fmt.Errorf("enter its directory: %w", err)
	} else if !st.IsDir() {
		return 0, fmt.Errorf("enter its directory: %s: %w", o.WorkDir, unix.ENOTDIR)
	}
	attr := &syscall.ProcAttr{
		Dir: o.WorkDir, Env: shim.Texts(o.Env), Files: stdio[:],
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if as := o.As; as != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: as.UID, Gid: as.GID, Groups: as.Groups}
	}
	// The kernel takes the task before its shim when memory is short, and the shim as it took the agent.
	const score = "/proc/self/oom_score_adj"
	own, errOwn := os.ReadFile(score)
	_ = os.WriteFile(score, []byte("0"), 0) // it fails where that is so already
	into, err := o.Group.Into()
	if err != nil {
		return 0, fmt.Errorf("open its cgroup: %w", err)
	}
	if into != nil {
		defer into.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(into.Fd())
	}
	// The child is where this thread is, which goes back at once: the shim must not die of the task's limits.
	if err := o.Group.Enter(); err != nil {
		return 0, fmt.Errorf("enter its cgroup: %w", err)
	}
	args := shim.Texts(o.Command)
	pid, _, err := syscall.StartProcess(args[0], args, attr)
	back := o.Home.Enter()
	if errOwn == nil {
		_ = os.WriteFile(score, own, 0)
	}
	if err != nil {
		return 0, fmt.Errorf("execute %s: %w", args[0], err)
	}
	if back != nil {
		return 0, fmt.Errorf("leave its cgroup: %w", back)
	}
	return pid, nil
}
