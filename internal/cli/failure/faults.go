package failure

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// placer finds a field path of the server in a file.
type placer interface {
	Place(path string) declare.Place
	PlaceOfKey(path string) declare.Place
}

// Faults returns what the server has against a document: a fault for each field that it names, otherwise one about the
// document as a whole. An error that is not about the document, such as a server that cannot be reached, is no fault: ok is
// false then.
func Faults(err error, doing string, document placer) (faults []declare.Fault, exit reason.Exit, ok bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil, 0, false
	}
	s := status.Status()
	r := rowOf(s.Reason)
	switch s.Reason {
	case metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest, metav1.StatusReasonConflict, metav1.StatusReasonForbidden,
		metav1.StatusReasonNotFound, metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonAlreadyExists:
	case metav1.StatusReasonUnknown, metav1.StatusReasonInternalError:
		// A document that does not fit its schema comes back as an error without a reason.
		if faults = schemaFaults(s.Message); len(faults) == 0 {
			return nil, 0, false
		}
		r.exit = reason.ExitUsage
	default:
		return nil, 0, false
	}
	if len(faults) == 0 {
		faults = schemaFaults(s.Message)
	}
	if len(faults) == 0 && s.Details != nil {
		faults = causeFaults(s)
	}
	if len(faults) == 0 {
		e := ofStatus(s, doing)
		// It is about the object, and the name is what a person knows it by.
		faults = []declare.Fault{{Code: e.Code, Path: "metadata.name", Message: e.Error(), Hint: e.Hint}}
	}
	for i := range faults {
		p := document.Place(faults[i].Path)
		if faults[i].Code == reason.UnknownField || faults[i].Code == reason.DuplicateKey {
			p = document.PlaceOfKey(faults[i].Path)
		}
		faults[i].File, faults[i].Line, faults[i].Column = p.File, p.Line, p.Column
	}
	return faults, r.exit, true
}

func causeFaults(s metav1.Status) []declare.Fault {
	var faults []declare.Fault
	for _, cause := range s.Details.Causes {
		if cause.Field == "" {
			continue
		}
		f := declare.Fault{Code: codeOf(cause.Type), Path: strings.TrimPrefix(cause.Field, "."), Message: oneLine(cause.Message)}
		said, message := codeSaid(cause)
		switch {
		case said != 0:
			f.Code, f.Message, f.Hint = said, message, moreAbout(said)
		case cause.Type == metav1.CauseTypeFieldManagerConflict:
			f.Message = fmt.Sprintf("%s is owned by somebody else: %s", f.Path, f.Message)
			f.Hint = "leave the field out, agree with them, or take it over with --force-conflicts"
		case f.Code == reason.InvalidValue:
			f.Message = f.Path + ": " + f.Message
		}
		faults = append(faults, f)
	}
	return faults
}

// saidCode is how a server of ours says a code where the library has no place for one.
var saidCode = regexp.MustCompile(`^(?:Invalid value: )?(TK\d{4}): `)

// codeSaid is the code of the closed set that a server of ours says itself, as the type of a cause or at the beginning of its
// words, with the words behind it; 0 for none.
func codeSaid(cause metav1.StatusCause) (reason.Code, string) {
	message := oneLine(cause.Message)
	// The words come from nearer to the mistake than the type: the library wraps them into a cause of its own.
	if m := saidCode.FindStringSubmatch(message); m != nil {
		if code, err := reason.ParseCode(m[1]); err == nil {
			return code, message[len(m[0]):]
		}
		return 0, message // of a later version
	}
	if code, err := reason.ParseCode(string(cause.Type)); err == nil {
		return code, message
	}
	return 0, message
}

// moreAbout is the hint where the server has said what to do in its own words already.
func moreAbout(code reason.Code) string { return "`tako help " + code.String() + "` says more" }

// codeOf is the code of the closed set that a cause of the library means.
func codeOf(cause metav1.CauseType) reason.Code {
	switch cause {
	case metav1.CauseTypeFieldValueRequired:
		return reason.MissingField
	case metav1.CauseTypeFieldValueDuplicate:
		return reason.DuplicateName
	case metav1.CauseTypeForbidden:
		return reason.FieldNotAllowed
	case metav1.CauseTypeTypeInvalid:
		return reason.WrongType
	case metav1.CauseTypeTooLong:
		return reason.BodyTooLarge
	case metav1.CauseTypeTooMany:
		return reason.TooManyResources
	case metav1.CauseTypeFieldValueNotFound:
		return reason.DanglingReference
	case metav1.CauseTypeFieldManagerConflict:
		return reason.Conflict
	}
	return reason.InvalidValue
}

// The ways in which the API server says that a field is not of the schema: strict decoding, and server-side apply.
var (
	unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)
	duplicateKey = regexp.MustCompile(`duplicate field "([^"]+)"`)
	notDeclared  = regexp.MustCompile(`(\.[^\s:]+): field not declared in schema`)
	twiceInList  = regexp.MustCompile(`(\.[^\s:]+): duplicate entries for key (\[[^\]]*\])`)
	wrongType    = regexp.MustCompile(`(?:^|[\s;(:])(\.[^\s:]+): (expected [^;,\n]+)`)
)

func schemaFaults(message string) []declare.Fault {
	var faults []declare.Fault
	unknown := func(path string) {
		path = strings.TrimPrefix(path, ".")
		faults = append(faults, declare.Fault{Code: reason.UnknownField, Path: path, Message: fmt.Sprintf("unknown field %q", path),
			Hint: "`tako explain` lists the fields of a kind"})
	}
	for _, m := range unknownField.FindAllStringSubmatch(message, -1) {
		unknown(m[1])
	}
	for _, m := range notDeclared.FindAllStringSubmatch(message, -1) {
		unknown(m[1])
	}
	for _, m := range duplicateKey.FindAllStringSubmatch(message, -1) {
		faults = append(faults, declare.Fault{Code: reason.DuplicateKey, Path: m[1], Message: fmt.Sprintf("field %q is given twice", m[1]), Hint: "keep one of them"})
	}
	for _, m := range twiceInList.FindAllStringSubmatch(message, -1) {
		path := strings.TrimPrefix(m[1], ".")
		faults = append(faults, declare.Fault{Code: reason.DuplicateName, Path: path, Message: fmt.Sprintf("%s has two items with %s", path, m[2]), Hint: "keep one of them"})
	}
	for _, m := range wrongType.FindAllStringSubmatch(message, -1) {
		path := strings.TrimPrefix(m[1], ".")
		faults = append(faults, declare.Fault{Code: reason.WrongType, Path: path, Message: fmt.Sprintf("%s: %s", path, oneLine(m[2]))})
	}
	return faults
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
