package presence

// journalMax is how many changes the journal has: more than there are between two looks of anybody who follows it, and a fraction of a megabyte.
const journalMax = 1 << 13

// journal has the names of nodes of which something else is known, in the order in which that came: the last of them, in a ring. The zero value is
// empty.
type journal struct {
	end   uint64 // how many there ever were
	names []string
}

func (j *journal) note(name string) {
	if len(j.names) < journalMax {
		j.names = append(j.names, name)
	} else {
		j.names[j.end%journalMax] = name
	}
	j.end++
}

// since returns the names that came after so many, some of them more than once; all says that the journal does not reach back so far.
func (j *journal) since(before uint64) (names []string, all bool) {
	if before > j.end || j.end-before > uint64(len(j.names)) {
		return nil, true
	}
	names = make([]string, 0, j.end-before)
	for n := before; n < j.end; n++ {
		names = append(names, j.names[n%journalMax])
	}
	return names, false
}

// Since returns the names of the nodes of which Of may say something else than when there were so many changes, some of them more than once, and how many
// there are now. all says that it may be any node: so it is with 0.
func (r *Register) Since(changes uint64) (names []string, all bool, now uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if changes == 0 {
		return nil, true, r.journal.end
	}
	names, all = r.journal.since(changes)
	return names, all, r.journal.end
}
