package dnf

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host/packages"
	"tako.dev/tako/internal/reason"
)

const (
	// transactionMax bounds what changes packages: half an hour is enough for a distribution upgrade over a slow link.
	transactionMax = 30 * time.Minute
	// questionMax bounds what only asks: loading what was fetched of a distribution takes seconds.
	questionMax = 2 * time.Minute
	// updateMax bounds fetching; dnf gives up on a silent server after half a minute, and tries ten times.
	updateMax = 10 * time.Minute
	// outputMax bounds what is read of the output, its end, with the answer: versions of a thousand packages are 100 kB.
	outputMax = 4 << 20
	// lockWait is when to try again after the database was locked. Nothing tells when a lock is given back.
	lockWait = 5 * time.Second
)

//go:embed driver.py
var driver string

// question is what driver.py reads.
type question struct {
	Do         string   `json:"do"`
	Root       string   `json:"root"`
	Locks      bool     `json:"locks"` // versionlock counts
	Held       bool     `json:"-"`     // what it keeps may be changed all the same
	Names      []string `json:"names,omitempty"`
	Steps      []step   `json:"steps,omitempty"`
	Recommends *bool    `json:"recommends,omitempty"`
}

// step is a packages.Step.
type step struct {
	Name    string `json:"name"`
	Remove  bool   `json:"remove,omitempty"`
	Version string `json:"version,omitempty"`
}

// answer is what it prints.
type answer struct {
	Error   string           `json:"error"`
	Locked  int              `json:"locked"` // the process that is at work
	Stale   bool             `json:"stale"`  // what was fetched names files that are gone
	Offers  map[string]offer `json:"offers"`
	Removes []string         `json:"removes"`
	Changes []move           `json:"changes"`
}

// offer is a packages.Offer, and move a packages.Move.
type offer struct {
	Candidate string   `json:"candidate"`
	Versions  []string `json:"versions"`
}

type move struct {
	Name string `json:"name"`
	From string `json:"from"`
	To   string `json:"to"`
}

// interpreter is what dnf itself runs with, which has its library.
func interpreter() (string, error) {
	b := make([]byte, 256)
	f, err := os.Open(toolPath)
	if err != nil {
		return "", err
	}
	defer f.Close()
	n, err := f.Read(b)
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(string(b[:n]), "\n")
	words := strings.Fields(strings.TrimPrefix(first, "#!"))
	if !strings.HasPrefix(first, "#!") || len(words) == 0 || !strings.Contains(words[0], "python") {
		return "", errors.New(toolPath + " does not run with Python")
	}
	return words[0], nil
}

// ask has driver.py answer.
func (d *Dnf) ask(ctx context.Context, q question) (answer, error) {
	python, err := interpreter()
	if err != nil {
		return answer{}, &reason.Error{Code: reason.NoPackageManager, Cause: err}
	}
	q.Root, q.Locks = d.root+"/", d.locks() && !q.Held
	if d.root != "" {
		q.Root = d.root
	}
	text, err := json.Marshal(q)
	if err != nil {
		return answer{}, &reason.Error{Code: reason.InternalFault, Cause: err}
	}
	tool := command.Tool{Args: []string{python, "-I", "-c", driver, string(text)}, Env: []string{"HOME=/root"}, Limit: questionMax, Keep: outputMax}
	switch q.Do {
	case "update":
		tool.Limit = updateMax
	case "change":
		tool.Limit, tool.Lasting = transactionMax, true
	}
	output, err := tool.Run(ctx)
	a, said := parseAnswer(output)
	return a, d.fault(a, said, err)
}

// answerMark begins the line with the answer.
const answerMark = "\ntako-answer: "

// parseAnswer takes the answer out of an output. Where there is none, something else is said.
func parseAnswer(output []byte) (a answer, said []byte) {
	at := bytes.LastIndex(output, []byte(answerMark))
	if at < 0 {
		return answer{Error: "dnf ended without an answer"}, output
	}
	line, after, _ := bytes.Cut(output[at+len(answerMark):], []byte("\n"))
	said = bytes.TrimSpace(append(append([]byte(nil), output[:at]...), after...))
	if err := json.Unmarshal(line, &a); err != nil {
		return answer{Error: "the answer of dnf makes no sense: " + err.Error()}, said
	}
	return a, said
}

// fault is the error of an answer, or of what did not come to one; nil for none.
func (d *Dnf) fault(a answer, said []byte, err error) error {
	switch {
	case err == nil && a.Error == "" && a.Locked == 0:
		return nil
	case a.Locked != 0:
		return lockError(disk.ProcessName(a.Locked))
	case bytes.Contains(said, []byte("transaction lock")) || strings.Contains(a.Error, "transaction lock"):
		holder, lockErr := d.holder()
		if holder == "" || lockErr != nil {
			holder = "somebody else"
		}
		return lockError(holder)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return packages.Ended(err)
	}
	e := &reason.Error{Code: reason.PackageToolFailed, Cause: err, Evidence: reason.Clip(said)}
	switch {
	case errors.Is(err, command.ErrStopped):
		e.Code = reason.OperationTimeout
	case a.Error != "":
		first, rest, _ := strings.Cut(a.Error, "\n")
		e.Cause = errors.New(reason.Clip([]byte(first)))
		if rest != "" {
			e.Evidence = reason.Clip([]byte(a.Error + "\n" + string(said)))
		}
	}
	if a.Stale {
		e.Code = reason.PackageListsOld
	}
	return e
}

func lockError(holder string) error {
	return &reason.Error{Code: reason.PackageLock, Cause: errors.New("held by " + holder), Holder: holder, After: lockWait}
}

// livingHolder names the process that a file notes, if it lives; otherwise it is empty.
func livingHolder(file string) string {
	b, err := os.ReadFile(file)
	pid, notNumber := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || notNumber != nil || pid <= 0 {
		return ""
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err != nil {
		return ""
	}
	return disk.ProcessName(pid)
}
