package process

import (
	"errors"
	"fmt"
	"os"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/account"
)

// account is whom a task runs as; nil: the agent's own user, which is not root.
func (r *Runtime) account(t *run.Task) (*account.Account, error) {
	if t.User == "" && os.Geteuid() == 0 {
		uid, err := r.OwnUser(t.ID.Instance)
		return &account.Account{UID: uid, GID: uid}, err
	}
	if t.User == "" {
		return nil, nil
	}
	refuse := func(code reason.Code, why error) (*account.Account, error) {
		return nil, &reason.Error{Code: code, Doing: fmt.Sprintf("run %s as %q", t.ID, t.User), Cause: why}
	}
	a, err := account.Find(t.User)
	if err != nil {
		return refuse(reason.TaskRefused, err)
	}
	if why, lacks := r.can.Lacks[run.OtherUsers]; lacks {
		if int(a.UID) == os.Geteuid() {
			return nil, nil
		}
		return refuse(reason.RuntimeUnfit, errors.New(why))
	}
	return &a, nil
}
