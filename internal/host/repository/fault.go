package repository

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// lockWait is when to try again after what is fetched was locked. Nothing tells when a lock is given back.
const lockWait = 5 * time.Second

// fetchFault is the error of a fetch as far as it does not depend on the package manager; nil for none.
func fetchFault(doing string, output []byte, err error) *reason.Error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return reason.Ended(doing, err)
	}
	e := &reason.Error{Code: reason.PackageToolFailed, Doing: doing, Cause: err, Evidence: reason.Clip(output)}
	if errors.Is(err, command.ErrStopped) {
		e.Code = reason.OperationTimeout
	} else if said := firstError(output); said != "" {
		e.Cause = errors.New(said)
	}
	return e
}

// The words of apt that tell what went wrong: methods/gpgv.cc, apt-pkg/acquire-item.cc, apt-pkg/deb/debmetaindex.cc. What is not there is not
// signed either, so that comes last.
var (
	aptUntrusted = []string{"GPG error", "NO_PUBKEY", "BADSIG", "EXPKEYSIG", "signatures couldn't be verified", "signatures were invalid",
		"is not valid yet", "is expired", "Clearsigned file isn't valid", "public key is not available"}
	aptUnreachable = []string{"Failed to fetch", "does not have a Release file", "no longer has a Release file"}
	aptUnsigned    = []string{"is not signed", "no longer signed"}
)

// fault is the error of apt-get update.
func (apt) fault(doing string, output []byte, err error) error {
	e := fetchFault(doing, output, err)
	switch {
	case e == nil:
		if containsAny(output, "W: GPG error", "W: Failed to fetch") { // an old apt ends well all the same
			return aptFault(&reason.Error{Doing: doing, Cause: errors.New(firstError(output)), Evidence: reason.Clip(output)}, output)
		}
		return nil
	case strings.Contains(string(output), "Could not get lock "):
		return lockedBy(doing, output)
	case e.Code != reason.PackageToolFailed:
		return e
	}
	return aptFault(e, output)
}

func aptFault(e *reason.Error, output []byte) error {
	switch {
	case containsAny(output, aptUntrusted...):
		e.Code = reason.PackageSourceUntrusted
	case containsAny(output, aptUnreachable...):
		e.Code = reason.PackageSourceUnreachable
	case containsAny(output, aptUnsigned...):
		e.Code = reason.PackageSourceUntrusted
	}
	return e
}

// lockedBy is the error of what somebody else keeps from being done.
func lockedBy(doing string, output []byte) error {
	holder := "somebody else"
	for _, before := range []string{"It is held by process ", "process with PID ", "process with pid ", "pid "} {
		_, rest, ok := strings.Cut(string(output), before)
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		if pid, err := strconv.Atoi(digits); ok && err == nil {
			holder = disk.ProcessName(pid)
			break
		}
	}
	return &reason.Error{Code: reason.PackageLock, Doing: doing, Cause: errors.New("held by " + holder), Holder: holder, After: lockWait}
}

func containsAny(output []byte, words ...string) bool {
	for _, w := range words {
		if bytes.Contains(output, []byte(w)) {
			return true
		}
	}
	return false
}

// firstError is the first line in which a package manager says what is wrong, "" for none. That a signature is wrong says more than that
// something could not be used because of it.
func firstError(output []byte) string {
	for _, marks := range [][]string{{"W: GPG error: ", "W: An error occurred during the signature verification"}, {"E: ", "Error: "}, {"Errors during downloading", "W: "}} {
		for line := range bytes.Lines(output) {
			for _, mark := range marks {
				if bytes.HasPrefix(line, []byte(mark)) {
					text := strings.TrimPrefix(strings.TrimPrefix(string(bytes.TrimSpace(line)), "E: "), "W: ")
					return reason.Clip([]byte(strings.ReplaceAll(text, stageDir+"/", "")))
				}
			}
		}
	}
	return ""
}
