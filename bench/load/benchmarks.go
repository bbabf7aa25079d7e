package load

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// Figures are what one benchmark reports, by unit.
type Figures map[string]float64

// Benchmarks runs benchmarks of a package whose names match, in a process of their own, and returns what they report by their names. module is a directory of
// the module that the package is of, or that needs it; empty: of this one.
func Benchmarks(ctx context.Context, module, path, match, times string) (map[string]Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, crowdMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", match, "-benchtime", times, "-timeout", "0", path)
	cmd.Dir = module
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("benchmarks of %s: %w: %s", path, err, Tail(out))
	}
	all := ParseBenchmarks(string(out))
	if len(all) == 0 {
		return nil, fmt.Errorf("benchmarks of %s: none is %s: %s", path, match, Tail(out))
	}
	return all, nil
}

// Tail is the end of what a program has said.
func Tail(out []byte) []byte { return out[max(0, len(out)-sayingMax):] }

// processors is what stands behind the name of a benchmark: how many it had.
var processors = regexp.MustCompile(`-\d+$`)

// ParseBenchmarks reads what go test prints of benchmarks.
func ParseBenchmarks(text string) map[string]Figures {
	all := map[string]Figures{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		of := Figures{}
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				of[f[i+1]] = v
			}
		}
		all[processors.ReplaceAllString(f[0], "")] = of
	}
	return all
}
