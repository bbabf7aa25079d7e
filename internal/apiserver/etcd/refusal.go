package etcd

import (
	"fmt"
	"net/http"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/internal/reason"
)

const (
	// reasonNoRoom is the reason of an answer that something is full; the library has none for it.
	reasonNoRoom metav1.StatusReason = "InsufficientStorage"
	// retrySeconds is when a client may ask again, which costs next to nothing. client-go does so ten times before it tells
	// anybody.
	retrySeconds = 1
)

// refusal is a write that is not taken since there is no room for it. The API answers with its Status.
type refusal struct{ why *reason.Error }

var _ apierrors.APIStatus = refusal{}

// Error says what there is no room for, and what helps.
func (r refusal) Error() string { return r.why.Error() + "; " + r.why.Hint }

// Unwrap returns the coded error.
func (r refusal) Unwrap() error { return r.why }

// Status is how the API answers.
func (r refusal) Status() metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: reasonNoRoom, Message: r.Error(),
		Details: &metav1.StatusDetails{
			RetryAfterSeconds: retrySeconds,
			Causes:            []metav1.StatusCause{{Type: metav1.CauseType(r.why.Code.String()), Message: r.why.Error()}},
		},
	}
}

const doingWrite = "write to the store"

// noRoom is for a file system that is nearly full.
func noRoom(dir string, l lack) refusal {
	hint := fmt.Sprintf("make room on it, and writes go on by themselves; objects can be read, and deleted down to %s", mebibytes(shrinkBytesMin))
	return refusal{&reason.Error{Code: reason.DiskFull, Doing: doingWrite, Cause: fmt.Errorf("the file system of %s has %v", dir, l), Hint: hint}}
}

// noSegment is for a file system that was full when etcd's log needed room, and has room again.
func noSegment(dir string) refusal {
	return refusal{&reason.Error{
		Code: reason.DiskFull, Doing: doingWrite, Cause: fmt.Errorf("the file system of %s had no room for etcd's log to go on in", dir),
		Hint: "where there is room on it now, writes go on by themselves within seconds",
	}}
}

// Words about a database that has reached its quota: whose it is, and what helps.
const (
	ownDatabase = "this server"
	ownCure     = "delete what is not needed, and writes go on by themselves; or start the server with a larger --quota-bytes"
	otherCure   = "whoever runs that etcd has to compact and defragment it or to raise its quota, and to end its alarm"
)

// noQuota is for such a database. etcd's own error is not in it: whoever looks for that one has not been told what helps.
func noQuota(whose, cure string) refusal {
	return refusal{&reason.Error{
		Code: reason.QuotaExceeded, Doing: doingWrite, Cause: fmt.Errorf("the database of %s has reached its quota", whose), Hint: cure,
	}}
}

// isQuota says whether an error of etcd's is that its database has reached its quota.
func isQuota(err error) bool { return err != nil && rpctypes.Error(err) == rpctypes.ErrNoSpace }
