package command

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// tool is a run of a line of shell.
func tool(line string, lasting bool) Tool {
	return Tool{Args: []string{"/bin/sh", "-c", line}, Env: []string{"A=b"}, Limit: time.Minute, Keep: 1000, Lasting: lasting}
}

func TestTool(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		out, err := tool("echo out; echo err >&2; read x || echo no input; pwd; tty; env | sort | grep -v '^\\(PWD\\|SHLVL\\|_\\|OLDPWD\\)='", lasting).Run(t.Context())
		if want := "out\nerr\nno input\n/\nnot a tty\nA=b\nLC_ALL=C.UTF-8\nPATH=" + Path + "\n"; err != nil || string(out) != want {
			t.Errorf("lasting %v: %q, %v", lasting, out, err)
		}
		var exit *ExitError
		if out, err = tool("echo words; exit 3", lasting).Run(t.Context()); !errors.As(err, &exit) || exit.Status.ExitStatus() != 3 || string(out) != "words\n" || exit.Error() != "exit status 3" {
			t.Errorf("lasting %v: %q, %v", lasting, out, err)
		}
		if out, err = tool("seq 100000", lasting).Run(t.Context()); err != nil || len(out) != 1000 || !bytes.HasSuffix(out, []byte("\n99999\n100000\n")) {
			t.Errorf("lasting %v: %q, %v", lasting, out, err)
		}
		for args, want := range map[string]error{"/nowhere": os.ErrNotExist, "no-such-program": ErrNotFound} {
			if _, err := (Tool{Args: []string{args}, Limit: time.Minute, Lasting: lasting}).Run(t.Context()); !errors.Is(err, want) {
				t.Errorf("lasting %v: %s: %v", lasting, args, err)
			}
		}
		slow := tool("sleep "+mark(7)+" & sleep "+mark(7), lasting)
		slow.Limit = 50 * time.Millisecond
		if _, err := slow.Run(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("lasting %v: out of time: %v", lasting, err)
		}
		eventually(t, "its group is gone", func() bool { return !alive(t, mark(7)) })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := tool("exit 0", lasting).Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("lasting %v: %v", lasting, err)
		}
	}
}

func TestToolEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := tool("sleep "+mark(8), false).Run(ctx); !errors.Is(err, context.DeadlineExceeded) || alive(t, mark(8)) {
		t.Errorf("%v", err)
	}
}

func TestLastingToolGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // by then it has begun
	defer cancel()
	if _, err := tool("until test -e "+file+"; do sleep 0.05; done; echo more; echo done >"+file, true).Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has gone on", func() bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.TrimSpace(string(b)) == "done"
	})
}

func TestEndingKeepsTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 100
		e := ending{most: most}
		var all []byte
		for _, part := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 3*most), 0, 5).Draw(t, "parts") {
			n, err := e.Write(part)
			if n != len(part) || err != nil {
				t.Fatalf("wrote %d of %d, %v", n, len(part), err)
			}
			all = append(all, part...)
		}
		if want := all[max(0, len(all)-most):]; !bytes.Equal(e.last(), want) || len(e.b) > 2*most {
			t.Fatalf("kept %d bytes that are not the last %d", len(e.b), len(want))
		}
	})
}
