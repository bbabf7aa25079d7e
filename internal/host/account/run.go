package account

import (
	"bytes"
	"context"
	"path"
	"syscall"
	"time"

	"tako.dev/tako/internal/command"
)

const (
	// toolMax bounds a program: usermod and userdel may go through a large home directory, and all of them wait up to 15 s for a lock.
	toolMax = 10 * time.Minute
	// outputMax bounds what is kept of a program's output, its end.
	outputMax = 64 << 10
)

// call is one run of a program.
type call struct {
	args []string // args[0] is a path
	// secret is written to the standard input, and is taken out of the output should it be there.
	secret []byte
	// as runs it with the rights of a user, and without any group but one. Nil is as the agent.
	as *syscall.Credential
}

// tool is the program's name.
func (c *call) tool() string { return path.Base(c.args[0]) }

// run runs a program, and returns what command.Tool does. When the context ends, the program goes on: it is in the middle of changing
// files that it has locked.
func run(ctx context.Context, c *call) ([]byte, error) {
	text, err := command.Tool{Args: c.args, Env: []string{"HOME=/"}, Input: c.secret, Limit: toolMax, Keep: outputMax, As: c.as, Lasting: true}.Run(ctx)
	if _, hash, _ := bytes.Cut(bytes.TrimSpace(c.secret), []byte(":")); len(hash) > 0 {
		text = bytes.ReplaceAll(text, hash, []byte("(not shown)"))
	}
	return text, err
}
