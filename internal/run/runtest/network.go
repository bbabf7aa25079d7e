package runtest

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/run"
)

// askTime bounds one question over a network of this machine.
const askTime = 5 * time.Second

// refusal is what ask says where nobody listens.
const refusal = "nobody"

// serve says a word to whoever connects to a port.
func serve(port, word string) {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, word) // who asks sees what has come
		_ = c.Close()
	}
}

// ask is the word at an address.
func ask(address string) string {
	c, err := net.DialTimeout("tcp", address, askTime)
	if err != nil {
		return refusal
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(askTime)); err != nil {
		return err.Error()
	}
	word, err := io.ReadAll(io.LimitReader(c, 1<<10))
	if err != nil {
		return err.Error()
	}
	return string(word)
}

// OwnNetworks tries networks of instances, with the ports of this host from first on. The host may have no program that listens.
func OwnNetworks(t *testing.T, s Subject, first int32) {
	t.Helper()
	b := newBench(t, s)
	if why, lacks := b.rt.Capabilities().Lacks[run.OwnNetwork]; lacks {
		b.Skip(why)
	}
	n := &netBench{bench: b, first: first}
	one, two := n.server("one", 1), n.server("two", 2)
	host := hostAddress(b)
	for i, task := range []run.Task{one, two} {
		b.start(task)
		b.says(task.ID, "ready")
		n.answers(n.address(task), task.Env[len(task.Env)-1])
		n.answers(netip.AddrPortFrom(host(), uint16(first)+uint16(i+1)), task.Env[len(task.Env)-1])
	}
	n.neighbours(one, two, host())

	was := n.address(one)
	b.leave()
	b.open()
	n.answers(was, "WORD=one")
	beside := n.beside(n.shell("true"), one)
	b.start(beside)
	b.ended(beside.ID)
	b.over(beside.ID)
	if is := n.address(one); is != was {
		b.Errorf("it was at %v, and is at %v after something of the instance has ended", was, is)
	}

	b.over(one.ID)
	if a, known := n.networked().Address(one.ID.Instance); known {
		b.Errorf("nothing of the instance is left, and it is at %v", a)
	}
	if got := ask(netip.AddrPortFrom(host(), uint16(first)+1).String()); got != refusal {
		b.Errorf("its port says %q", got)
	}
	n.answers(n.address(two), "WORD=two")
	again := one
	again.ID.Attempt++
	is := b.start(again)
	b.says(again.ID, "ready")
	n.answers(n.address(again), "WORD=one")
	n.goneWithoutAgent(is)
}

// netBench is a bench for networks.
type netBench struct {
	*bench
	first  int32
	others uint32 // tasks beside the first of their instance
}

func (n *netBench) networked() run.Networked {
	n.Helper()
	rt, ok := n.rt.(run.Networked)
	if !ok {
		n.Fatal("it gives networks, and does not say where")
	}
	return rt
}

// server is a task that listens on a port that only root has on a host.
func (n *netBench) server(name string, number int32) run.Task {
	t := n.program("serve", "80", "WORD="+name)
	t.ID.Instance, t.OwnNetwork = name+"-"+n.born, true
	t.Ports = []run.PortMap{{Protocol: workload.TCP, Host: n.first + number, Own: 80}}
	t.Env = append(t.Env, "WORD="+name)
	return t
}

// beside makes a task another one of the same instance.
func (n *netBench) beside(t, one run.Task) run.Task {
	n.others++
	t.ID = run.ID{Instance: one.ID.Instance, Task: "beside", Attempt: n.others}
	t.OwnNetwork, t.Ports = true, one.Ports
	return t
}

func (n *netBench) address(t run.Task) netip.AddrPort {
	n.Helper()
	a, known := n.networked().Address(t.ID.Instance)
	if !known {
		n.Fatalf("it is not known where %s is", t.ID.Instance)
	}
	return netip.AddrPortFrom(a, 80)
}

func (n *netBench) answers(a netip.AddrPort, word string) {
	n.Helper()
	if got := ask(a.String()); got != word {
		n.Errorf("at %v is %q, want %q", a, got, word)
	}
}

// neighbours asks from inside: tasks of an instance see each other, what is of the host alone is not seen, and ports of instances are seen at the host.
func (n *netBench) neighbours(one, two run.Task, host netip.Addr) {
	n.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.Fatal(err)
	}
	defer l.Close()
	at := func(number int32) string { return net.JoinHostPort(host.String(), strconv.Itoa(int(n.first+number))) }
	for address, want := range map[string]string{
		"127.0.0.1:80": "WORD=one", l.Addr().String(): refusal, at(1): "WORD=one", at(2): "WORD=two", n.address(two).String(): "WORD=two",
	} {
		t := n.beside(n.program("ask", address), one)
		n.start(t)
		e := n.ended(t.ID)
		if got := strings.TrimSpace(n.printed(t.ID)); got != want || !e.Well() {
			n.Errorf("from inside, at %s is %q, want %q (%+v)", address, got, want, e)
		}
		n.over(t.ID)
	}
}

// goneWithoutAgent ends an instance while there is no agent: the next one takes its network away.
func (n *netBench) goneWithoutAgent(is run.Status) {
	n.Helper()
	n.leave()
	if err := syscall.Kill(is.PID, syscall.SIGKILL); err != nil {
		n.Error(err)
	}
	n.open()
	n.ended(is.ID)
	n.eventually("its network is taken away", func() bool {
		_, known := n.networked().Address(is.ID.Instance)
		return !known
	})
}

// hostAddress finds an address of the host that others than itself reach, when there is one.
func hostAddress(b *bench) func() netip.Addr {
	return func() netip.Addr {
		b.Helper()
		all, err := net.InterfaceAddrs()
		if err != nil {
			b.Fatal(err)
		}
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
				return p.Addr()
			}
		}
		b.Fatal("the host has no address")
		return netip.Addr{}
	}
}
