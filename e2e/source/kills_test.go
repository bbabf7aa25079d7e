package source

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"tako.dev/tako/e2e/rig"
)

// What each commit of TestKilledAtRandom does: it changes those that stay, makes new ones, and leaves out those that the one before has made.
const (
	kills     = 10
	staying   = 200
	passing   = 100
	writesAll = staying + 2*passing
)

// TestKilledAtRandom: a server that is killed at whatever moment of an apply of 300 objects, with deletions among them, comes to what the
// commit says, and to nothing else: every object of it with its content, those that stay being the same ones as ever; none that an
// older commit has left; and what others have made. TAKO_SEED replays a run as far as the machine does.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("TAKO_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("TAKO_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	f := newFleet(t)
	r := newRepository(t, f.repositories, "many")
	f.allow("many", "cluster-admin")
	f.Apply(text("theirs", "1"))
	ids, known := map[string]types.UID{}, false // of those that stay
	middle := 0                                 // kills that were in the middle
	for round := range kills {
		want, files := commitOf(round)
		commit := r.commit(fmt.Sprint("round ", round), files)
		moment := random.IntN(writesAll) // how many writes are done before
		if round == 0 {
			moment = random.IntN(staying + passing) // there is nothing to delete yet
		}
		seen := f.watched()
		f.look("many", spec(r, "main"))
		moment = f.awaitWrites(seen, moment)
		f.Server.Kill()
		f.Server.Start(t)
		before, _ := f.texts()
		done := maps.Equal(before, want)
		t.Logf("round %d: killed after %d writes; then there are %d objects, all done: %v", round, moment, len(before), done)
		if !done && moment > 0 {
			middle++
		}
		s := f.applies("many", commit)
		after, uids := f.texts()
		if int(s.Status.Objects) != len(want) || !maps.Equal(after, want) {
			t.Errorf("round %d, killed after %d writes: it says %d objects; %s", round, moment, s.Status.Objects, difference(after, want))
		}
		for i := range staying {
			name := fmt.Sprintf("stays-%d", i)
			if known && uids[name] != ids[name] {
				t.Errorf("round %d, killed after %d writes: %s was deleted and made anew", round, moment, name)
			}
			ids[name] = uids[name]
		}
		known = true
	}
	f.is("theirs", "1")
	if middle == 0 {
		t.Error("no kill was in the middle: this test no longer sees one")
	}
}

// commitOf is what a round declares: the texts by name, and the files that say so.
func commitOf(round int) (want, files map[string]string) {
	want = map[string]string{}
	var stay, pass strings.Builder
	for i := range staying {
		name, value := fmt.Sprintf("stays-%d", i), fmt.Sprint(round)
		want[name] = value
		stay.WriteString("---\n" + text(name, value))
	}
	for i := range passing {
		name := fmt.Sprintf("round-%d-%d", round, i)
		want[name] = "1"
		pass.WriteString("---\n" + text(name, "1"))
	}
	return want, map[string]string{"stay.yaml": stay.String(), "pass.yaml": pass.String()}
}

// api is a client of the server's, for what the command line is too slow for.
func (f *fleet) api() *kubernetes.Clientset {
	f.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", f.Server.Kubeconfig())
	must(f.T, err)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	must(f.T, err)
	return client
}

// texts are the config maps of prod that the Source has made, with their texts and identities.
func (f *fleet) texts() (all map[string]string, ids map[string]types.UID) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), rig.InTime)
	defer cancel()
	list, err := f.api().CoreV1().ConfigMaps("prod").List(ctx, metav1.ListOptions{})
	must(f.T, err)
	all, ids = map[string]string{}, map[string]types.UID{}
	for i := range list.Items {
		c := &list.Items[i]
		if strings.HasPrefix(c.Name, "stays-") || strings.HasPrefix(c.Name, "round-") {
			all[c.Name], ids[c.Name] = c.Data["text"], c.UID
		}
	}
	return all, ids
}

// watched watches the config maps of prod from now on. The channel gets a value for each write, and is closed when the server is gone.
func (f *fleet) watched() <-chan string {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), rig.InTime)
	var watching sync.WaitGroup
	f.Cleanup(func() {
		cancel()
		watching.Wait()
	})
	client := f.api().CoreV1().ConfigMaps("prod")
	list, err := client.List(ctx, metav1.ListOptions{Limit: 1})
	must(f.T, err)
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	must(f.T, err)
	seen := make(chan string, writesAll)
	watching.Go(func() {
		defer close(seen)
		defer w.Stop()
		for e := range w.ResultChan() {
			what := fmt.Sprintf("the watch is ended by %+v", e.Object)
			if c, ok := e.Object.(*core.ConfigMap); ok {
				what = c.Name
			}
			select {
			case seen <- what:
			case <-ctx.Done():
				return
			}
		}
	})
	return seen
}

// awaitWrites waits until so many writes were seen, and returns how many were: a server that is busy may end a watch, and any moment will do.
func (f *fleet) awaitWrites(seen <-chan string, n int) int {
	f.Helper()
	late := time.NewTimer(rig.InTime)
	defer late.Stop()
	last := ""
	for i := range n {
		select {
		case what, ok := <-seen:
			if !ok {
				f.Logf("the watch has ended after %d of %d writes; the last one: %s", i, n, last)
				f.lives()
				return i
			}
			last = what
		case <-late.C:
			f.Fatalf("only %d of %d writes were seen: %+v", i, n, f.source("many").Status)
		}
	}
	return n
}

// lives checks that the server has not ended by itself.
func (f *fleet) lives() {
	f.Helper()
	select {
	case <-f.Server.Run.Ended:
		f.Fatalf("the server has ended by itself:\n%s", f.Server.Run.Log.Tail())
	default:
	}
}

// difference tells how what is there differs from what should be.
func difference(got, want map[string]string) string {
	var lost, left, other []string
	for name, value := range want {
		if is, ok := got[name]; !ok {
			lost = append(lost, name)
		} else if is != value {
			other = append(other, name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			left = append(left, name)
		}
	}
	return fmt.Sprintf("lost %v, left over %v, of another commit %v", lost, left, other)
}
