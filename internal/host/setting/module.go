package setting

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	sysModule = "/sys/module/"
	// modulesDir has a directory for each kernel release.
	modulesDir = "/lib/modules/"
	// modprobeMax bounds a run of modprobe: a driver may look for its device for a while.
	modprobeMax = 2 * time.Minute
	// modprobeOutput is what is kept of its words.
	modprobeOutput = 16 << 10
	fieldState     = "state"
	fieldOptions   = "options"
	fieldBlocked   = "blocked"
)

// The words for what a module is.
const (
	wordBuiltIn  = "built in"
	wordLoaded   = string(declare.ModuleLoaded)
	wordUnloaded = string(declare.ModuleUnloaded)
)

// module is a module of the kernel.
type module struct {
	name    string
	state   declare.ModuleState
	options []string // "name=value", sorted
}

func bindModule(t *Type, r *declare.Resource) (thing, error) {
	m := &module{name: r.KernelModule.NameOr(r.Name), state: r.KernelModule.StateOrDefault()}
	for name, value := range r.KernelModule.Options {
		m.options = append(m.options, name+"="+value)
	}
	slices.Sort(m.options)
	return t.kernelOnly(m)
}

func (m *module) doing() string {
	verb := map[declare.ModuleState]string{declare.ModuleLoaded: "load", declare.ModuleUnloaded: "unload", declare.ModuleBlocked: "block"}[m.state]
	return verb + " kernel module " + m.name
}

// loadFile is read at boot, modules-load.d(5), and confFile whenever the module is to be loaded, modprobe.d(5).
func (m *module) loadFile() string { return "/etc/modules-load.d/tako-" + m.name + confSuffix }

func (m *module) confFile() string { return "/etc/modprobe.d/tako-" + m.name + confSuffix }

// bodies are what the two files shall hold; nil for no file.
func (m *module) bodies() (load, conf *string) {
	if m.state == declare.ModuleLoaded {
		text := madeBy + m.name + "\n"
		load = &text
	}
	text := madeBy
	if m.state == declare.ModuleBlocked {
		text += "blacklist " + m.name + "\ninstall " + m.name + " /bin/false\n"
	}
	if len(m.options) > 0 {
		text += "options " + m.name + " " + strings.Join(m.options, " ") + "\n"
	}
	if text != madeBy {
		conf = &text
	}
	return load, conf
}

// watches names the files. Nothing tells of a module that is loaded or unloaded: sysfs has no such events.
func (m *module) watches() []host.Watch {
	return []host.Watch{{Kind: host.WatchPath, Name: m.loadFile()}, {Kind: host.WatchPath, Name: m.confFile()}}
}

func (m *module) sign(s *signs) {
	_, err := os.Stat(sysModule + m.name)
	s.text(yesNo(err == nil))
	s.file(m.loadFile())
	s.file(m.confFile())
}

// moduleSight is how a module is.
type moduleSight struct {
	state      string
	users      string // who keeps it loaded
	cannot     string // why none can be loaded here
	differing  string // parameters that it was loaded with, and that are declared otherwise
	load, conf string // the files
	hasLoad    bool
	hasConf    bool
}

func (m *module) look(c *call) (any, error) {
	var s moduleSight
	release := kernelRelease()
	s.state = m.stateNow(c.Type, release)
	if s.state == wordLoaded {
		s.users = m.usersNow()
		s.differing = m.differing()
	} else if s.state == wordUnloaded {
		s.cannot = cannotLoad(c.Type, release)
	}
	load, err := c.read(m.loadFile())
	if err != nil {
		return nil, err
	}
	conf, err := c.read(m.confFile())
	if err != nil {
		return nil, err
	}
	s.load, s.hasLoad, s.conf, s.hasConf = load.body, load.there(), conf.body, conf.there()
	return s, nil
}

// stateNow asks the kernel. A module that was loaded has a state there; one that is built in has parameters at most.
func (m *module) stateNow(t *Type, release string) string {
	if _, err := os.Stat(sysModule + m.name + "/initstate"); err == nil {
		return wordLoaded
	}
	if _, err := os.Stat(sysModule + m.name); err == nil {
		return wordBuiltIn
	}
	list, err := t.read(modulesDir + release + "/modules.builtin")
	if err != nil {
		return wordUnloaded
	}
	for line := range strings.Lines(list.body) {
		name := strings.TrimSuffix(path.Base(strings.TrimSpace(line)), ".ko")
		if strings.ReplaceAll(name, "-", "_") == m.name {
			return wordBuiltIn
		}
	}
	return wordUnloaded
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// cannotLoad says why no module can be loaded here; "" where one can.
func cannotLoad(t *Type, release string) string {
	if _, st, err := t.follow(modulesDir + release); err == nil && !st.Exists() {
		return modulesDir + release + " is not there: this kernel takes no modules, or, in a container, they are its host's"
	}
	if _, err := command.Find("modprobe"); err != nil {
		return "there is no modprobe: it is of the package kmod"
	}
	return ""
}

// usersNow says who keeps the module loaded: other modules, or a count.
func (m *module) usersNow() string {
	var names []string
	if list, err := os.ReadDir(sysModule + m.name + "/holders"); err == nil {
		for _, entry := range list {
			names = append(names, entry.Name())
		}
	}
	if len(names) > 0 {
		return "by " + strings.Join(names, ", ")
	}
	count, err := os.ReadFile(sysModule + m.name + "/refcnt")
	if n := strings.TrimSpace(string(count)); err == nil && n != "0" {
		return n + " times, by devices, mounts or sockets"
	}
	return ""
}

// differing says which parameters the module was loaded with that are declared otherwise. Not every parameter can be read.
func (m *module) differing() string {
	var found []string
	for _, option := range m.options {
		name, want, _ := strings.Cut(option, "=")
		b, err := os.ReadFile(sysModule + m.name + "/parameters/" + name)
		if now := strings.TrimSpace(string(b)); err == nil && truth(now) != truth(want) {
			found = append(found, name+" is "+shown(now))
		}
	}
	return strings.Join(found, ", ")
}

// truth writes both ways of a boolean parameter as one.
func truth(s string) string {
	switch s {
	case "Y", "y", "1":
		return "1"
	case "N", "n", "0":
		return "0"
	}
	return s
}

func (m *module) compare(sight any) ([]host.Change, error) {
	now := sight.(moduleSight)
	load, conf := m.bodies()
	wantLoaded := m.state == declare.ModuleLoaded
	switch {
	case !wantLoaded && now.state == wordBuiltIn:
		return nil, &reason.Error{Code: reason.SettingRefused, Doing: m.doing(), Cause: errors.New("it is built into this kernel"),
			Hint: "the kernel's command line may keep it from starting: initcall_blacklist="}
	case wantLoaded && now.state == wordUnloaded && now.cannot != "":
		return nil, &reason.Error{Code: reason.ModulesUnavailable, Doing: m.doing(), Cause: errors.New(now.cannot), Hint: "declare it for hosts that load modules, with `when`"}
	}
	var changes []host.Change
	add := func(field, from, to string) {
		if from != to {
			changes = append(changes, host.Change{Field: field, From: from, To: to})
		}
	}
	if loaded := now.state != wordUnloaded; loaded != wantLoaded {
		to := wordUnloaded
		if wantLoaded {
			to = wordLoaded
		}
		add(fieldState, now.state, to)
	}
	add(fieldBoot, loadWord(now.hasLoad, now.load, m.name), loadWord(load != nil, deref(load), m.name))
	add(fieldBlocked, yesNo(blocks(now.conf, m.name)), yesNo(m.state == declare.ModuleBlocked))
	add(fieldOptions, optionsOf(now.conf, m.name), strings.Join(m.options, " "))
	if len(changes) == 0 && (now.load != deref(load) || now.conf != deref(conf) || now.hasLoad != (load != nil) || now.hasConf != (conf != nil)) {
		add("files", "another text", "as declared")
	}
	return changes, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// loadWord says whether a file of modules-load.d(5) has the module loaded at boot.
func loadWord(there bool, body, name string) string {
	for line := range strings.Lines(body) {
		if strings.TrimSpace(line) == name && there {
			return wordLoaded
		}
	}
	return "not loaded"
}

// blocks and optionsOf read a file of modprobe.d(5).
func blocks(conf, name string) bool {
	return strings.Contains("\n"+conf, "\ninstall "+name+" /bin/false\n")
}

func optionsOf(conf, name string) string {
	for line := range strings.Lines(conf) {
		if rest, ok := strings.CutPrefix(line, "options "+name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func (m *module) apply(ctx context.Context, t *Type, sight any) (work, error) {
	now := sight.(moduleSight)
	var done work
	load, conf := m.bodies()
	file := func(p string, body *string) error {
		f, err := t.read(p)
		if err != nil {
			return err
		}
		changed := false
		if body == nil {
			changed, err = t.remove(ctx, f)
		} else {
			changed, err = t.write(ctx, f, *body)
		}
		done.changed = done.changed || changed
		return err
	}
	// The options must be there before the module comes, and the block before it goes.
	if err := file(m.confFile(), conf); err != nil {
		return done, err
	}
	if err := m.switchNow(ctx, &now, &done); err != nil {
		return done, err
	}
	if err := file(m.loadFile(), load); err != nil {
		return done, err
	}
	if now.differing != "" {
		done.note = "it was loaded before with other options (" + now.differing + "); it gets these when it is loaded anew"
	}
	if now.state == wordBuiltIn && len(m.options) > 0 {
		done.note = "it is built into this kernel, and takes its options from the kernel's command line: " + m.name + "." + strings.Join(m.options, " "+m.name+".")
	}
	return done, nil
}

// switchNow loads or unloads the module.
func (m *module) switchNow(ctx context.Context, now *moduleSight, done *work) error {
	wantLoaded := m.state == declare.ModuleLoaded
	args := []string{"modprobe", "--", m.name}
	switch {
	case wantLoaded == (now.state != wordUnloaded):
		return nil
	case !wantLoaded && now.users != "":
		return &reason.Error{Code: reason.ModuleInUse, Doing: m.doing(), Cause: errors.New("it is used " + now.users), Hint: "nothing is stopped for that: stop what uses it; after the next boot it is as declared"}
	case !wantLoaded:
		args = []string{"modprobe", "--remove", "--", m.name}
	}
	output, err := command.Tool{Args: args, Limit: modprobeMax, Keep: modprobeOutput, Lasting: true}.Run(ctx)
	if err == nil {
		done.changed = true
		return nil
	}
	failed := toolError(m.doing(), output, err)
	e := reason.Of(failed)
	switch said := string(output); {
	case strings.Contains(said, "not found in directory"):
		e.Code, e.Hint = reason.SettingUnknown, "`modprobe --dry-run` and `find "+modulesDir+"` tell what there is; some modules are in a package of their own (linux-modules-extra)"
	case strings.Contains(said, "Operation not permitted"):
		e.Code, e.Hint = reason.SettingRefused, "the agent may not load modules: a container, kernel lockdown, or kernel.modules_disabled"
	case strings.Contains(said, "is in use"):
		e.Code = reason.ModuleInUse
	case strings.Contains(said, "/bin/false"):
		e.Hint = "a file in /etc/modprobe.d blocks it: `modprobe --showconfig | grep " + m.name + "`"
	}
	return failed
}

// moduleOriginal is the stored form of what a module was.
type moduleOriginal struct {
	Loaded bool    `json:"loaded,omitempty"`
	Known  bool    `json:"known,omitempty"` // whether it was loaded counts
	Load   *string `json:"load,omitempty"`
	Conf   *string `json:"conf,omitempty"`
}

func (m *module) original(_ *Type, sight any) ([]byte, error) {
	now := sight.(moduleSight)
	o := moduleOriginal{Loaded: now.state == wordLoaded, Known: now.state != wordBuiltIn}
	if now.hasLoad {
		o.Load = &now.load
	}
	if now.hasConf {
		o.Conf = &now.conf
	}
	return json.Marshal(o)
}

// undo with delete leaves the module as it is now, and takes away what is for the next boot.
func (m *module) undo(ctx context.Context, t *Type, original []byte) error {
	var o moduleOriginal
	if original != nil {
		if err := unmarshal(m.doing(), original, &o); err != nil {
			return err
		}
	}
	if err := t.put(ctx, m.confFile(), o.Conf); err != nil {
		return err
	}
	if o.Known {
		back := &module{name: m.name, state: declare.ModuleUnloaded}
		if o.Loaded {
			back.state = declare.ModuleLoaded
		}
		sight, err := back.look(&call{Type: t})
		if err != nil {
			return err
		}
		now := sight.(moduleSight)
		if err := back.switchNow(ctx, &now, &work{}); err != nil {
			return err
		}
	}
	return t.put(ctx, m.loadFile(), o.Load)
}
