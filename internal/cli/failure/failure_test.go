package failure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

func TestOf(t *testing.T) {
	things := schema.GroupResource{Resource: "things"}
	refused := &url.Error{Op: "Get", URL: "https://x:1/api?token=hidden", Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}}
	for _, c := range []struct {
		name string
		err  error
		exit reason.Exit
	}{
		{"not found", apierrors.NewNotFound(things, "a"), reason.ExitNotFound},
		{"forbidden", apierrors.NewForbidden(things, "a", errors.New("no")), reason.ExitNotAllowed},
		{"unauthorized", apierrors.NewUnauthorized("no"), reason.ExitNotAllowed},
		{"conflict", apierrors.NewConflict(things, "a", errors.New("no")), reason.ExitConflict},
		{"exists", apierrors.NewAlreadyExists(things, "a"), reason.ExitConflict},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Thing"}, "a", nil), reason.ExitUsage},
		{"bad request", apierrors.NewBadRequest("no"), reason.ExitUsage},
		{"too large", apierrors.NewRequestEntityTooLargeError("no"), reason.ExitUsage},
		{"timeout", apierrors.NewTimeoutError("no", 1), reason.ExitDeadline},
		{"too many requests", apierrors.NewTooManyRequests("no", 1), reason.ExitUnreachable},
		{"unavailable", apierrors.NewServiceUnavailable("no"), reason.ExitUnreachable},
		{"expired", apierrors.NewResourceExpired("no"), reason.ExitConflict},
		{"internal", apierrors.NewInternalError(errors.New("no")), reason.ExitFailed},
		{"the server's code", saying("TK0807", ""), reason.ExitNotAllowed},
		{"the server's code in words", saying("", "TK0807: root is needed"), reason.ExitNotAllowed},
		{"too large for the server, without a reason", &apierrors.StatusError{ErrStatus: metav1.Status{Code: 413, Message: "no"}}, reason.ExitUsage},
		{"refused without a reason", &apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Message: "no"}}, reason.ExitUsage},
		{"a kind that is not known", &remote.UnknownKind{Text: "nods", Near: "nodes"}, reason.ExitUsage},
		{"a code of ours", &reason.Error{Code: reason.NotAllowed, Doing: "x"}, reason.ExitNotAllowed},
		{"a failure", Stalled("x", "y", ""), reason.ExitStalled},
		{"deadline", fmt.Errorf("x: %w", context.DeadlineExceeded), reason.ExitDeadline},
		{"interrupted", context.Canceled, reason.ExitFailed},
		{"nobody listens", refused, reason.ExitUnreachable},
		{"no such host", &url.Error{Op: "Get", URL: "https://x", Err: &net.DNSError{Err: "no such host", Name: "x"}}, reason.ExitUnreachable},
		{"a file", &os.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}, reason.ExitFailed},
		{"anything", errors.New("no"), reason.ExitFailed},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			f := Of(err, "do it")
			if f.Exit != c.exit || f.Error() == "" {
				t.Errorf("%s: exit %d and %q, want exit %d", c.name, f.Exit, f, c.exit)
			}
			if _, ok := reason.Lookup(f.Code); !ok {
				t.Errorf("%s: code %s is not of the set", c.name, f.Code)
			}
			if strings.Contains(f.Error(), "hidden") {
				t.Errorf("%s: the query of the request is shown: %s", c.name, f)
			}
		}
	}
	if Of(nil, "x") != nil {
		t.Error("nothing became a failure")
	}
}

// TestOfUnauthorized: why credentials are refused is shown where the server says it, and where it does not, what may be the case.
func TestOfUnauthorized(t *testing.T) {
	for _, c := range []struct{ message, want, hint string }{
		{"Unauthorized", "get x: the server does not accept these credentials", "the token or certificate may have expired or been revoked"},
		{"the server has asked for the client to provide credentials", "get x: the server does not accept these credentials", "the token or certificate may have expired or been revoked"},
		{"the token ended a year ago", "get x: the server does not accept these credentials: the token ended a year ago", ""},
	} {
		f := Of(apierrors.NewUnauthorized(c.message), "get x")
		if f.Code != reason.NotAuthenticated || f.Error() != c.want || f.Hint != c.hint {
			t.Errorf("%q became %s %q with hint %q", c.message, f.Code, f, f.Hint)
		}
	}
}

// saying is an answer of the server that says a code.
func saying(cause, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: 507, Reason: "InsufficientStorage", Message: message,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseType(cause), Message: "no"}}}}}
}

// page is a document in which every path stands on the line of its length.
type page struct{}

func (page) Place(path string) declare.Place {
	return declare.Place{File: "f", Line: len(path) + 1, Column: 1, Path: path}
}

func (p page) PlaceOfKey(path string) declare.Place { return p.Place(path) }

func TestFaults(t *testing.T) {
	conflict := apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Field: ".data.a", Message: `conflict with "bob"`}}, "Apply failed")
	coded := apierrors.NewInvalid(schema.GroupKind{Kind: "A"}, "a", field.ErrorList{field.Invalid(field.NewPath("spec"), 1, "no")})
	coded.ErrStatus.Details.Causes[0].Type = "TK0424"
	worded := apierrors.NewInvalid(schema.GroupKind{Kind: "A"}, "a", field.ErrorList{
		{Type: field.ErrorTypeInvalid, Field: "spec.a", BadValue: field.OmitValueType{}, Detail: "TK0426: two of them; keep one"}})
	twice := apierrors.NewInvalid(schema.GroupKind{Kind: "A"}, "a", field.ErrorList{
		{Type: field.ErrorTypeInvalid, Field: "spec", BadValue: field.OmitValueType{}, Detail: "TK0415: the spec never changes"}})
	twice.ErrStatus.Details.Causes[0].Type = "TK0414"
	later := apierrors.NewInvalid(schema.GroupKind{Kind: "A"}, "a", field.ErrorList{
		{Type: field.ErrorTypeInvalid, Field: "spec.a", BadValue: field.OmitValueType{}, Detail: "TK9999: not known here"}})
	for _, c := range []struct {
		name  string
		err   error
		paths string
		code  reason.Code
		exit  reason.Exit
	}{
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "A"}, "a", field.ErrorList{
			field.Invalid(field.NewPath("spec").Index(1), 3, "must be 4"), field.Required(field.NewPath("spec", "b"), "")}), "spec[1] spec.b", reason.InvalidValue, reason.ExitUsage},
		{"with a code", coded, "spec", reason.DependencyCycle, reason.ExitUsage},
		{"with a code in words", worded, "spec.a", reason.PriorityConflict, reason.ExitUsage},
		{"with a code of a later version", later, "spec.a", reason.InvalidValue, reason.ExitUsage},
		{"strict decoding", apierrors.NewBadRequest(`strict decoding error: unknown field "spec.x", unknown field "y"`), "spec.x y", reason.UnknownField, reason.ExitUsage},
		{"server-side apply, unknown", apierrors.NewInternalError(errors.New("failed to create typed patch object (a/b; v1, Kind=A): .spec.foo: field not declared in schema")), "spec.foo", reason.UnknownField, reason.ExitUsage},
		{"server-side apply, types", apierrors.NewBadRequest("errors:\n  .data.a: expected string, got &value{1}\n  .b: expected list, got x"), "data.a b", reason.WrongType, reason.ExitUsage},
		{"conflict", conflict, "data.a", reason.Conflict, reason.ExitConflict},
		{"not allowed", apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "a", errors.New("no")), "metadata.name", reason.NotAllowed, reason.ExitNotAllowed},
		{"two codes", twice, "spec", reason.FieldNotAllowed, reason.ExitUsage},
		{"two items of one key", apierrors.NewBadRequest(`the form: .spec.taints: duplicate entries for key [effect="NoSchedule",key="a"]`), "spec.taints", reason.DuplicateName, reason.ExitUsage},
	} {
		faults, exit, ok := Faults(c.err, "apply it", page{})
		if !ok || exit != c.exit {
			t.Errorf("%s: ok %v, exit %d, want %d", c.name, ok, exit, c.exit)
			continue
		}
		var paths []string
		for _, f := range faults {
			paths = append(paths, f.Path)
			if f.Line != len(f.Path)+1 || f.Message == "" || strings.Contains(f.Message, "\n") {
				t.Errorf("%s: %+v", c.name, f)
			}
		}
		if strings.Join(paths, " ") != c.paths || faults[0].Code != c.code {
			t.Errorf("%s: %v with %s, want %s with %s", c.name, paths, faults[0].Code, c.paths, c.code)
		}
	}
	faults, _, _ := Faults(worded, "apply it", page{})
	if want := "two of them; keep one"; faults[0].Message != want || !strings.Contains(faults[0].Hint, "tako help TK0426") {
		t.Errorf("a code in words is shown as %+v, want %q", faults[0], want)
	}
	for _, err := range []error{errors.New("x"), apierrors.NewUnauthorized("x"), apierrors.NewInternalError(errors.New("etcd is ill")), apierrors.NewServiceUnavailable("x")} {
		if _, _, ok := Faults(err, "apply it", page{}); ok {
			t.Errorf("%v is no fault of the document", err)
		}
	}
}

func FuzzSchemaFaults(f *testing.F) {
	f.Add(`unknown field "a.b"`)
	f.Add(".a[name=\"x\"].b: field not declared in schema")
	f.Add("(: .a: expected list, got x;")
	f.Fuzz(func(t *testing.T, message string) {
		for _, fault := range schemaFaults(message) {
			if fault.Path == "" && !strings.Contains(message, ".") || fault.Message == "" {
				t.Errorf("%+v of %q", fault, message)
			}
		}
	})
}
