package reason

import (
	"context"
	"errors"
	"strings"
	"time"
)

// evidenceMax bounds what an error carries of a command's output or a log: enough for a screen, not for a log file.
const evidenceMax = 4 << 10

// Error is an error of the closed set: what was tried, on which object, why it did not work, how to fix it.
// Code and Hint are fields so that the edge decides how to show them; Error() leaves the hint out.
type Error struct {
	Code     Code
	Doing    string        // what was tried and on which object: "write file /etc/motd"; lower case, no full stop
	Cause    error         // may be nil where Doing and Code say it all
	Hint     string        // how to fix it; may be empty
	Evidence string        // bounded output of a command, for a person to read; never a secret
	After    time.Duration // with Retry WaitThen: when to try again; 0 means back off
	Holder   string        // with PackageLock and AccountLock: who holds it
}

// Error joins what was tried, the code's title and the cause.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Doing)
	row, ok := Lookup(e.Code)
	if ok && (e.Cause == nil || e.Code != SystemCallFailed) {
		b.WriteString(": ")
		b.WriteString(row.Title)
	}
	if e.Cause != nil {
		b.WriteString(": ")
		b.WriteString(e.Cause.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Entry returns the row of the error's code; an error made with a code outside the set is InternalFault.
func (e *Error) Entry() Entry {
	if row, ok := Lookup(e.Code); ok {
		return row
	}
	row, _ := Lookup(InternalFault)
	return row
}

// Ended is the error of what its context has ended: OperationTimeout where its time was over, otherwise Interrupted.
func Ended(doing string, err error) *Error {
	code := Interrupted
	if errors.Is(err, context.DeadlineExceeded) {
		code = OperationTimeout
	}
	return &Error{Code: code, Doing: doing, Cause: err}
}

// Of returns the Error inside err. An error that carries none is a fault of ours and comes back as InternalFault, so that
// every failure has a code; nil stays nil.
func Of(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: InternalFault, Doing: "run", Cause: err}
}

// Is reports whether err carries the given code.
func Is(err error, c Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == c
}

// Clip bounds a command's output to what an error may carry: its end, because that is where programs say what went wrong,
// in valid UTF-8 and without control characters other than newline and tab.
func Clip(out []byte) string {
	cut := ""
	if len(out) > evidenceMax {
		out = out[len(out)-evidenceMax:]
		cut = "…"
	}
	s := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || (r >= 0x20 && r != 0x7f && (r < 0x80 || r > 0x9f)) {
			return r
		}
		return '�'
	}, strings.ToValidUTF8(string(out), "�"))
	return cut + strings.TrimRight(s, "\n\t ")
}
