package host

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The ports that FreeAddress chooses from: below those that agents give to what they run (20000 and above), and those that the kernel gives to
// outgoing connections (32768 and above), because one of these would sooner or later stand where a server that a test starts again wants
// to listen.
const portMin, portMax = 12000, 19999

// FreeAddress is an address of this machine, HOST:PORT, on which nobody listens, and that stays free between two runs of a server, until the
// test ends: no other test gets it meanwhile. The port after it is the caller's too.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := portMin + rand.IntN(portMax-portMin)
		if take(t, port) && take(t, port+1) {
			return addressOf(port)
		}
	}
	t.Fatalf("no two ports that follow each other are free between %d and %d", portMin, portMax)
	return ""
}

func addressOf(port int) string { return fmt.Sprint("127.0.0.1:", port) }

// take takes a port for the test, if nobody has it. Tests run in several processes, and know of one another by a socket without a file,
// which ends with its process.
func take(t testing.TB, port int) bool {
	t.Helper()
	mark, err := net.Listen("unix", fmt.Sprint("@tako-test-port-", port))
	if err != nil {
		return false
	}
	if !isFree(addressOf(port)) {
		mark.Close()
		return false
	}
	t.Cleanup(func() { mark.Close() })
	return true
}

// isFree reports whether nobody has an address, over TCP or UDP: who answers for names wants both.
func isFree(at string) bool {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return false
	}
	defer l.Close()
	p, err := net.ListenPacket("udp", at)
	if err != nil {
		return false
	}
	return p.Close() == nil
}
