package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Whoever changes a config without end (a program in a loop, a crowd of merges) would send every host after each of his changes, of which
// only the last one counts. So a change takes its time before there is a revision: who makes fewer than ten in a second does not notice, and
// of more than that every host is sent after one in five seconds.
const (
	changeTime    = 100 * time.Millisecond
	changeWaitMax = 5 * time.Second
)

// paces remembers which generation of each config had its revision made last, and when. A new leader begins without, and makes one at once.
// It has an entry for each config that there is, at most; several goroutines may use it.
type paces struct {
	lock sync.Mutex
	last map[types.NamespacedName]pace
}

type pace struct {
	config     types.UID
	generation int64
	at         time.Time
}

// wait is how long it is from now until a generation of a config may have its revision; 0 when it may.
func (p *paces) wait(key types.NamespacedName, config types.UID, generation int64, now time.Time) time.Duration {
	p.lock.Lock()
	defer p.lock.Unlock()
	last, ok := p.last[key]
	if !ok || last.config != config || generation < last.generation {
		return 0
	}
	changes := min(generation-last.generation, int64(changeWaitMax/changeTime))
	return max(0, last.at.Add(time.Duration(changes)*changeTime).Sub(now))
}

// made notes that a generation of a config has its revision.
func (p *paces) made(key types.NamespacedName, config types.UID, generation int64, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.last == nil {
		p.last = map[types.NamespacedName]pace{}
	}
	p.last[key] = pace{config, generation, now}
}

// forget forgets a config that has gone.
func (p *paces) forget(key types.NamespacedName) {
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.last, key)
}
