package kustomize

import (
	"errors"
	"io/fs"
	"testing"

	"tako.dev/tako/internal/reason"
)

// TestUnread: what a view says about a file that it does not give is what is said, with its way out.
func TestUnread(t *testing.T) {
	refused := &reason.Error{Code: reason.RepositoryContent, Doing: "use a", Cause: errors.New("it is a submodule"), Hint: "ask for it"}
	if f := Unread("a", &fs.PathError{Op: "open", Path: "a", Err: refused}); f.Message != "cannot be read: it is a submodule" || f.Hint != "ask for it" {
		t.Errorf("%+v", f)
	}
	if f := Unread("a", &fs.PathError{Op: "open", Path: "a", Err: fs.ErrNotExist}); f.Message != "cannot be read: file does not exist" || f.Hint != "check the path" {
		t.Errorf("%+v", f)
	}
}
