package main

import "slices"

// Mutant is one breakage and the test that must notice it.
type Mutant struct {
	Name    string // what is broken, in a few words
	File    string // path from the top of the repository, with slashes
	Old     string // stands in File exactly once
	New     string // stands there instead
	Package string // of the test: "./internal/disk"
	Run     string // regexp of the test, as of go test -run; it must run, and pass, without the mutant
}

// Packages of tests.
const (
	file, converge, core = "./internal/host/file", "./internal/converge", "./internal/agent/core"
	cases, alone         = "./e2e/cases", "./e2e/alone"
)

// table lists the mutants: each a line that somebody might write by mistake, and that a case or a scenario is there to prevent.
func table() []Mutant {
	return slices.Concat(ofCores(), ofTypes(), ofAgent(), ofHeads(), ofServer(), ofMembers(), ofFleet(), ofShares(), ofCases(), ofScenarios())
}

// ofCores breaks the decisions, which unit tests and the simulation watch over.
func ofCores() []Mutant {
	return []Mutant{
		{"the journal is not made durable", "internal/agent/store/journal.go",
			"if err := disk.Sync(s.journal.file); err != nil {", "if err := (*reason.Error)(nil); err != nil {",
			"./internal/agent/store", "^TestPromisesAreDurable$"},
		{"the lower priority wins", "internal/catalog/resolve.go",
			"layers[i].Priority > held[0].layer.Priority:", "layers[i].Priority < held[0].layer.Priority:",
			"./internal/catalog", "^TestResolveHigherPriorityWinsWhole$"},
		{"a TTL is ignored", "internal/catalog/expiry.go",
			"return ttl > 0 && !p.Issued.IsZero() && p.Now.Sub(p.Issued) >= ttl", "return false",
			"./internal/sim", "^TestSeeds$"},
		{"what has expired comes back before the newest state is known", "internal/agent/load/expiry.go",
			"return n > e.Over || judged && (n < e.Over || e.Stands)", "return n != e.Over || judged && e.Stands",
			"./internal/agent/load", "^TestExpiryDue$"},
		{"a state of which something is left out counts as the whole one", "internal/agent/store/active.go",
			"a.root == root && a.without == without && ", "a.root == root && ",
			"./internal/agent/load", "^TestExpiredTakesTheSamePlace$"},
		{"what has expired counts as deleted", "internal/agent/load/load.go",
			"	for i := range d.expired {\n		if !yield(", "	for i := range d.expired[:0] {\n		if !yield(",
			"./internal/agent/load", "^TestExpiredLeaves$"},
		{"a conflict goes unnoticed", "internal/catalog/resolve.go",
			"if err != nil || d != first {", "if err != nil || d != first && false {",
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
			"if s.busyPreds > 0 || e.standsBy(id) || ", "if e.standsBy(id) || ",
			converge, "^TestSimulation$"},
		{"what is required need not be converged", "internal/converge/lane.go",
			"e.standsBy(id) || s.badPreds > 0 && (acts || !s.proven) || ", "e.standsBy(id) || ",
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
		{"a change is announced to those only that are not told yet", "internal/converge/notify.go",
			"if !n.covered {", "if false && !n.covered {",
			converge, "^TestSimulation$"},
		{"back-off has no jitter", "internal/converge/wait.go",
			"return d/2 + time.Duration(e.rand.Int64N(int64(d/2)+1))", "return d/2 - d/2",
			converge, "^TestSimulation$"},
		{"work in flight over a swap counts for the new state", "internal/converge/swap.go",
			"e.states[o.ids[i]].phase = stale", "_ = stale",
			converge, "^TestSimulation$"},
		{"a calm day is cut to an hour", "internal/converge/options.go",
			"jumpMax = 24 * time.Hour", "jumpMax = time.Hour",
			converge, "^TestCalmWithoutEventsEndsAFight$"},
		{"a lock that is free at once is tried in a loop", "internal/converge/result.go",
			"max(err.After, e.opts.BackOffMin)", "err.After",
			converge, "^TestLockThatIsFreeAtOnceIsNoLoop$"},
		{"an apply that was cut off counts as nothing", "internal/converge/result.go",
			"r := Result{Changed: true, Err:", "r := Result{Err:",
			converge, "^TestWithoutAResultAnApplyCountsAsAChange$"},
		{"a swap forgets who waits to be looked at", "internal/converge/swap.go",
			"s.peek = was.peek || was.again", "s.peek = was.peek && was.again",
			converge, "^TestLookAtWhatWaitsSurvivesASwap$"},
	}
}

// ofTypes breaks how files are written.
func ofTypes() []Mutant {
	return []Mutant{
		{"a new file is readable before its mode is set", "internal/disk/durable/write.go",
			"unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)", "unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o644)",
			file, "^TestAgentCase08_"},
		{"a planted symlink is followed", "internal/disk/walk.go",
			"if !w.root.trust.covers(holder, link, func() bool { return hasACL(dir) }) {", "if false {",
			file, "^TestAgentCase06_"},
		{"temporary files stay behind", "internal/disk/durable/sweep.go",
			"if !disk.IsTemporary(name) {", "if disk.IsTemporary(name) {",
			file, "^TestAgentCase13_"},
		{"our own work is not recognised", "internal/host/file/resource.go",
			"return sig.Exists() && mark(sig) == r.seen", "return false",
			file, "^TestAgentCase10_"},
		{"the check command's words are lost", "internal/command/check/check.go",
			"Evidence: reason.Clip(out)}", `Evidence: ""}`,
			file, "^TestAgentCase11_"},
		{"a file stays replaced though its backup failed", "internal/disk/durable/write.go",
			"return errors.Join(err, w.putBack())", "return err",
			file, "^TestAgentCase12_"},
		{"an old file that a killed run left is thrown away", "internal/disk/durable/sweep.go",
			"if backup != nil {", "if false {",
			file, "^TestAgentCase13_"},
	}
}

// ofAgent breaks the agent's parts, which their own tests watch over.
func ofAgent() []Mutant {
	return []Mutant{
		{"what is told finds another vertex", "internal/agent/subscribe/subscribe.go",
			"s.slots[i], s.bySlot[slot] = slot, converge.ID(i)", "s.slots[i], s.bySlot[slot] = slot, converge.ID(i/2)",
			"./internal/agent/subscribe", "^TestSwap"},
		{"what nobody wants stays watched", "internal/agent/subscribe/subscribe.go",
			"s.free = append(s.free, gone.slot)", "continue",
			"./internal/agent/subscribe", "^TestSwap"},
		{"what came back is undone", "internal/agent/load/load.go",
			"if !stays[r.Claim] {", "if true {",
			"./internal/agent/load", "^TestWhatLeaves"},
		{"the body of another state is applied", "internal/agent/load/bodies.go",
			"if converge.Digest(d) != digest {", "if false && converge.Digest(d) != digest {",
			"./internal/agent/load", "^TestBodies"},
		{"an answer is cut off by the end", "internal/agent/socket/socket.go",
			"defer answering.Wait()", "",
			"./internal/agent/socket", "^TestServeWaits"},
		{"one that is ready cannot be asked", "internal/agent/adopt.go",
			"_ = s.Open()", "",
			"./internal/agent", "^TestReadyMeans"},
		{"a hold-off ends with the process", "internal/agent/adopt.go",
			"if !l.opts.Watch {\n		budgets", "if true {\n		budgets",
			"./internal/agent", "^TestDrift"},
		{"a report says more than is on disk", "internal/agent/left/left.go",
			"if err := json.Unmarshal(data, &r); err != nil {", "if err := json.Unmarshal(data, &r); false {",
			"./internal/agent", "^TestReportOf"},
		{"a target that cannot be refreshed owes more and more", "internal/converge/notify.go",
			"if n.source != source || n.covered {", "if true {",
			converge, "^TestOwed"},
	}
}

// ofCases breaks the whole agent, in a sandbox.
func ofCases() []Mutant {
	return []Mutant{
		{"the ways to a file are not watched", "internal/disk/watch/way.go",
			"return 0, holds, watch(k.Top(), k.Failed(), holdMask)", "return 0, holds, nil",
			cases, "^TestAgentCase04_"},
		{"lost events are not noticed", "internal/agent/subscribe/news.go",
			"n.Everything || ev.Overflow", "n.Everything",
			cases, "^TestAgentCase03_"},
		{"every drift is taken for our own work", "internal/agent/work.go",
			"Recognised: plans[k].Recognised}", "Recognised: false}",
			cases, "^TestAgentCase10_"},
		{"two who fight over a file are not told", "internal/converge/wait.go",
			"return int(s.repairs) >= e.opts.ContendedAfter", "return false",
			cases, "^TestAgentCase09_"},
		{"nothing is written to the journal", "internal/agent/agent.go",
			"l.persist(e.Persist)", "l.persist(nil)",
			cases, "^TestAgentCase13_"},
		{"removals are not noted before they begin", "internal/agent/load/load.go",
			"AddRemovals(d.leaving)", "AddRemovals(nil)",
			cases, "^TestAgentCase30_KilledWhileItRemoves"},
		{"what was there before is not kept", "internal/agent/work.go",
			"if !p.restore {", "if true {",
			cases, "^TestAgentCase30_KeepRestoreDelete"},
		{"a cure waits for the back-off", "internal/agent/adopt.go",
			"budgets = nil //", "_ = budgets //",
			cases, "TestCureIsTriedAtOnce"},
		{"a fault of the declaration exits as a wrong command line", "cmd/tako-agent/main.go",
			"return present.ExitOf(faults)", "return reason.ExitUsage",
			cases, "TestBadInputOfTwoConfigs"},
	}
}

// ofScenarios breaks the whole agent on a host.
func ofScenarios() []Mutant {
	return []Mutant{
		{"a start of the operator's does not count", "internal/host/service/refresh.go",
			"	case systemd.StartedAfter(s, systemd.Stamp(since)):", "	case false:",
			alone, "Scenario2"},
		{"a unit that is going down counts as up", "internal/host/service/compare.go",
			`if r.running && !r.anyState && s.ActiveState == "deactivating" {`, "if false {",
			alone, "Scenario3"},
		{"the check command is not asked", "internal/host/file/apply.go",
			"	spec.Content = strings.NewReader(text)\n	if j.rare().check != nil {", "	spec.Content = strings.NewReader(text)\n	if false {",
			alone, "Scenario4"},
		{"what a killed run left is not swept", "internal/agent/adopt.go",
			"	l.sweep(ctx)\n", "	_ = l.sweep\n",
			alone, "Scenario5"},
		{"a failure is enforced on those who depend on it", "internal/converge/engine.go",
			"if a.kind.needs() && !e.states[i].ok {", "if false {",
			alone, "Scenario7"},
		{"a restart does not look at what was applied last", "internal/agent/adopt.go",
			"if !l.opts.Watch || l.store.Active().Len() == 0 || l.joined != nil && reason.Is(err, reason.StateUnwritable) {", "if true {",
			alone, "Scenario6"},
		{"a preview opens what it would write", "cmd/tako-agent/converge.go",
			"ReadOnly: readOnly, Warden", "ReadOnly: false, Warden",
			alone, "Scenario8"},
		{"maintainer scripts start services", "internal/host/packages/apt/guard.sh",
			"exit 101", "exit 0",
			alone, "Scenario[12]"},
	}
}
