//go:build e2e

// Package alone_test proves on real hosts that one agent, without any server, makes a host as declared and keeps it so. Each
// test is one scenario, on a host that is set up as its administrator would: the program in /usr/bin, the unit of packaging/,
// declarations in /etc/tako/conf.d, packages from the lab's repository.
//
// The tests look at the host as others see it: HTTP answers, files, systemd's own journal, the exit status of an operator's
// command; and at what the agent says of itself, which must agree. They wait for states, never for a time.
package alone_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/reason"
)

const (
	// convergeTime bounds the wait for a converged host: the slowest is the installation of a package, on a busy machine.
	convergeTime = 5 * time.Minute
	// repairTime bounds the wait for the repair of drift, which takes milliseconds, or a second for a service.
	repairTime = 2 * time.Minute
	agentPath  = "/usr/bin/tako-agent"
	confDir    = "/etc/tako/conf.d"
	siteFile   = confDir + "/site.yaml"
	stateDir   = "/var/lib/tako"
	// startedID is the message id of "a unit has started", of systemd's sd-messages.h.
	startedID = "39f53479d3a045ac8e11786248231fbf"
)

// site is a host that an agent keeps.
type site struct {
	*host.Host
	lab *host.Lab
}

// newSite boots a host with the agent's program and unit in it. No agent runs yet.
func newSite(t *testing.T, debs ...host.Deb) *site {
	t.Helper()
	lab := host.NewLab(t)
	for _, deb := range debs {
		lab.Repository().Add(t, deb)
	}
	s := &site{Host: lab.Boot(t, "alone"), lab: lab}
	s.CopyIn(t, host.AgentBinary(t), agentPath)
	for _, unit := range []string{"tako-agent.service", "tako-agent-trial.service"} {
		s.CopyIn(t, filepath.Join("..", "..", "packaging", unit), "/etc/systemd/system/"+unit)
	}
	s.MustRun(t, "systemctl", "daemon-reload")
	return s
}

// put puts a declaration into the host, whole at once.
func (s *site) put(t *testing.T, declaration string) {
	t.Helper()
	s.Put(t, "/etc/tako/new", declaration, 0o644)
	s.MustRun(t, "mkdir", "-p", confDir)
	s.MustRun(t, "mv", "/etc/tako/new", siteFile)
}

// start puts the first declaration into the host, and starts the agent for this and every later boot.
func (s *site) start(t *testing.T, declaration string) {
	t.Helper()
	s.put(t, declaration)
	s.MustRun(t, "systemctl", "enable", "--now", "tako-agent")
}

// change puts another declaration in the place of the first, and waits until the agent enforces it, in whatever outcome.
func (s *site) change(t *testing.T, declaration string) {
	t.Helper()
	before := s.status(t).Root
	s.put(t, declaration)
	s.await(t, repairTime, "the agent enforces the changed declaration", func(r *agent.Report) bool {
		return r.Root != before && r.Settled
	})
}

// query runs a command of the agent that answers in JSON. What cannot be asked yet is an error in words.
func (s *site) query(t *testing.T, answer any, args ...string) error {
	t.Helper()
	r, err := s.Run(t.Context(), append([]string{agentPath}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(r.Stdout), answer); err != nil {
		return fmt.Errorf("%q: exit status %d: %s", args, r.Code, r.Stderr)
	}
	return nil
}

// status is what the agent says of the host.
func (s *site) status(t *testing.T) *agent.Report {
	t.Helper()
	var r agent.Report
	if err := s.query(t, &r, "status", "--json", "--all"); err != nil {
		t.Fatal(err)
	}
	return &r
}

// await waits until the agent's report is as wanted.
func (s *site) await(t *testing.T, deadline time.Duration, what string, wanted func(*agent.Report) bool) {
	t.Helper()
	host.Eventually(t, deadline, what, func() (string, bool) {
		var r agent.Report
		if err := s.query(t, &r, "status", "--json", "--all"); err != nil {
			return err.Error(), false
		}
		return shown(&r), wanted(&r)
	})
}

func (s *site) awaitConverged(t *testing.T) {
	t.Helper()
	s.await(t, convergeTime, "the host is converged", func(r *agent.Report) bool { return r.Converged && r.Settled })
}

// shown is a report for a person.
func shown(r *agent.Report) string {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// resource finds a resource in a report.
func resource(t *testing.T, r *agent.Report, title string) agent.Resource {
	t.Helper()
	for _, res := range r.Resources {
		if res.Title == title {
			return res
		}
	}
	t.Fatalf("%s is not in the report %s", title, shown(r))
	return agent.Resource{}
}

// wantOutcome fails the test when a resource has another outcome.
func wantOutcome(t *testing.T, r *agent.Report, title string, want reason.Outcome) agent.Resource {
	t.Helper()
	res := resource(t, r, title)
	if res.Outcome != want {
		t.Errorf("%s is %s, want %s: %s", title, res.Outcome, want, shown(r))
	}
	return res
}

// why is the agent's explanation of a resource.
func (s *site) why(t *testing.T, subject string) *agent.Answer {
	t.Helper()
	var a agent.Answer
	if err := s.query(t, &a, "why", "--json", subject); err != nil {
		t.Fatal(err)
	}
	return &a
}

// history is what happened to a resource, or to all for "", newest first.
func (s *site) history(t *testing.T, subject string) []store.Happening {
	t.Helper()
	args := []string{"history", "--json", "--limit", "1000"}
	if subject != "" {
		args = append(args, subject)
	}
	var list []store.Happening
	if err := s.query(t, &list, args...); err != nil {
		t.Fatal(err)
	}
	return list
}

// invocation is systemd's identity of the present run of a unit.
func (s *site) invocation(t *testing.T, unit string) string {
	t.Helper()
	return strings.TrimSpace(s.MustRun(t, "systemctl", "show", "--property=InvocationID", "--value", unit))
}

// starts counts how often systemd has started a unit, in all boots.
func (s *site) starts(t *testing.T, unit string) int {
	t.Helper()
	s.MustRun(t, "journalctl", "--sync")
	r, err := s.Run(t.Context(), "journalctl", "--quiet", "--output=cat", "MESSAGE_ID="+startedID, "UNIT="+unit)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(r.Stdout, "\n")
}

// exists reports whether something is at a path of the host.
func (s *site) exists(t *testing.T, path string) bool {
	t.Helper()
	r, err := s.Run(t.Context(), "test", "-e", path, "-o", "-L", path)
	if err != nil {
		t.Fatal(err)
	}
	return r.Code == 0
}

// page asks the host's web server for its page, over a connection of its own.
func (s *site) page(t *testing.T) (string, error) {
	t.Helper()
	conn, err := s.lab.Dial(t.Context(), "tcp", s.Address()+":80")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(repairTime)); err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Address()+"/", nil)
	if err != nil {
		return "", err
	}
	if err := request.Write(conn); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// wantPage fails the test unless the web server answers with a page that holds text.
func (s *site) wantPage(t *testing.T, text string) {
	t.Helper()
	got, err := s.page(t)
	if err != nil || !strings.Contains(got, text) {
		t.Errorf("the web server answers %q, %v; want %q in it", got, err, text)
	}
}

// example is the declaration of examples/nginx.
func example(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "nginx", "nginx.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// replaced is a text with a piece of it replaced, which must be there once.
func replaced(t *testing.T, text, old, with string) string {
	t.Helper()
	if strings.Count(text, old) != 1 {
		t.Fatalf("%q is not once in %q", old, text)
	}
	return strings.Replace(text, old, with, 1)
}
