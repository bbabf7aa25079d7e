package core

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/catalog"
)

func peers(n int) []catalog.Peer {
	var list []catalog.Peer
	for i := range n {
		list = append(list, catalog.Peer{Name: fmt.Sprint("web-", i), UID: fmt.Sprint("uid-", i), Address: fmt.Sprintf("192.0.2.%d:6445", i)})
	}
	return list
}

func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// TestRound: whoever has something for this host is asked soon, wherever it stands; nobody is asked twice in a round, and who rests not at all.
func TestRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Roster
		n := rapid.IntRange(0, catalog.PeersMax).Draw(t, "peers")
		r.Set(peers(n))
		random, now := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)), time.Unix(0, 0)
		resting, missed := map[string]time.Time{}, map[string]bool{}
		asked := map[string]bool{}
		for range n {
			round := r.Round(now, random)
			if len(round) > RoundMax || n >= RoundMax && len(resting) == 0 && len(round) != RoundMax {
				t.Fatalf("%d of %d are asked", len(round), n)
			}
			seen := map[string]bool{}
			for _, p := range round {
				if seen[p.UID] || now.Before(resting[p.UID]) && len(round) > 1 {
					t.Fatalf("%s is asked twice, or while it rests", p.UID)
				}
				seen[p.UID], asked[p.UID] = true, true
				switch rapid.IntRange(0, 9).Draw(t, "what") {
				case 0:
					r.Lied(p.UID, now)
					resting[p.UID] = now.Add(liedFor)
					delete(missed, p.UID)
				case 1:
					r.Missed(p.UID, 0, now)
					if now.Add(restMin).After(resting[p.UID]) {
						resting[p.UID] = now.Add(restMin)
					}
					missed[p.UID] = true
				default:
					if len(resting) == n { // nobody could be reached: it was this host, and who has missed is asked again
						maps.DeleteFunc(resting, func(uid string, _ time.Time) bool { return missed[uid] })
						clear(missed)
					}
					delete(resting, p.UID)
					delete(missed, p.UID)
					r.Answered(p.UID, rapid.Bool().Draw(t, "news"), now)
				}
			}
			now = now.Add(Pause(random))
		}
		if len(asked) != n {
			t.Fatalf("%d of %d were asked in as many rounds", len(asked), n)
		}
	})
}

// TestRests: who cannot be reached rests twice as long each time, up to a bound; who lies rests for long, and an answer in between changes nothing.
func TestRests(t *testing.T) {
	var r Roster
	r.Set(peers(2)) // of which one answers always
	now := time.Unix(1000, 0)
	asked := func(uid string, at time.Time) bool {
		r.Answered("uid-1", false, at)
		return slices.ContainsFunc(r.Round(at, seeded()), func(p catalog.Peer) bool { return p.UID == uid })
	}
	for i, want := range []time.Duration{restMin, 2 * restMin, 4 * restMin, 8 * restMin, 16 * restMin, restMax, restMax} {
		r.Missed("uid-0", 0, now)
		if asked("uid-0", now.Add(want-1)) {
			t.Errorf("after miss %d it is asked before %s are over", i+1, want)
		}
		if now = now.Add(want); !asked("uid-0", now) {
			t.Errorf("after miss %d it is not asked when %s are over", i+1, want)
		}
	}
	r.Answered("uid-0", true, now)
	r.Missed("uid-0", 0, now)
	if now = now.Add(restMin); !asked("uid-0", now) {
		t.Error("an answer does not end the count")
	}
	r.Lied("uid-0", now)
	r.Answered("uid-0", true, now)
	r.Missed("uid-0", 0, now)
	if asked("uid-0", now.Add(liedFor-1)) || slices.ContainsFunc(r.Sources(now.Add(liedFor-1)), func(p catalog.Peer) bool { return p.UID == "uid-0" }) {
		t.Error("who has lied is asked again")
	}
	if !asked("uid-0", now.Add(liedFor)) {
		t.Error("who has lied is left alone for ever")
	}
	r.Busy("uid-0", 24*time.Hour, now)
	if !asked("uid-0", now.Add(liedFor+restMax)) {
		t.Error("a peer says for how long it is left alone")
	}
}

// TestCutOff: a host that was cut off for hours asks one all the while, and all others as soon as one answers; but not who has lied.
func TestCutOff(t *testing.T) {
	var r Roster
	r.Set(peers(8))
	random, now := seeded(), time.Unix(1000, 0)
	r.Lied("uid-7", now)
	for range 500 {
		round := r.Round(now, random)
		if len(round) == 0 {
			t.Fatal("nobody is asked")
		}
		for _, p := range round {
			if p.UID == "uid-7" && now.Before(time.Unix(1000, 0).Add(liedFor)) {
				t.Fatal("who has lied is asked")
			}
			r.Missed(p.UID, 0, now)
		}
		now = now.Add(Pause(random))
	}
	r.Lied("uid-7", now)
	r.Answered(r.Round(now, random)[0].UID, false, now)
	asked := map[string]bool{}
	for range 8 {
		for _, p := range r.Round(now, random) {
			asked[p.UID] = true
		}
	}
	if len(asked) != 7 || asked["uid-7"] {
		t.Errorf("after one has answered %d are asked, the liar among them: %v", len(asked), asked["uid-7"])
	}
}

// TestLiedLongAgo: one that has lied once and answers again says nothing of others that are dead: they rest on.
func TestLiedLongAgo(t *testing.T) {
	var r Roster
	r.Set(peers(2))
	now := time.Unix(1000, 0)
	r.Lied("uid-1", now)
	now = now.Add(liedFor)
	r.Answered("uid-1", false, now)
	r.Missed("uid-0", 0, now)
	r.Answered("uid-1", false, now)
	if round := r.Round(now.Add(restMin-1), seeded()); len(round) != 1 || round[0].UID != "uid-1" {
		t.Errorf("asked are %v", round)
	}
}

// TestSources: content is asked of who has told of it last.
func TestSources(t *testing.T) {
	var r Roster
	r.Set(peers(6))
	now := time.Unix(1000, 0)
	if len(r.Sources(now)) != 0 {
		t.Error("who has never answered is asked for content")
	}
	for i := range 5 {
		r.Answered(fmt.Sprint("uid-", i), i == 1, now.Add(time.Duration(i)*time.Second))
	}
	r.Lied("uid-4", now.Add(5*time.Second))
	var names []string
	for _, p := range r.Sources(now.Add(10 * time.Second)) {
		names = append(names, p.Name)
	}
	if want := []string{"web-1", "web-3", "web-2"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

// TestSet: a new list keeps what is known of those who stay, also of liars who move.
func TestSet(t *testing.T) {
	var r Roster
	r.Set(peers(3))
	now := time.Unix(1000, 0)
	r.Lied("uid-0", now)
	r.Missed("uid-1", 0, now)
	moved := peers(4)
	moved[0].Address, moved[1].Address = "198.51.100.1:6445", "198.51.100.2:6445"
	r.Set(moved)
	var asked []string
	for range 4 {
		for _, p := range r.Round(now, seeded()) {
			asked = append(asked, p.UID+" "+p.Address)
		}
	}
	slices.Sort(asked)
	if want := []string{"uid-1 198.51.100.2:6445", "uid-2 192.0.2.2:6445", "uid-3 192.0.2.3:6445"}; !slices.Equal(slices.Compact(asked), want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	r.Set(nil)
	if r.Round(now, seeded()) != nil || r.Len() != 0 {
		t.Error("an empty list has somebody to ask")
	}
	if p := Pause(seeded()); p < pauseMin || p > pauseMax {
		t.Errorf("a pause of %s", p)
	}
}
