package apiserver

import (
	"os"
	collector "runtime/debug"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"tako.dev/tako/internal/reason"
)

// collectAt is how much the heap grows, in percent of what lives, until it is collected: half of Go's own choice. With 10,000
// objects it keeps some 70 MB less, and creates take some percent more of a processor.
const collectAt = 50

// collects says whether when to collect is this package's business: an operator's GOGC stays as it is, and is all there is then.
func collects() bool { return os.Getenv("GOGC") == "" }

// spareMemory sets what the process does with memory while it works; package spare is about when it does not.
//
// The watch cache would keep a copy of its index per change, so that the later pages of a list come from memory. That is a fifth of all
// that lives after many writes, for pages that etcd answers as well.
//
// It would also compare its index with etcd every few minutes, and for that read all objects of all kinds: 10,000 hosts have 20,000. All that comes of it
// without such copies is a line in the log. Package missed compares keys and revisions instead, and puts right what differs.
func spareMemory() error {
	if collects() {
		collector.SetGCPercent(collectAt)
	}
	spared := map[string]bool{string(features.ListFromCacheSnapshot): false, string(features.DetectCacheInconsistency): false}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(spared); err != nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "have the watch cache keep no snapshots, and read nothing again", Cause: err}
	}
	return nil
}
