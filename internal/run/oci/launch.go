package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/run/account"
	"tako.dev/tako/internal/run/shim"
)

const (
	// runcMax is how long runc may take: it makes a container within a tenth of a second, and waits for nobody but the kernel.
	runcMax = time.Minute
	// executeMax is how long it may take from there to the program, which is one system call.
	executeMax = 10 * time.Second
	// logMax and wordsMax bound what is read of runc's log, and told of it.
	logMax, wordsMax = 64 << 10, 1 << 10
	// startProcesses are the threads that runc may need in the container until that is made, and waitProcesses from there to the program: a lower
	// limit is set after that.
	startProcesses, waitProcesses = 64, 16
	// holderVariable makes a shim a holder.
	holderVariable = "TAKO_HOLDER"
	// initName is what a process is called that runc has made and that does not execute its program yet.
	initName = "(runc:[2:INIT])"
)

// Serve is the shim's side, and that of the process that a shim has for each container; see shim.Serve.
func Serve() int {
	if os.Getenv(holderVariable) != "" {
		hold()
	}
	return shim.Serve(launch)
}

// hold is the first process of a process ID namespace: the kernel gives it what has lost its parent, and reaps that for whoever ignores the
// signal. It takes no other signal either; SIGKILL from outside ends it, and everything in the namespace.
func hold() {
	signal.Ignore()
	for {
		_ = unix.Pause() // whatever interrupts it
	}
}

// box is the directory of a container on the host, as its shim sees it.
type box string

func (b box) in(name string) string { return filepath.Join(string(b), name) }

// launch makes the container, and has its program executed.
func launch(o *shim.Order, stdio [3]uintptr) (int, error) {
	var c container
	if err := json.Unmarshal(o.More, &c); err != nil {
		return 0, fmt.Errorf("read the order: %w", err)
	}
	b := box(filepath.Join(o.Place(), "box"))
	if err := furnish(b, o, &c); err != nil {
		return 0, err
	}
	if !c.MakeDir { // runc would make it
		if err := enterable(b.in("root"), o.WorkDir, c.Mounts); err != nil {
			return 0, fmt.Errorf("enter its directory: %s: %w", o.WorkDir, err)
		}
	}
	holder, err := startHolder()
	if err != nil {
		return 0, fmt.Errorf("make its process ID namespace: %w", err)
	}
	p := place{root: b.in("root"), config: b.in("files"), holder: holder, files: filesMax()}
	if c.Network != "" {
		p.resolv = b.in("resolv.conf")
	}
	text, err := json.Marshal(specOf(o, &c, p))
	if err == nil {
		err = os.WriteFile(b.in("config.json"), text, 0o600)
	}
	if err != nil {
		return 0, fmt.Errorf("write its configuration: %w", err)
	}
	name := shim.GroupName(o.ID)
	if err := runc(b, o, &c, stdio, "create", "--bundle", string(b), "--pid-file", b.in("pid"), "--no-new-keyring", name); err != nil {
		return 0, err
	}
	pid := 0
	if text, err = os.ReadFile(b.in("pid")); err == nil {
		pid, err = strconv.Atoi(string(text))
	}
	if err != nil {
		return 0, fmt.Errorf("read what runc has started: %w", err)
	}
	if err := limit(o, max(c.Processes, waitProcesses), c.Processes > 0); err != nil {
		return 0, err
	}
	// The shim is its parent now, and so the number stays its own.
	if err := runc(b, o, &c, [3]uintptr{stdio[0], stdio[0], stdio[0]}, "start", name); err != nil {
		return 0, err
	}
	if err := executed(pid); err != nil {
		return 0, err
	}
	if err := limit(o, c.Processes, c.Processes > 0 && c.Processes < waitProcesses); err != nil {
		return 0, err
	}
	return pid, nil
}

// limit bounds the processes of a container, where that is needed.
func limit(o *shim.Order, most int64, needed bool) error {
	if !needed {
		return nil
	}
	if err := o.Group.LimitProcesses(most); err != nil {
		return fmt.Errorf("limit its processes: %w", err)
	}
	return nil
}

// filesMax is how many files a process may have open: as many as the agent where that may have less.
func filesMax() uint64 {
	var have unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &have) != nil {
		return filesSoft
	}
	return min(filesHard, have.Max)
}

// furnish makes a mount namespace for this thread and what it starts, with the files of the container in it.
func furnish(b box, o *shim.Order, c *container) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// What the host mounts and unmounts is seen here, so that nothing is kept busy; and not the other way round.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("part from the mounts of the host: %w", err)
	}
	if err := os.Mkdir(string(b), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	// Not tmpfs, which is swapped: config files and variables may be secret.
	if err := unix.Mount("ramfs", string(b), "ramfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("make memory for its configuration: %w", err)
	}
	for _, name := range []string{"root", "over", "files", "state"} {
		if err := os.Mkdir(b.in(name), 0o700); err != nil {
			return err
		}
	}
	over := filepath.Join(o.Place(), "written")
	if !c.Writable {
		// runc makes the places for mounts in it, before the root becomes read-only.
		over = b.in("over")
		if err := unix.Mount("tmpfs", over, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700,size=16m"); err != nil {
			return fmt.Errorf("make memory for its root: %w", err)
		}
	}
	upper, work := filepath.Join(over, "upper"), filepath.Join(over, "work")
	for _, dir := range []string{upper, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	options := "lowerdir=" + escaped(c.Image) + ",upperdir=" + escaped(upper) + ",workdir=" + escaped(work)
	if err := unix.Mount("overlay", b.in("root"), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("lay its root over the image: %w", err)
	}
	if err := openToAll(b.in("root")); err != nil {
		return err
	}
	if c.Network != "" {
		if err := writeResolv(b.in("resolv.conf")); err != nil {
			return fmt.Errorf("write its resolv.conf: %w", err)
		}
	}
	for i, f := range c.Files {
		if err := writeFile(b.in("files/"+strconv.Itoa(i)), f.Content, f.Mode, o.As); err != nil {
			return fmt.Errorf("write the file %s: %w", f.Path, err)
		}
	}
	return nil
}

// openToAll gives /tmp of an image the permissions that it has to have: runc gives those of the image to what it mounts there.
func openToAll(root string) error {
	st, err := os.Lstat(filepath.Join(root, "tmp"))
	if errors.Is(err, os.ErrNotExist) || err == nil && !st.IsDir() {
		return nil
	}
	if err == nil && st.Mode()&(os.ModePerm|os.ModeSticky) != os.ModePerm|os.ModeSticky {
		err = os.Chmod(filepath.Join(root, "tmp"), os.ModePerm|os.ModeSticky)
	}
	if err != nil {
		return fmt.Errorf("open its /tmp: %w", err)
	}
	return nil
}

// escaped is a path among the options of an overlay.
func escaped(p string) string { return strings.NewReplacer(`\`, `\\`, ":", `\:`, ",", `\,`).Replace(p) }

func writeFile(name string, content []byte, mode uint32, as *account.Account) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chown(int(as.UID), int(as.GID))
	}
	if err == nil {
		err = unix.Fchmod(int(f.Fd()), mode&0o777)
	}
	return errors.Join(err, f.Close())
}

// startHolder starts the first process of a process ID namespace, which ends with this thread.
func startHolder() (int, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	pid, _, err := syscall.StartProcess("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Dir: "/", Env: []string{holderVariable + "=1", "GOMAXPROCS=1", "GOGC=20"}, Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL},
	})
	return pid, err
}

// runc runs runc, and waits for it.
func runc(b box, o *shim.Order, c *container, stdio [3]uintptr, words ...string) error {
	// What it calls rootless is only that it goes on without a cgroup where it cannot make one. What the task declares was made before.
	args := append([]string{c.Runc, "--root", b.in("state"), "--log", b.in("log"), "--log-format", "json", "--rootless", strconv.FormatBool(o.Group.Partial)}, words...)
	pidfd := -1
	pid, _, err := syscall.StartProcess(c.Runc, args, &syscall.ProcAttr{
		Dir: "/", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", shim.Variable(o.ID.String())}, Files: stdio[:],
		Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, PidFD: &pidfd},
	})
	if err != nil {
		return fmt.Errorf("execute %s: %w", c.Runc, err)
	}
	defer unix.Close(pidfd)
	for stop := time.Now().Add(runcMax); ; {
		left := time.Until(stop)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(max(left, 0).Milliseconds()))
		if n > 0 {
			break
		}
		if err == nil || !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("runc %s takes more than %v", words[0], runcMax)
		}
	}
	var status syscall.WaitStatus
	if err := disk.Retry(func() error { _, err := syscall.Wait4(pid, &status, 0, nil); return err }); err != nil {
		return err
	}
	if status.Exited() && status.ExitStatus() == 0 {
		return nil
	}
	return fmt.Errorf("runc %s: %s", words[0], said(b.in("log")))
}

// said is the last error in the log of runc.
func said(log string) string {
	f, err := os.Open(log)
	if err != nil {
		return "it has failed, and left no log"
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, logMax)) // as far as it goes
	return lastError(text)
}

// lastError finds it among lines of JSON.
func lastError(text []byte) string {
	words := "it has failed, and does not say why"
	for line := range bytes.Lines(text) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal(line, &entry) == nil && entry.Level == "error" && entry.Msg != "" {
			words = entry.Msg
		}
	}
	return strings.ToValidUTF8(words[:min(len(words), wordsMax)], "")
}

// executed waits until a process that runc has made executes its program.
func executed(pid int) error {
	for stop := time.Now().Add(executeMax); time.Now().Before(stop); {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return err
		}
		end := bytes.LastIndexByte(text, ')')
		if end < 0 || !bytes.Contains(text[:end+1], []byte(initName)) {
			return nil
		}
		if bytes.HasPrefix(text[end+1:], []byte(" Z")) {
			return errors.New("the kernel does not execute its program: it is not for this machine, or what is to interpret it is missing")
		}
		_, _ = unix.Poll(nil, 1)
	}
	return fmt.Errorf("runc does not execute its program within %v", executeMax)
}
