// Command tako is the control plane and its command line. This file wires them together; what the commands do is in
// internal/cli, and the server's command is in server.go.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"tako.dev/tako/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Kustomize: kustomizeChild()}
	cli.Quiet()
	exit := cli.Run(ctx, cli.New(streams, serverCommand(), relayCommand(), trustCommand(), upCommand(), downCommand(), kustomizeCommand()), streams)
	stop()
	os.Exit(int(exit))
}
