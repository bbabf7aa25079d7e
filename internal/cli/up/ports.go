package up

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"

	"tako.dev/tako/internal/reason"
)

// ports are where the server listens. They are chosen once: the agent knows only where it found the server when it joined.
type ports struct {
	API      string `json:"api"`
	Transfer string `json:"transfer"`
}

// portsOf returns the ports of a directory, and chooses two that are free where there are none yet.
func portsOf(dir string) (ports, error) {
	var p ports
	path := filepath.Join(dir, "ports.json")
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(text, &p); err != nil {
			return p, &reason.Error{Code: reason.StateCorrupt, Doing: "read " + path, Cause: err, Hint: "remove it with what stands beside it: tako down --purge --dir " + dir}
		}
		return p, nil
	case !errors.Is(err, fs.ErrNotExist):
		return p, &reason.Error{Code: reason.StateUnwritable, Doing: "read " + path, Cause: err}
	}
	for _, to := range []*string{&p.API, &p.Transfer} {
		l, err := listenAnywhere()
		if err != nil {
			return p, &reason.Error{Code: reason.SystemCallFailed, Doing: "find a free port", Cause: err}
		}
		defer l.Close() // both are open until both are chosen
		*to = l.Addr().String()
	}
	if text, err = json.Marshal(p); err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return p, &reason.Error{Code: reason.StateUnwritable, Doing: "write " + path, Cause: err}
	}
	return p, nil
}

// The ports that are chosen from: below those that the kernel gives to outgoing connections (32768 and above), because any of these
// may be taken when tako starts the next time.
const portMin, portMax = 20000, 32000

// listenAnywhere listens on a free port of this machine.
func listenAnywhere() (l net.Listener, err error) {
	for range 100 {
		if l, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", portMin+rand.IntN(portMax-portMin))); err == nil {
			return l, nil
		}
	}
	return nil, err
}
