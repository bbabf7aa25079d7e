package unit

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// verifyTime bounds systemd-analyze, which takes 10 to 30 ms for a unit.
	verifyTime = 30 * time.Second
	// outputMax is what is kept of its words; more than an error carries, so that it says it was cut.
	outputMax = 8 << 10
	// bootedDir exists where systemd is pid 1, sd_booted(3).
	bootedDir = "/run/systemd/system"
)

// verifier has systemd look at unit files before they are in their place. dir is the directory for that.
type verifier struct{ dir string }

// verify gives an error to each draft that systemd-analyze does not accept. All are looked at together, because they may name one another.
func (v *verifier) verify(ctx context.Context, drafts []*draft) {
	var open []*draft
	for _, d := range drafts {
		if d.err == nil {
			open = append(open, d)
		}
	}
	if _, err := os.Stat(bootedDir); err != nil || len(open) == 0 {
		return // nobody is there who would read them
	}
	dir, err := v.stage(open)
	defer func() { _ = os.RemoveAll(v.dir) }() // also what a killed run has left
	var units []string
	for _, d := range open {
		switch {
		case err != nil:
			d.err = &reason.Error{Code: reason.CheckNotRun, Doing: "verify unit file " + disk.Shown(d.path), Cause: err}
		case d.dropIn && !stageUnit(dir, d.unit):
			d.notes = append(d.notes, "not verified: there is no unit "+d.unit+" yet")
		case !slices.Contains(units, d.unit):
			units = append(units, d.unit)
		}
	}
	if err != nil || len(units) == 0 {
		return
	}
	if len(units) > 1 {
		if _, err := analyze(ctx, dir, units); err == nil {
			return
		}
	}
	for _, d := range open {
		if len(d.notes) == 0 {
			d.err = rejected(ctx, dir, d)
		}
		if d.dropIn && reason.Is(d.err, reason.CheckRejected) && !accepted(ctx, dir, d) {
			d.err, d.notes = nil, append(d.notes, "not verified: systemd-analyze verify does not accept "+d.unit+" as it is without it")
		}
	}
}

// accepted reports whether the unit of a drop-in is accepted without it.
func accepted(ctx context.Context, dir string, d *draft) bool {
	file := filepath.Join(dir, strings.TrimPrefix(d.path, declare.UnitDir))
	if err := os.Rename(file, file+".off"); err != nil {
		return true
	}
	defer func() { _ = os.Rename(file+".off", file) }() // all of it is removed afterwards
	_, err := analyze(ctx, dir, []string{d.unit})
	return err == nil
}

// stage writes the files into a directory that has nothing else.
func (v *verifier) stage(drafts []*draft) (string, error) {
	if err := os.RemoveAll(v.dir); err != nil {
		return "", err
	}
	for _, d := range drafts {
		to := filepath.Join(v.dir, strings.TrimPrefix(d.path, declare.UnitDir))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, []byte(d.text), 0o600); err != nil {
			return "", err
		}
	}
	return v.dir, nil
}

// stageUnit puts the unit file beside its drop-in, because systemd looks at drop-ins of what is there only. It reports whether there is one.
func stageUnit(dir, unit string) bool {
	names := []string{unit}
	if at := strings.IndexByte(unit, '@'); at >= 0 {
		names = append(names, unit[:at+1]+filepath.Ext(unit))
	}
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return true
		}
		for _, from := range []string{declare.UnitDir, "/run/systemd/system", "/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"} {
			if text, err := os.ReadFile(filepath.Join(from, name)); err == nil && len(text) > 0 {
				return os.WriteFile(filepath.Join(dir, name), text, 0o600) == nil
			}
		}
	}
	return false
}

// rejected asks about one file.
func rejected(ctx context.Context, dir string, d *draft) error {
	out, err := analyze(ctx, dir, []string{d.unit})
	if err == nil {
		return nil
	}
	out = bytes.ReplaceAll(out, []byte(dir), []byte(declare.UnitDir))
	failed := &reason.Error{Code: reason.CheckNotRun, Doing: "verify unit file " + disk.Shown(d.path), Cause: err, Evidence: reason.Clip(out)}
	var exit *command.ExitError
	switch {
	case errors.Is(err, command.ErrStopped):
		failed.Code = reason.OperationTimeout
	case ctx.Err() != nil:
		return reason.Ended("verify unit file "+disk.Shown(d.path), ctx.Err())
	case errors.As(err, &exit) && exit.Status.Exited():
		failed.Code, failed.Cause = reason.CheckRejected, errors.New("systemd-analyze verify does not accept it")
		failed.Hint = "what a unit runs or needs must be there first: require the package or the file"
	}
	return failed
}

// analyze runs systemd-analyze verify. Its exit status is about these units, not about those that they lead to.
func analyze(ctx context.Context, dir string, units []string) ([]byte, error) {
	args := []string{"systemd-analyze", "verify", "--man=no", "--recursive-errors=no"}
	for _, unit := range units {
		args = append(args, filepath.Join(dir, unit))
	}
	out, err := command.Tool{Args: args, Limit: verifyTime, Keep: outputMax}.Run(ctx)
	if err != nil && bytes.Contains(out, []byte("unrecognized option")) {
		// Before systemd 250 its status said only whether a unit could be read.
		args = append(args[:3], args[4:]...)
		out, err = command.Tool{Args: args, Limit: verifyTime, Keep: outputMax}.Run(ctx)
	}
	return out, err
}
