package host

import (
	"net"
	"testing"
)

// Listen opens a TCP socket on the bridge, where hosts reach what the test itself serves. It is closed by who serves, or with the test.
func (l *Lab) Listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := l.network.listen(bridgeAddress + ":0")
	if err != nil {
		t.Fatalf("listen in the lab: %v", err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // whoever serves may have closed it
	return listener
}
