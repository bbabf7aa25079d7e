package workload

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/declare"
)

// hashSigns is how long a hash is: with the longest name of a workload and a - it is a label's value, which has 63.
const hashSigns = 63 - NameBytesMax - 1

// collisionsMax bounds how many templates of one workload may have one hash. Two of them are one chance in 2^50.
const collisionsMax = 8

// Hash returns the name of a template, which is the same for templates that differ in the order of lists without one, or in how amounts and
// times are written. collisions tells apart templates that would have one name.
func Hash(t *Template, collisions int) string {
	h := sha256.New()
	h.Write(canonical(t))
	if collisions > 0 {
		h.Write([]byte("\x00" + strconv.Itoa(collisions)))
	}
	const digits = "abcdefghijklmnopqrstuvwxyz234567"
	return base32.NewEncoding(digits).EncodeToString(h.Sum(nil))[:hashSigns]
}

// HashIn is the hash in the name of a revision of a workload, WORKLOAD-HASH; of any other name it is all of it.
func HashIn(workload, revision string) string {
	if rest, ok := strings.CutPrefix(revision, workload); ok {
		if hash, ok := strings.CutPrefix(rest, "-"); ok {
			return hash
		}
	}
	return revision
}

// IsHash reports whether a template may have a hash: its own, or one of those that it gets where others have that already.
func IsHash(t *Template, hash string) bool {
	for collisions := range collisionsMax {
		if Hash(t, collisions) == hash {
			return true
		}
	}
	return false
}

// RevisionHash returns the hash that a template has among the revisions that there are: its own, where it is one of them, and otherwise one
// that none of them has. revision returns the template of the revision with a hash. False is for a workload whose revisions have all
// hashes of the template, which no chance makes.
func RevisionHash(t *Template, revision func(hash string) (*Template, bool)) (string, bool) {
	free, found := "", false
	text := canonical(t)
	for collisions := range collisionsMax {
		hash := Hash(t, collisions)
		switch other, taken := revision(hash); {
		case taken && bytes.Equal(canonical(other), text):
			return hash, true // also where an earlier one has become free since: or the same template would get another name
		case !taken && !found:
			free, found = hash, true
		}
	}
	return free, found
}

// SameTemplate reports whether two templates are one, as a hash sees them.
func SameTemplate(a, b *Template) bool { return bytes.Equal(canonical(a), canonical(b)) }

// canonical encodes what is declared. Defaults stay left out: so none that changes later changes a hash.
func canonical(t *Template) []byte {
	c := t.DeepCopy()
	slices.SortFunc(c.Tasks, func(a, b Task) int { return cmp.Compare(a.Name, b.Name) })
	for i := range c.Tasks {
		task := &c.Tasks[i]
		slices.SortFunc(task.Ports, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
		slices.SortFunc(task.Mounts, func(a, b Mount) int { return cmp.Compare(a.Path, b.Path) })
		slices.SortFunc(task.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
		r := &task.Resources
		slices.SortFunc(r.Devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
		for _, a := range []*Amounts{&r.Requests, &r.Limits} {
			plainAmount(&a.CPU)
			plainAmount(&a.Memory)
			plainAmount(&a.Disk)
		}
		for _, p := range []*Probe{task.Startup, task.Readiness, task.Liveness} {
			if p != nil {
				plainTime(&p.Delay)
				plainTime(&p.Period)
				plainTime(&p.Timeout)
			}
		}
	}
	slices.SortFunc(c.Volumes, func(a, b Volume) int { return cmp.Compare(a.Name, b.Name) })
	for i := range c.Volumes {
		if volume := &c.Volumes[i]; volume.Temporary != nil {
			plainAmount(&volume.Temporary.Size)
		} else if volume.Data != nil {
			plainAmount(&volume.Data.Size)
		}
	}
	plainTime(&c.ShutdownDelay)
	plainTime(&c.TerminationGrace)
	plainTime(&c.Restart.Backoff)
	plainTime(&c.Restart.BackoffMax)
	plainTime(&c.Restart.ResetAfter)
	text, _ := json.Marshal(c) // a template has nothing that JSON cannot say
	return text
}

// plainAmount writes an amount in one way: 2, 2000m and 2.0 are one.
func plainAmount(q *declare.Quantity) {
	if n, err := q.Milli(); err == nil && *q != "" {
		*q = declare.Quantity(strconv.FormatInt(n, 10) + "m")
	} else if n, err := q.Value(); err == nil && *q != "" {
		*q = declare.Quantity(strconv.FormatInt(n, 10))
	}
}

func plainTime(text *string) {
	if d, err := time.ParseDuration(*text); err == nil {
		*text = d.String()
	}
}

// Effect is what a change of a workload means for the instances that run.
//
// +k8s:openapi-gen=false
type Effect uint8

// The effects, from the least on.
const (
	// Nothing: what runs is what is declared.
	Nothing Effect = iota
	// InPlace changes what is kept of an instance, and what its agent does about it. Its processes are not touched.
	InPlace
	// NeedsRestart takes another instance, or the same one with other processes.
	NeedsRestart
)

var effectNames = [...]string{"nothing", "in place", "restart"}

// String is the effect's name.
func (e Effect) String() string {
	if int(e) < len(effectNames) {
		return effectNames[e]
	}
	return "unknown effect"
}

// Change is how two declarations of a workload differ in what instances are.
//
// +k8s:deepcopy-gen=false
// +k8s:openapi-gen=false
type Change struct {
	// Effect is that of all fields together.
	Effect Effect
	// Restarts and InPlace are the fields that differ, as paths in the spec, in order.
	Restarts, InPlace []string
	// Moves says that other nodes are picked: an instance on one that is picked no more is replaced, the others stay.
	Moves bool
}

// Compare says what a change means for the instances that run. A field that is left out is equal to its default.
//
//	restarts nothing   labels, shutdownDelay, terminationGrace, restart, probes, the text of ports: their agent and the centre act on them
//	moves              selector, placement.architectures: an instance whose node is not picked any more
//	no difference      all else outside the template: it is about how many there are, where the next one goes, and how fast
//	restarts           all else of the template: a process has it since its start
func Compare(old, updated *Spec) Change {
	c := comparison{}
	c.Moves = !same(old.Selector, updated.Selector) || !same(sorted(old.Placement.Architectures), sorted(updated.Placement.Architectures))
	a, b := effective(&old.Template), effective(&updated.Template)
	const path = "template"
	c.differ(path+".labels", InPlace, a.Labels, b.Labels)
	c.differ(path+".runtime", NeedsRestart, a.Runtime, b.Runtime)
	c.differ(path+".network", NeedsRestart, a.Network, b.Network)
	c.differ(path+".shutdownDelay", InPlace, a.ShutdownDelay, b.ShutdownDelay)
	c.differ(path+".terminationGrace", InPlace, a.TerminationGrace, b.TerminationGrace)
	c.differ(path+".restart", InPlace, a.Restart, b.Restart)
	each(a.Tasks, b.Tasks, func(t *Task) string { return t.Name }, func(name string, x, y *Task) {
		at := declare.KeyPath(path+".tasks", name)
		if x == nil || y == nil {
			c.note(at, NeedsRestart)
			return
		}
		c.task(at, x, y)
	})
	each(a.Volumes, b.Volumes, func(v *Volume) string { return v.Name }, func(name string, x, y *Volume) {
		c.differ(declare.KeyPath(path+".volumes", name), NeedsRestart, x, y)
	})
	return c.Change
}

// picksBytes is how much of a digest tells what picks nodes from what did before.
const picksBytes = 8

// Picks returns a digest of what picks nodes, selector and architectures: while it is the same, Compare says that nothing moves.
func Picks(s *Spec) string {
	text, _ := json.Marshal([]any{s.Selector, sorted(s.Placement.Architectures)}) // they have nothing that JSON cannot say
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:picksBytes])
}

// comparison collects what differs.
//
// +k8s:deepcopy-gen=false
// +k8s:openapi-gen=false
type comparison struct{ Change }

func (c *comparison) note(path string, e Effect) {
	c.Effect = max(c.Effect, e)
	if e == InPlace {
		c.InPlace = append(c.InPlace, path)
	} else {
		c.Restarts = append(c.Restarts, path)
	}
}

func (c *comparison) differ(path string, e Effect, a, b any) {
	if !same(a, b) {
		c.note(path, e)
	}
}

func (c *comparison) task(at string, a, b *Task) {
	c.differ(at+".image", NeedsRestart, a.Image, b.Image)
	c.differ(at+".command", NeedsRestart, a.Command, b.Command)
	c.differ(at+".args", NeedsRestart, a.Args, b.Args)
	c.differ(at+".workingDirectory", NeedsRestart, a.WorkingDirectory, b.WorkingDirectory)
	c.differ(at+".user", NeedsRestart, a.User, b.User)
	c.differ(at+".env", NeedsRestart, a.Env, b.Env)
	each(a.Ports, b.Ports, func(p *Port) string { return p.Name }, func(name string, x, y *Port) {
		at := declare.KeyPath(at+".ports", name)
		switch {
		case x == nil || y == nil || x.Port != y.Port || x.Protocol != y.Protocol:
			c.note(at, NeedsRestart)
		default:
			c.differ(at+".text", InPlace, x.Text, y.Text)
		}
	})
	c.differ(at+".resources", NeedsRestart, a.Resources, b.Resources)
	c.differ(at+".mounts", NeedsRestart, a.Mounts, b.Mounts)
	c.differ(at+".files", NeedsRestart, a.Files, b.Files)
	c.differ(at+".startup", InPlace, a.Startup, b.Startup)
	c.differ(at+".readiness", InPlace, a.Readiness, b.Readiness)
	c.differ(at+".liveness", InPlace, a.Liveness, b.Liveness)
	c.differ(at+".stopSignal", NeedsRestart, a.StopSignal, b.StopSignal)
	c.differ(at+".writable", NeedsRestart, a.Writable, b.Writable)
}

// each goes over the members of two lists that have names, in the order of these; one that is not in a list is nil there.
func each[T any](a, b []T, name func(*T) string, f func(name string, x, y *T)) {
	find := func(list []T, wanted string) *T {
		for i := range list {
			if name(&list[i]) == wanted {
				return &list[i]
			}
		}
		return nil
	}
	var names []string
	for _, list := range [][]T{a, b} {
		for i := range list {
			names = append(names, name(&list[i]))
		}
	}
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		f(n, find(a, n), find(b, n))
	}
}

func sorted(words []string) []string { return slices.Sorted(slices.Values(words)) }

// same compares as it is stored: nothing and an empty list are one.
func same(a, b any) bool {
	encode := func(v any) string {
		text, _ := json.Marshal(v) // nothing here is anything that JSON cannot say
		return string(text)
	}
	x, y := encode(a), encode(b)
	empty := func(s string) bool { return strings.Trim(s, "{}[]") == "" || s == "null" }
	return x == y || empty(x) && empty(y)
}

// effective is a template in canonical form with the defaults that a person may write out.
func effective(t *Template) Template {
	var e Template
	_ = json.Unmarshal(canonical(t), &e) // what was encoded above
	e.Runtime, e.Network = e.RuntimeOrDefault(), e.NetworkOrDefault()
	e.ShutdownDelay = e.ShutdownDelayOrDefault().String()
	e.TerminationGrace = e.TerminationGraceOrDefault().String()
	r := &e.Restart
	r.Backoff, r.BackoffMax, r.ResetAfter = r.BackoffOrDefault().String(), r.BackoffMaxOrDefault().String(), r.ResetAfterOrDefault().String()
	for i := range e.Tasks {
		task := &e.Tasks[i]
		task.StopSignal = task.StopSignalOrDefault()
		for j := range task.Ports {
			task.Ports[j].Protocol = task.Ports[j].ProtocolOrDefault()
		}
		for j := range task.Files {
			task.Files[j].Mode = declare.Mode(fmt.Sprintf("%04o", task.Files[j].ModeOrDefault()))
		}
		for j := range task.Resources.Devices {
			count := int32(task.Resources.Devices[j].CountOrDefault())
			task.Resources.Devices[j].Count = &count
		}
		for purpose, p := range []*Probe{Startup: task.Startup, Readiness: task.Readiness, Liveness: task.Liveness} {
			if p != nil {
				p.fill(Purpose(purpose))
			}
		}
	}
	for i := range e.Volumes {
		if d := e.Volumes[i].Data; d != nil {
			d.Stick = d.StickOrDefault()
		}
	}
	return e
}

// fill writes out the defaults of a probe.
func (p *Probe) fill(asked Purpose) {
	p.Delay, p.Period, p.Timeout = p.DelayOrDefault().String(), p.PeriodOrDefault(asked).String(), p.TimeoutOrDefault().String()
	successes, failures := int32(p.SuccessThresholdOrDefault()), int32(p.FailureThresholdOrDefault(asked))
	p.SuccessThreshold, p.FailureThreshold = &successes, &failures
	if h := p.HTTP; h != nil {
		h.Path, h.Scheme = h.PathOrDefault(), h.SchemeOrDefault()
	}
}
