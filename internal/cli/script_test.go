package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/apiserver"
	"tako.dev/tako/internal/reason"
)

var update = flag.Bool("update", false, "write what the commands say into the scripts")

// admin is the kubeconfig of the one server that the tests of this process talk to.
var admin string

// repositories is the directory below which that server takes repositories.
var repositories string

// startMax is far more than a start takes.
const startMax = time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(withServer(m.Run))
}

// withServer runs tests while a server runs. The library's package variables allow one in a process.
func withServer(run func() int) int {
	dir, err := os.MkdirTemp("", "tako-cli-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	repositories = filepath.Join(dir, "repositories")
	if err := os.Mkdir(repositories, 0o755); err != nil {
		panic(err)
	}
	ready, stopped := make(chan string, 1), make(chan error, 1)
	server, err := apiserver.New(apiserver.Options{DataDir: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", SourceDirs: []string{repositories},
		OnReady: func(_, kubeconfig string) { ready <- kubeconfig }})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { stopped <- server.Run(ctx) }()
	select {
	case admin = <-ready:
	case err := <-stopped:
		panic(err)
	case <-time.After(startMax):
		panic("the server is not ready after " + startMax.String())
	}
	code := run()
	cancel()
	if err := <-stopped; err != nil {
		panic(err)
	}
	return code
}

// console is where commands of a test run: a directory, an environment, and what they say.
type console struct {
	dir string
	env map[string]string
}

func newConsole(t *testing.T) *console {
	t.Helper()
	dir := t.TempDir()
	return &console{dir: dir, env: map[string]string{"KUBECONFIG": admin, "HOME": dir, "XDG_CONFIG_HOME": filepath.Join(dir, "config"),
		"XDG_STATE_HOME": filepath.Join(dir, "state")}}
}

// run runs one command line without a shell, and returns what it says on both outputs.
func (c *console) run(ctx context.Context, in io.Reader, args ...string) (out, errs string, exit reason.Exit) {
	var o, e bytes.Buffer
	streams := Streams{In: in, Out: &o, Err: &e, Getenv: func(name string) string { return c.env[name] }}
	root := New(streams)
	root.SetArgs(args)
	exit = Run(ctx, root, streams)
	return o.String(), e.String(), exit
}

// TestScripts runs the files of testdata: commands after a dollar sign, with what they must say after >, then the
// files that they read. What is different every time, as an age, stands for itself by a name in capital letters.
func TestScripts(t *testing.T) {
	source, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts (%v)", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			script, rest := cutFiles(string(text))
			c := newConsole(t)
			if err := writeFiles(c.dir, rest); err != nil {
				t.Fatal(err)
			}
			t.Chdir(c.dir)
			t.Setenv("TMPDIR", c.dir) // what a refused edit leaves there is for a person
			got := c.play(t, script)
			if got == script {
				return
			}
			report(t, filepath.Join(source, file), script, got, rest)
		})
	}
}

// report shows the first difference, or with -update writes the script anew.
func report(t *testing.T, file, script, got, rest string) {
	t.Helper()
	want, have := strings.Split(script, "\n"), strings.Split(got, "\n")
	for i := range want {
		if i >= len(have) || want[i] != have[i] {
			t.Errorf("%s:%d: want %q\nhave:\n%s", file, i+1, want[i], strings.Join(have[min(i, len(have)):min(i+12, len(have))], "\n"))
			break
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(got+rest), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// cutFiles splits a script from the files behind it, which begin with the first line -- NAME --.
func cutFiles(text string) (script, files string) {
	at := fileLine.FindStringIndex(text)
	if at == nil {
		return text, ""
	}
	return text[:at[0]], text[at[0]:]
}

var fileLine = regexp.MustCompile(`(?m)^-- (\S+) --\n`)

func writeFiles(dir, text string) error {
	marks := fileLine.FindAllStringSubmatchIndex(text, -1)
	for i, m := range marks {
		end := len(text)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		name := filepath.Join(dir, text[m[2]:m[3]])
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text[m[1]:end]), 0o755)); err != nil {
			return err
		}
	}
	return nil
}

// play runs the commands of a script and returns it with what they have said.
func (c *console) play(t *testing.T, script string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, ">") {
			continue // what a command said is said again
		}
		out.WriteString(line)
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		text, exit, err := c.command(t.Context(), strings.TrimSuffix(command, "\n"))
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		for said := range strings.Lines(c.steady(text)) {
			out.WriteString(strings.TrimRight("> "+said, " \n") + "\n")
		}
		if exit != reason.ExitOK {
			fmt.Fprintf(&out, "> exit %d\n", exit)
		}
	}
	return out.String()
}

// commandMax bounds one command of a script. Only a broken one comes near it.
const commandMax = 30 * time.Second

// command runs "NAME=value tako ARGS < FILE".
func (c *console) command(ctx context.Context, line string) (string, reason.Exit, error) {
	ctx, cancel := context.WithTimeout(ctx, commandMax)
	defer cancel()
	line, file, redirected := strings.Cut(line, " < ")
	in := io.Reader(strings.NewReader(""))
	if redirected {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", 0, err
		}
		in = bytes.NewReader(text)
	}
	words := wordsOf(line)
	for len(words) > 0 && words[0] != "tako" {
		name, value, ok := strings.Cut(words[0], "=")
		if !ok {
			return "", 0, fmt.Errorf("%q is no command of a script", words[0])
		}
		before := c.env[name]
		c.env[name] = strings.ReplaceAll(value, "$WORK", c.dir)
		defer func() { c.env[name] = before }()
		words = words[1:]
	}
	if len(words) == 0 {
		return "", 0, errors.New("no command")
	}
	out, errs, exit := c.run(ctx, in, words[1:]...)
	return out + errs, exit, nil
}

// wordsOf splits at spaces, but not within single quotes.
func wordsOf(line string) []string {
	var words []string
	for i, part := range strings.Split(line, "'") {
		switch fields := strings.Fields(part); {
		case i%2 == 1:
			if n := len(words); n > 0 && !strings.HasSuffix(strings.Split(line, "'")[i-1], " ") {
				words[n-1] += part
			} else {
				words = append(words, part)
			}
		default:
			words = append(words, fields...)
		}
	}
	return words
}

// unsteady is what is different every time.
var unsteady = []struct {
	what *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "UID"},
	{regexp.MustCompile(`\b\d+(ms|s|m|h|d)\b( ago)?|\bjust now\b`), "AGE"},
	{regexp.MustCompile(`("?resourceVersion"?: ?)"\d+"`), `$1"N"`},
	{regexp.MustCompile(`\btako://\S+/sha256:[0-9a-f]{64}/`), "tako://ADDRESS/TRUST/"},
	{regexp.MustCompile(`\btako_(join|user)_[a-z0-9_]+`), "TOKEN"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "SERVER"},
	{regexp.MustCompile(`-\d{6,}\.yaml`), "-N.yaml"},
}

func (c *console) steady(text string) string {
	text = strings.ReplaceAll(text, c.dir, "$WORK")
	text = strings.ReplaceAll(text, filepath.Dir(admin), "$SERVER")
	for _, u := range unsteady {
		text = u.what.ReplaceAllString(text, u.name)
	}
	return text
}
