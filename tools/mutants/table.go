package main

// Mutant is one breakage and the test that must notice it.
type Mutant struct {
	Name    string // what is broken, in a few words
	File    string // path from the top of the repository, with slashes
	Old     string // stands in File exactly once
	New     string // stands there instead
	Package string // of the test: "./internal/disk"
	Run     string // regexp of the test, as of go test -run; it must run, and pass, without the mutant
}

// table lists the mutants: each a line that somebody might write by mistake, and that a case or a scenario is there to prevent.
func table() []Mutant {
	const file, converge, core = "./internal/host/file", "./internal/converge", "./internal/agent/core"
	return []Mutant{
		{"a new file is readable before its mode is set", "internal/disk/write.go",
			"unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)", "unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o644)",
			file, "^TestAgentCase08_"},
		{"a planted symlink is followed", "internal/disk/walk.go",
			"if !w.root.trust.covers(holder, link, func() bool { return hasACL(dir) }) {", "if false {",
			file, "^TestAgentCase06_"},
		{"temporary files stay behind", "internal/disk/temporary.go",
			"if !isTemporary(name) {", "if isTemporary(name) {",
			file, "^TestAgentCase13_"},
		{"our own work is not recognised", "internal/host/file/resource.go",
			"return sig.Exists() && mark(sig) == r.seen", "return false",
			file, "^TestAgentCase10_"},
		{"the check command's words are lost", "internal/host/file/command.go",
			"failed.Evidence = reason.Clip(out.b)", `failed.Evidence = ""`,
			file, "^TestAgentCase11_"},
		{"the journal is not made durable", "internal/agent/store/journal.go",
			"if err := disk.Sync(s.journal.file); err != nil {", "if err := (*reason.Error)(nil); err != nil {",
			"./internal/agent/store", "^TestPromisesAreDurable$"},
		{"the lower priority wins", "internal/catalog/resolve.go",
			"c.priority > held[0].priority:", "c.priority < held[0].priority:",
			"./internal/catalog", "^TestResolveHigherPriorityWinsWhole$"},
		{"a conflict goes unnoticed", "internal/catalog/resolve.go",
			"if held[i].desire == held[0].desire {", "if held[i].priority == held[0].priority {",
			"./internal/catalog", "^TestResolveConflictNamesBothPlaces$"},
		{"removals run in the order of creation", "internal/agent/core/compile.go",
			"converge.Edge{From: id, To: other, Kind: converge.Auto, Why: \"removed in reverse order\"}",
			"converge.Edge{From: other, To: id, Kind: converge.Auto, Why: \"removed in reverse order\"}",
			core, "^TestCompileReversesRemovals$"},
		{"a false condition is ignored", "internal/agent/core/compile.go",
			"case !applies:", "case !applies && false:",
			core, "^TestCompileWhenAndExpand$"},
		{"the same key twice is taken", "declare/decode.go",
			"f := d.fault(at, reason.DuplicateKey,", "f := d.fault(at, reason.WrongType,",
			"./internal/present", "^TestMistakes$"},
		{"a notification is not recorded before its cause", "internal/converge/notify.go",
			"e.out.Persist = append(e.out.Persist, Record{Kind: NotificationAdded,", "_ = append(e.out.Persist, Record{Kind: NotificationAdded,",
			converge, "^TestNotificationIsDurableBeforeTheApply$"},
		{"failed attempts come without a pause", "internal/converge/result.go",
			"e.delay(id, e.backOff(int(s.attempts)))", "e.delay(id, 0*e.backOff(int(s.attempts)))",
			converge, "^TestBackOffGrowsAndGoesOnForEver$"},
		{"an event during our own work is lost", "internal/converge/result.go",
			"	s.dirty = s.again\n	if s.again {\n		s.again = false", "	s.dirty = false\n	if false {\n		s.again = false",
			converge, "^TestTouchedInFlightIsLookedAtOnceMore$"},
		{"an operation does not wait for what comes before it", "internal/converge/lane.go",
			"if s.busyPreds > 0 || s.badPreds > 0 && (acts || !s.proven) {", "if s.badPreds > 0 && (acts || !s.proven) {",
			converge, "^TestSimulation$"},
		{"what is required need not be converged", "internal/converge/lane.go",
			"if s.busyPreds > 0 || s.badPreds > 0 && (acts || !s.proven) {", "if s.busyPreds > 0 {",
			converge, "^TestSimulation$"},
		{"a lane runs one operation too many", "internal/converge/lane.go",
			"for l.inFlight < l.Parallel", "for l.inFlight <= l.Parallel",
			converge, "^TestSimulation$"},
		{"a change that came with an error notifies nobody", "internal/converge/result.go",
			"e.conclude(o.told[i], o.keys[i], r.Changed)", "e.conclude(o.told[i], o.keys[i], r.Changed && r.Err == nil)",
			converge, "^TestFailedApplyThatChangedSomethingNotifies$"},
		{"the clock is believed whatever it says", "internal/converge/options.go",
			"min(max(wall.Sub(c.wall), 0), jumpMax)", "wall.Sub(c.wall)",
			converge, "^TestAgentCase34_"},
		{"automatic edges yield that need not", "internal/converge/yield.go",
			"ways.lead(e.To, e.From) {", "true {",
			converge, "^TestNewGraph$"},
	}
}
