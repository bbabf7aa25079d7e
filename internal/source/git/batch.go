package git

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
)

// batch is one `git cat-file --batch-command` that answers until it is ended.
type batch struct {
	git    *Git
	c      command
	cancel context.CancelFunc
	cmd    *exec.Cmd
	in     *os.File // its input
	pipe   *os.File // its output

	mu     sync.Mutex // guards what follows: one question at a time
	out    *bufio.Reader
	broken error // the first failure: afterwards question and answer may not fit
}

// withBatch starts a batch over a cache, and ends it when use returns.
func (g *Git) withBatch(ctx context.Context, gitDir string, use func(*batch) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return g.withScratch(func(scratch string) error {
		c := command{doing: "read objects of a repository", gitDir: gitDir, args: []string{"cat-file", "--batch-command", "--buffer"}}
		b := &batch{git: g, c: c, cancel: cancel}
		if err := b.start(ctx, scratch); err != nil {
			return err
		}
		err := use(b)
		b.end(ctx)
		return err
	})
}

func (b *batch) start(ctx context.Context, scratch string) error {
	cmd, release, err := b.git.prepare(ctx, b.c, scratch, "none")
	if err != nil {
		return err
	}
	defer release()
	unusable := func(err error) error {
		if ctx.Err() != nil {
			return b.fail(ctx, err)
		}
		return &reason.Error{Code: reason.GitUnusable, Doing: b.c.doing, Cause: err}
	}
	// Pipes of ours, not those of os/exec, because reads and writes have deadlines.
	read, write, err := os.Pipe()
	if err != nil {
		return unusable(err)
	}
	childIn, in, err := os.Pipe()
	if err != nil {
		_, _ = read.Close(), write.Close()
		return unusable(err)
	}
	cmd.Stdin, cmd.Stdout = childIn, write
	err = cmd.Start()
	_, _ = write.Close(), childIn.Close()
	if err != nil {
		_, _ = read.Close(), in.Close()
		return unusable(err)
	}
	b.cmd, b.in, b.pipe, b.out = cmd, in, read, bufio.NewReaderSize(read, 64<<10)
	return nil
}

// end closes its input, upon which it ends by itself, and kills it where it does not.
func (b *batch) end(ctx context.Context) {
	if b.broken != nil || ctx.Err() != nil {
		b.cancel()
	}
	_ = b.in.Close()
	_ = b.pipe.Close()
	endGroup(b.cmd, b.cmd.Wait())
}

// entry is what cat-file says of one object.
type entry struct {
	id   ID
	kind string // blob, tree, commit or tag; empty: it is not here
	size int64
}

// info asks what objects are, at once. The answers are in the order of the questions. A question is an id, or "REV:PATH";
// it has no line end.
func (b *batch) info(ctx context.Context, questions []string) ([]entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]entry, 0, len(questions))
	// So many questions at a time that the answers fit into a pipe's 64 kB, or neither side could write: 100 bytes each.
	const most = 256
	for len(questions) > 0 {
		n := min(most, len(questions))
		var ask strings.Builder
		for _, q := range questions[:n] {
			ask.WriteString("info " + q + "\n")
		}
		if err := b.ask(ctx, ask.String()); err != nil {
			return nil, err
		}
		for range n {
			e, err := b.head()
			if err != nil {
				return nil, b.fail(ctx, err)
			}
			list = append(list, e)
		}
		questions = questions[n:]
	}
	return list, nil
}

// content reads one object of at most the given size, and checks it against its id. kind is empty where it is not here.
func (b *batch) content(ctx context.Context, question string, most int64) (entry, []byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ask(ctx, "contents "+question+"\n"); err != nil {
		return entry{}, nil, err
	}
	e, err := b.head()
	if err != nil {
		return entry{}, nil, b.fail(ctx, err)
	}
	if e.kind == "" {
		return e, nil, nil
	}
	if e.size > most {
		// The rest of the answer would have to be read over: this batch is done with.
		b.broken = &reason.Error{Code: reason.RepositoryLimit, Doing: "read " + e.kind + " " + string(e.id), Cause: fmt.Errorf("it has %d bytes, more than %d", e.size, most), Hint: hintLimit}
		return entry{}, nil, b.broken
	}
	content := make([]byte, e.size+1)
	if _, err := io.ReadFull(b.out, content); err != nil || content[e.size] != '\n' {
		return entry{}, nil, b.fail(ctx, errors.Join(err, errors.New("content ends early")))
	}
	content = content[:e.size:e.size]
	if hash(e.kind, content, len(e.id)) != e.id {
		return entry{}, nil, b.fail(ctx, fmt.Errorf("%s %s has other content than its id says", e.kind, e.id))
	}
	return e, content, nil
}

func (b *batch) ask(ctx context.Context, questions string) error {
	if b.broken != nil {
		return b.broken
	}
	deadline := time.Now().Add(b.git.limits.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := errors.Join(b.pipe.SetReadDeadline(deadline), b.in.SetWriteDeadline(deadline)); err != nil {
		return b.fail(ctx, err)
	}
	if _, err := io.WriteString(b.in, questions+"flush\n"); err != nil {
		return b.fail(ctx, err)
	}
	return nil
}

// head reads the line before an object's content.
func (b *batch) head() (entry, error) {
	line, err := b.out.ReadSlice('\n')
	if err != nil {
		return entry{}, err
	}
	return parseHead(string(line[:len(line)-1]))
}

// parseHead reads "ID KIND SIZE" or "QUESTION missing".
func parseHead(line string) (entry, error) {
	if strings.HasSuffix(line, " missing") {
		return entry{}, nil
	}
	id, rest, _ := strings.Cut(line, " ")
	kind, digits, _ := strings.Cut(rest, " ")
	size, err := strconv.ParseInt(digits, 10, 64)
	known := kind == "blob" || kind == "tree" || kind == "commit" || kind == "tag"
	if err != nil || size < 0 || !known || !ID(id).Valid() {
		return entry{}, fmt.Errorf("cat-file answers %s", quote(line))
	}
	return entry{id: ID(id), kind: kind, size: size}, nil
}

// fail ends the batch with an error that says what git said.
func (b *batch) fail(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		b.broken = &reason.Error{Code: reason.Interrupted, Doing: b.c.doing, Cause: context.Cause(ctx)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.broken = &reason.Error{Code: reason.RepositoryCopy, Doing: b.c.doing, Cause: fmt.Errorf("no answer within %s", b.git.limits.Timeout)}
	default:
		b.broken = &reason.Error{Code: reason.RepositoryCopy, Doing: b.c.doing, Cause: err}
	}
	return b.broken
}
