package git

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"tako.dev/tako/internal/reason"
)

// tail keeps the end of what git says: there it says what went wrong.
type tail struct{ kept []byte }

// saidMax is what is kept of it: some hundred lines.
const saidMax = 16 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*saidMax {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-saidMax:]...)
	}
	return len(p), nil
}

func (t *tail) text() string { return string(t.kept) }

// symptom is a text in git's or ssh's output, the code that it stands for and what to do. Texts are those of git 2.30 to
// 2.51, OpenSSH 9 and libcurl, in the C locale.
type symptom struct {
	text string
	code reason.Code
	hint string
}

const (
	hintAuth    = "check the Secret of the credentials: is the token or key still valid, and may it read this repository?"
	hintTrust   = "compare the key or certificate with what the owner of the server publishes, then change known_hosts or ca in the Secret"
	hintNetwork = "is the server up, and may this machine reach it? it is tried again by itself"
	hintLimit   = "take large files out of the repository, or raise the limits of the server"
)

// symptoms are tried in order: the first one found counts.
func symptoms() []symptom {
	return []symptom{
		{"No space left on device", reason.DiskFull, "make room in the server's data directory"},
		{"Disk quota exceeded", reason.DiskFull, "make room in the server's data directory"},
		{"died of signal 25", reason.RepositoryLimit, hintLimit}, // SIGXFSZ
		{"File size limit exceeded", reason.RepositoryLimit, hintLimit},
		{"File too large", reason.RepositoryLimit, hintLimit},
		{"died of signal 24", reason.RepositoryLimit, hintLimit}, // SIGXCPU
		{"out of memory", reason.RepositoryLimit, hintLimit},
		{"Out of memory", reason.RepositoryLimit, hintLimit},
		{"Cannot allocate memory", reason.RepositoryLimit, hintLimit},
		{"mmap failed", reason.RepositoryLimit, hintLimit},
		{"Host key verification failed", reason.RepositoryUntrusted, hintTrust},
		{"HOST IDENTIFICATION HAS CHANGED", reason.RepositoryUntrusted, hintTrust},
		{"SSL certificate problem", reason.RepositoryUntrusted, hintTrust},
		{"certificate verification failed", reason.RepositoryUntrusted, hintTrust},
		{"certificate subject name", reason.RepositoryUntrusted, hintTrust},
		{"error reading ca cert", reason.RepositoryUntrusted, "the ca of the Secret is no certificate in PEM"},
		{"error setting certificate", reason.RepositoryUntrusted, "the ca of the Secret is no certificate in PEM"},
		{"Permission denied (", reason.RepositoryAuth, hintAuth},
		{"Too many authentication failures", reason.RepositoryAuth, hintAuth},
		{"Authentication failed", reason.RepositoryAuth, hintAuth},
		{"could not read Username", reason.RepositoryAuth, hintAuth},
		{"could not read Password", reason.RepositoryAuth, hintAuth},
		{"returned error: 401", reason.RepositoryAuth, hintAuth},
		{"returned error: 403", reason.RepositoryAuth, hintAuth},
		{"returned error: 30", reason.RepositoryAddress, "the server redirects, and that is not followed: write the address that it redirects to, often the same one with .git at its end"},
		{"unable to update url base from redirection", reason.RepositoryAddress, "the server redirects, and that is not followed: write the address that it redirects to"},
		{"not our ref", reason.RefUnknown, ""},
		{"couldn't find remote ref", reason.RefUnknown, ""},
		{"unadvertised object", reason.RefUnknown, ""},
		{"no such remote ref", reason.RefUnknown, ""},
		{"fsck error", reason.RepositoryContent, ""},
		{"empty filename in tree entry", reason.RepositoryContent, ""},
		{"remote did not send all necessary objects", reason.RepositoryCopy, ""},
		{"Repository not found", reason.RepositoryUnknown, ""},
		{"epository not exported", reason.RepositoryUnknown, ""},
		{"does not appear to be a git repository", reason.RepositoryUnknown, ""},
		{"Could not resolve host", reason.RepositoryUnreachable, hintNetwork},
		{"Connection refused", reason.RepositoryUnreachable, hintNetwork},
		{"Failed to connect", reason.RepositoryUnreachable, hintNetwork},
		{"Connection reset", reason.RepositoryUnreachable, hintNetwork},
		{"Connection closed", reason.RepositoryUnreachable, hintNetwork},
		{"timed out", reason.RepositoryUnreachable, hintNetwork},
		{"Operation too slow", reason.RepositoryUnreachable, hintNetwork},
		{"Network is unreachable", reason.RepositoryUnreachable, hintNetwork},
		{"No route to host", reason.RepositoryUnreachable, hintNetwork},
		{"returned error: 5", reason.RepositoryUnreachable, hintNetwork},
		{"returned error: 429", reason.RepositoryUnreachable, hintNetwork},
		{"Empty reply from server", reason.RepositoryUnreachable, hintNetwork},
		{"unable to access", reason.RepositoryUnreachable, hintNetwork},
		{"ssh: ", reason.RepositoryUnreachable, hintNetwork},
		{"the remote end hung up", reason.RepositoryUnreachable, hintNetwork},
		{"early EOF", reason.RepositoryUnreachable, hintNetwork},
		{"not found", reason.RepositoryUnknown, ""}, // "repository 'URL' not found": 404
		{"returned error: 404", reason.RepositoryUnknown, ""},
		{"is this a git repository", reason.RepositoryUnknown, "what answers is no git server: a login page, or another path; check the address"},
		{"not a git repository", reason.RepositoryUnknown, ""},
		// Last, because index-pack says what is wrong before it goes, unless a limit killed it.
		{endedSilently, reason.RepositoryLimit, hintLimit},
	}
}

// endedSilently is what git says when its child that writes the pack was killed by a signal.
const endedSilently = "invalid index-pack output"

func hintOf(s symptom) string {
	switch {
	case s.hint != "":
		return s.hint
	case s.code == reason.RepositoryUnknown:
		return "check the address; a forge says the same of repositories that the credentials may not read"
	case s.code == reason.RefUnknown:
		return "check the name; a commit must be one that a branch or tag points at, unless the server gives others"
	case s.code == reason.RepositoryContent:
		return "git refuses objects that may harm; see `git fsck` in the repository"
	}
	return ""
}

// failure makes the error of a command that failed.
func (g *Git) failure(ctx context.Context, c command, err error, said string) error {
	var secrets []string
	if c.target != nil {
		secrets = c.target.auth.secrets()
	}
	said = clean(said, secrets)
	e := &reason.Error{Doing: c.doing, Evidence: reason.Clip([]byte(said))}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errDeadline):
		e.Cause, e.Hint = fmt.Errorf("no end within %s", g.limits.Timeout), "the server or the network is slow, or the repository large"
		e.Code = reason.RepositoryCopy
		if c.target != nil {
			e.Code = reason.RepositoryUnreachable
		}
		return e
	case cause != nil:
		e.Code, e.Cause = reason.Interrupted, cause
		return e
	}
	var exit *exec.ExitError
	switch {
	case !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay):
		e.Code, e.Cause = reason.GitUnusable, err
		return e
	case exit != nil && limitSignal(exit):
		e.Code, e.Cause, e.Hint = reason.RepositoryLimit, fmt.Errorf("it was ended by %s", exit.Sys().(syscall.WaitStatus).Signal()), hintLimit
		return e
	}
	s := c.diagnose(said)
	e.Code, e.Hint, e.Cause = s.code, hintOf(s), errors.New(summary(said, err))
	if c.target != nil && c.target.reader.command != "" && s.code == reason.RepositoryUnknown {
		e.Hint = "it is read with the rights of whom it belongs to: may that user open every directory on the way to it?"
	}
	if c.target != nil && c.target.reader.foreign {
		e.Cause, e.Evidence = errors.New("git does not read it; what it says is not shown, because others than the server write there and it may quote any file"), ""
	}
	if s.text == endedSilently {
		e.Cause = fmt.Errorf("what comes has more than %d bytes, or needs more than %d bytes of memory", g.limits.PackBytes, g.limits.MemoryBytes)
	}
	return e
}

// diagnose finds the symptom that counts.
func (c command) diagnose(said string) symptom {
	if c.gitDir != "" && strings.Contains(said, "not a git repository: '"+c.gitDir) {
		return symptom{code: reason.RepositoryCopy}
	}
	for _, s := range symptoms() {
		if strings.Contains(said, s.text) {
			return s
		}
	}
	return symptom{code: c.fallback()}
}

// fallback is the code of what git says in words that are not known: where a copy takes part, it may be damaged.
func (c command) fallback() reason.Code {
	if c.gitDir == "" {
		return reason.RepositoryUnreachable
	}
	return reason.RepositoryCopy
}

func limitSignal(exit *exec.ExitError) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && (status.Signal() == syscall.SIGXFSZ || status.Signal() == syscall.SIGXCPU)
}

var userInURL = regexp.MustCompile(`://[^/@\s'"]*@`)

// clean takes secrets out of what git says.
func clean(said string, secrets []string) string {
	for _, s := range secrets {
		said = strings.ReplaceAll(said, s, "(hidden)")
	}
	return userInURL.ReplaceAllString(said, "://")
}

// summary is the one line that says most: what git calls fatal or an error, before the general advice that follows it.
func summary(said string, err error) string {
	const most = 300 // three lines of a terminal
	general := []string{"Could not read from remote repository", "Please make sure", "and the repository exists", "the remote end hung up unexpectedly", "early EOF", "index-pack failed", "fetch-pack: invalid index-pack output"}
	best, rank := "", 0
	for line := range strings.Lines(said) {
		line = strings.Join(strings.Fields(reason.Clip([]byte(line))), " ")
		if line == "" || strings.HasPrefix(line, "warning:") {
			continue
		}
		r := 1
		for _, p := range []string{"fatal: ", "error: ", "remote: ", "ssh: "} {
			if strings.HasPrefix(line, p) {
				line, r = strings.TrimPrefix(line, p), 3
			}
		}
		for _, g := range general {
			if strings.Contains(line, g) {
				r = min(r, 1)
			}
		}
		if r > rank {
			best, rank = line, r
		}
	}
	if best == "" {
		best = "git: " + err.Error()
	}
	if len(best) > most {
		best = strings.ToValidUTF8(best[:most], "") + "…"
	}
	return best
}
