package systemd

import (
	"slices"
	"sync"

	"github.com/godbus/dbus/v5"
)

// recheckJob is sent to waiters instead of a result: the signal may have been missed, ask systemd whether the job exists.
const recheckJob = ""

// jobs hands the end of a job to those who wait for it. The end can arrive before the caller has learned the job's path, so
// ends are kept while any job is being queued, which takes milliseconds.
type jobs struct {
	mu      sync.Mutex // guards the fields below; nothing is called while it is held
	count   int        // jobs begun and not given back with end
	queuing int        // of these, not queued yet
	early   map[dbus.ObjectPath]string
	waiting map[dbus.ObjectPath][]chan string // each of capacity 2: a recheck and a result; requests may share a job
}

func newJobs() jobs {
	return jobs{early: make(map[dbus.ObjectPath]string), waiting: make(map[dbus.ObjectPath][]chan string)}
}

// any reports whether the ends of jobs are needed.
func (j *jobs) any() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.count > 0
}

// begin comes before a job is queued; end takes it back.
func (j *jobs) begin() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.count++
	j.queuing++
}

// queued tells the job's path, "" if it could not be queued. The channel gets the result once, perhaps has it already, and
// may get recheckJob before.
func (j *jobs) queued(job dbus.ObjectPath) chan string {
	j.mu.Lock()
	defer j.mu.Unlock()
	ch := make(chan string, 2)
	if result, ok := j.early[job]; ok {
		ch <- result
	} else if job != "" {
		j.waiting[job] = append(j.waiting[job], ch)
	}
	j.queuing--
	if j.queuing == 0 {
		clear(j.early)
	}
	return ch
}

// end forgets the wait for a job on ch.
func (j *jobs) end(job dbus.ObjectPath, ch chan string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.count--
	rest := slices.DeleteFunc(j.waiting[job], func(c chan string) bool { return c == ch })
	if len(rest) == 0 {
		delete(j.waiting, job)
		return
	}
	j.waiting[job] = rest
}

// ended notes what systemd said about the end of a job.
func (j *jobs) ended(job dbus.ObjectPath, result string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, ch := range j.waiting[job] {
		ch <- result // has room: recheck leaves one place free, and a job ends once
	}
	delete(j.waiting, job)
	if j.queuing > 0 {
		j.early[job] = result
	}
}

// recheck makes everybody who waits ask systemd.
func (j *jobs) recheck() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, waiters := range j.waiting {
		for _, ch := range waiters {
			if len(ch) == 0 {
				ch <- recheckJob
			}
		}
	}
}
