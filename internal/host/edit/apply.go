package edit

import (
	"context"
	"errors"
	"slices"
	"strings"

	"tako.dev/tako/internal/command/check"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// job is one plan on its way.
type job struct {
	*resource
	found  disk.Signature // what the check saw
	result *host.Result
	check  []string
}

func (j *job) fail(err error) { j.result.Err = err }

// Apply makes all edits of a file with one write.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	var paths []string
	byPath := map[string][]*job{}
	for i, p := range plans {
		r := p.Resource.(*resource)
		if byPath[r.path] == nil {
			paths = append(paths, r.path)
		}
		byPath[r.path] = append(byPath[r.path], &job{resource: r, found: p.State.(disk.Signature), result: &results[i]})
	}
	for _, p := range paths {
		t.applyTo(ctx, p, byPath[p])
	}
	return results
}

// applyTo carries out the edits of one file: all at once or, where that is refused, each alone.
func (t *Type) applyTo(ctx context.Context, path string, jobs []*job) {
	s := t.site(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(jobs) > 1 && t.together(ctx, s, jobs) {
		return
	}
	for _, j := range jobs {
		if j.result.Err == nil && !j.result.Changed {
			t.together(ctx, s, []*job{j})
		}
	}
}

// together carries out edits of one file with one write. It reports false, and has done nothing, where the check of one of several did
// not accept what all have made.
func (t *Type) together(ctx context.Context, s *site, jobs []*job) bool {
	first := jobs[0]
	now, err := t.again(ctx, first.resource)
	if err != nil {
		failAll(jobs, err)
		return true
	}
	text := now.text
	var writers []*job
	for _, j := range jobs {
		if now.Signature != j.found && !s.led(j.found, now.Signature) {
			j.fail(disk.Stale("edit file", j.path))
			continue
		}
		if text, err = j.edit(text); err != nil {
			j.fail(err)
			continue
		}
		writers = append(writers, j)
	}
	if len(writers) == 0 {
		return true
	}
	if text == now.text && now.Exists() {
		for _, j := range writers {
			j.remember(now.Signature, false)
		}
		return true
	}
	note, res, err := t.write(ctx, s, now, text, writers)
	if len(jobs) > 1 && (reason.Is(err, reason.CheckRejected) || reason.Is(err, reason.CheckNotRun) || reason.Is(err, reason.OperationTimeout)) {
		return false
	}
	for _, j := range writers {
		j.result.Err, j.result.Changed, j.result.Note = err, res.Changed, note
		if err == nil {
			// Its own change is the last one in this tick of the clock, so it is not settled.
			j.remember(res.Signature, false)
		}
	}
	return true
}

func failAll(jobs []*job, err error) {
	for _, j := range jobs {
		j.fail(err)
	}
}

// again looks at a file once more.
func (t *Type) again(ctx context.Context, r *resource) (*sight, error) {
	if err := ctx.Err(); err != nil {
		return nil, ended("edit file", r.path, err)
	}
	now, err := t.stat(r)
	if err != nil {
		return nil, err
	}
	return t.read(r, now)
}

// edit makes the edit of a text. Where it cannot, the text stays.
func (j *job) edit(text string) (string, error) {
	w, err := j.declared()
	if err != nil {
		return text, err
	}
	j.check = w.check
	out, err := w.Edit(text)
	return out, j.refused(err)
}

// write backs the old text up, and writes the new one.
func (t *Type) write(ctx context.Context, s *site, now *sight, text string, jobs []*job) (note string, res durable.WriteResult, err error) {
	r := jobs[0].resource
	if err := t.Beside(ctx, r.path); err != nil {
		return "", res, err
	}
	if note, err = t.keep(ctx, r.path, now); err != nil {
		return "", res, err
	}
	spec := durable.WriteSpec{
		Path: r.path, Content: strings.NewReader(text), Size: int64(len(text)),
		Mode: durable.Keep, UID: durable.Keep, GID: durable.Keep, Expect: &now.Signature,
	}
	var checks [][]string
	for _, j := range jobs {
		if len(j.check) > 0 && !slices.ContainsFunc(checks, func(c []string) bool { return slices.Equal(c, j.check) }) {
			checks = append(checks, j.check)
		}
	}
	if len(checks) > 0 {
		spec.Check = func(ctx context.Context, temp string) error {
			for _, c := range checks {
				if err := check.Run(ctx, check.Question{Command: c, Path: r.path, Content: temp, Private: now.isPrivate()}); err != nil {
					return err
				}
			}
			return nil
		}
	}
	res, err = durable.Write(ctx, t.root, spec)
	if res.Changed && res.Signature.Exists() {
		s.wrote(now.Signature, res.Signature)
	}
	if res.BrokeHardLink {
		note = joinNotes(note, "its other hard links still have the old content")
	}
	return note, res, err
}

func joinNotes(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; ")
}

// keep puts the old text into the content store, and says so.
func (t *Type) keep(ctx context.Context, path string, now *sight) (note string, err error) {
	if now.text == "" {
		return "", nil
	}
	fault := &reason.Error{Code: reason.BackupFailed, Doing: "back up " + disk.Shown(path)}
	if t.store == nil {
		fault.Hint = "there is no content store"
		return "", fault
	}
	if !t.store.Takes(now.Stat) {
		return "old content not kept, because there is no room for what others than root may have written", nil
	}
	stood := content.Version{Path: []byte(path), Mode: now.Perm(), UID: now.UID, GID: now.GID}
	var digest content.Digest
	if digest, _, err = t.store.Keep(ctx, stood, strings.NewReader(now.text)); err != nil {
		fault.Cause = err
		var why *reason.Error
		if errors.As(err, &why) {
			fault.Cause, fault.Hint = why.Cause, why.Hint
		}
		return "", fault
	}
	if now.isPrivate() {
		return "old content kept", nil
	}
	return "old content kept as " + digest.String(), nil
}
