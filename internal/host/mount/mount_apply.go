package mount

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// toolMax bounds mount(8) and umount(8): systemd gives a mount as long, DefaultTimeoutStartSec.
	toolMax = 90 * time.Second
	// toolOutput is what is kept of their words.
	toolOutput = 16 << 10
	// stackMax bounds how many mounts on top of one another are taken away.
	stackMax = 16
	// hiddenMax is how much of what a mount hides is named.
	hiddenMax = 3
)

// run runs one of the programs. It goes on when the agent ends: half a mount is none.
func run(ctx context.Context, doing string, args ...string) error {
	output, err := command.Tool{Args: args, Limit: toolMax, Keep: toolOutput, Lasting: true}.Run(ctx)
	if err != nil {
		return toolError(doing, output, err)
	}
	return nil
}

func (m *mount) apply(ctx context.Context, t *Type, sight any, done *work) error {
	now := sight.(mountSight)
	if m.state != declare.MountMounted {
		if err := t.editLines(ctx, done, m.lines); err != nil {
			return err
		}
		if !now.isMounted() {
			return nil
		}
		return m.unmount(ctx, t, done)
	}
	is, _ := m.unlike(&now)
	var err error
	switch {
	case !now.isMounted():
		done.note = t.hidden(m.path)
		err = m.mount(ctx, done, m.source, m.kind, strings.Join(m.options, ","))
	case !now.ours:
		err = m.replace(ctx, t, &now, done)
	case len(is) > 0 || now.ofLine && !now.waiting && reaches(optionList(now.line.options), m.options):
		err = m.remount(ctx, t, &now, done)
	}
	if err != nil {
		return err
	}
	return t.editLines(ctx, done, m.lines)
}

// lines are those of fstab with what is declared.
func (m *mount) lines(lines []fstabLine) []fstabLine {
	if m.state == declare.MountAbsent {
		return drop(lines, m.mine)
	}
	return put(lines, m.mine, m.line())
}

func (m *mount) mount(ctx context.Context, done *work, source, kind, options string) error {
	args := []string{"mount", "--types", kind}
	if options != "" {
		args = append(args, "--options", options)
	}
	if err := run(ctx, m.doing(), append(args, "--source", source, "--target", m.path)...); err != nil {
		return err
	}
	done.changed = true
	return nil
}

// remount gives what is mounted other options; what takes them only when it is mounted anew is.
func (m *mount) remount(ctx context.Context, t *Type, now *mountSight, done *work) error {
	err := run(ctx, m.doing(), "mount", "--types", m.kind, "--options", remountOptions(m.options, m.binds()), "--source", m.source, "--target", m.path)
	if err == nil {
		done.changed = true
		return nil
	}
	if !reason.Is(err, reason.MountRefused) || !now.ofLine {
		return err
	}
	if e := reason.Of(err); isMemory(now.top.kind) || !strings.Contains(e.Evidence, "bad option") && !strings.Contains(e.Evidence, "Invalid argument") {
		return err
	}
	return m.replace(ctx, t, now, done)
}

// isMemory reports whether a file system is gone when it is unmounted.
func isMemory(kind string) bool { return kind == kindTmpfs || kind == "ramfs" }

// replace unmounts what fstab says, and mounts what is declared; where that does not go, it mounts again what was there.
func (m *mount) replace(ctx context.Context, t *Type, now *mountSight, done *work) error {
	if isMemory(now.top.kind) && !isBind(optionList(now.line.options)) {
		return &reason.Error{Code: reason.MountPointTaken, Doing: m.doing(), Cause: errors.New(shownMount(now.top) + " is mounted there, and its content would be lost"),
			Hint: "unmount it by hand: umount " + m.path}
	}
	if err := m.unmountOnce(ctx, t, now.top); err != nil {
		return err
	}
	done.changed = true
	err := m.mount(ctx, done, m.source, m.kind, strings.Join(m.options, ","))
	if err == nil {
		return nil
	}
	if back := m.mount(ctx, done, now.line.source, now.line.kind, now.line.options); back != nil {
		return errors.Join(err, back)
	}
	e := reason.Of(err)
	e.Hint = strings.TrimPrefix(e.Hint+"; what was there before is mounted again", "; ")
	return e
}

// unmount takes away what is declared or what fstab said, and with absent whatever there is.
func (m *mount) unmount(ctx context.Context, t *Type, done *work) error {
	for range stackMax {
		c := t.newCall()
		if err := c.load(); err != nil {
			return err
		}
		stack := c.table.at(m.path)
		if len(stack) == 0 {
			return nil
		}
		if err := m.unmountOnce(ctx, t, stack[len(stack)-1]); err != nil {
			return err
		}
		done.changed = true
		if m.state != declare.MountAbsent {
			return nil // what was below it was not asked about
		}
	}
	return nil
}

func (m *mount) unmountOnce(ctx context.Context, t *Type, top mounted) error {
	// The path has no links in it, and resolving it once more could wait for a server for ever.
	err := run(ctx, "unmount "+disk.Shown(m.path), "umount", "--no-canonicalize", "--", m.path)
	if err == nil {
		return nil
	}
	e := reason.Of(err)
	switch {
	case strings.Contains(e.Evidence, "busy"):
		e.Code, e.Cause = reason.MountBusy, errors.New(t.users(ctx, top))
		e.Hint = "stop what uses it; nothing is stopped or unmounted by force for this"
	case strings.Contains(e.Evidence, "not mounted"):
		return nil
	}
	return e
}

// hidden says what a mount hides; "" for an empty directory.
func (t *Type) hidden(p string) string {
	d, err := t.root.Dir(p)
	if err != nil {
		return "" // a single file
	}
	defer d.Close()
	list, err := d.Reopen()
	if err != nil {
		return ""
	}
	defer list.Close()
	names, _ := list.Readdirnames(hiddenMax + 1) // what it did not read it does not name
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	more := ""
	if len(names) > hiddenMax {
		names, more = names[:hiddenMax], " and more"
	}
	for i, n := range names {
		names[i] = disk.Shown(n)
	}
	return "it hides what is in the directory below it: " + strings.Join(names, ", ") + more
}

func (m *mount) undo(ctx context.Context, t *Type, original []byte) error {
	var o mountOriginal
	var old []oldLine
	if original != nil {
		var err error
		if old, err = unmarshal(m.doing(), original, &o); err != nil {
			return err
		}
	}
	c := t.newCall()
	if err := c.load(); err != nil {
		return err
	}
	sight, err := m.look(c)
	if err != nil {
		return err
	}
	now := sight.(mountSight)
	var done work
	switch {
	case !o.Mounted && now.isMounted() && (now.ours || now.ofLine):
		if now.unsafe != "" {
			return unsafeError("unmount "+disk.Shown(m.path), now.unsafe)
		}
		err = m.unmount(ctx, t, &done)
	case o.Mounted:
		err = m.mountAgain(ctx, c, &o, &now, &done)
	}
	if err != nil {
		return err
	}
	err = t.editLines(ctx, &done, func(lines []fstabLine) []fstabLine { return restore(lines, m.mine, old) })
	if err != nil || !done.stale {
		return err
	}
	return t.reload(ctx)
}

// mountAgain makes what is mounted what was there before.
func (m *mount) mountAgain(ctx context.Context, c *call, o *mountOriginal, now *mountSight, done *work) error {
	if now.unsafe != "" {
		return unsafeError("mount "+disk.Shown(o.Source)+" at "+disk.Shown(m.path), now.unsafe)
	}
	was := c.originOf(o.Source, o.Kind, optionList(o.Options))
	if now.isMounted() && !was.is(now.top, o.Kind) {
		if !now.ours && !now.ofLine {
			return &reason.Error{Code: reason.MountPointTaken, Doing: "undo: " + m.doing(), Cause: errors.New(shownMount(now.top) + " is mounted there")}
		}
		if err := m.unmountOnce(ctx, c.Type, now.top); err != nil {
			return err
		}
		now.top = mounted{}
	}
	if !now.isMounted() {
		if err := m.mount(ctx, done, o.Source, o.Kind, o.Options); err != nil {
			return err
		}
	}
	list := optionList(o.Flags)
	if now.isMounted() && kernelShows(now.top) == o.Flags {
		return nil
	}
	if isBind(optionList(o.Options)) {
		list = append([]string{"bind"}, list...)
	}
	return run(ctx, "undo: "+m.doing(), "mount", "--types", o.Kind, "--options", remountOptions(list, false), "--source", o.Source, "--target", m.path)
}

// kernelShows is what the kernel shows of the options that undo puts back.
func kernelShows(m mounted) string {
	if m.kind == kindTmpfs {
		return m.flags + "," + m.super
	}
	return m.flags
}
