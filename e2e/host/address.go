package host

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The ports that FreeAddress chooses from: below those that the kernel gives to outgoing connections (32768 and above), because
// one of these would sooner or later stand where a server that a test starts again wants to listen.
const portMin, portMax = 12000, 32000

// FreeAddress is an address of this machine, HOST:PORT, on which nobody listens and that stays free between two runs of a
// server; the port after it is free too.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := portMin + rand.IntN(portMax-portMin)
		if at := fmt.Sprint("127.0.0.1:", port); isFree(at) && isFree(fmt.Sprint("127.0.0.1:", port+1)) {
			return at
		}
	}
	t.Fatalf("no two ports that follow each other are free between %d and %d", portMin, portMax)
	return ""
}

func isFree(at string) bool {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return false
	}
	return l.Close() == nil
}
