package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strconv"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/scheduler/fit"
)

// The range of ports that are given to those that name none: above what services are registered for mostly, and below what the kernel gives to
// connections (net.ipv4.ip_local_port_range begins with 32768).
const (
	portFirst = 20_000
	portCount = 12_000
)

// bind finds numbers for ports. That nobody has one is told by having it for a moment.
func bind(b core.Bind) core.Bound { return numbered(b, free) }

// listened is the number that the program of a task listens on: the declared one, which is that of the host where the network is, or otherwise the one
// that was found.
func listened(p *workload.Port, found map[string]int32) int32 { return cmp.Or(p.Port, found[p.Name]) }

func numbered(b core.Bind, free func(fit.Port) bool) core.Bound {
	out := core.Bound{UID: b.UID, Ports: map[string]int32{}}
	mine := map[fit.Port]bool{}
	for _, need := range b.Ports {
		if need.Number != 0 {
			p := fit.Port{Protocol: need.Protocol, Number: need.Number}
			if !free(p) {
				out.Err = &reason.Error{Code: reason.PortOccupied, Doing: fmt.Sprintf("take port %v", p), Cause: errors.New("a program that tako does not run listens on it"),
					Hint: "ss -lntup on the host shows which one"}
				return out
			}
			mine[p], out.Ports[need.Name] = true, need.Number
		}
	}
	for _, need := range b.Ports {
		if need.Number != 0 {
			continue
		}
		// It begins somewhere else for each, so that what has ended just now is not followed by a stranger on the same number.
		h := fnv.New32a()
		_, _ = h.Write([]byte(b.UID + "/" + need.Name)) // it cannot fail
		for try := range uint32(portCount) {
			p := fit.Port{Protocol: need.Protocol, Number: int32(portFirst + (h.Sum32()%portCount+try)%portCount)}
			if b.Held[p] == "" && !mine[p] && free(p) {
				mine[p], out.Ports[need.Name] = true, p.Number
				break
			}
		}
		if out.Ports[need.Name] == 0 {
			out.Err = &reason.Error{Code: reason.PortOccupied, Doing: "find a free port", Cause: fmt.Errorf("all from %d to %d are taken", portFirst, portFirst+portCount-1)}
			return out
		}
	}
	return out
}

// free reports whether nobody listens on a port. What the agent may not find out is free: the program will see.
func free(p fit.Port) bool {
	var listen net.ListenConfig
	address := net.JoinHostPort("", strconv.Itoa(int(p.Number)))
	var err error
	if p.Protocol == workload.UDP {
		var c net.PacketConn
		if c, err = listen.ListenPacket(context.Background(), "udp", address); err == nil {
			err = c.Close()
		}
	} else {
		var l net.Listener
		if l, err = listen.Listen(context.Background(), "tcp", address); err == nil {
			err = l.Close()
		}
	}
	return !errors.Is(err, unix.EADDRINUSE)
}
