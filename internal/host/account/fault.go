package account

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// lockWaitMin and lockWaitMax are when to try again after the databases were locked, at first and later. Nothing tells when a lock is given
// back. Most are held for as long as a program takes, some for as long as somebody edits (vipw); trying costs six system calls.
const (
	lockWaitMin = 50 * time.Millisecond
	lockWaitMax = 5 * time.Second
)

// lockError is the error of a change for which somebody holds a lock; refusals counts how often that was so before.
func lockError(doing, holder string, refusals int) error {
	after := lockWaitMax
	if refusals < 7 { // 50 ms doubled seven times is more than lockWaitMax
		after = min(lockWaitMin<<refusals, lockWaitMax)
	}
	return &reason.Error{Code: reason.AccountLock, Doing: doing, Cause: errors.New("the files of accounts are locked by " + holder), Holder: holder, After: after}
}

// Exit statuses that programs of shadow-utils share, useradd(8), usermod(8), userdel(8), groupadd(8), groupdel(8).
const (
	exitIDTaken   = 4
	exitNoSuch    = 6
	exitInUse     = 8
	exitNameTaken = 9
)

var (
	// usedBy is what usermod and userdel say of a process of the user.
	usedBy = regexp.MustCompile(`is currently used by process (\d+)`)
	// unknownName is what they say of a name that nobody knows; gpasswd has no exit status for it.
	unknownName = regexp.MustCompile(`(user|group) '[^']*' does not exist`)
	// notUnlocked is what all of them say when the lock was not to be had within 15 seconds.
	notUnlocked = regexp.MustCompile(`cannot lock (/etc/\S+?)[;.]`)
)

const hintUnknown = "declare it too, or require the package that makes it"

// toolError is the error of a program that did not do what it was run for.
func toolError(doing string, c *call, output []byte, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return reason.Ended(doing, err)
	}
	text := reason.Clip(output)
	if notUnlocked.MatchString(text) {
		holder, lockErr := lockHolder()
		if lockErr != nil || holder == "" {
			holder = "somebody else"
		}
		return lockError(doing, holder, 0)
	}
	e := &reason.Error{Code: reason.AccountToolFailed, Doing: doing, Cause: err, Evidence: text}
	if errors.Is(err, command.ErrStopped) {
		e.Code = reason.OperationTimeout
		return e
	}
	if first, _, _ := strings.Cut(text, "\n"); first != "" {
		e.Cause = errors.New(first)
	}
	if name := unknownName.FindString(text); name != "" {
		e.Code, e.Cause, e.Hint = reason.UnknownOwner, errors.New(name), hintUnknown
		return e
	}
	var exit *command.ExitError
	if !errors.As(err, &exit) {
		return e
	}
	switch exit.Status.ExitStatus() {
	case exitInUse:
		e.Code, e.Hint = reason.AccountBusy, "nothing is ended for that: stop what runs as the user, or log the sessions out (`loginctl terminate-user`)"
		if m := usedBy.FindStringSubmatch(text); m != nil {
			pid, _ := strconv.Atoi(m[1])
			e.Cause = errors.New("it is used by " + disk.ProcessName(pid))
		}
		if c.tool() == "groupdel" {
			e.Hint = "give these users another primary group first"
		}
	case exitIDTaken, exitNameTaken:
		e.Code = reason.AccountTaken
	case exitNoSuch:
		e.Code, e.Hint = reason.UnknownOwner, hintUnknown
	}
	return e
}
