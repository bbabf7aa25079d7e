package swarm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// Main is the process that Start starts, with what follows Argument: FILE COUNT [NETWORK].
func Main(args []string) error {
	if len(args) < 2 {
		return errors.New("swarm FILE COUNT [NETWORK]")
	}
	o := Options{File: args[0]}
	var err error
	if o.Count, err = strconv.Atoi(args[1]); err != nil {
		return fmt.Errorf("swarm: COUNT: %w", err)
	}
	if len(args) > 2 {
		if o.Net, err = netip.ParsePrefix(args[2]); err != nil {
			return fmt.Errorf("swarm: NETWORK: %w", err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Serve(ctx, o, os.Stdin, os.Stdout)
}
