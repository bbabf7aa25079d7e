package instances

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/oci"
	"tako.dev/tako/internal/run/process"
)

// The test binary is its own shim, the programs that tasks run, and an agent that is killed.
const (
	shimArgument    = "mind-a-task"
	boxArgument     = "mind-a-container"
	programArgument = "program"
	agentArgument   = "agent"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == shimArgument:
		syscall.Exit(process.Serve()) // not os.Exit, before which the race detector sleeps for a second
	case len(os.Args) == 2 && os.Args[1] == boxArgument:
		syscall.Exit(oci.Serve())
	case len(os.Args) > 2 && os.Args[1] == programArgument:
		program(os.Args[2], os.Args[3:])
		syscall.Exit(0)
	case len(os.Args) == 3 && os.Args[1] == agentArgument:
		if err := killedAgent(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			syscall.Exit(1)
		}
		syscall.Exit(0)
	}
	os.Exit(m.Run())
}

// kinds are the runtimes of tests.
func kinds() []run.Kind {
	return []run.Kind{{Name: workload.Process, Open: func(dir string) (run.Runtime, func() error, error) {
		rt, err := process.New(process.Options{Dir: dir, Shim: []string{"/proc/self/exe", shimArgument}})
		if err != nil {
			return nil, nil, err
		}
		return rt, rt.Close, nil
	}}, {Name: workload.OCI, Unfit: oci.Unfit, NoNetworks: oci.NoNetworks, Open: func(dir string) (run.Runtime, func() error, error) {
		rt, err := oci.New(oci.Options{Dir: dir, Images: filepath.Join(filepath.Dir(dir), "images"), Networks: filepath.Join(filepath.Dir(dir), "networks"), Shim: []string{"/proc/self/exe", boxArgument}})
		if err != nil {
			return nil, nil, err
		}
		return rt, rt.Close, nil
	}}}
}

// program is what tasks run.
func program(word string, args []string) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT_HTTP"))
		if err != nil {
			fmt.Println(err)
			syscall.Exit(3)
		}
		return l
	}
	switch word {
	case "serve": // what it was given, at /env; at /ready 200 when a file is there
		mux := http.NewServeMux()
		mux.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(os.Environ()) })
		mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
			if _, err := os.Stat(args[0]); err != nil {
				http.Error(w, "warming the cache with s3cret-value", http.StatusServiceUnavailable)
			}
		})
		fmt.Println(http.Serve(listen(), mux))
	case "word": // at a port, to whoever asks
		l, err := net.Listen("tcp", ":"+args[0])
		if err != nil {
			fmt.Println(err)
			syscall.Exit(3)
		}
		fmt.Println(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, os.Getenv("WORD"), " ", os.Getenv("PORT_OTHER"))
		})))
	case "deaf": // it ignores what asks it to end
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("deaf")
		select {}
	case "flood": // prints as fast as it can
		text := make([]byte, 1000)
		for i := range text {
			text[i] = 'x'
		}
		for {
			fmt.Println(string(text))
		}
	case "exit": // after a while
		code, _ := strconv.Atoi(args[0])
		fmt.Println("about to end")
		syscall.Exit(code)
	case "bomb": // starts itself again and again
		for {
			attr := &os.ProcAttr{Env: os.Environ()}
			if _, err := os.StartProcess("/proc/self/exe", os.Args, attr); err != nil {
				<-time.After(50 * time.Millisecond)
			}
		}
	case "wait":
		<-time.After(time.Hour)
	}
}

// killedAgent is an agent that keeps what is written down in a directory, until it is killed.
func killedAgent(dir string) error {
	data, err := os.ReadFile(dir + "/wanted.json")
	if err != nil {
		return err
	}
	var w Wanted
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	k, err := New(Options{StateDir: dir, Boot: string(boot[:len(boot)-1]), Runtimes: kinds(), Open: func(catalog.Sealed) ([]byte, error) { return nil, nil }, Clean: func(s string) string { return s },
		Changed: func() {}, Note: func(store.Happening) {}, Trouble: func(doing string, err error) { fmt.Fprintln(os.Stderr, doing, err) }})
	if err != nil {
		return err
	}
	k.Want(w)
	return k.Run(context.Background())
}
