// Package failure turns what goes wrong between the command line and the server into one form: a code, an exit code, words,
// and, where a file is at fault, its line. It is the one place that knows what each answer of the API means for a program
// that calls tako:
//
//	Of      an error of any kind      -> *Error
//	Faults  an answer about a document -> one fault for each field that the server names
//
// The package does no I/O.
package failure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// Error is a failure of a command as its user sees it.
type Error struct {
	Code reason.Code
	// Exit is what the program ends with. It stands beside the code because codes of the closed set that are about hosts
	// serve here with another exit code.
	Exit  reason.Exit
	Doing string // what was tried, on what: "get nodeconfig/web"
	Words string // what happened, in place of the code's title
	Cause error
	Hint  string
}

// Error says what was tried and what happened.
func (e *Error) Error() string {
	text := e.Words
	if e.Cause != nil {
		text = e.Cause.Error()
		if e.Words != "" {
			text = e.Words + ": " + text
		}
	}
	if e.Doing == "" {
		return text
	}
	return e.Doing + ": " + text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Refused is one or several documents with their mistakes.
type Refused struct {
	Faults []declare.Fault
	Exit   reason.Exit
	// Source returns the content of a file, for excerpts.
	Source func(file string) ([]byte, error)
}

// Error lists the mistakes.
func (r *Refused) Error() string { return declare.Faults(r.Faults).Error() }

// Deadline is the failure of a wait that was not over in time.
func Deadline(doing, words, hint string) *Error {
	return &Error{Code: reason.DeadlineOver, Exit: reason.ExitDeadline, Doing: doing, Words: words, Hint: hint}
}

// Stalled is the failure of a wait for something that cannot come.
func Stalled(doing, words, hint string) *Error {
	return &Error{Code: reason.Stalled, Exit: reason.ExitStalled, Doing: doing, Words: words, Hint: hint}
}

// NotFound is the failure to find something.
func NotFound(doing, words, hint string) *Error {
	return &Error{Code: reason.ObjectUnknown, Exit: reason.ExitNotFound, Doing: doing, Words: words, Hint: hint}
}

// Usage is a command line that cannot be meant.
func Usage(doing, words, hint string) *Error {
	return &Error{Code: reason.Usage, Exit: reason.ExitUsage, Doing: doing, Words: words, Hint: hint}
}

// row is what one kind of answer means.
type row struct {
	code  reason.Code
	exit  reason.Exit
	words string
	hint  string
}

// unreachable is what no answer means.
const unreachable = reason.ServerUnreachable

// rowOf is the table of answers of the API.
func rowOf(why metav1.StatusReason) row {
	switch why {
	case metav1.StatusReasonUnauthorized:
		return row{reason.NotAuthenticated, reason.ExitNotAllowed, "the server does not accept these credentials",
			"the token or certificate may have expired or been revoked"}
	case metav1.StatusReasonForbidden:
		return row{reason.NotAllowed, reason.ExitNotAllowed, "not allowed", ""}
	case metav1.StatusReasonNotFound:
		return row{reason.ObjectUnknown, reason.ExitNotFound, "", ""}
	case metav1.StatusReasonAlreadyExists:
		return row{reason.AlreadyExists, reason.ExitConflict, "", "take another name, or change what is there"}
	case metav1.StatusReasonConflict:
		return row{reason.Conflict, reason.ExitConflict, "", "look at it again, then repeat"}
	case metav1.StatusReasonInvalid:
		return row{reason.InvalidValue, reason.ExitUsage, "", ""}
	case metav1.StatusReasonBadRequest, metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonNotAcceptable, metav1.StatusReasonUnsupportedMediaType:
		return row{reason.Usage, reason.ExitUsage, "", ""}
	case metav1.StatusReasonRequestEntityTooLarge:
		return row{reason.DocumentTooLarge, reason.ExitUsage, "", ""}
	case metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout:
		return row{reason.DeadlineOver, reason.ExitDeadline, "", ""}
	case metav1.StatusReasonTooManyRequests, metav1.StatusReasonServiceUnavailable:
		return row{unreachable, reason.ExitUnreachable, "the server is there and cannot answer now", "try again in a moment"}
	case metav1.StatusReasonExpired, metav1.StatusReasonGone:
		return row{reason.Conflict, reason.ExitConflict, "", "list again from the beginning"}
	}
	return row{reason.InternalFault, reason.ExitFailed, "the server has failed", ""}
}

// rowOfCode is what an answer means that has a number and no reason of the table: one of 4xx is about what was asked.
func rowOfCode(s metav1.Status) row {
	r := rowOf(s.Reason)
	switch {
	case r.code != reason.InternalFault:
		return r
	case s.Code == http.StatusRequestEntityTooLarge:
		return rowOf(metav1.StatusReasonRequestEntityTooLarge)
	case s.Code >= http.StatusBadRequest && s.Code < http.StatusInternalServerError:
		return row{reason.Usage, reason.ExitUsage, "", ""}
	}
	return r
}

// Of returns the failure that an error is. Doing says what was tried, for errors that do not say it themselves; nil
// stays nil.
func Of(err error, doing string) *Error {
	var known *Error
	var coded *reason.Error
	var status apierrors.APIStatus
	var unknown *remote.UnknownKind
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.As(err, &unknown):
		return ofUnknownKind(unknown)
	case errors.As(err, &status):
		return ofStatus(status.Status(), doing)
	case errors.As(err, &coded):
		return &Error{Code: coded.Code, Exit: coded.Entry().Exit, Cause: coded, Hint: coded.Hint}
	case errors.Is(err, context.Canceled):
		return &Error{Code: reason.Interrupted, Exit: reason.ExitFailed, Doing: doing, Words: "interrupted"}
	case errors.Is(err, context.DeadlineExceeded):
		return Deadline(doing, "the server has not answered in time", "--request-timeout sets how long an answer is waited for")
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return &Error{Code: reason.SystemCallFailed, Exit: reason.ExitFailed, Doing: doing, Cause: err}
	}
	if refused, ok := trust.ExplainCertificate(cmp.Or(doing, "reach the server"), err, time.Now()); ok {
		return &Error{Code: refused.Code, Exit: refused.Entry().Exit, Cause: refused, Hint: refused.Hint}
	}
	if e := ofTransport(err, doing); e != nil {
		return e
	}
	return &Error{Code: reason.InternalFault, Exit: reason.ExitFailed, Doing: doing, Cause: err}
}

// ofUnknownKind says that a kind is not known, and which may have been meant.
func ofUnknownKind(unknown *remote.UnknownKind) *Error {
	hint := "`tako explain` lists the kinds"
	if unknown.Near != "" {
		hint = fmt.Sprintf("did you mean %s?", unknown.Near)
	}
	return &Error{Code: reason.UnknownKind, Exit: reason.ExitUsage, Words: unknown.Error(), Hint: hint}
}

func ofStatus(s metav1.Status, doing string) *Error {
	r := rowOfCode(s)
	e := &Error{Code: r.code, Exit: r.exit, Doing: doing, Words: r.words, Hint: r.hint}
	message := strings.TrimSpace(s.Message)
	if code := codeOfStatus(s); code != 0 {
		row, _ := reason.Lookup(code)
		e.Code, e.Exit, e.Words, e.Hint = code, row.Exit, "", moreAbout(code)
		_, message = codeSaid(metav1.StatusCause{Message: message})
	}
	if s.Reason == metav1.StatusReasonUnauthorized {
		return ofUnauthorized(e, message)
	}
	if message != "" {
		e.Cause = errors.New(message)
	} else if e.Words == "" {
		e.Words = cmp.Or(string(s.Reason), fmt.Sprintf("status %d", s.Code))
	}
	return e
}

// ofUnauthorized adds why credentials are refused where the server says it: its words say what to do too. A server that knows
// nobody says the bare word, and the client library has a sentence of its own for an answer that it has not read.
func ofUnauthorized(e *Error, message string) *Error {
	const bare, unread = "Unauthorized", "the server has asked for the client to provide credentials"
	if message != "" && message != bare && !strings.HasPrefix(message, unread) {
		e.Cause, e.Hint = errors.New(message), ""
	}
	return e
}

// codeOfStatus is the code that a server of ours says about a request as a whole, 0 for none.
func codeOfStatus(s metav1.Status) reason.Code {
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			if code, _ := codeSaid(cause); code != 0 && cause.Field == "" {
				return code
			}
		}
	}
	code, _ := codeSaid(metav1.StatusCause{Message: strings.TrimSpace(s.Message)})
	return code
}

// ofTransport says why no answer came, nil if that is not what happened.
func ofTransport(err error, doing string) *Error {
	e := &Error{Code: unreachable, Exit: reason.ExitUnreachable, Doing: doing, Words: "the server cannot be reached"}
	var request *url.Error
	var dns *net.DNSError
	var operation *net.OpError
	if errors.As(err, &request) {
		err = request.Err
	}
	switch {
	case errors.As(err, &dns):
		e.Cause, e.Hint = err, "check the name of the server in the context or kubeconfig"
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Cause, e.Hint = err, "is `tako server` running there?"
	case errors.As(err, &operation), request != nil && request.Timeout():
		e.Cause = err
	case request != nil:
		e.Cause = err
	default:
		return nil
	}
	return e
}
