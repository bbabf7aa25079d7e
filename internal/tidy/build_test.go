package tidy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// agentNever lists what the agent's packages are not, nor below: each brings memory, code that runs at start, or a way in.
var agentNever = []string{
	"k8s.io", "sigs.k8s.io", "go.etcd.io", "google.golang.org/grpc", "github.com/google/cel-go", "go.opentelemetry.io",
	"github.com/containerd", "github.com/prometheus/client_golang", "net/http/pprof", "expvar", "html/template",
}

// agentSizeMax bounds the stripped agent, in bytes.
const agentSizeMax = 20 << 20

func testAgent(t *testing.T) {
	t.Run("imports", func(t *testing.T) {
		for _, name := range strings.Fields(goCommand(t, "", "list", "-deps", "./cmd/tako-agent")) {
			if underAny(name, agentNever) {
				t.Errorf("cmd/tako-agent imports %s: find who does with go list -deps -f '{{.ImportPath}} {{.Imports}}' ./cmd/tako-agent, and do without", name)
			}
		}
	})
	t.Run("binary", func(t *testing.T) {
		if testing.Short() {
			t.Skip("short: it builds")
		}
		binary := filepath.Join(t.TempDir(), "tako-agent")
		goCommand(t, "", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/tako-agent")
		info, err := os.Stat(binary)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > agentSizeMax {
			t.Errorf("the agent has %d bytes, at most %d: see what is new with go version -m and go tool nm -size -sort size", info.Size(), agentSizeMax)
		}
		t.Logf("%d bytes", info.Size())
	})
}

// goCommand runs go in the top folder, for a port where one is given, and returns what it prints.
func goCommand(t *testing.T, port string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if goos, goarch, ok := strings.Cut(port, "/"); ok {
		cmd.Env = append(cmd.Env, "GOOS="+goos, "GOARCH="+goarch)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}
