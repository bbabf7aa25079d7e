//go:build !amd64

package main

import "golang.org/x/sys/unix"

// sysPoll is what unix.Poll uses: newer architectures have no call of its own name.
const sysPoll = unix.SYS_PPOLL
