package sim

import (
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/trust"
)

const (
	// configsMax is how many configs there are.
	configsMax = 6
	// filesMax is how many files one has at most.
	filesMax = 9
	// spread is over how long a change goes from host to host.
	spread = 5 * time.Second
)

// people declare, sign, and make mistakes. Several do so at once.
type people struct {
	w       *world
	configs []*config
	rows    map[string][]*catalog.Layer // by node: what it has of each config; nil: nothing
	numbers map[string]uint64           // of statements, by layer
	caught  map[string]uint64           // up to which number the declarations have caught up, by layer
	texts   int
}

func newPeople(w *world) *people {
	p := &people{w: w, rows: map[string][]*catalog.Layer{}, numbers: map[string]uint64{}, caught: map[string]uint64{}}
	for i := range configsMax {
		c := &config{id: fmt.Sprint("NodeConfig/x/c", i), priority: 100 + 10*i, service: i%2 == 0, files: make([]string, 1+w.random.IntN(filesMax))}
		if i < 2 {
			c.data = w.random.IntN(200)
		}
		for j := range c.files {
			c.files[j] = p.text()
		}
		p.configs = append(p.configs, c)
	}
	return p
}

func (p *people) text() string {
	p.texts++
	return fmt.Sprint("text ", p.texts)
}

// has tells whether a config is for the node of a number.
func has(config, node int) bool { return config == 0 || (node+config)%3 != 0 }

// all gives every node what is declared now.
func (p *people) all(consent func() uint8) {
	roots := make([]*catalog.Layer, len(p.configs))
	for i, c := range p.configs {
		roots[i] = p.compiled(c)
	}
	for n, a := range p.w.agents {
		if a.node != a.name {
			continue // a clone: it has the node of another one
		}
		row := make([]*catalog.Layer, len(p.configs))
		for i := range p.configs {
			if has(i, n) {
				row[i] = roots[i]
			}
		}
		p.rows[a.node] = row
		p.assign(a.node, consent())
	}
}

// compiled is the layer of a config as it stands.
func (p *people) compiled(c *config) *catalog.Layer {
	l := c.compile()
	root := l.trie.Root()
	if p.w.truth.layers[root] == nil {
		p.w.truth.layers[root] = l
	}
	return &catalog.Layer{Priority: c.priority, ID: c.id, Root: root}
}

func (p *people) assign(node string, consent uint8) {
	var layers []catalog.Layer
	var absorbed []catalog.AbsorbedNumber
	for _, l := range p.rows[node] {
		if l == nil {
			continue
		}
		layers = append(layers, *l)
		if number := p.caught[l.ID]; number > 0 {
			absorbed = append(absorbed, catalog.AbsorbedNumber{Layer: l.ID, Number: number})
		}
	}
	p.w.store.assign(node, layers, consent, absorbed)
}

// edit changes a config.
func (p *people) edit(c *config) {
	w := p.w
	for range 1 + w.random.IntN(4) {
		i := w.random.IntN(len(c.files))
		if c.files[i] = ""; w.chance(0.7) {
			c.files[i] = p.text()
		}
	}
	if c.data > 0 {
		c.stamp++
		c.data = max(1, c.data+w.random.IntN(21)-10)
	}
}

// roll brings a config to its nodes, one after the other. Another change may come between.
func (p *people) roll(number int) {
	w, l := p.w, p.compiled(p.configs[number])
	for n, a := range w.agents {
		if !has(number, n) || a.node != a.name {
			continue
		}
		consent := uint8(0)
		if w.chance(0.5) {
			consent = 100
		}
		w.after(w.within(spread), func() {
			if !w.healed {
				p.rows[a.node][number] = l
				p.assign(a.node, consent)
			}
		})
	}
}

// act is one thing that somebody does.
func (p *people) act() {
	w := p.w
	number := w.random.IntN(len(p.configs))
	c := p.configs[number]
	what := w.random.IntN(20)
	w.say("people do %d to %s", what, c.id)
	switch what {
	case 0: // back to what was there before, under a new version
		files := slices.Clone(c.files)
		p.edit(c)
		p.roll(number)
		c.files = files
	case 1: // nearly everything goes, by mistake
		files := slices.Clone(c.files)
		clear(c.files)
		p.roll(number)
		c.files = files
		return
	case 2: // what nobody can take
		c.poison = true
		w.seen.Faults["poison"]++
		p.roll(number)
		c.poison = false
		w.after(30*time.Second+w.within(time.Minute), func() { p.act() })
		return
	case 3: // two configs want different things of one path, at one priority
		w.seen.Faults["conflict"]++
		priority := c.priority
		c.priority = p.configs[(number+1)%len(p.configs)].priority
		p.edit(c)
		p.roll(number)
		c.priority = priority
		return
	case 4, 5, 6:
		p.order(number)
		return
	case 7:
		p.absorb(number)
		return
	case 8:
		p.rotate()
		return
	case 9:
		p.dismiss()
		return
	default:
		p.edit(c)
	}
	p.roll(number)
}

// order has an operator sign a statement, and bring it to some hosts.
func (p *people) order(number int) {
	w := p.w
	changed := *p.configs[number]
	changed.files = slices.Clone(changed.files)
	p.edit(&changed)
	l := p.compiled(&changed)
	if !w.chance(0.15) || p.numbers[l.ID] == 0 { // otherwise two operators have taken one number
		p.numbers[l.ID]++
	}
	key, now := one(w, w.by.operators), w.now.Unix()
	s := catalog.Statement{Cluster: cluster, Layer: l.ID, Epoch: w.by.epoch(), Number: p.numbers[l.ID], Root: l.Root, Issued: now,
		Expires: now + 1 + w.random.Int64N(1800), Bytes: w.truth.layers[l.Root].bytes}
	forged := false
	switch w.random.IntN(12) {
	case 0: // nobody's key
		key, forged = w.by.key(), true
	case 1: // a key that may sign something else
		key, forged = w.by.heads, true
		s.Number += 1000
	case 2: // for others
		s.Cluster, forged = "another-cluster-of-theirs", true
	case 3: // for an epoch that has not begun
		s.Epoch++
	}
	o := orderOf{Statement: s, signed: signStatement(s, key)}
	o.Key = key.Public().ID()
	if !forged {
		w.truth.told[l.Root] = append(w.truth.told[l.Root], o)
	}
	w.say("statement %d about %s, forged %t", o.Number, o.Layer, forged)
	w.seen.Faults["statement"]++
	for _, a := range w.agents {
		for range 1 + w.random.IntN(2) {
			if w.chance(0.4) {
				w.after(w.within(time.Minute), func() {
					if a.up {
						a.bring(&o)
					}
				})
			}
		}
	}
}

// absorb declares, and says that this has caught up with all statements so far: of a config that there are some about, where there is one.
func (p *people) absorb(number int) {
	for range p.configs {
		if p.numbers[p.configs[number].id] > p.caught[p.configs[number].id] {
			break
		}
		number = (number + 1) % len(p.configs)
	}
	c := p.configs[number]
	p.edit(c)
	p.w.seen.Faults["absorbed"]++
	p.caught[c.id] = p.numbers[c.id]
	p.roll(number)
}

// rotate gives the servers another key, and revokes the one that they have.
func (p *people) rotate() {
	w := p.w
	old, next := w.by.heads, w.by.key()
	w.by.decree(w.now, trust.SetKey(trust.RoleHeads, next.Public(), w.now.Add(365*24*time.Hour)))
	w.by.heads = next
	w.store.chain, w.store.key = w.by.chain, next
	w.seen.Faults["key rotated"]++
	if w.chance(0.5) {
		w.by.decree(w.now, trust.Revoke(old.Public().ID()))
		w.store.chain = w.by.chain
	}
	w.say("the servers have another key, trust document %d", w.by.chain.Current().Number)
}

// dismiss revokes the key of an operator.
func (p *people) dismiss() {
	w := p.w
	i := w.random.IntN(len(w.by.operators))
	next := w.by.key()
	w.by.decree(w.now, trust.Revoke(w.by.operators[i].Public().ID()), trust.SetKey(trust.RoleOperator, next.Public(), w.now.Add(365*24*time.Hour)))
	w.by.operators[i] = next
	w.store.chain = w.by.chain
	w.seen.Faults["operator revoked"]++
	w.say("an operator is dismissed, trust document %d", w.by.chain.Current().Number)
}

// bump begins another epoch: what was signed before is void.
func (p *people) bump() {
	w := p.w
	w.by.decree(w.now, trust.BumpEpoch())
	w.store.chain = w.by.chain
	w.seen.Faults["epoch"]++
	w.say("epoch %d begins", w.by.epoch())
}
